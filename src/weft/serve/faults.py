"""Injected faults: slow or failing calls, for tests of clients.

    faults.add(path="/ufmRest*/resources/pkeys*", method="POST", status=503, latency_s=10, times=2)

The first matching fault that is not used up applies: after its latency the call continues, or gets the status without
reaching the service. The routes of faults and of the health check are exempt.
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
_EXEMPT = ("/api/v1/faults", "/healthz")
_STATUSES = frozenset(status.value for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST)
_METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault to inject."""

    path: str = "*"  # with * and ? as in a shell
    method: str | None = None  # None: any
    status: int | None = None  # None: the call is answered normally
    latency_s: float = 0.0
    times: int | None = None  # None: until it is removed

    def __post_init__(self) -> None:
        if self.method is not None and self.method not in _METHODS:
            raise UnknownName("method", self.method, _METHODS)
        if self.status is not None and self.status not in _STATUSES:
            raise ConfigError(f"the status of a fault must be an HTTP error such as 503, got {self.status}")
        if not 0 <= self.latency_s <= _LONGEST_S:
            raise ConfigError(f"the latency_s of a fault must be from 0 to 600, got {self.latency_s:g}")
        if self.times is not None and self.times < 1:
            raise ConfigError(f"the times of a fault must be at least 1, got {self.times}")
        if self.status is None and not self.latency_s:
            raise ConfigError("a fault needs a status, a latency_s, or both")

    def fits(self, method: str, path: str) -> bool:
        return self.method in (None, method) and fnmatch.fnmatchcase(path, self.path)


class Faults:
    """The active faults. Any thread may use them."""

    def __init__(self) -> None:
        self._faults: dict[int, Fault] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> int:
        with self._lock:
            if len(self._faults) >= _MOST:
                raise ConfigError(f"there are {_MOST:,} faults already: remove some first")
            number = next(self._numbers)
            self._faults[number] = fault
            return number

    def clear(self, number: int | None = None) -> None:
        """Remove one fault, or all."""
        with self._lock:
            if number is None:
                self._faults.clear()
            elif self._faults.pop(number, None) is None:
                raise UnknownName("fault", str(number), map(str, self._faults))

    def listed(self) -> list[dict[str, Any]]:
        with self._lock:
            return [{"id": number, **asdict(fault)} for number, fault in self._faults.items()]

    def match(self, method: str, path: str) -> Fault | None:
        """Return the fault for a call, if there is one, and count its use."""
        if not self._faults or path.startswith(_EXEMPT):
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
