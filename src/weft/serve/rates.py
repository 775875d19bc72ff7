"""Limits of requests: by time, and of those at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

_MOST_COUNTED = 10_000  # callers; the one that was away longest is forgotten


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


class Rates:
    """Token buckets: so many requests a second of each caller, twice as many at once."""

    def __init__(self, per_s: float) -> None:
        self._per_s, self._most = per_s, max(2 * per_s, 1.0)
        self._buckets: dict[Hashable, _Bucket] = {}  # the one that was used last is last

    def spend(self, who: Hashable, cost: float = 1.0) -> float:
        """Return 0 and take `cost` from the caller's bucket, or seconds until it holds 1 again."""
        now_s = time.monotonic()
        bucket = self._buckets.pop(who, None)
        if bucket is None:
            if len(self._buckets) >= _MOST_COUNTED:
                del self._buckets[next(iter(self._buckets))]
            bucket = _Bucket(self._most, now_s)
        self._buckets[who] = bucket
        bucket.left = min(self._most, bucket.left + (now_s - bucket.at_s) * self._per_s)
        bucket.at_s = now_s
        if bucket.left < max(cost, 1.0):
            return (1.0 - bucket.left) / self._per_s
        bucket.left -= cost
        return 0.0


class Load:
    """Requests that are being served, and the bytes of their bodies, by caller."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._requests: Counter[Hashable] = Counter()
        self._bytes: Counter[Hashable] = Counter()

    def begin(self, who: Hashable) -> bool:
        """Count a request, unless the caller has too many."""
        if self._requests[who] >= self._most:
            return False
        self._requests[who] += 1
        return True

    def hold(self, who: Hashable, size_bytes: int) -> bool:
        """Count bytes of a body, and return whether the caller may have them."""
        self._bytes[who] += size_bytes
        return self._bytes[who] <= self._most_bytes

    def end(self, who: Hashable, held_bytes: int) -> None:
        self._requests[who] -= 1
        self._bytes[who] -= held_bytes
        if not self._requests[who]:
            del self._requests[who], self._bytes[who]
