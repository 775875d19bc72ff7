"""The current subnet as UFM describes it, read again when its subnet manager reports a change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from weft.serve.desired import NotFoundError
from weft.serve.ufm.shapes import Picture
from weft.sm.control import ManagerSocket
from weft.sm.inventory import Subnet

_FRESH_S = 0.5
_WALKED_S = 5.0
_ANSWERS = 32  # most cached answers of a picture
_LARGE_BYTES = 1 << 16  # smaller answers are not cached: there may be very many


class Watch:
    """A source of the current subnet: weft's subnet manager, or a discovery of the subnet, which is slower.

    Without both, `elsewhere` names the service that knows the subnet.
    """

    def __init__(
        self, manager: ManagerSocket | None, walk: Callable[[], Subnet] | None = None, elsewhere: str = "this service"
    ) -> None:
        self._manager, self._walk, self._elsewhere = manager, walk, elsewhere
        self._fresh_s = _FRESH_S if walk is None else _WALKED_S
        self._latest: tuple[Picture, dict[Hashable, bytes]] | None = None  # and its cached answers
        self._at_s = -_WALKED_S
        self._lock = threading.Lock()

    def picture(self) -> Picture:
        return self._now()[0]

    def answer(self, key: Hashable, make: Callable[[Picture], Any]) -> bytes:
        """Return the JSON of an answer; large answers are cached until the subnet changes."""
        picture, answers = self._now()
        body = answers.get(key)
        if body is None:
            body = msgspec.json.encode(make(picture))
            if len(answers) < _ANSWERS and len(body) >= _LARGE_BYTES:
                answers[key] = body
        return body

    def _now(self) -> tuple[Picture, dict[Hashable, bytes]]:
        """Return the picture, at most 0.5 s old (5 s if discovered). Other threads use the old one during an update."""
        if self._manager is None and self._walk is None:
            raise NotFoundError(
                f"only partitions are available here; for ports, systems and links ask {self._elsewhere}"
            )
        if time.monotonic() - self._at_s >= self._fresh_s and self._lock.acquire(blocking=self._latest is None):
            try:
                if time.monotonic() - self._at_s >= self._fresh_s:
                    self._update()
            finally:
                self._lock.release()
        assert self._latest is not None
        return self._latest

    def _update(self) -> None:
        subnet = self._changed("" if self._latest is None else self._latest[0].revision)
        if subnet is not None:
            self._latest = Picture(subnet), {}
        self._at_s = time.monotonic()

    def _changed(self, revision: str) -> Subnet | None:
        """Return the subnet, or None if it still has this revision."""
        if self._walk is not None:
            subnet = self._walk()
            return None if subnet.revision == revision else subnet
        assert self._manager is not None
        return None if self._manager.status().subnet_revision == revision else self._manager.subnet()
