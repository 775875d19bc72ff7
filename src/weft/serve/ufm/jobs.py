"""Jobs and events, as UFM counts them. What is asked is done when it is answered, so a job is over from its beginning.

The last ones are kept, in memory: a client that asks for one of before a restart is told that there is none, and asks
for its work again.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from typing import Any

from weft.errors import UnknownName

_KEPT = 1000
_COMPLETED = "Completed"


class Journal:
    """Things with a number of their own, the last of them kept."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._kept: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def add(self, words: dict[str, Any]) -> int:
        with self._lock:
            number = next(self._numbers)
            self._kept[number] = words
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return number

    def find(self, number: str) -> tuple[int, dict[str, Any]]:
        with self._lock:
            is_number = number.isascii() and number.isdecimal() and len(number) < 20
            found = self._kept.get(int(number)) if is_number else None
            if found is None:
                raise UnknownName(self._what, number[:40], [])
            return int(number), found

    def remove(self, number: str) -> None:
        found, _ = self.find(number)
        with self._lock:
            self._kept.pop(found, None)

    def all(self) -> list[tuple[int, dict[str, Any]]]:
        with self._lock:
            return list(self._kept.items())


def new_job(operation: str, objects: list[str], summary: str) -> dict[str, Any]:
    now = stamp()
    return {
        "Status": _COMPLETED,
        "Operation": operation,
        "RelatedObjects": objects,
        "Summary": summary,
        "Progress": 100,
        "CreationTime": now,
        "LastUpdated": now,
    }


def job(number: int, words: dict[str, Any]) -> dict[str, Any]:
    return {"ID": str(number), **words}


def event(number: int, words: dict[str, Any]) -> dict[str, Any]:
    return {"id": number, **words}


def stamp(at_s: float | None = None) -> str:
    """Write a time, in seconds since 1970, as UFM does; now if none is given."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s))
