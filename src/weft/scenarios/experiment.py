"""Run a scenario's traffic: every message must arrive, or there is no finding."""

from __future__ import annotations

from weft.errors import SimulationBug
from weft.fabric.model import Fabric
from weft.sim import perftest
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.perftest import BandwidthRow, LatencyRow, Settings, Test
from weft.sim.result import Result
from weft.sim.traffic import Traffic


def run_packets(fabric: Fabric, traffic: Traffic, options: Options) -> Result:
    """Run the packet engine. Raise SimulationBug if a message never arrived, since the figure would be wrong."""
    result = PacketEngine().run(fabric, traffic, options)
    if not result.done:
        missing = int((result.finish_ps < 0).sum())
        raise SimulationBug(
            f"{traffic.description}: {missing:,} of {len(traffic):,} messages never arrived, without an error"
        )
    return result


def latency_us(fabric: Fabric, test: Test, options: Options, size_bytes: int) -> float:
    """Return the latency of messages from the first server to the second, as perftest measures it."""
    row = _perftest(fabric, Settings(test=test, options=options), size_bytes)
    assert isinstance(row, LatencyRow)
    return row.typical_us


def bandwidth(fabric: Fabric, test: Test, options: Options, size_bytes: int, qps: int = 1) -> BandwidthRow:
    """Return the bandwidth between the same two, on so many connections."""
    row = _perftest(fabric, Settings(test=test, qps=qps, options=options), size_bytes)
    assert isinstance(row, BandwidthRow)
    return row


def _perftest(fabric: Fabric, settings: Settings, size_bytes: int) -> LatencyRow | BandwidthRow:
    return next(perftest.measure(fabric, fabric.servers[0], fabric.servers[1], settings, [size_bytes]))
