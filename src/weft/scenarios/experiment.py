"""One run of a scenario: everything must arrive, or there is no finding."""

from __future__ import annotations

from weft.errors import SimulationBug
from weft.fabric.model import Fabric
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
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
