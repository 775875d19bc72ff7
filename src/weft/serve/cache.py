"""A bounded cache of values that are computed from objects of the service."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class ObjectCache(Generic[T]):
    """A cache by name; a value is computed again if one of its objects was replaced. The oldest value is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[Hashable, tuple[tuple[object, ...], T]] = {}
        self._lock = threading.Lock()

    def get(self, name: Hashable, objects: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return the value of `make` for the same objects, computed once."""
        last = self._values.get(name)
        if last is not None and all(old is new for old, new in zip(last[0], objects, strict=True)):
            return last[1]
        value = make()
        with self._lock:
            if name not in self._values and len(self._values) >= self._most:
                del self._values[next(iter(self._values))]
            self._values[name] = objects, value
        return value

    def __len__(self) -> int:
        return len(self._values)
