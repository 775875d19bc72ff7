"""Versions of UFM's collections: a client reads a collection again when its number has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Mapping


class Versions:
    """A number for each collection. It grows with every change, also over restarts of the service: it is a time."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Hashable, int]] = {}
        self._lock = threading.Lock()

    def numbers(self, contents: Mapping[str, Hashable]) -> dict[str, int]:
        """Return the version of each collection, by its name and anything that differs when its content does."""
        with self._lock:
            for name, content in contents.items():
                before, number = self._seen.get(name, (None, 0))
                if name not in self._seen or before != content:
                    self._seen[name] = content, max(number + 1, int(time.time()))
            return {name: self._seen[name][1] for name in contents}
