"""RCCL's own constants (`catalog/rccl.toml`), and the fitted ones of its times (`rccl_times.toml`)."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from weft.errors import find_named
from weft.fabric.rates import Sourced, read_catalog, read_data

ByProtocol = tuple[float, float, float]  # LL, LL128, Simple


class Model(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The constants that all architectures share."""

    version: str
    base_us: ByProtocol
    overhead_us: float
    ll128_factor_more: float
    msccl_gpus: int


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tuning model of an architecture; rccl.toml explains the fields."""

    inside_us: dict[str, ByProtocol]
    network_us: dict[str, ByProtocol]
    ratio_two: dict[str, ByProtocol]
    ratio_more: dict[str, ByProtocol]
    tree: dict[str, tuple[float, ...]]
    ring: dict[str, tuple[float, ...]]
    channels: tuple[int, int]
    ll: dict[str, tuple[int, int]] = {}
    ll128: dict[str, tuple[int, int]] = {}
    ll_one_node: dict[str, int] = {}
    all_pairs: tuple[tuple[str, int, int, int], ...] = ()


class Times(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Times and rates that were fitted to published runs; rccl_times.toml explains the fields."""

    launch_us: float
    ll_step_us: float
    simple_step_us: float
    pairs_simple_us: float
    pairs_channel_gbyte_s: float
    crossing_us: float
    simple_crossing_us: float
    ll128_gbyte_s: float
    link_gbyte_s: dict[str, float]
    adapter: float
    without: dict[str, float]  # values without the runs that show them


@cache
def model() -> Model:
    """Return the constants that all architectures share."""
    return msgspec.convert(read_catalog("rccl.toml")["model"], Model)


@cache
def _architectures() -> dict[str, Architecture]:
    tables: dict[str, Any] = read_catalog("rccl.toml")["arch"]
    return msgspec.convert(tables, dict[str, Architecture])


def architecture(gcn: str) -> Architecture:
    """Return the tuning model of an architecture, `gfx942`."""
    return find_named("GPU architecture of RCCL", gcn, _architectures(), "rccl.toml has them")


@cache
def times() -> Times:
    """Return the fitted constants."""
    return msgspec.convert(read_data("weft.collectives.nccl.rccl", "rccl_times.toml")["times"], Times)
