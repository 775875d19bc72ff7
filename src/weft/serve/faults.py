"""Trouble on request: calls that take long, or are answered with an error, so that clients can be tested against it.

    faults.add(path="/ufmRest*/resources/pkeys*", method="POST", status=503, latency_s=10, times=2)

The first fault that fits a call and is not used up is applied: after its latency the call goes on, or gets the status
and never reaches the service. Faults themselves, and the health of the service, are out of their reach.
"""

from __future__ import annotations

import fnmatch
import itertools
import threading
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from typing import Any

from weft.errors import ConfigError, UnknownName

_LONGEST_S = 600.0
_MOST = 1000
_SPARED = ("/api/v1/faults", "/healthz")
_STATUSES = frozenset(status.value for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST)
_METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    path: str = "*"  # with * and ? as in a shell
    method: str | None = None  # None: any
    status: int | None = None  # None: it is answered as ever
    latency_s: float = 0.0
    times: int | None = None  # None: until it is taken away

    def __post_init__(self) -> None:
        if self.method is not None and self.method not in _METHODS:
            raise UnknownName("method", self.method, _METHODS)
        if self.status is not None and self.status not in _STATUSES:
            raise ConfigError(f"the status {self.status} of a fault is refused: it must be an error of HTTP, 503 say")
        if not 0 <= self.latency_s <= _LONGEST_S:
            raise ConfigError(f"the latency {self.latency_s:g} s of a fault is refused: it must be from 0 to 600 s")
        if self.times is not None and self.times < 1:
            raise ConfigError(f"a fault of {self.times} times is refused: it must be at least once")
        if self.status is None and not self.latency_s:
            raise ConfigError("a fault needs a status, a latency_s, or both")

    def fits(self, method: str, path: str) -> bool:
        return self.method in (None, method) and fnmatch.fnmatchcase(path, self.path)


class Faults:
    """Asked at each call, by any thread."""

    def __init__(self) -> None:
        self._faults: dict[int, Fault] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> int:
        with self._lock:
            if len(self._faults) >= _MOST:
                raise ConfigError(f"there are {_MOST:,} faults already: take some away first")
            number = next(self._numbers)
            self._faults[number] = fault
            return number

    def clear(self, number: int | None = None) -> None:
        """One, or all of them."""
        with self._lock:
            if number is None:
                self._faults.clear()
            elif self._faults.pop(number, None) is None:
                raise UnknownName("fault", str(number), map(str, self._faults))

    def shown(self) -> list[dict[str, Any]]:
        with self._lock:
            return [{"id": number, **asdict(fault)} for number, fault in self._faults.items()]

    def strike(self, method: str, path: str) -> Fault | None:
        """What is wrong with this call; it counts."""
        if not self._faults or path.startswith(_SPARED):
            return None
        with self._lock:
            for number, fault in self._faults.items():
                if fault.fits(method, path):
                    if fault.times == 1:
                        del self._faults[number]
                    elif fault.times is not None:
                        self._faults[number] = replace(fault, times=fault.times - 1)
                    return fault
        return None
