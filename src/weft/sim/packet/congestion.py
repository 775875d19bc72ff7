"""Congestion control: switches mark, receivers tell, senders slow down and find their way back up.

ib      BECN raises the index into the congestion control table, a timer lowers it (Annex A10)
dcqcn   rate cut by an estimate of congestion, then fast recovery, additive and hyper increase (Zhu et al., SIGCOMM
        2015). Its two timers, for the estimate and for the rate, start anew at every notification and have one length,
        so they are one here. The byte counter is looked at when that timer rings.
tcp     slow start, congestion avoidance, one cut for each window with losses (RFC 5681, RFC 6675)
"""

from __future__ import annotations

from weft.jit import handler
from weft.sim.layout.records import Control
from weft.sim.packet.lanes import schedule
from weft.sim.packet.nic import wake_qp
from weft.sim.packet.reliability import hear, notice, resend, settle
from weft.sim.packet.state import Kind

# Of the paper, with rates as parts of its line of 40 Gbit/s. Firmware of NVIDIA's adapters has the same knobs with
# other defaults, among them 5 Mbit/s for each 300 µs, which would take seconds to fill a line of today again.
ALPHA_GAIN = 1 / 256  # g
FAST_ROUNDS = 5  # F
ADDITIVE_STEP = 1 / 1000  # R_AI: 40 Mbit/s
HYPER_STEP = 1 / 100  # R_HAI: ten times that, as in QCN, from which it comes (IEEE 802.1Qau)
BYTE_COUNTER = 10_000_000  # B: sending so much is a round too
SLOWEST = 1 / 1000  # of the line
FORGOTTEN_ROUNDS = 4096  # after so many without notification alpha is 0
SEND_BUFFER_BYTES = 4 << 20  # Linux: the most of tcp_wmem, so the most that is in flight


@handler
def slow_down(s, qp_index):
    """A congestion notification has come for this queue pair."""
    run = s.run[0]
    qp = s.qps[qp_index]
    step_ps = s.rate_ps[qp.sl]
    if run.control == Control.DCQCN:
        if qp.rate_timer == 0 and qp.rate_due_ps > 0:  # it was at full speed, and the estimate faded meanwhile
            for _ in range(min((run.now_ps - qp.rate_due_ps) // step_ps, FORGOTTEN_ROUNDS)):
                qp.alpha *= 1 - ALPHA_GAIN
        qp.target = qp.rate
        qp.rate = max(qp.rate * (1 - qp.alpha / 2), SLOWEST)
        qp.alpha = (1 - ALPHA_GAIN) * qp.alpha + ALPHA_GAIN
        qp.rounds = 0
        qp.byte_rounds = 0
        qp.paced_bytes = 0
        qp.rate_due_ps = run.now_ps + step_ps
    elif run.control == Control.IB:
        qp.rounds = min(qp.rounds + s.rate_increase[qp.sl], len(s.rates) - 1)
        qp.rate = s.rates[qp.rounds]
    _pace(s, qp_index)
    if qp.rate_timer == 0:
        qp.rate_timer = 1
        schedule(s, run.now_ps + step_ps, Kind.RATE, qp_index, 0)


@handler
def speed_up(s, qp_index):
    """Time has passed: a step back to the rate of the line."""
    run = s.run[0]
    qp = s.qps[qp_index]
    if run.now_ps < qp.rate_due_ps:  # a notification came meanwhile
        schedule(s, qp.rate_due_ps, Kind.RATE, qp_index, 0)
        return
    qp.rate_due_ps = run.now_ps + s.rate_ps[qp.sl]
    is_below = True  # what it may come back to
    if run.control == Control.DCQCN:
        qp.alpha *= 1 - ALPHA_GAIN
        qp.rounds += 1
        _raise_rate(s, qp_index)
        while qp.paced_bytes >= BYTE_COUNTER:
            qp.paced_bytes -= BYTE_COUNTER
            qp.byte_rounds += 1
            _raise_rate(s, qp_index)
        if qp.rate > 0.999:
            qp.rate = 1.0
    else:
        qp.rounds = max(qp.rounds - 1, s.rate_least[qp.sl])
        qp.rate = s.rates[qp.rounds]
        is_below = qp.rounds > s.rate_least[qp.sl]
    _pace(s, qp_index)
    qp.rate_timer = 0
    if is_below and qp.rate < 1:
        qp.rate_timer = 1
        schedule(s, qp.rate_due_ps, Kind.RATE, qp_index, 0)


@handler
def _raise_rate(s, qp_index):
    """Half the way back to the target; after some rounds that rises too, faster when both counters say so."""
    qp = s.qps[qp_index]
    if min(qp.rounds, qp.byte_rounds) > FAST_ROUNDS:
        qp.target = min(qp.target + HYPER_STEP, 1.0)
    elif max(qp.rounds, qp.byte_rounds) > FAST_ROUNDS:
        qp.target = min(qp.target + ADDITIVE_STEP, 1.0)
    qp.rate = (qp.rate + qp.target) / 2


@handler
def _pace(s, qp_index):
    qp = s.qps[qp_index]
    qp.pace_ps_per_kib = 0 if qp.rate >= 1 and qp.slowed == 0 else int(qp.line_ps_per_kib / qp.rate)


@handler
def on_tcp_ack(s, qp_index, psn, total):
    """In all `total` packets have arrived, modulo 2^15, the last of them this one. The port to try."""
    qp = s.qps[qp_index]
    arrived = (total - qp.counted) & 0x7FFF
    if arrived < 0x4000:  # else a later acknowledgement has overtaken this one
        qp.counted = total
    else:
        arrived = 0
    used = qp.in_flight
    qp.in_flight = max(used - arrived, 0)
    qp.acked_psn = max(qp.acked_psn, psn + 1)
    if qp.window_packets < qp.threshold or qp.acked_psn > qp.recover_psn:
        _grow_window(s, qp_index, used, arrived)
    while qp.oldest >= 0 and _has_come(s, qp_index):
        settle(s, qp.oldest)
        qp.oldest = s.messages[qp.oldest].next
    notice(s, qp_index, qp.acked_psn)
    hear(s, qp_index)
    resend(s, qp_index)
    return wake_qp(s, qp_index)


@handler
def _has_come(s, qp_index):
    """Acknowledgements are for all before: that of the oldest message may have been lost."""
    qp = s.qps[qp_index]
    oldest = s.messages[qp.oldest]
    return oldest.received == oldest.packets and oldest.first_psn + oldest.packets <= qp.acked_psn


@handler
def _grow_window(s, qp_index, used, arrived):
    """Only a window that was used grows, as Linux does (RFC 7661): half of it in slow start, else all."""
    qp = s.qps[qp_index]
    if qp.window_packets < qp.threshold:
        if 2 * used >= qp.window_packets:
            qp.window_packets += arrived
    elif used + 1 >= qp.window_packets:
        qp.window_packets += arrived / qp.window_packets
    most = SEND_BUFFER_BYTES // s.size_bytes[s.messages[qp.last].full]
    qp.window_packets = min(qp.window_packets, max(most, 2))
