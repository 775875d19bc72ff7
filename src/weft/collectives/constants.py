"""The constants of NCCL's tuning model: `catalog/nccl.toml`, read. The fields are explained there."""

from __future__ import annotations

import datetime
import re
from functools import cache
from typing import Any

import msgspec

from weft.collectives.kinds import Algorithm, Protocol
from weft.errors import ConfigError
from weft.fabric.rates import read_catalog

Three = tuple[float, float, float]


class Latencies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """By algorithm, then [LL, LL128, Simple]."""

    base: dict[Algorithm, Three]
    nvlink: dict[Algorithm, Three]
    pcie: dict[Algorithm, Three]
    network: dict[Algorithm, Three]


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    network_post_us: float
    network_post_amd_us: float
    simple_posts: int
    collnet_arity_us: float
    pat_us: float
    pat_overlap: float
    ring_plateau: float
    ring_plateau_before_ampere: float
    ring_plateau_bytes: int


class Generation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What GPUs of a generation can do; a list of three is [1 node, 2 nodes, more]."""

    sm: int
    ll_gbyte_s: Three
    ring_ll128_channel_gbyte_s: Three
    tree_ll128_channel_gbyte_s: Three
    tree_channel_gbyte_s: Three
    nvls_tree_channel_gbyte_s: Three
    nvls: float
    nvlinks: int
    nvlink_gbyte_s: float
    pcie: int
    one_node: tuple[float, ...]
    network: tuple[float, ...]


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    again: float
    cut_gbyte_s: float
    cut_hopper_gbyte_s: float
    cut_hopper_channels: int
    many_gbyte_s: float
    many_channels: int


class Factors(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    ring_ll: float
    ring_ll128: float
    tree: float
    tree_ll: float
    tree_ll128_one_node: float
    tree_ll128: float
    simple_tree: float
    pat: float
    collnet_direct_hopper: float
    collnet_gather: float


class Threads(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    ll: int
    ll128: int
    simple: int
    most: int
    slow_ring: int
    slow_ring_gbyte_s: float
    warp: int
    bytes_ll: int
    bytes_ll128: int
    bytes_simple: int
    bytes_collnet: int


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    channels: int
    collnet_gpus: int
    nvls_gpus: int
    collnet_nodes: int
    nvls_channels: int
    nvls_channels_blackwell: int
    nvls_channels_blackwell_network: int
    nvls_fast_gbyte_s: float


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What NCCL has not always done."""

    nvls_bus: bool
    nvls_gather: bool
    nvls_corrected: bool
    nvls_tree_tuned: bool
    channels_with_nvls: bool
    blackwell: bool


class Constants(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    version: str
    source: str
    date: datetime.date
    latency_us: Latencies
    step: Step
    generation: dict[str, Generation]
    search: Search
    factor: Factors
    tree_correction: dict[Protocol, tuple[float, ...]]
    threads: Threads
    limits: Limits
    rules: Rules

    def of_sm(self, sm: int) -> Generation:
        """The newest generation that a GPU of this compute capability belongs to."""
        return max((one for one in self.generation.values() if one.sm <= sm), key=lambda one: one.sm)


@cache
def constants(version: str = "") -> Constants:
    """Of the newest NCCL that weft knows, or of an older one: `2.28`, `2.28.3`."""
    tables = read_catalog("nccl.toml")
    older = tables.pop("older")
    asked = _minor(version or tables["version"])
    known = [_minor(tables["version"]), *map(_minor, older)]
    if asked not in known:
        names = ", ".join(f"{major}.{minor}" for major, minor in sorted(known))
        raise ConfigError(f"NCCL {version}: weft has read the code of {names}. Take the nearest of them")
    for name, changes in older.items():  # from the newest on
        if _minor(name) >= asked:
            tables = _changed(tables, changes)
    if version and asked != known[0]:
        tables["version"] = version
    return msgspec.convert(tables, Constants)


def _minor(version: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})(\.\d{1,3})?", version)
    if not found:
        raise ConfigError(f"NCCL {version!r}: a version is 2.28 or 2.28.3")
    return int(found[1]), int(found[2])


def _changed(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The table with what another one says instead."""
    return table | {
        key: _changed(table[key], value) if isinstance(value, dict) else value for key, value in changes.items()
    }
