"""Fused kernels for dispatch and combine, read from `kernels.toml`, which explains the fields."""

from __future__ import annotations

from functools import cache

import msgspec

from weft.collectives.experts.routing import CopyPer
from weft.errors import find_named
from weft.fabric.rates import Sourced, read_data

PAIRS = "pairs"  # NCCL's all_to_all instead of a fused kernel


class Kernel(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A library's pair of kernels."""

    name: str
    title: str
    copy_per: CopyPer
    inside: float
    start_us: float
    floor_us: tuple[float, float] = (0.0, 0.0)
    serial: tuple[float, float] = (0.0, 0.0)
    sms: int = 0
    sm_share: float = 1.0
    servers: bool = True
    fitted: tuple[str, ...] = ()


@cache
def kernels() -> dict[str, Kernel]:
    tables = read_data("weft.collectives.experts", "kernels.toml")
    return {name: msgspec.convert({**table, "name": name}, Kernel) for name, table in tables.items()}


def find_kernel(name: str) -> Kernel:
    return find_named("kernel", name, kernels(), f"Or {PAIRS}: NCCL's all_to_all.")
