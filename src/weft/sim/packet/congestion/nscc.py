"""NSCC, the congestion control of Ultra Ethernet's senders: a window by round trips and marks, in four cases.

                       not marked                                       marked
    short queue    grow in proportion to the missing delay          leave it: only the path changes
    long queue     grow by a fair share                             shrink in proportion to the excess

After a loss or a very long queue, the window becomes what has arrived in the last round trip (quick adapt).

Ultra Ethernet Specification 1.0, "NSCC"; the constants are those of the reference simulator (`weft.sim.packet.uet`).
They are for 100 Gbit/s and 12 µs and scale with the product of rate and round trip.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.jit import part
from weft.sim.congestion import Control, Parameters, Ports
from weft.sim.engine import Network
from weft.sim.packet.uet.records import Cause

REFERENCE_BYTES = 150_000  # 100 Gbit/s times 12 µs
REFERENCE_RTT_PS = 12_000_000
TARGET_RTTS = 0.75  # target delay in queues, in round trips without queues
PROPORTIONAL, FAIR, ETA, FAST = 4.0, 5.0, 0.15, 0.25  # increases, the first three in packets
DECREASE, LEAST_LEFT = 0.8, 0.5  # factor of a decrease, and least part of the window that it leaves
DELAY_WEIGHT = 0.0125  # weight in the mean for the latest delay
SHORT_PS = 1_000_000  # a delay without queues
ADAPT_TARGETS = 4  # a delay above so many targets makes the window adapt
ADAPT_PART = 8  # if less than this part of the largest window has arrived
WINDOW_BDPS = 1.5
ADJUST_PACKETS = 8  # increases are applied so often, or every round trip

_NETWORK_RTT, _TARGET, _GRANTS = 0, 1, 2  # the table
# Fields of a queue pair: round trip without queues; bytes to add, times the window; bytes since they were last
# applied; bytes that arrived since the last check of quick adapt, and its time; bytes in flight at the last adaptation,
# and those heard of since; a loss since; bytes without queues; whether it grows fast; mean delay; times of a decrease
# and of the last application
_BASE, _ADD, _RECEIVED, _ACHIEVED, _CHECK_PS, _IGNORE, _IGNORED = 0, 1, 2, 3, 4, 5, 6
_LOSS, _CLEAR, _FAST, _DELAY, _CUT_PS, _APPLIED_PS = 7, 8, 9, 10, 11, 12


def _prepare(ports: Ports, qps: Any, grants: bool) -> Parameters:
    qps.window_bytes = WINDOW_BDPS * ports.network_rtt_ps * 1024 / qps.line_ps_per_kib
    target_ps = TARGET_RTTS * ports.network_rtt_ps if ports.trims else ports.network_rtt_ps
    return Parameters(fields=13, table=np.array([ports.network_rtt_ps, target_ps, float(grants)]))


def prepare(ports: Ports, qps: Any) -> Parameters:
    return _prepare(ports, qps, grants=False)


def prepare_with_credits(ports: Ports, qps: Any) -> Parameters:
    return _prepare(ports, qps, grants=True)


def on_packet(qp, now_ps, table, fields, hops):
    if fields[_BASE] == 0:
        fields[_BASE] = table[_NETWORK_RTT]
    if qp.rtt_ps > 0 and qp.rtt_ps < fields[_BASE]:
        fields[_BASE] = qp.rtt_ps
    if qp.cause == Cause.ACKED:
        fields[_RECEIVED] += qp.acked_bytes
        fields[_ACHIEVED] += qp.acked_bytes
        fields[_IGNORED] += qp.acked_bytes
        delay_ps = fields[_DELAY]
        if qp.rtt_ps > 0:
            delay_ps = qp.rtt_ps - fields[_BASE]
            _average(table, fields, delay_ps, qp.ecn_echo != 0)
        _on_ack(qp, now_ps, table, fields, delay_ps)
    elif qp.cause == Cause.LOST:
        qp.window_bytes = max(qp.window_bytes - qp.acked_bytes, float(qp.packet_bytes))
    else:
        fields[_IGNORED] += qp.acked_bytes
        _average(table, fields, table[_NETWORK_RTT], True)
        fields[_LOSS] = 1
        adapts = _adapt(qp, now_ps, table, fields, True, True, 0.0)
        # credits answer for the queue in front of the receiver
        if not adapts and not (table[_GRANTS] > 0 and qp.cause == Cause.TRIMMED_LAST_HOP):
            qp.window_bytes -= qp.acked_bytes
            _bound(qp, fields)


@part
def _largest(qp, fields):
    return WINDOW_BDPS * fields[_BASE] * 1024 / qp.line_ps_per_kib


@part
def _bound(qp, fields):
    qp.window_bytes = min(max(qp.window_bytes, float(qp.packet_bytes)), _largest(qp, fields))


@part
def _average(table, fields, delay_ps, marked):
    """Update the mean delay; a long one without a mark counts as a short one."""
    if not marked and delay_ps > table[_TARGET]:
        delay_ps = fields[_BASE] / 4
    fields[_DELAY] = DELAY_WEIGHT * delay_ps + (1 - DELAY_WEIGHT) * fields[_DELAY]


@part
def _adapt(qp, now_ps, table, fields, lost, marked, delay_ps):
    """Set the window to the bytes that have arrived in the last round trip if that is little and something was lost.

    Return whether the latest news is used up, or older than the adaptation.
    """
    done = False
    if fields[_IGNORED] < fields[_IGNORE] and marked:
        done = True
    elif now_ps > fields[_CHECK_PS]:
        bad = lost or fields[_LOSS] > 0 or delay_ps > ADAPT_TARGETS * table[_TARGET]
        if fields[_CHECK_PS] > 0 and bad and fields[_ACHIEVED] < _largest(qp, fields) / ADAPT_PART:
            qp.window_bytes = max(fields[_ACHIEVED], float(qp.packet_bytes))
            fields[_IGNORE], fields[_IGNORED] = qp.flight_bytes, 0.0
            fields[_LOSS] = 0
            done = True
        fields[_ACHIEVED] = 0
        fields[_CHECK_PS] = now_ps + fields[_BASE] + table[_TARGET]
    if done:
        fields[_ADD] = fields[_RECEIVED] = 0
    return done


@part
def _on_ack(qp, now_ps, table, fields, delay_ps):
    marked = qp.ecn_echo != 0
    if _adapt(qp, now_ps, table, fields, False, marked, delay_ps):
        return
    scale = table[_NETWORK_RTT] * 1024 / qp.line_ps_per_kib / REFERENCE_BYTES
    target_ps = table[_TARGET]
    if marked and delay_ps >= target_ps:
        _decrease(qp, now_ps, target_ps, fields)
    elif not marked and delay_ps >= target_ps:
        fields[_ADD] += FAIR * qp.packet_bytes * scale * qp.acked_bytes
    elif not marked and not _grow_fast(qp, fields, scale, delay_ps):
        gain = PROPORTIONAL * qp.packet_bytes * scale / REFERENCE_RTT_PS
        fields[_ADD] += gain * qp.acked_bytes * (target_ps - delay_ps)
    _bound(qp, fields)
    late = now_ps - fields[_APPLIED_PS] > table[_NETWORK_RTT]
    if late or fields[_RECEIVED] > ADJUST_PACKETS * qp.packet_bytes:
        qp.window_bytes += fields[_ADD] / qp.window_bytes
        if now_ps - fields[_APPLIED_PS] >= table[_NETWORK_RTT]:
            qp.window_bytes += ETA * qp.packet_bytes * scale
            fields[_APPLIED_PS] = now_ps
        fields[_ADD] = fields[_RECEIVED] = 0
    _bound(qp, fields)


@part
def _grow_fast(qp, fields, scale, delay_ps):
    """Grow at once if a whole window has met no queue. Return whether it has."""
    if delay_ps < SHORT_PS:
        fields[_CLEAR] += qp.acked_bytes
        if fields[_CLEAR] > qp.window_bytes or fields[_FAST] > 0:
            qp.window_bytes += qp.acked_bytes * FAST * scale
            fields[_FAST] = 1
            return True
    else:
        fields[_CLEAR] = 0
    fields[_FAST] = 0
    return False


@part
def _decrease(qp, now_ps, target_ps, fields):
    fields[_FAST] = fields[_CLEAR] = 0
    excess = (fields[_DELAY] - target_ps) / max(fields[_DELAY], 1.0)
    if excess > 0 and now_ps - fields[_CUT_PS] > fields[_BASE]:
        qp.window_bytes *= max(1 - DECREASE * excess, LEAST_LEFT)
        fields[_CUT_PS] = now_ps


NSCC = Control(name="nscc", networks=(Network.UET,), prepare=prepare, on_packet=on_packet)
NSCC_RCCC = Control(
    name="nscc-rccc", networks=(Network.UET,), prepare=prepare_with_credits, on_packet=on_packet, grants=True
)
