"""The result of a flow run: times of messages and use of ports. Queues and waits are 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.sim.engine import Network
from weft.sim.flow.paths import add_use
from weft.sim.flow.plan import FlowPlan
from weft.sim.result import NEVER, PortSamples, PortUse, Result
from weft.sim.traffic import Traffic

TCP_ACK_EVERY = 2  # packets, as in the packet engine


def collect(flow_plan: FlowPlan, traffic: Traffic, engine: str, events: int, wall_s: float) -> Result:
    """Return the result of a plan after its messages have times and its flows have byte counts."""
    messages, n = flow_plan.state.messages, len(traffic)
    last = flow_plan.posting.last_of
    reads = last != np.arange(n)
    use, packets = _port_use(flow_plan)
    return Result(
        engine=engine,
        fabric=flow_plan.wiring.fabric,
        traffic=traffic,
        options=flow_plan.options,
        start_ps=messages.start_ps[:n].copy(),
        finish_ps=messages.finish_ps[last].copy(),
        acked_ps=np.where(reads, messages.finish_ps[last], messages.acked_ps[:n]),
        retransmitted=np.zeros(n, np.int32),
        use=use,
        samples=PortSamples.none(),
        packets=packets,
        packet_hops=int(use.xmit_packets.sum()),
        events=events,
        skipped_ps=0,
        wall_s=wall_s,
    )


def _acks(flow_plan: FlowPlan) -> NDArray[np.int64]:
    """Return the number of acknowledgements sent back for each flow ([flow])."""
    messages, qps = flow_plan.state.messages, flow_plan.state.qps
    acked = messages.acked_ps != NEVER
    each = np.ones(len(messages))
    if flow_plan.options.network is Network.TCP:  # the last packet of a message is acknowledged in any case
        others = messages.packets - 1
        sort = np.argsort(messages.qp, kind="stable")
        before = np.empty_like(others)  # packets of the same connection, which may have used up its quick ones
        before[sort] = np.cumsum(others[sort]) - others[sort]
        first = sort[np.searchsorted(messages.qp[sort], messages.qp)]
        quick = np.clip(qps.quick_acks[messages.qp] - (before - before[first]), 0, others)
        each += quick + (others - quick) // TCP_ACK_EVERY
    return np.bincount(messages.qp[acked], each[acked], minlength=len(qps)).astype(np.int64)


def _port_use(flow_plan: FlowPlan) -> tuple[PortUse, int]:
    """Return the use of the ports by slot, and the number of packets sent by hosts."""
    net, flows, wiring, posting = flow_plan.net, flow_plan.state.flows, flow_plan.wiring, flow_plan.posting
    xmit_bytes, xmit_packets = np.zeros(len(wiring.ports)), np.zeros(len(wiring.ports))
    acks = _acks(flow_plan)
    sent_bytes, sent_packets = flows.sent_bytes.copy(), flows.sent_packets.copy()
    add_use(net, net.src, net.dst, net.dlid, sent_bytes, sent_packets, xmit_bytes, xmit_packets)
    ack_bytes = acks * int(posting.size_bytes[posting.ack_size])
    add_use(net, net.dst, net.src, net.slid, ack_bytes, acks, xmit_bytes, xmit_packets)
    spread, nothing = wiring.by_slot, np.zeros(len(wiring.fabric.ports), np.int64)
    return PortUse(
        xmit_bytes=spread(np.rint(xmit_bytes)),
        xmit_packets=spread(np.rint(xmit_packets)),
        busy_ps=spread(np.rint(xmit_bytes * 8_000 / wiring.port_rate_gbit_s)),
        xmit_wait_ps=nothing,
        queue_peak_bytes=nothing,
        buffer_peak_bytes=nothing,
        corrupted_packets=nothing,
        dropped_packets=nothing,
        trimmed_packets=nothing,
        marked_packets=nothing,
        pauses=nothing,
    ), int(sent_packets.sum() + acks.sum())
