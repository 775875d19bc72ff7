"""Congestion control: switches mark, receivers tell, senders slow down and find their way back up.

ib      BECN raises the index into the congestion control table, a timer lowers it (Annex A10)
dcqcn   rate cut by an estimate of congestion, then fast recovery and additive increase (Zhu et al., SIGCOMM 2015)
tcp     slow start, congestion avoidance, one cut for each window with losses (RFC 5681, RFC 6675)
"""

from __future__ import annotations

from weft.jit import handler
from weft.sim.packet.lanes import schedule
from weft.sim.packet.nic import wake_qp
from weft.sim.packet.reliability import DUPLICATES, send_lost
from weft.sim.packet.state import NONE, Control, Kind

ALPHA_GAIN = 1 / 256  # g of the paper
FAST_ROUNDS = 5  # F of the paper
ADDITIVE_STEP = 1 / 100  # of the line for each step; the paper has 40 Mbit/s of 40 Gbit/s, adapters take more
SLOWEST = 1 / 1000  # of the line
CCT_ENTRIES = 128  # InfiniBand: index 128 waits 16 packet times after each packet
CCT_STEP = 1 / 8  # packet times for each index
CCT_INCREASE = 4  # for each BECN


@handler
def slow_down(s, qp_index):
    """A congestion notification has come for this queue pair."""
    run = s.run[0]
    qp = s.qps[qp_index]
    if run.control == Control.DCQCN:
        qp.target = qp.rate
        qp.alpha = (1 - ALPHA_GAIN) * qp.alpha + ALPHA_GAIN
        qp.rate = max(qp.rate * (1 - qp.alpha / 2), SLOWEST)
        qp.rounds = 0
    elif run.control == Control.IB:
        qp.rounds = min(qp.rounds + CCT_INCREASE, CCT_ENTRIES)
        qp.rate = 1 / (1 + qp.rounds * CCT_STEP)
    _pace(s, qp_index)
    if qp.rate_timer == 0:
        qp.rate_timer = 1
        schedule(s, run.now_ps + run.rate_ps, Kind.RATE, qp_index, 0)


@handler
def speed_up(s, qp_index):
    """Time has passed: a step back to the rate of the line."""
    run = s.run[0]
    qp = s.qps[qp_index]
    if run.control == Control.DCQCN:
        qp.alpha *= 1 - ALPHA_GAIN
        qp.rounds += 1
        if qp.rounds > FAST_ROUNDS:
            qp.target = min(qp.target + ADDITIVE_STEP, 1.0)
        qp.rate = (qp.rate + qp.target) / 2
        if qp.rate > 0.999:
            qp.rate = 1.0
    else:
        qp.rounds -= 1
        qp.rate = 1 / (1 + qp.rounds * CCT_STEP)
    _pace(s, qp_index)
    qp.rate_timer = 0
    if qp.rate < 1:
        qp.rate_timer = 1
        schedule(s, run.now_ps + run.rate_ps, Kind.RATE, qp_index, 0)


@handler
def _pace(s, qp_index):
    qp = s.qps[qp_index]
    qp.pace_ps_per_kib = 0 if qp.rate >= 1 else int(qp.line_ps_per_kib / qp.rate)


@handler
def on_tcp_ack(s, qp_index, psn, counts):
    """`counts` packets more have arrived, the last of them this one. The port to try."""
    run = s.run[0]
    qp = s.qps[qp_index]
    qp.in_flight = max(qp.in_flight - counts, 0)
    qp.deadline_ps = run.now_ps + run.timeout_ps
    qp.backoff = 0
    if psn >= qp.acked_psn:
        qp.acked_psn = psn + 1
    if qp.window_packets < qp.threshold:
        qp.window_packets += counts
    else:
        qp.window_packets += counts / qp.window_packets
    if qp.lost >= 0:
        _recover(s, qp_index)
    return wake_qp(s, qp_index)


@handler
def _recover(s, qp_index):
    """Fast retransmit: what three later packets have overtaken is lost. Lost packets are not in flight."""
    qp = s.qps[qp_index]
    newest = qp.lost
    while newest >= 0:  # has one of them been overtaken since the last cut?
        packet = s.packets[newest]
        if packet.psn + DUPLICATES < qp.acked_psn and packet.psn >= qp.recover_psn:
            qp.threshold = max(qp.window_packets / 2, 2.0)
            qp.window_packets = qp.threshold
            qp.recover_psn = (
                qp.given_psn if qp.unsent < 0 else s.messages[qp.unsent].first_psn + s.messages[qp.unsent].sent
            )
            newest = NONE
        else:
            newest = packet.next
    send_lost(s, qp_index, qp.acked_psn - DUPLICATES)
