"""HPCC: a window that keeps the busiest link of the path at 95 % of its rate, by in-band telemetry.

Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019. Each acknowledgement tells how many bytes the flows
have in flight on each link, as a share of what the link can carry in one round trip. The window follows the largest
share at once; a reference window that changes once per round trip prevents two reactions to the same queue.
The round trip without queues is the shortest one that the flow has seen; the paper configures it.
"""

from __future__ import annotations

from typing import Any

from weft.jit import part
from weft.sim.congestion import Control, Parameters, Ports
from weft.sim.engine import Network
from weft.sim.packet.state import MOST_HOPS

TARGET = 0.95  # eta, share of the rate of the busiest link
STAGES = 5  # maxStage, round trips of additive increase before the next multiplicative one
FLOWS = 100  # N, flows that additive increase may add before the link is full; W_AI follows from it

# Fields of a queue pair: shortest round trip, U, reference window, incStage, PSN of the next update, known hops
_RTT, _U, _WINDOW, _STAGE, _UPDATE, _HOPS, _FIRST = 0, 1, 2, 3, 4, 5, 6
_PER_HOP = 4  # then for each hop: bytes sent, time, queue, port


def prepare(ports: Ports, qps: Any) -> Parameters:
    return Parameters(fields=_FIRST + _PER_HOP * MOST_HOPS)


def on_packet(qp, now_ps, table, fields, hops):
    line = 1024 / qp.line_ps_per_kib  # bytes per ps
    if fields[_RTT] == 0 or qp.rtt_ps < fields[_RTT]:
        fields[_RTT] = qp.rtt_ps
    full = line * fields[_RTT]  # bytes in flight that fill the line
    step = full * (1 - TARGET) / FLOWS
    if fields[_WINDOW] == 0:
        fields[_WINDOW] = qp.window_bytes = full
        fields[_UPDATE] = qp.sent_psn
    elif fields[_HOPS] == len(hops):
        _measure(fields, hops)
        updates = qp.ack_psn >= fields[_UPDATE]
        if fields[_U] >= TARGET or fields[_STAGE] >= STAGES:
            window = fields[_WINDOW] * TARGET / fields[_U] + step
            stage = 0.0
        else:
            window = fields[_WINDOW] + step
            stage = fields[_STAGE] + 1
        qp.window_bytes = min(max(window, step), full)
        if updates:
            fields[_WINDOW], fields[_STAGE], fields[_UPDATE] = qp.window_bytes, stage, qp.sent_psn
    qp.rate = min(max(qp.window_bytes / full, 0.0001), 1.0)
    fields[_HOPS] = len(hops)
    for at in range(len(hops)):
        place = _FIRST + _PER_HOP * at
        fields[place], fields[place + 1] = hops[at].sent_bytes, hops[at].time_ps
        fields[place + 2], fields[place + 3] = hops[at].queue_bytes, hops[at].port


@part
def _measure(fields, hops):
    """Update U: bytes in flight on the busiest link, as a share of its rate times the round trip."""
    busiest, over_ps = 0.0, fields[_RTT]
    for at in range(len(hops)):
        place, hop = _FIRST + _PER_HOP * at, hops[at]
        passed_ps = hop.time_ps - fields[place + 1]
        if passed_ps > 0 and hop.port == fields[place + 3]:
            rate = hop.rate_gbit_s / 8000  # bytes per ps
            queued = min(hop.queue_bytes, fields[place + 2]) / (rate * fields[_RTT])
            share = queued + (hop.sent_bytes - fields[place]) / passed_ps / rate
            if share > busiest:
                busiest, over_ps = share, min(passed_ps, fields[_RTT])
    weight = over_ps / fields[_RTT]
    fields[_U] = max((1 - weight) * fields[_U] + weight * busiest, 0.001)


HPCC = Control(
    name="hpcc",
    networks=(Network.ROCE, Network.ROCE_V1, Network.INFINIBAND, Network.OMNI_PATH),
    prepare=prepare,
    on_packet=on_packet,
)
