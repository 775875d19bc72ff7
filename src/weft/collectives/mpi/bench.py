"""OSU's programs at every size, on the servers of a fabric.

    ranks = place(prepare(weft.load("fat-tree:hosts=64,server=host-hdr")))
    table = run(ranks, Settings(test=Test.ALLREDUCE, ppn=32))
    table.rows[0].value, table.rows[0].low, table.rows[0].high

Latency is half a round trip, or a collective's mean over all ranks, in microseconds; bandwidth is in MB/s, of 10^6
bytes, of a window of messages and the answer to it. Each figure stands between two others: where published runs lie.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.mpi import clock
from weft.collectives.mpi.band import IN_PODS, OVER_DATAGRAMS, find_band, kind_of, remarks
from weft.collectives.mpi.choose import find_coll
from weft.collectives.mpi.clock import Step
from weft.collectives.mpi.collective import after_barrier, collective_us
from weft.collectives.mpi.interconnect import FabricInterconnect, Interconnect
from weft.collectives.mpi.libraries import Library, library
from weft.collectives.mpi.message import SRD, Floats, Messages, loopback, reaches_others, uses_datagrams
from weft.collectives.mpi.times import Band, times
from weft.collectives.ranks import Ranks
from weft.collectives.schedules.knomial import knomial_broadcast, knomial_reduce
from weft.collectives.schedules.program import Program, Sends
from weft.errors import ConfigError, find_named
from weft.sim.engine import Network, Options

MOST_RANKS = 131_072
MOST_BYTES = 1 << 30
_BY_SERVER = ("slot", "hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "package", "socket")
MAP_BY = {**dict.fromkeys(_BY_SERVER, "slot"), "node": "node"}  # as mpirun's: what is in a server has no place here
_REPLY_BYTES = 4  # osu_bw's reply to a window
_SHARP = (Collective.ALL_REDUCE, Collective.REDUCE, Collective.BROADCAST, Collective.BARRIER)


class Test(enum.StrEnum):
    """A program of OSU's, without its osu_ prefix."""

    heading: str
    collective: Collective | None
    datatype: str
    min_bytes: int
    max_bytes: int

    LATENCY = "latency", "Latency", None, "MPI_CHAR", 1, 4 << 20
    BW = "bw", "Bandwidth", None, "MPI_CHAR", 1, 4 << 20
    BIBW = "bibw", "Bi-Directional Bandwidth", None, "MPI_CHAR", 1, 4 << 20
    ALLREDUCE = "allreduce", "Allreduce Latency", Collective.ALL_REDUCE, "MPI_INT", 4, 1 << 20
    ALLTOALL = "alltoall", "All-to-All Personalized Exchange Latency", Collective.ALL_TO_ALL, "MPI_CHAR", 1, 1 << 20
    BCAST = "bcast", "Broadcast Latency", Collective.BROADCAST, "MPI_CHAR", 1, 1 << 20
    ALLGATHER = "allgather", "Allgather Latency", Collective.ALL_GATHER, "MPI_CHAR", 1, 1 << 20
    REDUCE = "reduce", "Reduce Latency", Collective.REDUCE, "MPI_INT", 4, 1 << 20
    BARRIER = "barrier", "Barrier Latency", Collective.BARRIER, "", 0, 0

    def __new__(
        cls, name: str, heading: str, kind: Collective | None, datatype: str, min_bytes: int, max_bytes: int
    ) -> Self:
        member = str.__new__(cls, name)
        member._value_, member.heading, member.collective, member.datatype = name, heading, kind, datatype
        member.min_bytes, member.max_bytes = min_bytes, max_bytes
        return member

    @property
    def is_bandwidth(self) -> bool:
        return self in (Test.BW, Test.BIBW)


