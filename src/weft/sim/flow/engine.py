"""The flow engine: messages as fluids, for networks too large to run packet by packet.

A message flows over the links of its path at its max-min fair rate, and is there when its last packet would be: it
is ready, its bytes pass at that rate, then what the packet engine needs on an idle network beyond those bytes, then
receiving.
Alone on the network it finishes when the packet engine says, to the picosecond. Who shares a link gets the same rate.

Not here: queues, credits, VLs and their arbitration, congestion control, TCP's windows and losses. A flow that is
limited elsewhere leaves its share to others at once, so nobody is the victim of another's full buffer; acknowledgements
take no room. `buffer_bytes`, `train`, `skip_tolerance` and `congestion_control` change nothing. TCP runs as flows
limited by the cores that copy and process, without slow start. Waits and peaks of ports are 0, `events` counts the
solutions of rates. Watched ports and cables with bit errors are refused.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from weft.errors import SimulationBug
from weft.fabric.model import Fabric
from weft.sim.engine import Network, Options, Progress
from weft.sim.flow.loop import run_moments
from weft.sim.flow.paths import add_use
from weft.sim.flow.plan import Plan, plan
from weft.sim.flow.state import Stop
from weft.sim.result import NEVER, PortUse, QueueSamples, Result
from weft.sim.traffic import Traffic

TCP_ACK_EVERY = 2  # packets, as in the packet engine
SLICE_MOMENTS = 200_000  # between two words of progress
_FOREVER_PS = 1 << 52


class FlowEngine:
    """Fair rates, no packets."""

    name = "flow"

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        """Run the traffic; raises ConfigError before the clock starts."""
        made = plan(fabric, traffic, options or Options())
        run_moments(made.state, 0)  # compiled, or read from the cache, before the clock
        begin = time.perf_counter()
        _finish(made, progress)
        _cut_off(made)
        return _result(made, traffic, time.perf_counter() - begin)


def _finish(made: Plan, progress: Progress | None) -> None:
    state = made.state
    run = state.run[0]
    run.until_ps = made.options.stop_at_ps or _FOREVER_PS
    while True:
        why = Stop(run_moments(state, SLICE_MOMENTS))
        if progress is not None:
            progress(len(state.messages) - int(run.left), len(state.messages))
        if why is Stop.SLICE:
            continue
        if why is Stop.DONE and run.left:
            raise SimulationBug(f"nothing is left to happen, and {int(run.left):,} messages have not arrived")
        return


def _cut_off(made: Plan) -> None:
    """At `stop_at_ps` what has not arrived has not, and what was under way was sent in part."""
    stop_ps = made.options.stop_at_ps
    if not stop_ps:
        return
    state = made.state
    messages, flows = state.messages, state.flows
    late = messages.finish_ps - flows.receive_ps[messages.qp] > stop_ps
    messages.finish_ps[late] = NEVER
    messages.acked_ps[messages.acked_ps > stop_ps] = NEVER
    under_way = flows[flows.message >= 0]
    sent_bytes = under_way.rate * (stop_ps - under_way.since_ps)
    full_bytes = state.size_bytes[messages.full[under_way.message]]
    flows.sent_bytes[flows.message >= 0] += sent_bytes.astype(np.int64)
    flows.sent_packets[flows.message >= 0] += np.ceil(sent_bytes / full_bytes).astype(np.int64)


def _result(made: Plan, traffic: Traffic, wall_s: float) -> Result:
    messages, n = made.state.messages, len(traffic)
    last = made.posting.last_of
    reads = last != np.arange(n)
    use, packets = _port_use(made)
    return Result(
        engine=FlowEngine.name,
        fabric=made.wiring.fabric,
        traffic=traffic,
        options=made.options,
        start_ps=messages.start_ps[:n].copy(),
        finish_ps=messages.finish_ps[last].copy(),
        acked_ps=np.where(reads, messages.finish_ps[last], messages.acked_ps[:n]),
        retransmitted=np.zeros(n, np.int32),
        use=use,
        samples=QueueSamples(port=(), time_ps=np.zeros(0, np.int64), queue_bytes=np.zeros((0, 0), np.int64)),
        packets=packets,
        packet_hops=int(use.xmit_packets.sum()),
        events=int(made.state.run.solutions[0]),
        skipped_ps=0,
        wall_s=wall_s,
    )


def _acks(made: Plan) -> NDArray[np.int64]:
    """[flow] -> acknowledgements that went back."""
    messages, qps = made.state.messages, made.state.qps
    acked = messages.acked_ps != NEVER
    each = np.ones(len(messages))
    if made.options.network is Network.TCP:  # the last packet of a message is acknowledged in any case
        each += (messages.packets - 1) // TCP_ACK_EVERY
    return np.bincount(messages.qp[acked], each[acked], minlength=len(qps)).astype(np.int64)


def _port_use(made: Plan) -> tuple[PortUse, int]:
    """What the ports did, by slot of the fabric; and the packets that hosts sent."""
    net, flows, wiring, posting = made.net, made.state.flows, made.wiring, made.posting
    xmit_bytes, xmit_packets = np.zeros(len(wiring.ports)), np.zeros(len(wiring.ports))
    acks = _acks(made)
    sent_bytes, sent_packets = flows.sent_bytes.copy(), flows.sent_packets.copy()
    add_use(net, net.src, net.dst, net.dlid, sent_bytes, sent_packets, xmit_bytes, xmit_packets)
    ack_bytes = acks * int(posting.size_bytes[posting.ack_size])
    add_use(net, net.dst, net.src, net.slid, ack_bytes, acks, xmit_bytes, xmit_packets)

    def spread(column: NDArray[np.float64]) -> NDArray[np.int64]:
        found = np.zeros(len(wiring.fabric.ports), np.int64)
        found[wiring.slot] = np.rint(column).astype(np.int64)
        return found

    nothing = spread(np.zeros(len(wiring.ports)))
    return PortUse(
        xmit_bytes=spread(xmit_bytes),
        xmit_packets=spread(xmit_packets),
        busy_ps=spread(xmit_bytes * 8_000 / wiring.port_rate_gbit_s),
        xmit_wait_ps=nothing,
        queue_peak_bytes=nothing,
        buffer_peak_bytes=nothing,
        corrupted_packets=nothing,
        dropped_packets=nothing,
        marked_packets=nothing,
        pauses=nothing,
    ), int(sent_packets.sum() + acks.sum())
