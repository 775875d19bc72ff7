"""Rate limits and concurrency limits of requests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

_MOST_COUNTED = 10_000  # callers; the least recently used is dropped


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


class Rates:
    """A token bucket for each caller: `per_s` requests per second, bursts of twice as many."""

    def __init__(self, per_s: float) -> None:
        self._per_s, self._most = per_s, max(2 * per_s, 1.0)
        self._buckets: dict[Hashable, _Bucket] = {}  # least recently used first

    def spend(self, caller: Hashable, cost: float = 1.0) -> float:
        """Return 0 and take `cost`, at most 1, from the caller's bucket, or seconds until it holds 1 again."""
        now_s = time.monotonic()
        bucket = self._buckets.pop(caller, None)
        if bucket is None:
            if len(self._buckets) >= _MOST_COUNTED:
                del self._buckets[next(iter(self._buckets))]
            bucket = _Bucket(self._most, now_s)
        self._buckets[caller] = bucket
        bucket.left = min(self._most, bucket.left + (now_s - bucket.at_s) * self._per_s)
        bucket.at_s = now_s
        if bucket.left < 1.0:
            return (1.0 - bucket.left) / self._per_s
        bucket.left -= cost
        return 0.0


class Load:
    """The running requests and the bytes of their bodies, by caller."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._requests: Counter[Hashable] = Counter()
        self._bytes: Counter[Hashable] = Counter()

    def begin(self, caller: Hashable) -> bool:
        """Count a request, unless the caller has too many."""
        if self._requests[caller] >= self._most:
            return False
        self._requests[caller] += 1
        return True

    def hold(self, caller: Hashable, size_bytes: int) -> bool:
        """Count bytes of a body; return whether the caller is within its limit."""
        self._bytes[caller] += size_bytes
        return self._bytes[caller] <= self._most_bytes

    def end(self, caller: Hashable, held_bytes: int) -> None:
        self._requests[caller] -= 1
        self._bytes[caller] -= held_bytes
        if not self._requests[caller]:
            del self._requests[caller], self._bytes[caller]
