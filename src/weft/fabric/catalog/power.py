"""Matrix products of a GPU under a power limit: their clock falls, by far less than the power.

    limited(gpu("H100"), 600).sustained        0.95 of the rate with 86 % of the power

Switching power grows with V² f, and the voltage with the clock, so the rate follows the cube root of the power. The
band holds the published pairs of `gpu_power.toml`. They end at 70 % of the power: lower limits are refused.
"""

from __future__ import annotations

from functools import cache

import msgspec

from weft.fabric.catalog.entries import Gpu
from weft.fabric.rates import Sourced, read_catalog


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rate of a chip at the lower of two powers, relative to that at the higher."""

    what: str
    power_w: tuple[float, float]
    rate: float
    source: str


class PowerLaw(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The exponents of the rate, and the least share of the power for which they hold."""

    exponent: float
    shallow: float
    steep: float
    least: float
    measured: tuple[Pair, ...]


@cache
def power_law() -> PowerLaw:
    return msgspec.convert(read_catalog("gpu_power.toml"), PowerLaw)


def limited(gpu: Gpu, limit_w: float) -> Gpu:
    """Return a GPU whose products are those under a power limit."""
    rate = (limit_w / gpu.power_w) ** power_law().exponent
    return msgspec.structs.replace(gpu, power_w=limit_w, sustained=gpu.sustained * rate)


def rate_band(limit_w: float, power_w: float) -> tuple[float, float]:
    """Return the ends of the band of the rate under a limit, relative to the rate of `limited`."""
    law, share = power_law(), limit_w / power_w
    return share ** (law.steep - law.exponent), share ** (law.shallow - law.exponent)
