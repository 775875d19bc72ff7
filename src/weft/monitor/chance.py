"""Is a count chance? Poisson's law, against the fabric's own background and what is published; nothing to tune.

Errors of a good link come one by one, so many in so many bits. A port stands out if what it counted would hardly be
seen in a fabric whose links are all as good as the others of this one, at worst as bad as a published limit allows. Of
`tests` counts together at most one in a hundred fabrics shows such by chance (Bonferroni).
"""

from __future__ import annotations

from math import lgamma, log

import numpy as np
from numpy.typing import NDArray

FAMILY_WISE = 0.01  # how often a healthy fabric may be called ill
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_log_factorial = np.vectorize(lambda n: lgamma(n + 1.0), otypes=[float])


def log10_tail(counts: Ints, mean: Floats) -> Floats:
    """log10 of the chance to count that much or more where `mean` is expected; at worst too near 0.

    By p(n) (n + 1) / (n + 1 - mean), which is never below the tail (Glynn, "Upper bounds on Poisson tail
    probabilities", 1987).
    """
    tail = np.zeros(len(counts))
    some = np.flatnonzero((counts > mean) & (mean > 0))
    n, m = counts[some].astype(np.float64), mean[some]
    tail[some] = (n * np.log(m) - m - _log_factorial(n) + np.log((n + 1) / (n + 1 - m))) / log(10) if len(some) else 0.0
    return np.minimum(tail, 0.0)


def is_chance(log10: Floats, tests: int) -> NDArray[np.bool_]:
    """May these be chance, as the rarest of so many?"""
    chance: NDArray[np.bool_] = log10 + np.log10(max(tests, 1)) > np.log10(FAMILY_WISE)
    return chance


def background(counts: Ints, exposure: Floats, least: float | Floats) -> float:
    """How often the links of a fabric err, without those that stand out: less than half of them change nothing.

    It starts from the better half and takes in, time and again, all that may be chance beside those within.
    """
    seen = np.flatnonzero(exposure > 0)
    if not len(seen):
        return 0.0
    counts, exposure, least = counts[seen], exposure[seen], np.broadcast_to(least, len(exposure))[seen]
    inside = np.zeros(len(seen), bool)
    inside[np.argsort(counts / exposure, kind="stable")[: (len(seen) + 1) // 2]] = True
    while True:
        rate = float(counts[inside].sum() / exposure[inside].sum())
        more = inside | is_chance(log10_tail(counts, exposure * np.maximum(rate, least)), len(seen))
        if np.array_equal(more, inside):
            return rate
        inside = more
