"""Jobs and events with UFM's numbers. A request is complete when it is answered, so its job is complete from the start.

The latest ones are kept in memory: after a restart, clients that ask for an older one get an error and repeat their
request.
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
    """A list of numbered entries, of which the latest are kept."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._entries: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def add(self, fields: dict[str, Any]) -> int:
        with self._lock:
            number = next(self._numbers)
            self._entries[number] = fields
            if len(self._entries) > _KEPT:
                self._entries.popitem(last=False)
            return number

    def find(self, number: str) -> tuple[int, dict[str, Any]]:
        with self._lock:
            is_number = number.isascii() and number.isdecimal() and len(number) < 20
            entry = self._entries.get(int(number)) if is_number else None
            if entry is None:
                raise UnknownName(self._kind, number[:40], [])
            return int(number), entry

    def remove(self, number: str) -> None:
        key, _ = self.find(number)
        with self._lock:
            self._entries.pop(key, None)

    def all(self) -> list[tuple[int, dict[str, Any]]]:
        with self._lock:
            return list(self._entries.items())


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


def job(number: int, fields: dict[str, Any]) -> dict[str, Any]:
    return {"ID": str(number), **fields}


def event(number: int, fields: dict[str, Any]) -> dict[str, Any]:
    return {"id": number, **fields}


def stamp(at_s: float | None = None) -> str:
    """Format a time (seconds since 1970, default now) as UFM does."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s))
