"""Forward error correction of lines with PAM4: RS(544,514), which mends up to 15 of the 544 symbols of a block.

What is left after it, `bit_error_rate` everywhere in weft, is blocks that it could not mend: one of them is one error
that the link layer sees. How many symbols err before it follows from that for a cable that is bad; cables that are good
are so far from failing that nothing follows, and each has a raw bit error rate of its own.
(IEEE 802.3 clause 91 and 119; InfiniBand Architecture volume 2 from HDR on has the same code.)
"""

from __future__ import annotations

from functools import cache
from math import lgamma

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.fabric.rates import speeds

SYMBOLS, SYMBOL_BITS, MENDS = 544, 10, 15
BLOCK_BITS = SYMBOLS * SYMBOL_BITS
RAW_BER, RAW_SPREAD = 1e-8, 0.7  # of good cables: median, decades


def has_fec(fabric: Fabric) -> NDArray[np.bool_]:
    """[slot] -> is what it receives corrected?"""
    corrects = np.array([speed.encoding == "PAM4 RS-FEC" for speed in speeds()])
    link = fabric.ports.link
    found: NDArray[np.bool_] = (link >= 0) & corrects[fabric.links.speed[link]]
    return found


@cache
def _curve() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """log10 of the rate at which symbols err, and of that at which blocks then cannot be mended."""
    log_p = np.linspace(-5, -1, 400)
    p = 10.0**log_p
    worse = np.arange(MENDS + 1, SYMBOLS + 1)
    ways = np.array([lgamma(SYMBOLS + 1) - lgamma(k + 1) - lgamma(SYMBOLS - k + 1) for k in worse.tolist()])
    each = ways[:, None] + worse[:, None] * np.log(p) + (SYMBOLS - worse[:, None]) * np.log1p(-p)
    return log_p, np.logaddexp.reduce(each, axis=0) / np.log(10)


def symbol_error_rate(bit_error_rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Before correction, of lines that have this rate after it."""
    log_p, log_fails = _curve()
    with np.errstate(divide="ignore"):
        rates: NDArray[np.float64] = 10.0 ** np.interp(np.log10(bit_error_rate * BLOCK_BITS), log_fails, log_p)
    return rates


def raw_rates(bit_error_rate: NDArray[np.float64], worst_good: float, seed: int) -> NDArray[np.float64]:
    """[slot] -> part of the symbols that err before correction."""
    decades = np.random.default_rng([seed, 1]).normal(np.log10(RAW_BER), RAW_SPREAD, len(bit_error_rate))
    good = -np.expm1(SYMBOL_BITS * np.log1p(-np.minimum(10.0**decades, 1e-6)))
    return np.where(bit_error_rate > worst_good, symbol_error_rate(bit_error_rate), good)
