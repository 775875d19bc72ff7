"""The constants of NCCL's tuning model, read from `catalog/nccl.toml`, which explains the fields."""

from __future__ import annotations

import datetime
import re
from functools import cache
from typing import Any

import msgspec

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.errors import ConfigError
from weft.fabric.rates import read_catalog

Three = tuple[float, float, float]


class Latencies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The latencies by algorithm, as [LL, LL128, Simple]."""

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
    ring_plateau_end: float
    ring_plateau_end_bytes: int


class Generation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The figures of a GPU generation; a list of three is [1 node, 2 nodes, more]."""

    sm: int
    ll_gbyte_s: Three
    ring_ll128_channel_gbyte_s: Three
    tree_ll128_channel_gbyte_s: Three
    tree_channel_gbyte_s: Three
    nvls_tree_channel_gbyte_s: Three
    nvls: float
    nvlinks: int
    nvlink_gbyte_s: float
    nvlink_line_gbyte_s: float
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
    ring_ll_copied: float
    ring_ll128: float
    ring_ll128_alone: float
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
    """The rules that differ between versions of NCCL."""

    nvls_bus: bool
    nvls_gather: bool
    nvls_corrected: bool
    nvls_tree_tuned: bool
    channels_with_nvls: bool
    nvls_tree_log: bool
    scattered: tuple[Algorithm, ...]
    scattered_bus: tuple[Algorithm, ...]
    exposed: bool
    ring_crossings_less: int
    blackwell: bool
    rewritten: bool
    ring_plateau_inside: tuple[Collective, ...]
    ring_plateau_shaped: bool
    algorithm_first: bool


class Kinds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The figures of symmetric kernels on a GPU generation."""

    all_reduce: KernelSpeeds
    all_gather: KernelSpeeds
    reduce_scatter: KernelSpeeds


class KernelSpeeds(msgspec.Struct, frozen=True, array_like=True):
    ll_us: float
    us: float
    block_gibyte_s: float
    nvlink_gibyte_s: float
    multicast_gibyte_s: float


class OwnSpeeds(msgspec.Struct, frozen=True, array_like=True):
    us: float
    nvlink_gibyte_s: float
    least_bytes: float  # for each block
    least_part_bytes: float  # for each block and GPU


class GatherSpeeds(msgspec.Struct, frozen=True, array_like=True):
    us: float
    rank_us: float
    work_gbyte_s: float
    block_gbyte_s: float
    nvlink_gbyte_s: float
    scale_8: float
    scale_32: float
    overlap_blocks: float
    others_only: float
    trough_us: float
    trough_gbyte_s: float
    few_gbyte_s: float


class Rail(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The figures of symmetric kernels between NVLink domains; lists are [without multicast, with it]."""

    nvlink_gbyte_s: float
    nvlink_blackwell_gbyte_s: float
    block_gbyte_s: tuple[float, float]
    block_blackwell_gbyte_s: tuple[float, float]
    scatter_chunk_bytes: int
    gather_chunk_bytes: int


class Symmetric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kernels: tuple[str, ...]
    blocks: int
    threads: int
    cell_bytes: int
    even: bool
    block_penalty: float
    gather_block_penalty: float
    tolerance: float
    multicast_gpus: int
    multicast_blocks: int
    multicast_blocks_blackwell: int
    ll_factor: float
    ll_most_bytes: int
    most_bytes: int
    multicast_ll: float
    multicast_part: float
    tma_multicast: float
    tma_multicast_alone: float
    tma: bool
    last: bool
    hopper: Kinds
    blackwell: Kinds
    own: dict[str, OwnSpeeds]
    rail: Rail
    gather: dict[str, GatherSpeeds]


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
    symmetric: Symmetric

    def of_sm(self, sm: int) -> Generation:
        """Return the newest generation up to this compute capability."""
        return max(
            (generation for generation in self.generation.values() if generation.sm <= sm), key=lambda each: each.sm
        )


@cache
def constants(version: str = "") -> Constants:
    """Return the constants of an NCCL version, `2.28` or `2.32.3`; by default that of the tables."""
    tables = read_catalog("nccl.toml")
    older, newer = tables.pop("older"), tables.pop("newer")
    base = _minor(tables["version"])
    requested = _minor(version) if version else base
    versions = [base, *map(_minor, older), *map(_minor, newer)]
    if requested not in versions:
        names = ", ".join(f"{major}.{minor}" for major, minor in sorted(versions))
        raise ConfigError(f"NCCL {version}: weft has read the code of {names}. Take the nearest of them")
    for name, changes in (older | newer).items():  # each from the one next to the tables on
        if base > _minor(name) >= requested or base < _minor(name) <= requested:
            tables = _changed(tables, changes)
    if version and requested != base:
        tables["version"] = version
    return msgspec.convert(tables, Constants)


def _minor(version: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})(\.\d{1,3})?", version)
    if not match:
        raise ConfigError(f"NCCL {version!r}: a version is 2.28 or 2.28.3")
    return int(match[1]), int(match[2])


def _changed(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a table with the changes of another one."""
    return table | {
        key: _changed(table[key], value) if isinstance(value, dict) else value for key, value in changes.items()
    }
