"""One run of a scenario: everything must arrive, or there is no finding."""

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
    """By the packet engine. A message that never arrived would make a plausible wrong figure: it is an error."""
    result = PacketEngine().run(fabric, traffic, options)
    if not result.done:
        missing = int((result.finish_ps < 0).sum())
        raise SimulationBug(
            f"{traffic.description}: {missing:,} of {len(traffic):,} messages never arrived, and nothing said why"
        )
    return result


def latency_us(fabric: Fabric, test: Test, options: Options, size_bytes: int) -> float:
    """Of messages from the first server to the second, as perftest measures it."""
    row = _perftest(fabric, Settings(test=test, options=options), size_bytes)
    assert isinstance(row, LatencyRow)
    return row.typical_us


def bandwidth(fabric: Fabric, test: Test, options: Options, size_bytes: int, qps: int = 1) -> BandwidthRow:
    """Of the same two, on so many connections."""
    row = _perftest(fabric, Settings(test=test, qps=qps, options=options), size_bytes)
    assert isinstance(row, BandwidthRow)
    return row


def _perftest(fabric: Fabric, settings: Settings, size_bytes: int) -> LatencyRow | BandwidthRow:
    return next(perftest.measure(fabric, fabric.servers[0], fabric.servers[1], settings, [size_bytes]))
