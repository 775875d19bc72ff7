"""The constants of the times of NCCL's collectives, read from `catalog/nccl_times.toml`, which explains the fields."""

from __future__ import annotations

from functools import cache

import msgspec

from weft.fabric.rates import Sourced, read_catalog


class Bandwidth(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    nvlink: float
    nvls: float
    nvls_gpus: int
    adapter: float
    relay: float


class Pipeline(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    fill: float
    fill_level: float
    meeting_us: float
    peer_us: float
    simple_peer: float
    blackwell_hop: float
    pcie_hop: float
    ll_blocks: float


class GenerationTimes(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Times of a generation of GPUs."""

    sm: int
    ll_launch_us: float
    ll_hop: float
    tree_ll_launch_us: float = 0.0  # 0: as a ring
    tree_ll_hop: float = 0.0
    ring_hop: float
    simple_start_us: float


class Pairs(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    chunk_bytes: int
    chunk_bytes_grace: int
    ll_bytes: int
    channel_gbyte_s: float
    channel_peers: int
    ll_start_us: float
    nvlink: float


class NetworkTimes(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    reference_step_us: float
    cloud_ethernet_us: float
    tcp_directions: int


class Plugin(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a plugin of NCCL's."""

    chunk_bytes: int
    ordered_sm: int = 0
    eager_bytes: int | None = None
    older_eager_bytes: int | None = None
    older_flush: bool = False
    rate: float = 1.0
    step_us: float = 0.0


class Chunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The largest chunk, and the rules by which it is halved."""

    most: int
    halve: tuple[tuple[int, int], ...] = ()

    def of(self, size_bytes: int, lanes: int, scale: float = 1.0) -> int:
        """Return the bytes of a chunk if each of `lanes` carries one at a time; `scale` multiplies the rounds."""
        chunk = self.most
        for rounds, floor in self.halve:
            while chunk > floor and size_bytes // (lanes * chunk) < rounds * scale:
                chunk //= 2
        return chunk


class Fit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The runs to which a constant was fitted, and its value without them."""

    runs: tuple[str, ...]
    sizes: tuple[int, int]  # from, to
    without: float


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    version: str
    bandwidth: Bandwidth
    pipeline: Pipeline
    generation: dict[str, GenerationTimes]
    pairs: Pairs
    network: NetworkTimes
    plugin: dict[str, Plugin]  # by transport
    chunk: dict[str, Chunk]
    fit: dict[str, Fit]

    def of_sm(self, sm: int) -> GenerationTimes:
        """Return the newest generation up to this compute capability; the oldest for older GPUs."""
        entries = sorted(self.generation.values(), key=lambda entry: entry.sm)
        return next((entry for entry in reversed(entries) if entry.sm <= sm), entries[0])


@cache
def times() -> Times:
    return msgspec.convert(read_catalog("nccl_times.toml"), Times)
