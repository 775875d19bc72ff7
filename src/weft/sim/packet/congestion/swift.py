"""Swift: a window that keeps the round trip at a target delay.

Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter", SIGCOMM 2020. The window
grows by one packet per round trip below the target and shrinks in proportion to the excess above it, once per round
trip. A window below one packet is paced. The target is the round trip without queues, the shortest that the flow has
seen, and a delay for each switch on the way; flows with small windows get more, since many of them share a queue.
"""

from __future__ import annotations

import math
from typing import Any

from weft.jit import part
from weft.sim.congestion import Control, Parameters, Ports
from weft.sim.engine import Network

INCREASE_PACKETS = 1.0  # ai, per round trip
DECREASE = 0.8  # beta
MOST_DECREASE = 0.5  # max_mdf
LEAST_PACKETS, MOST_PACKETS = 0.01, 4096.0
# The paper's delays are for lines of 100 Gbit/s; the queues that they stand for stay the same in bytes.
LINE_GBIT_S, HOP_PS, SCALING_PS = 100, 1_000_000, 5_000_000
SCALED_FROM, SCALED_TO = 0.1, 100.0  # fs_min_cwnd, fs_max_cwnd: windows between which the target is scaled

_RTT, _WINDOW, _CUT_PS = 0, 1, 2  # fields: shortest round trip, window in packets, time of the last cut


def prepare(ports: Ports, qps: Any) -> Parameters:
    return Parameters(fields=3)


def on_packet(qp, now_ps, table, fields, hops):
    line = 1024 / qp.line_ps_per_kib  # bytes per ps
    slower = LINE_GBIT_S / (8000 * line)
    if fields[_RTT] == 0 or qp.rtt_ps < fields[_RTT]:
        fields[_RTT] = qp.rtt_ps
    packet_bytes = qp.packet_bytes
    if fields[_WINDOW] == 0:
        fields[_WINDOW] = line * fields[_RTT] / packet_bytes
    window = fields[_WINDOW]
    target_ps = fields[_RTT] + slower * (HOP_PS * len(hops) + _scaling_ps(window))
    if qp.rtt_ps < target_ps:
        window += INCREASE_PACKETS / window if window >= 1 else INCREASE_PACKETS * window
    elif now_ps - fields[_CUT_PS] >= qp.rtt_ps:
        window *= max(1 - DECREASE * (qp.rtt_ps - target_ps) / qp.rtt_ps, 1 - MOST_DECREASE)
        fields[_CUT_PS] = now_ps
    window = min(max(window, LEAST_PACKETS), MOST_PACKETS)
    fields[_WINDOW] = window
    qp.window_bytes = window * packet_bytes
    qp.rate = 1.0 if window >= 1 else min(max(qp.window_bytes / (line * qp.rtt_ps), 0.0001), 1.0)


@part
def _scaling_ps(window):
    """Return the part of the target that grows as the window shrinks, from 0 to SCALING_PS."""
    slope = SCALING_PS / (1 / math.sqrt(SCALED_FROM) - 1 / math.sqrt(SCALED_TO))
    return max(0.0, min(slope * (1 / math.sqrt(window) - 1 / math.sqrt(SCALED_TO)), SCALING_PS))


SWIFT = Control(
    name="swift",
    networks=(Network.ROCE, Network.ROCE_V1, Network.INFINIBAND, Network.OMNI_PATH),
    prepare=prepare,
    on_packet=on_packet,
)
