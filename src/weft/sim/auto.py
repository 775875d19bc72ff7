"""`--engine auto`: packets where they are affordable or needed, else flows.

The result names the engine that ran, and the reason.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.fabric.model import Fabric
from weft.sim.adaptive import POLICIES
from weft.sim.engine import Crossbar, Options, Progress
from weft.sim.flow.engine import FlowEngine
from weft.sim.flow.plan import find_packet_option, plan
from weft.sim.layout.rules import OVERTAKING, fill_in
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import Engine, Result
from weft.sim.traffic import Traffic

AFFORDABLE_HOPS = 20_000_000  # packets times links: seconds on one core
# A message takes as long as so many packet-hops (`benchmarks/flow.py`, 1,024 hosts at load 0.8).
HOPS_OF_A_FLOW = 80
_SAMPLE = 256  # messages whose paths are followed


class AutoEngine:
    """The packet engine or the flow engine, by the traffic."""

    name = "auto"

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        """Choose an engine and run the traffic."""
        engine, reason = choose_engine(fabric, traffic, options or Options())
        return replace(engine.run(fabric, traffic, options, progress=progress), choice=reason)


def choose_engine(fabric: Fabric, traffic: Traffic, options: Options) -> tuple[Engine, str]:
    """Return the engine for this traffic, and the reason."""
    needed = _needs_packets(fabric, traffic, options)
    if needed:
        return PacketEngine(), f"flows have no {needed}"
    hops = estimate_hops(fabric, traffic, options)
    if hops <= AFFORDABLE_HOPS:
        return PacketEngine(), f"about {hops:,} packet-hops, up to {AFFORDABLE_HOPS:,}"
    each = hops // len(traffic)
    if each <= HOPS_OF_A_FLOW:
        return PacketEngine(), f"about {each} packet-hops a message, cheaper than a flow"
    return FlowEngine(), f"about {hops:,} packet-hops, over {AFFORDABLE_HOPS:,}"


def _needs_packets(fabric: Fabric, traffic: Traffic, options: Options) -> str:
    """Return the part of the input that flows do not model; empty if there is none."""
    if options.watch:
        return "queues to watch"
    if options.faults:
        return "cables that fail during a run"
    if traffic.mlid.any():
        return "multicast"
    if traffic.reduction.any():
        return "reductions in switches"
    if options.capture:
        return "packets to capture"
    if options.crossbar is not Crossbar.OUTPUT_QUEUED:
        return "a crossbar with one read port"
    if options.in_order and options.paths is not None and POLICIES[str(options.paths)].selection in OVERTAKING:
        return "packets that overtake"
    if options.paths is not None and POLICIES[str(options.paths)].detour:
        return "queues to choose detours by"
    if fabric.links.bit_error_rate.any():
        return "bit errors"
    name = find_packet_option(fabric, options)
    return name.replace("_bytes", "").replace("_", " ")


def estimate_hops(fabric: Fabric, traffic: Traffic, options: Options) -> int:
    """Estimate the packets times links of a traffic, without acknowledgements, from the paths of some messages."""
    if not len(traffic):
        return 0
    at = np.unique(np.linspace(0, len(traffic) - 1, _SAMPLE).astype(np.int64))
    state = plan(fabric, Traffic.make(traffic.src[at], traffic.dst[at], 1), replace(options, watch=())).state
    hops = np.diff(state.hop_first)[state.messages.qp].mean()
    packets = np.maximum(-(-traffic.size_bytes // fill_in(fabric, options)[0].mtu_bytes), 1)
    return int(packets.sum() * hops)
