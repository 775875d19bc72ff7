"""A collective at every size, as nccl-tests runs it.

    fabric = route(weft.load("superpod:su=1"), RoutingOptions(adaptive=True)).fabric
    table = run(place(fabric, ["dgx1", "dgx2"]), Settings(collective=Collective.ALL_REDUCE))
    table.rows[0].estimate.time_us
    print("\\n".join(nccl_tests.text(table)))

The network is measured once, by the flow engine over the fabric's routes; every size is then a closed form. Sizes are
rounded as nccl-tests rounds them; sizes that are too small for the number of ranks are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from weft.calibration.band import Band
from weft.collectives.kinds import PARTED, Algorithm, Collective, Protocol
from weft.collectives.nccl.band import band_of
from weft.collectives.nccl.cluster import Cluster, from_fabric
from weft.collectives.nccl.estimate import PAIRWISE, Estimate, estimate
from weft.collectives.nccl.measure import CONNECTIONS, measure
from weft.collectives.nccl.network import Networks, Pattern
from weft.collectives.nccl.times import Times, times
from weft.collectives.ranks import Ranks
from weft.collectives.schedules.check import check
from weft.collectives.schedules.writers import ALGORITHMS, algorithms, program
from weft.errors import ConfigError, UnknownName
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.sim.engine import Memory, Network, Options

MOST_CHANNELS = 64  # NCCL's MAXCHANNELS
MOST_QPS = 128
MOST_BUFFER = 1 << 30
MOST_SIZES = 100_000  # a minute
MOST_PROVED = 64  # ranks; the proof executes every send
_STEPS = 8  # steps of a buffer: NCCL_STEPS
_LEAST_CHUNK = 1 << 10
_WORD_BYTES = {  # element sizes by nccl-tests' names; for other types NCCL has no sum by NVLS
    "float": 4,
    "half": 2,
    "bfloat16": 2,
    "double": 8,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
}
_ALIGNED_BYTES = 16  # parts of ranks begin at multiples of it

_PROGRAMS = {
    Collective.ALL_TO_ALL: "alltoall_perf",
    Collective.SEND_RECV: "sendrecv_perf",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of a run: `-b`, `-e`, `-f` and `-i` of nccl-tests."""

    min_bytes: int = 8
    max_bytes: int = 8 << 30
    factor: int = 2  # 1: by steps
    step_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        if not 1 <= self.min_bytes <= self.max_bytes:
            raise ConfigError(f"sizes from {self.min_bytes} to {self.max_bytes} bytes: -b is from 1 byte to -e")
        if self.factor < 1 or (self.factor == 1 and self.step_bytes < 1):
            raise ConfigError(f"sizes do not grow with -f {self.factor} -i {self.step_bytes}: give -f 2, or -i 1M")
        steps = (self.max_bytes - self.min_bytes) // self.step_bytes if self.factor == 1 else 0
        if steps >= MOST_SIZES:
            raise ConfigError(f"-i {self.step_bytes} makes {steps + 1:,} sizes, more than {MOST_SIZES:,}: give -f 2")

    def __iter__(self) -> Iterator[int]:
        size_bytes = self.min_bytes
        while size_bytes <= self.max_bytes:
            yield size_bytes
            size_bytes = size_bytes * self.factor if self.factor > 1 else size_bytes + self.step_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a run. NCCL chooses the values that are None, for each size."""

    collective: Collective
    sizes: Sizes = field(default_factory=Sizes)
    algorithms: tuple[Algorithm, ...] = ()  # NCCL_ALGO; none: all
    protocols: tuple[Protocol, ...] = ()  # NCCL_PROTO
    channels: int | None = None
    datatype: str = "float"  # -d of nccl-tests: times are of bytes, and counts of these
    nccl: str = ""  # its version; empty: the newest that weft knows
    nvls: bool = True  # NCCL_NVLS_ENABLE
    sharp: bool = False  # NCCL_COLLNET_ENABLE
    pat: bool = True  # NCCL_PAT_ENABLE
    min_ctas: int | None = None  # NCCL_MIN_CTAS
    max_ctas: int | None = None  # NCCL_MAX_CTAS
    min_channels: int | None = None  # NCCL_MIN_NCHANNELS
    max_channels: int | None = None  # NCCL_MAX_NCHANNELS
    chunk_bytes: int | None = None  # NCCL_P2P_NET_CHUNKSIZE
    buffer_bytes: int | None = None  # NCCL_BUFFSIZE
    nvls_chunk_bytes: int | None = None  # NCCL_NVLS_CHUNKSIZE
    qps: int = 1  # NCCL_IB_QPS_PER_CONNECTION
    windows: bool = False  # -R 2
    win_enable: bool = True  # NCCL_WIN_ENABLE
    sym_kernel: str = ""  # NCCL_SYM_KERNEL
    sym_ctas: int = 0  # NCCL_SYM_CTAS
    sym_tma: bool | None = None  # NCCL_SYM_TMA_ENABLE
    sym_gin: bool = True  # NCCL_SYM_GIN_KERNELS_ENABLE
    ofi_tuner: bool = True  # OFI_NCCL_TUNER_TYPE
    prove: bool = True  # -c of nccl-tests: execute the algorithm's program and check what it computes
    options: Options = field(default_factory=lambda: Options(memory=Memory.GPUDIRECT))

    def __post_init__(self) -> None:
        if self.datatype not in _WORD_BYTES:
            raise UnknownName("datatype", self.datatype, _WORD_BYTES)
        if self.channels is not None and not 1 <= self.channels <= MOST_CHANNELS:
            raise ConfigError(f"--channels {self.channels}: NCCL has from 1 to {MOST_CHANNELS}")
        for name, value, least, most in (
            ("NCCL_IB_QPS_PER_CONNECTION", self.qps, 1, MOST_QPS),
            ("NCCL_MIN_CTAS", self.min_ctas, 1, MOST_CHANNELS),
            ("NCCL_MAX_CTAS", self.max_ctas, 1, MOST_CHANNELS),
            ("NCCL_MIN_NCHANNELS", self.min_channels, 1, MOST_CHANNELS),
            ("NCCL_MAX_NCHANNELS", self.max_channels, 1, MOST_CHANNELS),
            ("NCCL_SYM_CTAS", self.sym_ctas, 0, MOST_CHANNELS),
            ("NCCL_BUFFSIZE", self.buffer_bytes, _STEPS * _LEAST_CHUNK, MOST_BUFFER),
            ("NCCL_NVLS_CHUNKSIZE", self.nvls_chunk_bytes, _LEAST_CHUNK, MOST_BUFFER),
        ):
            if value is not None and not least <= value <= most:
                raise ConfigError(f"{name}={value}: from {least} to {most}")
        if self.qps > 1 and self.options.network is Network.TCP:
            raise ConfigError(f"NCCL_IB_QPS_PER_CONNECTION={self.qps}: TCP has no queue pairs. Leave it out")

    @property
    def word_bytes(self) -> int:
        return _WORD_BYTES[self.datatype]

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables of NCCL that differ from its defaults."""
        lanes, paired = (None, self.channels) if self.collective in PAIRWISE else (self.channels, None)
        variables = {
            "NCCL_ALGO": ",".join(each.label for each in self.algorithms) or None,
            "NCCL_PROTO": ",".join(each.label for each in self.protocols) or None,
            "NCCL_MIN_CTAS": lanes or self.min_ctas,
            "NCCL_MAX_CTAS": lanes or self.max_ctas,
            "NCCL_MIN_P2P_NCHANNELS": paired,
            "NCCL_MAX_P2P_NCHANNELS": paired,
            "NCCL_NVLS_ENABLE": None if self.nvls else 0,
            "NCCL_COLLNET_ENABLE": 1 if self.sharp else None,
            "NCCL_PAT_ENABLE": None if self.pat else 0,
            "NCCL_MIN_NCHANNELS": self.min_channels,
            "NCCL_MAX_NCHANNELS": self.max_channels,
            "NCCL_P2P_NET_CHUNKSIZE": self.chunk_bytes,
            "NCCL_BUFFSIZE": self.buffer_bytes,
            "NCCL_NVLS_CHUNKSIZE": self.nvls_chunk_bytes,
            "NCCL_IB_QPS_PER_CONNECTION": self.qps if self.qps > 1 else None,
            "NCCL_WIN_ENABLE": None if self.win_enable else 0,
            "NCCL_SYM_KERNEL": self.sym_kernel or None,
            "NCCL_SYM_CTAS": self.sym_ctas or None,
            "NCCL_SYM_TMA_ENABLE": None if self.sym_tma is None else int(self.sym_tma),
            "NCCL_SYM_GIN_KERNELS_ENABLE": None if self.sym_gin else 0,
            "OFI_NCCL_TUNER_TYPE": None if self.ofi_tuner else "Internal",
        }
        return {name: str(value) for name, value in variables.items() if value is not None}

    def cluster(self, ranks: Ranks) -> Cluster:
        """Return the servers of these ranks, with this environment."""
        whole = from_fabric(ranks.fabric, ranks.servers, sharp=self.sharp, nvls=self.nvls)
        return replace(
            whole,
            pat=self.pat,
            algorithms=self.algorithms,
            protocols=self.protocols,
            nccl=self.nccl,
            min_ctas=self.min_ctas or whole.min_ctas,
            max_ctas=self.max_ctas or whole.max_ctas,
            min_channels=self.min_channels or whole.min_channels,
            max_channels=self.max_channels or whole.max_channels,
            windows=self.windows,
            win_enable=self.win_enable,
            sym_kernel=self.sym_kernel,
            sym_ctas=self.sym_ctas,
            sym_tma=self.sym_tma,
            sym_gin=self.sym_gin,
            ofi_tuner=self.ofi_tuner,
        )

    @property
    def times(self) -> Times:
        """Return the constants of nccl_times.toml with these buffer sizes: a buffer holds eight chunks."""
        chunk = dict(times().chunk)
        if self.buffer_bytes is not None:
            chunk["ring"] = msgspec.structs.replace(chunk["ring"], most=self.buffer_bytes // _STEPS)
        if self.nvls_chunk_bytes is not None:
            chunk["nvls"] = msgspec.structs.replace(chunk["nvls"], most=self.nvls_chunk_bytes)
        return msgspec.structs.replace(times(), chunk=chunk)

    @property
    def program(self) -> str:
        """Return the name of the program in nccl-tests."""
        return _PROGRAMS.get(self.collective, f"{self.collective}_perf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The result for one size. `size_bytes` is the larger buffer of a rank, `count` the elements of a call."""

    size_bytes: int
    count: int
    estimate: Estimate
    wrong: int | None  # None: not proved

    @property
    def time_us(self) -> float:
        return self.estimate.time_us

    @property
    def bus_gbyte_s(self) -> float:
        """Return the bus bandwidth (busbw of nccl-tests)."""
        return self.estimate.bus_gbyte_s

    @property
    def choice(self) -> str:
        """Return the choice as `Ring/LL128/16`; without channels if they are not known."""
        return f"{self.estimate.name}/{self.estimate.channels}" if self.estimate.channels else self.estimate.name

    @property
    def band(self) -> Band:
        """Return the band around the time."""
        return band_of(self.estimate)

    @property
    def band_us(self) -> tuple[float, float]:
        """Return the ends of the band."""
        return self.band.around(self.estimate.time_us)

    @property
    def bound(self) -> str:
        """Return the largest part of the time: launch, steps, pipeline, or the limit of the data."""
        parts = self.estimate.parts
        most = max(parts, key=lambda name: parts[name])
        return self.estimate.bound if most == "data" else most


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """The rows of a run with its settings and measured networks."""

    ranks: Ranks
    settings: Settings
    cluster: Cluster
    networks: Networks | None  # None: one server
    rows: tuple[Row, ...]

    @property
    def average_gbyte_s(self) -> float:
        return sum(row.estimate.bus_gbyte_s for row in self.rows) / len(self.rows)


def run(ranks: Ranks, settings: Settings, progress: Callable[[int, int], None] | None = None) -> Table:
    """Measure the network between the servers of these ranks, then estimate every size; `progress` gets the count."""
    kind = settings.collective
    if not kind.nccl:
        raise ConfigError(f"NCCL has no {kind}: PyTorch makes one of an all_reduce of one element")
    if settings.sharp:
        _check_sharp(ranks)
    cluster, word = settings.cluster(ranks), settings.word_bytes
    if cluster.gcn:
        _check_rccl(settings, cluster)
    sizes = [(cut, count) for cut, count in (_cut(kind, size, cluster.ranks, word) for size in settings.sizes) if count]
    if not sizes:
        raise ConfigError(
            f"{kind} of {settings.sizes.max_bytes} bytes leaves nothing for each of {cluster.ranks} ranks: "
            f"-e {(_ALIGNED_BYTES if kind in PARTED else word) * cluster.ranks} is the least"
        )
    networks = None
    if cluster.nodes > 1:
        patterns = (Pattern.PAIRS,) if kind in PAIRWISE else (Pattern.RING, Pattern.TREE)
        connections = CONNECTIONS * settings.qps
        networks = measure(ranks, settings.options, patterns=patterns, connections=connections).networks
    proved: dict[str, int | None] = {}
    rows = []
    for size_bytes, count in sizes:
        estimated = _estimate(settings, cluster, size_bytes, networks)
        if estimated.name not in proved:
            proved[estimated.name] = _prove(cluster, kind, estimated) if settings.prove else None
        rows.append(Row(size_bytes=size_bytes, count=count, estimate=estimated, wrong=proved[estimated.name]))
        if progress is not None:
            progress(len(rows), len(sizes))
    return Table(ranks=ranks, settings=settings, cluster=cluster, networks=networks, rows=tuple(rows))


def _estimate(settings: Settings, cluster: Cluster, size_bytes: int, networks: Networks | None) -> Estimate:
    return estimate(
        cluster,
        settings.collective,
        size_bytes,
        networks=networks,
        channels=settings.channels,
        chunk_bytes=settings.chunk_bytes,
        fitted=settings.times,
    )


_VARIABLES: dict[str, dict[str, Any]] = {  # fields of Settings, as they are where the variable is not set
    "NCCL_ALGO": {"algorithms": ()},
    "NCCL_PROTO": {"protocols": ()},
    "NCCL_MIN_CTAS": {"min_ctas": None},
    "NCCL_MAX_CTAS": {"max_ctas": None},
    "NCCL_NVLS_ENABLE": {"nvls": True},
    "NCCL_COLLNET_ENABLE": {"sharp": False},
    "NCCL_PAT_ENABLE": {"pat": True},
    "NCCL_MIN_NCHANNELS": {"min_channels": None},
    "NCCL_MAX_NCHANNELS": {"max_channels": None},
    "NCCL_P2P_NET_CHUNKSIZE": {"chunk_bytes": None},
    "NCCL_BUFFSIZE": {"buffer_bytes": None},
    "NCCL_NVLS_CHUNKSIZE": {"nvls_chunk_bytes": None},
    "NCCL_IB_QPS_PER_CONNECTION": {"qps": 1},
    "NCCL_WIN_ENABLE": {"win_enable": True},
    "NCCL_SYM_KERNEL": {"sym_kernel": ""},
    "NCCL_SYM_CTAS": {"sym_ctas": 0},
    "NCCL_SYM_TMA_ENABLE": {"sym_tma": None},
    "NCCL_SYM_GIN_KERNELS_ENABLE": {"sym_gin": True},
    "OFI_NCCL_TUNER_TYPE": {"ofi_tuner": True},
}


def without_effect(table: Table) -> list[str]:
    """Return the variables of NCCL's that are set and without which all rows would be the same."""
    return [name for name in _VARIABLES if name in table.settings.environment and _is_idle(table, name)]


def _is_idle(table: Table, name: str) -> bool:
    settings = replace(table.settings, **_VARIABLES[name])
    if settings == table.settings:  # --channels stands in the environment by another's name
        return False
    networks = table.networks
    if settings.qps != table.settings.qps and networks is not None:
        networks = measure(table.ranks, settings.options, patterns=tuple(networks)).networks
    cluster = settings.cluster(table.ranks)
    for row in table.rows:
        other = _estimate(settings, cluster, row.size_bytes, networks)
        if (other.name, other.channels, other.parts) != (row.estimate.name, row.estimate.channels, row.estimate.parts):
            return False
    return True


_OF_RCCL = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_QPS_PER_CONNECTION")  # that the model of RCCL knows


def _check_rccl(settings: Settings, cluster: Cluster) -> None:
    """Raise ConfigError for settings of NCCL's that the model of RCCL does not have."""
    other = [name for name in settings.environment if name not in _OF_RCCL]
    other += ["--nccl"] * bool(settings.nccl) + ["-R 2"] * settings.windows
    if other:
        raise ConfigError(f"{other[0]} on {cluster}: the model of RCCL has only {', '.join(_OF_RCCL)}. Leave it out")


def _check_sharp(ranks: Ranks) -> None:
    """Raise ConfigError if NCCL_COLLNET_ENABLE is set and a switch has no SHARP."""
    fabric = ranks.fabric
    for switch in map(fabric.node, fabric.of_kind(NodeKind.SWITCH).tolist()):
        entry = next((model for model in catalog.switches() if model.name == switch.model), None)
        if entry is not None and not entry.sharp:
            raise ConfigError(
                f"NCCL_COLLNET_ENABLE=1: {switch} is a {entry.name}, which has no SHARP. Leave it at 0, or take "
                f"{', '.join(model.name for model in catalog.switches() if model.sharp)}"
            )


def _cut(kind: Collective, size_bytes: int, ranks: int, word_bytes: int) -> tuple[int, int]:
    """Return bytes and elements that nccl-tests uses for a size (getCollByteCount of each test)."""
    words, aligned = size_bytes // word_bytes, _ALIGNED_BYTES // word_bytes
    if kind not in PARTED:
        return words * word_bytes, words
    part = words // ranks // aligned * aligned
    return part * ranks * word_bytes, part


def _prove(cluster: Cluster, kind: Collective, estimated: Estimate) -> int | None:
    """Return 0 if the program is proved correct; None if there is no program, or too many ranks to execute it.

    Sends between pairs have no algorithm name: the first program of the collective is used. Symmetric kernels that
    reduce in the switches use the program of NVLS.
    """
    if estimated.kernel and (cluster.nodes > 1 or "MC" not in estimated.kernel):
        return None
    name: str = estimated.algorithm or (Algorithm.NVLS if estimated.kernel else next(algorithms(kind), ""))
    if kind not in ALGORITHMS.get(name, {}) or cluster.ranks > MOST_PROVED:
        return None
    check(program(kind, name, nodes=cluster.nodes, gpus=cluster.gpus))
    return 0
