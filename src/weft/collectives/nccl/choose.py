"""NCCL's choice of algorithm, protocol and channels, with its reasons.

    choice = choose(from_server("dgx-h100", nodes=4), Collective.ALL_REDUCE, 64 << 20)
    choice.algorithm, choice.protocol, choice.channels, choice.time_us
    print(choice.explain())

NCCL takes the row of its table with the least time for the size, then as many channels as have work for all their
threads (topoGetAlgoInfo, src/enqueue.cc). The times are NCCL's own estimates to compare algorithms, not predictions.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.graphs import Graphs, search
from weft.collectives.nccl.symmetric import Kernel, kernels, pick
from weft.collectives.nccl.tuning import VARIABLES, Row, log2_down, table
from weft.errors import ConfigError

_BLACKWELL = 100
_AMPERE = 80
_CORRECTION_BYTES = 64  # smallest size with a correction of trees
_COLLNET_FIRST_SWITCH = 16
_LEAST_WARPS = 3
_NEVER = ("not for ", "with ")  # whatever the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The choice of NCCL for a collective of one size. `size_bytes` is the larger of a rank's two buffers."""

    cluster: Cluster
    graphs: Graphs
    collective: Collective
    size_bytes: int
    rows: tuple[Row, ...]
    times_us: tuple[float | None, ...]  # by row; None where it is off
    row: Row
    time_us: float
    channels: int  # at most
    threads: int  # per channel
    kernel: Kernel | None = None  # a symmetric one, which NCCL takes instead
    kernels: tuple[Kernel, ...] = ()  # all symmetric ones for this collective, if buffers are in windows

    @property
    def algorithm(self) -> Algorithm:
        return self.row.algorithm

    @property
    def protocol(self) -> Protocol:
        return self.row.protocol

    @property
    def bus_gbyte_s(self) -> float:
        """Return the bus bandwidth that nccl-tests prints for this time."""
        return self.size_bytes / self.time_us / 1000 * self.collective.bus_factor(self.cluster.ranks)

    def ranking(self) -> list[tuple[Row, float]]:
        """Return the enabled rows, fastest first."""
        on = [(row, time) for row, time in zip(self.rows, self.times_us, strict=True) if time is not None]
        return sorted(on, key=lambda pair: pair[1])

    def explain(self) -> str:
        """Describe the choice, its time, the next rows, and the disabled ones."""
        version = constants(self.cluster.nccl).version
        lines = [f"{self.collective} of {self.size_bytes:,} bytes on {self.cluster} (NCCL {version})"]
        if self.kernel is not None:
            kernel, threads = self.kernel, constants(self.cluster.nccl).symmetric.threads
            lines.append(
                f"{kernel.name}: {_us(kernel.time_us)}, {kernel.blocks} blocks of {threads} threads; without windows"
            )
        lines.append(f"{self.row.name}: {_us(self.time_us)}, {self.channels} channels of {self.threads} threads")
        following = [f"{row.name}: {_us(time)}" for row, time in self.ranking()[1:4]]
        if following:
            lines.append(f"next {', '.join(following)}")
        lines += [f"{name} off: {why}" for name, why in self._off().items()]
        lines += [
            f"{other.name}: {_us(other.time_us)}" for other in self.kernels if not other.off and other != self.kernel
        ]
        lines += [f"{other.name} off: {other.off}" for other in self.kernels if other.off]
        return "\n".join(lines)

    def _off(self) -> dict[str, str]:
        """Return the algorithms and protocols that this cluster disables, with reasons."""
        on = {row.algorithm for row in self.rows if not row.off}
        off = [row for row in self.rows if row.off and not row.off.startswith(_NEVER)]
        return {row.name if row.algorithm in on else row.algorithm.label: row.off for row in off}


def choose(cluster: Cluster, collective: Collective, size_bytes: int, *, graphs: Graphs | None = None) -> Choice:
    """Return NCCL's choice. `graphs` are the results of its search, if they are known; else those of `search`."""
    if size_bytes < 1:
        raise ConfigError(f"{collective} of {size_bytes} bytes: there is nothing to choose below 1 byte")
    searched = graphs if graphs is not None else search(cluster)
    rows = table(cluster, searched, collective)
    times_us = tuple(time_us(cluster, searched, collective, row, size_bytes) for row in rows)
    on = [(time, row) for time, row in zip(times_us, rows, strict=True) if time is not None]
    if not on:
        raise ConfigError(_nothing_left(cluster, collective, rows))
    time, row = min(on, key=lambda pair: pair[0])
    channels, threads = width(cluster, searched, row, size_bytes)
    return Choice(
        cluster=cluster,
        graphs=searched,
        collective=collective,
        size_bytes=size_bytes,
        rows=rows,
        times_us=times_us,
        row=row,
        time_us=time,
        channels=channels,
        threads=threads,
        kernel=pick(cluster, collective, size_bytes) if cluster.windows else None,
        kernels=kernels(cluster, collective, size_bytes) if cluster.windows else (),
    )


def _nothing_left(cluster: Cluster, collective: Collective, rows: tuple[Row, ...]) -> str:
    permitted = [row for row in rows if not row.off.startswith(VARIABLES)]
    why = {row.algorithm.label: row.off for row in permitted}  # the last of each is Simple, if that may be taken
    return (
        f"NCCL_ALGO and NCCL_PROTO leave nothing for {collective} on {cluster}, where NCCL ends too: "
        f"{'; '.join(f'{name} is off, {off}' for name, off in why.items())}. Allow more"
    )


