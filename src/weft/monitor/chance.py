"""Test whether counts are random: Poisson statistics against the fabric's background and published limits.

On a good link, errors are independent events at a low rate. A count is significant if it would be very unlikely on a
link at the background rate of this fabric, or at a published limit if that is higher. With Bonferroni correction over
`tests` counts, at most one healthy fabric in a hundred shows any significant count.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from math import lgamma, log

import msgspec
import numpy as np
from numpy.typing import NDArray

FAMILY_WISE = 0.01  # share of healthy fabrics with a false alarm
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_log_factorial = np.vectorize(lambda n: lgamma(n + 1.0), otypes=[float])


def log10_tail(counts: Ints, mean: Floats) -> Floats:
    """Return log10 of an upper bound on the probability of these counts or more, where `mean` is expected.

    The bound is p(n) (n + 1) / (n + 1 - mean) (Glynn, "Upper bounds on Poisson tail probabilities", 1987).
    """
    tail = np.zeros(len(counts))
    some = np.flatnonzero((counts > mean) & (mean > 0))
    n, m = counts[some].astype(np.float64), mean[some]
    tail[some] = (n * np.log(m) - m - _log_factorial(n) + np.log((n + 1) / (n + 1 - m))) / log(10) if len(some) else 0.0
    return np.minimum(tail, 0.0)


def is_chance(log10: Floats, tests: int) -> NDArray[np.bool_]:
    """Return which counts could be random, after Bonferroni correction over `tests`."""
    chance: NDArray[np.bool_] = log10 + np.log10(max(tests, 1)) > np.log10(FAMILY_WISE)
    return chance


def background(counts: Ints, exposure: Floats, least: float | Floats) -> float:
    """Return the error rate of a fabric without its outliers, robust up to half of the links being outliers.

    Start with the better half of the links, and repeatedly add all that could be random at the rate of those inside.
    """
    observed = np.flatnonzero(exposure > 0)
    if not len(observed):
        return 0.0
    counts, exposure, least = counts[observed], exposure[observed], np.broadcast_to(least, len(exposure))[observed]
    inside = np.zeros(len(observed), bool)
    inside[np.argsort(counts / exposure, kind="stable")[: (len(observed) + 1) // 2]] = True
    while True:
        rate = float(counts[inside].sum() / exposure[inside].sum())
        more = inside | is_chance(log10_tail(counts, exposure * np.maximum(rate, least)), len(observed))
        if np.array_equal(more, inside):
            return rate
        inside = more


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published limit with a short name and its source."""

    limit: float
    name: str
    source: str
    seconds: float = 0.0  # shortest observation that it applies to
    least: int = 0


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    symbol_ber: tuple[Limit, ...]
    flaps_of_cable: Limit  # in a day
    flaps_of_host: Limit
    wait_share: Limit
    remote_physical: Limit
    relay: Limit
    at_once: Limit

    def ber_of(self, seconds: float) -> Limit:
        """Return the strictest limit on the bit error rate that applies to an observation of this length."""
        return [limit for limit in self.symbol_ber if limit.seconds <= seconds][-1]


@cache
def thresholds() -> Thresholds:
    return msgspec.toml.decode((files("weft.monitor") / "thresholds.toml").read_bytes(), type=Thresholds)
