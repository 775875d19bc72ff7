"""The subnet as it is now, in UFM's words: asked for again when its manager says that it has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from weft.serve.desired import Absent
from weft.serve.ufm.shapes import Picture
from weft.sm.control import ManagerSocket

_FRESH_S = 0.5
_ANSWERS = 32  # of a picture, that are kept as bytes
_LARGE_BYTES = 1 << 16  # smaller ones are made again: there are as many as systems


class Watch:
    def __init__(self, manager: ManagerSocket | None) -> None:
        self._manager = manager
        self._seen: tuple[Picture, dict[Hashable, bytes]] | None = None  # and answers that were made of it
        self._at_s = -_FRESH_S
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
        """At most half a second old, and as new as the manager's last sweep. While one looks, others go on."""
        if self._manager is None:
            raise Absent("ports and systems are not known here: they come from weft's subnet manager")
        if time.monotonic() - self._at_s >= _FRESH_S and self._looking.acquire(blocking=self._seen is None):
            try:
                if time.monotonic() - self._at_s >= _FRESH_S:
                    self._look(self._manager)
            finally:
                self._looking.release()
        assert self._seen is not None
        return self._seen

    def _look(self, manager: ManagerSocket) -> None:
        if self._seen is None or manager.status().subnet_revision != self._seen[0].revision:
            self._seen = Picture(manager.subnet()), {}
        self._at_s = time.monotonic()