def find_test(name: str, *more: str) -> Test:
    """Find a test by OSU's name, with or without osu_."""
    tests = {str(test): test for test in Test}
    hint = f"Or {', '.join(more)}." if more else ""
    return find_named("test", name.lower().removeprefix("osu_"), tests, hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a test."""

    test: Test
    mpi: str = "openmpi"
    coll: str = ""  # the component of Open MPI that decides; "": the usual one
    ppn: int = 1
    min_bytes: int | None = None  # None: the test's own
    max_bytes: int | None = None
    only: tuple[int, ...] = ()  # these sizes alone
    window: int = 64  # messages that osu_bw has under way
    sharp: bool = False
    cached: bool = True  # registered memory is kept from message to message
    ucx_tls: str = ""  # as UCX_TLS; "": all that there are
    map_by: str = "slot"  # or node: how ranks are laid out
    pods: bool = False  # processes run in pods of Kubernetes
    together: bool = False  # all ranks begin at once; else as they leave the barrier that OSU's programs call before
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        find_coll(library(self.mpi), self.coll)
        find_named("--map-by", self.map_by, MAP_BY, "ppr:8:node is --ppn 8.")
        if self.ucx_tls and self.mpi != "openmpi":
            raise ConfigError(f"--UCX_TLS {self.ucx_tls}: {self.mpi} does not run over UCX: leave it out")
        loopback(self.ucx_tls)
        if not 1 <= self.ppn <= 1024:
            raise ConfigError(f"--ppn must be 1 to 1,024 processes per server, got {self.ppn}")
        if not 1 <= self.window <= 65_536:
            raise ConfigError(f"-W {self.window} is not from 1 to 65536 messages")
        low, high = self._limits()
        if not (self.test.min_bytes <= low <= high <= MOST_BYTES):
            least = self.test.min_bytes
            raise ConfigError(f"-m {low}:{high}: osu_{self.test} has sizes from {least} B to 1 GiB, smallest first")
        if self.sharp and self.test.collective not in _SHARP:
            supported = ", ".join(str(test) for test in Test if test.collective in _SHARP)
            raise ConfigError(f"--sharp: switches add and copy for {supported}, not for {self.test}: leave it out")

    def _limits(self) -> tuple[int, int]:
        low = self.test.min_bytes if self.min_bytes is None else self.min_bytes
        return low, self.test.max_bytes if self.max_bytes is None else self.max_bytes

    @property
    def component(self) -> str:
        """Return the component of the library that decides."""
        return find_coll(library(self.mpi), self.coll)

    @property
    def by_node(self) -> bool:
        """Return whether ranks go to the servers in turn."""
        return find_named("--map-by", self.map_by, MAP_BY) == "node"

    @property
    def sizes(self) -> Iterator[int]:
        """Yield sizes that double, as in OSU's programs."""
        if self.test is Test.BARRIER:
            yield 0
            return
        yield from self.only
        size_bytes, most = self._limits() if not self.only else (1, 0)
        while size_bytes <= most:
            yield size_bytes
            size_bytes *= 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The result for one size. Values are microseconds, or MB/s of a bandwidth test."""

    size_bytes: int
    value: float
    low: float
    high: float
    least: float  # the first rank
    most: float
    how: str  # the algorithm, or the protocol
    kind: tuple[str, ...]  # properties of comparable figures
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    settings: Settings
    ranks: Ranks
    library: Library
    network: Network | None
    rows: tuple[Row, ...]


def run(ranks: Ranks, settings: Settings, progress: Callable[[int, int], None] | None = None) -> Table:
    """Run a test at every size; the fabric must be routed."""
    chosen = library(settings.mpi)
    interconnect = FabricInterconnect(ranks=ranks, ppn=settings.ppn, options=settings.options, by_node=settings.by_node)
    if interconnect.n_ranks > MOST_RANKS:
        raise ConfigError(
            f"{interconnect.n_ranks:,} processes are more than {MOST_RANKS:,}: give fewer --servers or --ppn"
        )
    if interconnect.n_ranks < 2:
        raise ConfigError(f"osu_{settings.test} needs two processes: give two servers, or --ppn 2")
    if settings.sharp:
        interconnect.refuse_sharp()
    if settings.pods:
        _check_pods(settings, interconnect)
    if len(ranks.servers) > 1 and not reaches_others(settings.ucx_tls):
        raise ConfigError(f"--UCX_TLS {settings.ucx_tls}: nothing carries messages between servers: give ib or tcp too")
    alone = loopback(settings.ucx_tls)
    if alone and (len(ranks.servers) < 2 or interconnect.network is Network.TCP):
        place = f"{ranks.servers[0]}, which is alone," if len(ranks.servers) < 2 else "a server with TCP"
        raise ConfigError(f"--UCX_TLS {settings.ucx_tls}: how {place} talks to itself is not known: give sm too")
    messages = Messages(interconnect=interconnect, rules=chosen.message_rules(cached=settings.cached), loopback=alone)
    sizes, rows = list(settings.sizes), []
    begun = np.zeros(interconnect.n_ranks)
    if settings.test.collective is not None and not settings.sharp and not settings.together:
        begun = after_barrier(messages, chosen, settings.component)
    for size_bytes in sizes:
        rows.append(_row(settings, chosen, interconnect, messages, size_bytes, begun))
        if progress is not None:
            progress(len(rows), len(sizes))
    network = interconnect.network if interconnect.n_servers > 1 else None
    return Table(settings=settings, ranks=ranks, library=chosen, network=network, rows=tuple(rows))


def _row(
    settings: Settings,
    chosen: Library,
    interconnect: FabricInterconnect,
    messages: Messages,
    size_bytes: int,
    begun: Floats,
) -> Row:
    kind = settings.test.collective
    if kind is None:
        return _point_to_point(settings, interconnect, messages, size_bytes)
    if settings.sharp:
        took, how = _sharp_us(kind, interconnect, messages, size_bytes), "SHARP"
    else:
        took, how = collective_us(kind, size_bytes, messages, chosen, begun, settings.component)
    took = took + _wait_us(settings, interconnect)
    value = float(took.mean())
    alike, band, doubts = _band(settings, interconnect, size_bytes)
    return Row(
        size_bytes=size_bytes,
        value=value,
        low=value * band.low,
        high=value * band.high,
        least=float(took.min()),
        most=float(took.max()),
        how=how,
        kind=alike,
        remarks=doubts,
    )


def _check_pods(settings: Settings, interconnect: Interconnect) -> None:
    """Raise ConfigError if pods would make no difference."""
    stream = settings.test.is_bandwidth and interconnect.network is Network.TCP
    if interconnect.n_servers == 1 or (settings.test.collective is None and not stream):
        raise ConfigError("--pods: pods change collectives between servers, and bandwidth over TCP: leave it out")


def _wait_us(settings: Settings, interconnect: Interconnect) -> float:
    """Return how long a collective between servers waits for nodes that run more than the job, and for datagrams."""
    if interconnect.n_servers == 1:
        return 0.0
    pods_us = times().pods.square_us * interconnect.n_servers**2 if settings.pods else 0.0
    lost_us = times().datagrams.rank_us * interconnect.n_ranks if _by_datagrams(settings, interconnect) else 0.0
    return pods_us + lost_us


def _by_datagrams(settings: Settings, interconnect: Interconnect) -> bool:
    return interconnect.network is not Network.TCP and uses_datagrams(settings.ucx_tls, interconnect.n_ranks)


def _band(
    settings: Settings, interconnect: Interconnect, size_bytes: int
) -> tuple[tuple[str, ...], Band, tuple[str, ...]]:
    """Return the kind of a figure, the band of published ones of that kind, and remarks."""
    test = settings.test
    word = "bandwidth" if test.is_bandwidth else "latency" if test is Test.LATENCY else "collectives"
    n_ranks = 2 if test.collective is None else interconnect.n_ranks
    place = f"over {interconnect.carrier}" if interconnect.n_servers > 1 else "over shared memory"
    if test.collective is not None and interconnect.n_servers > 1:
        place = IN_PODS if settings.pods else OVER_DATAGRAMS if _by_datagrams(settings, interconnect) else place
    kind = kind_of(word, size_bytes, place)
    band = find_band(kind, n_ranks, times().band)
    return kind, band, tuple(remarks(kind, n_ranks, times().band))


# -- point to point ---------------------------------------------------------------------------------------------------


def _point_to_point(settings: Settings, interconnect: FabricInterconnect, messages: Messages, size_bytes: int) -> Row:
    """Run a test between the first two servers, or between two processes of the only one."""
    inside = interconnect.n_servers == 1
    sizes = np.array([float(size_bytes), _REPLY_BYTES])
    both_ways = 2 if settings.test is Test.BIBW else 1
    cost = messages.inside(sizes, both_ways) if inside and not messages.loopback else messages.between(sizes)
    took_us = float(cost.total[0])
    kind, band, doubts = _band(settings, interconnect, size_bytes)
    how = f"shared memory, {_protocol(cost.request[0])}" if inside else _protocol(cost.request[0])
    if settings.test is Test.LATENCY:
        value = took_us
        low, high = value * band.low, value * band.high
    else:
        busy = (float(cost.send[0]), float(cost.receive[0]))
        idle_us = float(messages.inside(np.ones(1)).flight[0]) if inside else float(interconnect.lone_us(1.0))
        link_us = float(cost.flight[0]) - idle_us if inside else size_bytes * interconnect.us_per_byte
        stack_us = 0.0 if inside else _stack_us(settings, interconnect)
        gap_us = max((sum(busy) if both_ways == 2 else max(busy)) + both_ways * stack_us, link_us)
        window_us = settings.window * gap_us + took_us + float(cost.total[1])
        value = both_ways * settings.window * size_bytes / window_us
        low, high = value / band.high, value / band.low
        if not inside:
            high = max(value, min(high, both_ways * interconnect.line_mbyte_s))
    return Row(
        size_bytes=size_bytes,
        value=value,
        low=low,
        high=high,
        least=value,
        most=value,
        how=how,
        kind=kind,
        remarks=doubts,
    )


def _stack_us(settings: Settings, interconnect: Interconnect) -> float:
    """Return the time of a processor for each message of a stream, beside the library's."""
    if interconnect.network is Network.TCP:
        return times().tcp.stream_us + (times().pods.stream_us if settings.pods else 0.0)
    return times().srd.stream_us if interconnect.carrier == SRD else 0.0


def _protocol(request_us: float) -> str:
    return "rendezvous" if request_us else "eager"


# -- SHARP ------------------------------------------------------------------------------------------------------------


def _sharp_us(kind: Collective, interconnect: FabricInterconnect, messages: Messages, size_bytes: int) -> Floats:
    """Return the time of each rank: up inside the nodes, up and down the tree of switches, down inside the nodes."""
    constants, servers, ppn = times(), interconnect.n_servers, interconnect.ppn
    other = np.arange(1, servers) * ppn
    way_us = float(interconnect.lone_us(1.0)) + float(interconnect.together(np.zeros_like(other), other).more_us.max())
    own_us = constants.message.send_us + constants.message.receive_us
    stream_us = size_bytes * interconnect.us_per_byte / constants.sharp.rate
    between_us = own_us + way_us + interconnect.levels() * constants.sharp.level_us + stream_us
    up = kind is not Collective.BROADCAST and ppn > 1
    down = kind is not Collective.REDUCE and ppn > 1
    clock_us = np.zeros(interconnect.n_ranks)
    if up:
        clock_us = clock.run((_inside(knomial_reduce(ppn), servers, size_bytes),), messages)
    begun_us = float(clock_us[::ppn].max()) + between_us
    if not down:
        clock_us[::ppn] = begun_us
        return clock_us
    spread_us = clock.run((_inside(knomial_broadcast(ppn), servers, size_bytes),), messages)
    return begun_us + spread_us


def _inside(inner: Program, nodes: int, size_bytes: int) -> Step:
    """Return a step that runs a program in all nodes at once, for timing only."""
    first = np.arange(nodes)[:, None] * inner.n_ranks

    def make_round(number: int) -> Sends:
        sends = inner.make_round(number)
        src, dst = ((first + end).ravel() for end in (sends.src, sends.dst))
        return Sends.make(src, dst, 0, add=np.tile(sends.add, nodes))

    runs = (1,) * inner.n_rounds
    whole = Program.of(inner.name, inner.collective, nodes * inner.n_ranks, runs, make_round, n_chunks=1)
    return Step(program=whole, size_bytes=size_bytes, by_level=True)
