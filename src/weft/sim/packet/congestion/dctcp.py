"""DCTCP: TCP whose window shrinks in proportion to the share of marked packets.

Alizadeh et al., "Data Center TCP", SIGCOMM 2010, and RFC 8257. Switches mark every packet that finds more than K bytes
in the queue; the sender estimates the marked share once per window and cuts by half of it. After losses it does
as Reno.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.sim.congestion import MILLION, Control, Parameters, Ports
from weft.sim.engine import Network
from weft.sim.packet.congestion.reno import on_ack, on_loss, on_timeout

GAIN = 1 / 16  # g
# K: 65 packets of 1500 bytes at 10 Gbit/s, in proportion at other rates, but far below the length that drops.
K_BYTES_PER_GBIT_S = 65 * 1500 / 10

# Fields: estimate alpha, packets acknowledged and marked in this window, PSN at its end, whether it was cut
_ALPHA, _ACKED, _MARKED, _END, _CUT = 0, 1, 2, 3, 4


def prepare(ports: Ports, qps: Any) -> Parameters:
    marks = np.zeros((len(ports.slot), 4), np.int64)
    marks[:, 0] = marks[:, 1] = np.minimum(K_BYTES_PER_GBIT_S * ports.rate_gbit_s, ports.pause_bytes)
    marks[:, 2] = MILLION
    return Parameters(marks=marks, fields=5)


def on_packet(qp, now_ps, table, fields, hops):
    if fields[_END] == 0:  # RFC 8257: begin with 1
        fields[_ALPHA], fields[_END] = 1.0, qp.sent_psn
    fields[_ACKED] += 1
    if qp.ecn_echo:
        fields[_MARKED] += 1
    if qp.ack_psn >= fields[_END]:
        fields[_ALPHA] += GAIN * (fields[_MARKED] / fields[_ACKED] - fields[_ALPHA])
        fields[_ACKED] = fields[_MARKED] = fields[_CUT] = 0
        fields[_END] = qp.sent_psn
    if qp.ecn_echo and fields[_CUT] == 0:
        fields[_CUT] = 1
        qp.window_packets = max(qp.window_packets * (1 - fields[_ALPHA] / 2), 2.0)
        qp.threshold = qp.window_packets


DCTCP = Control(
    name="dctcp",
    networks=(Network.TCP,),
    prepare=prepare,
    on_ack=on_ack,
    on_loss=on_loss,
    on_timeout=on_timeout,
    on_packet=on_packet,
)
