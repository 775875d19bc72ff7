"""The subnet as it is now, in UFM's words: asked for again when its manager says that it has changed."""

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
_ANSWERS = 32  # of a picture, that are kept as bytes
_LARGE_BYTES = 1 << 16  # smaller ones are made again: there are as many as systems


class Watch:
    """Without a manager of weft's the subnet is walked, which takes longer; without both, `elsewhere` is who knows."""

    def __init__(
        self, manager: ManagerSocket | None, walk: Callable[[], Subnet] | None = None, elsewhere: str = "this service"
    ) -> None:
        self._manager, self._walk, self._elsewhere = manager, walk, elsewhere
        self._fresh_s = _FRESH_S if walk is None else _WALKED_S
        self._seen: tuple[Picture, dict[Hashable, bytes]] | None = None  # and answers that were made of it
        self._at_s = -_WALKED_S
        self._looking = threading.Lock()

    def picture(self) -> Picture:
        return self._now()[0]

    def answer(self, key: Hashable, make: Callable[[Picture], Any]) -> bytes:
        """JSON of what is made of the picture; of the same picture a long one is made once."""
        picture, answers = self._now()
        found = answers.get(key)
        if found is None:
            found = msgspec.json.encode(make(picture))
            if len(answers) < _ANSWERS and len(found) >= _LARGE_BYTES:
                answers[key] = found
        return found

    def _now(self) -> tuple[Picture, dict[Hashable, bytes]]:
        """As new as the manager's last sweep half a second ago; a walk, five. While one looks, others go on."""
        if self._manager is None and self._walk is None:
            raise NotFoundError(f"ports, systems and links are not known here, partitions are: ask {self._elsewhere}")
        if time.monotonic() - self._at_s >= self._fresh_s and self._looking.acquire(blocking=self._seen is None):
            try:
                if time.monotonic() - self._at_s >= self._fresh_s:
                    self._look()
            finally:
                self._looking.release()
        assert self._seen is not None
        return self._seen

    def _look(self) -> None:
        found = self._changed("" if self._seen is None else self._seen[0].revision)
        if found is not None:
            self._seen = Picture(found), {}
        self._at_s = time.monotonic()

    def _changed(self, revision: str) -> Subnet | None:
        """None if it is still that one."""
        if self._walk is not None:
            found = self._walk()
            return None if found.revision == revision else found
        assert self._manager is not None
        return None if self._manager.status().subnet_revision == revision else self._manager.subnet()
