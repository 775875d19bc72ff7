"""Credits of the receiver: a window is sent unasked, then a packet for each credit of the receiving adapter.

After NDP (Handley et al., SIGCOMM 2017), Homa (Montazeri et al., SIGCOMM 2018) and EQDS (Olteanu et al., NSDI 2022):
only the receiver knows all its senders, so it shares its line among them. It keeps the time until which its line is
booked: a message that begins books the window that its sender sends unasked, a credit books one packet. A credit leaves
when the line is booked for no more than a window. So credits pause until the unasked windows have arrived; from then
on packets arrive at the line rate, and the queue before the receiver stays short. Those papers trim or drop packets of
the first windows; here the network is lossless, and they wait.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.sim.congestion import Control, Parameters, Ports
from weft.sim.engine import Network

WINDOW_PS = 4_000_000  # of data at the line rate: more than a round trip without queues (RTTbytes)

_LEFT, _ALL, _PACKET_BYTES, _BOOKED_PS = 0, 1, 2, 3  # fields of the receiver


def prepare(ports: Ports, qps: Any) -> Parameters:
    qps.window_bytes = WINDOW_PS * 1024 / qps.line_ps_per_kib
    return Parameters(receiver_fields=1, table=np.array([float(WINDOW_PS)]))


def on_packet(qp, now_ps, table, fields, hops):
    qp.window_bytes = table[0] * 1024 / qp.line_ps_per_kib


def on_arrival(qp, now_ps, table, fields, hops):
    packet_ps = fields[_PACKET_BYTES] * qp.line_ps_per_kib / 1024
    unasked = table[0] / packet_ps  # packets
    fields[_BOOKED_PS] = max(fields[_BOOKED_PS], now_ps)
    if fields[_LEFT] == fields[_ALL] - 1:  # the first packet
        fields[_BOOKED_PS] += min(unasked, fields[_ALL]) * packet_ps
    later_ps = fields[_BOOKED_PS] - table[0] - now_ps
    if fields[_LEFT] >= unasked:  # else no packet is left to send for this credit
        fields[_BOOKED_PS] += packet_ps
    return int(max(later_ps, 0))


CREDITS = Control(
    name="credits",
    networks=(Network.ROCE, Network.ROCE_V1, Network.INFINIBAND, Network.OMNI_PATH),
    prepare=prepare,
    on_packet=on_packet,
    on_arrival=on_arrival,
)
