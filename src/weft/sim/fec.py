"""Forward error correction of PAM4 lines: RS(544,514), which corrects up to 15 of the 544 symbols of a block.

The rate after correction, `bit_error_rate` everywhere in weft, counts blocks that could not be corrected: each is one
error
at the link layer. For a bad cable the symbol error rate before correction follows from that rate. Good cables are too
far
from failing for that, so each gets a raw bit error rate of its own.
(IEEE 802.3 clauses 91 and 119; InfiniBand Architecture volume 2 uses the same code from HDR on.)
"""

from __future__ import annotations

from functools import cache
from math import lgamma

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.fabric.rates import speeds

SYMBOLS, SYMBOL_BITS, CORRECTABLE = 544, 10, 15
BLOCK_BITS = SYMBOLS * SYMBOL_BITS
RAW_BER, RAW_SPREAD = 1e-8, 0.7  # good cables: median, standard deviation in decades


def has_fec(fabric: Fabric) -> NDArray[np.bool_]:
    """Return whether the data that each port receives is error-corrected ([slot])."""
    corrects = np.array([speed.encoding == "PAM4 RS-FEC" for speed in speeds()])
    link = fabric.ports.link
    corrected: NDArray[np.bool_] = (link >= 0) & corrects[fabric.links.speed[link]]
    return corrected


@cache
def _curve() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return log10 of symbol error rates, and log10 of the rates of uncorrectable blocks that follow from them."""
    log_p = np.linspace(-5, -1, 400)
    p = 10.0**log_p
    worse = np.arange(CORRECTABLE + 1, SYMBOLS + 1)
    ways = np.array([lgamma(SYMBOLS + 1) - lgamma(k + 1) - lgamma(SYMBOLS - k + 1) for k in worse.tolist()])
    each = ways[:, None] + worse[:, None] * np.log(p) + (SYMBOLS - worse[:, None]) * np.log1p(-p)
    return log_p, np.logaddexp.reduce(each, axis=0) / np.log(10)


def symbol_error_rate(bit_error_rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the symbol error rate before correction of lines with this bit error rate after it."""
    log_p, log_fails = _curve()
    with np.errstate(divide="ignore"):
        rates: NDArray[np.float64] = 10.0 ** np.interp(np.log10(bit_error_rate * BLOCK_BITS), log_fails, log_p)
    return rates


def raw_rates(bit_error_rate: NDArray[np.float64], worst_good: float, seed: int) -> NDArray[np.float64]:
    """Return the share of symbols with an error before correction ([slot])."""
    decades = np.random.default_rng([seed, 1]).normal(np.log10(RAW_BER), RAW_SPREAD, len(bit_error_rate))
    good = -np.expm1(SYMBOL_BITS * np.log1p(-np.minimum(10.0**decades, 1e-6)))
    return np.where(bit_error_rate > worst_good, symbol_error_rate(bit_error_rate), good)
