"""Version numbers of UFM's collections: a client reads a collection again if its number has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Mapping


class Versions:
    """A version number for each collection. It grows with each change and over restarts, since it is a time."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Hashable, int]] = {}
        self._lock = threading.Lock()

    def numbers(self, contents: Mapping[str, Hashable]) -> dict[str, int]:
        """Return the version of each collection. `contents`: values that change with the collections, by name."""
        with self._lock:
            for name, content in contents.items():
                before, number = self._seen.get(name, (None, 0))
                if name not in self._seen or before != content:
                    self._seen[name] = content, max(number + 1, int(time.time()))
            return {name: self._seen[name][1] for name in contents}
