"""TCP Reno, the default of TCP: slow start, congestion avoidance, one cut per window with losses.

RFC 5681, RFC 6675. As in Linux (RFC 7661), only a used window grows: half used in slow start, else fully.
"""

from __future__ import annotations

from weft.sim.congestion import Control
from weft.sim.engine import Network


def on_ack(qp, now_ps, table):
    if qp.window_packets < qp.threshold:
        if 2 * qp.in_flight >= qp.window_packets:
            qp.window_packets += qp.newly_acked
    elif qp.in_flight + 1 >= qp.window_packets:
        qp.window_packets += qp.newly_acked / qp.window_packets


def on_loss(qp, now_ps, table):
    qp.threshold = max(qp.window_packets / 2, 2.0)
    qp.window_packets = qp.threshold


def on_timeout(qp, now_ps, table):
    qp.threshold = max(qp.window_packets / 2, 2.0)
    qp.window_packets = 1.0


RENO = Control(name="reno", networks=(Network.TCP,), on_ack=on_ack, on_loss=on_loss, on_timeout=on_timeout)