def time_us(cluster: Cluster, graphs: Graphs, collective: Collective, row: Row, size_bytes: int) -> float | None:
    """Return NCCL's estimate for this row and size; None if the row is disabled."""
    if row.off:
        return None
    latency_us = row.latency_us
    if row.algorithm == Algorithm.RING and row.protocol == Protocol.SIMPLE:
        latency_us *= _plateau(cluster, collective, size_bytes // (graphs.channels(cluster) * cluster.ranks))
    corrected_gbyte_s = row.algo_gbyte_s * _tree_correction(cluster, collective, row, size_bytes)
    return latency_us + size_bytes / (1000 * corrected_gbyte_s)


def _plateau(cluster: Cluster, collective: Collective, part_bytes: int) -> float:
    """Return the factor of a ring's latency with data; `part_bytes` is a rank's part of a channel."""
    step, rules = constants(cluster.nccl).step, constants(cluster.nccl).rules
    inside = cluster.sm >= _BLACKWELL and cluster.nodes == 1 and cluster.nvswitch
    between = collective == Collective.ALL_REDUCE and cluster.nodes > 1
    if not (collective in rules.ring_plateau_inside if inside else between) or part_bytes < step.ring_plateau_bytes:
        return 1.0
    whole = step.ring_plateau if cluster.sm >= _AMPERE else step.ring_plateau_before_ampere
    if not (inside and rules.ring_plateau_shaped):
        return whole
    steps = (cluster.ranks - 1) * (2 if collective == Collective.ALL_REDUCE else 1)
    grown = 1 - (step.ring_plateau_end / (whole - 1)) ** (steps - 1)
    decay = step.ring_plateau_end * min(1.0, max(0.0, part_bytes / step.ring_plateau_end_bytes - 1))
    return 1 + (whole - 1 - decay) * grown


def _tree_correction(cluster: Cluster, collective: Collective, row: Row, size_bytes: int) -> float:
    factors = constants().tree_correction[row.protocol]
    power = log2_down(size_bytes // _CORRECTION_BYTES)
    if collective != Collective.ALL_REDUCE or power < 0:
        return 1.0
    if row.algorithm == Algorithm.TREE and power < len(factors) - 1:
        return factors[power]
    nvls = row.algorithm == Algorithm.NVLS_TREE and cluster.sm >= _BLACKWELL and cluster.processor.x86
    nvls = nvls and constants(cluster.nccl).rules.nvls_corrected
    return factors[power] if nvls and power < len(factors) else 1.0


def width(cluster: Cluster, graphs: Graphs, row: Row, size_bytes: int) -> tuple[int, int]:
    """Return channels and threads of each: fewer if there are too few bytes."""
    limit, channels = constants().threads, graphs.channels(cluster)
    threads, least_bytes = _most_threads(cluster, graphs, row), _thread_bytes(cluster, row)
    if row.algorithm == Algorithm.COLLNET_DIRECT:
        heads = min(cluster.gpus, cluster.nics)
        return _collnet_channels(channels, threads * heads * least_bytes, size_bytes), threads
    if row.algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE):
        own = graphs.nvls_channels(cluster)
        return (min(own, channels) if cluster.nodes > 1 and row.algorithm == Algorithm.NVLS else own), threads
    if row.algorithm == Algorithm.PAT:
        return channels, limit.most
    while channels > 1 and size_bytes < channels * threads * least_bytes:
        channels -= 1
    if row.algorithm == Algorithm.TREE:
        return channels, limit.most
    while threads % (4 * limit.warp) == 0 and size_bytes < channels * threads * least_bytes:
        threads //= 2
    if row.algorithm == Algorithm.RING and row.protocol == Protocol.SIMPLE:
        threads += limit.warp  # one more warp, which only waits and signals
    return channels, max(threads, _LEAST_WARPS * limit.warp)


def _most_threads(cluster: Cluster, graphs: Graphs, row: Row) -> int:
    limit = constants(cluster.nccl).threads
    if row.algorithm not in (Algorithm.RING, Algorithm.TREE):
        return limit.most
    if row.protocol != Protocol.SIMPLE:
        return limit.ll if row.protocol == Protocol.LL else limit.ll128
    ring = graphs.ring.channels * graphs.ring.intra_gbyte_s
    return limit.slow_ring if row.algorithm == Algorithm.RING and ring <= limit.slow_ring_gbyte_s else limit.simple


def _thread_bytes(cluster: Cluster, row: Row) -> int:
    """Return the least bytes of a thread."""
    limit = constants().threads
    if row.protocol == Protocol.LL:
        return limit.bytes_ll * (cluster.ranks if row.algorithm == Algorithm.RING else 1)
    if row.protocol == Protocol.LL128:
        return limit.bytes_ll128
    collnet = row.algorithm in (Algorithm.COLLNET_DIRECT, Algorithm.COLLNET_CHAIN)
    return limit.bytes_collnet if collnet else limit.bytes_simple


def _collnet_channels(channels: int, channel_bytes: int, size_bytes: int) -> int:
    """Reduce channels to 16, 8, 4, ... while they have too few bytes; halfway to each, half the bytes are enough."""
    switch = _COLLNET_FIRST_SWITCH
    while switch >= 1 and size_bytes < channels * channel_bytes:
        while channels > switch and size_bytes < channels * channel_bytes:
            if channels == switch + switch // 2:
                channel_bytes //= 2
            channels -= 1
        switch //= 2
    return channels


def _us(value: float) -> str:
    return f"{value:,.0f} us" if value >= 100 else f"{value:.1f} us"
