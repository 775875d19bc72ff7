"""Bandwidth and latency between two hosts as perftest measures them: ib_write_bw, ib_read_lat and the others.

    rows = measure(fabric, "h1", "h2", Settings(test=Test.WRITE_BW), sizes=[65536])

A bandwidth test keeps `tx_depth` messages in flight on every queue pair. A latency test is a ping-pong: half a round
trip
for write and send, a whole one for read. A simulated adapter has no noise, so hundreds of messages suffice where
perftest
needs thousands. The first ones, which fill the pipeline, are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.sim.engine import Options, Paths
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import Result
from weft.sim.traffic import Operation, Traffic, Transport, find_host_port
from weft.verbs.perftest.kinds import LIMITS, Verb, check_limits
from weft.verbs.perftest.kinds import Test as Test
from weft.verbs.perftest.report import BandwidthRow as BandwidthRow
from weft.verbs.perftest.report import LatencyRow as LatencyRow

_PACKETS = 6_000  # packets sent in a test of one size, approximately
_FEWEST, _MOST_BW, _MOST_LAT = 8, 500, 20
_LARGEST = 1 << 31  # perftest's own limit
_MOST_MESSAGES = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a test, with perftest's names."""

    test: Test
    iterations: int = 0  # per queue pair; 0: automatic
    qps: int = 1
    tx_depth: int = 128
    outs: int = 16
    connection: Transport = Transport.RC
    bidirectional: bool = False
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        check_limits(self, LIMITS | {"iterations": (1, _MOST_MESSAGES)})
        if self.test.verb is Verb.ATOMIC:
            raise ConfigError(f"{self.test} cannot be simulated: the engines have no atomics. Run it with --live")
        self.test.check(self.connection.name, qps=self.qps, bidirectional=self.bidirectional)

    @property
    def operation(self) -> Operation:
        return Operation[self.test.verb.name]


def prepare_job(fabric: Fabric) -> Fabric:
    """Return the fabric of a job as `prepare` does; one that is too large for a subnet stays without tables.

    Its rails are subnets, which `weft.routing.rails` routes.
    """
    from weft.routing.rails import needs_subnets

    return fabric if needs_subnets(fabric) else prepare(fabric)


def prepare(fabric: Fabric) -> Fabric:
    """Return the fabric with forwarding tables: its own, or computed ones. Two hosts on one cable need none."""
    from weft.routing.engine import Options as RoutingOptions
    from weft.routing.route import route

    if "lft" in vars(fabric.tables) or not len(fabric.of_kind(NodeKind.SWITCH)):
        return fabric
    return route(fabric, RoutingOptions(adaptive=True)).fabric


def measure(
    fabric: Fabric, client: str, server: str, settings: Settings, sizes: Sequence[int]
) -> Iterator[BandwidthRow | LatencyRow]:
    """Yield a row for each size, on a fabric returned by `prepare`."""
    ends = find_host_port(fabric, client), find_host_port(fabric, server)
    if ends[0] == ends[1]:
        raise ConfigError(f"client and server are both {client}: a test needs two hosts")
    for size_bytes in sizes:
        if not 1 <= size_bytes <= _LARGEST:
            raise ConfigError(f"--size must be 1 byte to 2 GiB, got {size_bytes}")
    for size_bytes in sizes:
        run = _measure_latency if settings.test.is_latency else _measure_bandwidth
        yield run(fabric, ends, settings, size_bytes)


# -- bandwidth --------------------------------------------------------------------------------------------------------


def _measure_bandwidth(fabric: Fabric, ends: tuple[int, int], settings: Settings, size_bytes: int) -> BandwidthRow:
    """Measure from the completion that ends the warm-up to the last completion."""
    counted = settings.iterations or _enough(settings, size_bytes, _MOST_BW)
    warm_up = min(_depth(settings), counted)
    n, ways = warm_up + counted, 2 if settings.bidirectional else 1
    rows = n * settings.qps * ways
    if rows > _MOST_MESSAGES:
        raise ConfigError(f"{rows:,} messages are too many for one run (limit {_MOST_MESSAGES:,})")
    reliable = settings.connection is Transport.RC
    queue_pair = np.arange(rows) // ways % settings.qps
    outstanding = _depth(settings) if reliable else 0  # a datagram's departure is not acknowledged
    result = _run(fabric, ends, settings, size_bytes, np.arange(rows) % ways, qp=queue_pair, outstanding=outstanding)
    done_ps = np.sort(result.acked_ps if reliable else result.finish_ps)
    begin = warm_up * settings.qps * ways - 1
    span_ps = int(done_ps[-1] - done_ps[begin])
    average = (rows - 1 - begin) * 1e6 / max(span_ps, 1)
    return BandwidthRow(
        size_bytes=size_bytes,
        iterations=counted * settings.qps,
        peak_gbit_s=max(_best_rate_mpps(done_ps[begin:], settings.qps * ways), average) * size_bytes * 8 / 1000,
        average_gbit_s=average * size_bytes * 8 / 1000,
        message_rate_mpps=average,
    )


def _depth(settings: Settings) -> int:
    """Return the number of messages that a queue pair has in flight."""
    depth = settings.test.depth(settings.tx_depth)
    return min(depth, settings.outs) if settings.operation is Operation.READ else depth


def _best_rate_mpps(done_ps: NDArray[np.int64], together: int) -> float:
    """Return the best rate over any quarter of the test that holds equally many messages of each queue pair."""
    quarter = max(len(done_ps) // 4 // together, 1) * together
    spans = done_ps[quarter:] - done_ps[:-quarter]
    return quarter * 1e6 / max(int(spans.min(initial=1 << 60)), 1)


# -- latency ----------------------------------------------------------------------------------------------------------


def _measure_latency(fabric: Fabric, ends: tuple[int, int], settings: Settings, size_bytes: int) -> LatencyRow:
    """Measure with one message in flight at a time; the first iteration is not counted."""
    counted = settings.iterations or _enough(settings, size_bytes, _MOST_LAT)
    halves = settings.test.ways
    rows = (counted + 1) * halves
    after = [[], *([row] for row in range(rows - 1))]
    result = _run(fabric, ends, settings, size_bytes, np.arange(rows) % halves, after=after)
    back_ps = result.finish_ps[halves - 1 :: halves]
    return LatencyRow.of(size_bytes, np.diff(back_ps) / halves / 1e6)


# -- both -------------------------------------------------------------------------------------------------------------


def _enough(settings: Settings, size_bytes: int, most: int) -> int:
    """Return the number of iterations after which the figures are stable."""
    packets = -(-size_bytes // (settings.options.mtu_bytes or 4096))
    return int(np.clip(_PACKETS // (packets * settings.qps), _FEWEST, most))


def run_options(fabric: Fabric, settings: Settings) -> Options:
    """Return the options of the run; on a single cable there is no path to choose."""
    options = settings.options
    if options.paths is None and not len(fabric.of_kind(NodeKind.SWITCH)):
        options = replace(options, paths=Paths.TABLE)
    return options


def _run(
    fabric: Fabric, ends: tuple[int, int], settings: Settings, size_bytes: int, way: NDArray[np.int64], **columns: Any
) -> Result:
    """Run messages of one size, each forward (0) or back (1)."""
    traffic = Traffic.make(
        np.where(way == 0, *ends),
        np.where(way == 0, *ends[::-1]),
        size_bytes,
        operation=settings.operation,
        transport=settings.connection,
        description=f"{settings.test} {size_bytes}",
        **columns,
    )
    return PacketEngine().run(fabric, traffic, run_options(fabric, settings))
