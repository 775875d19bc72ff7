"""DCQCN: the rate is cut by an estimate of congestion, then fast recovery, additive and hyper increase.

Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015. Its two timers, for the estimate and
for the rate, restart at every notification and have the same length, so they are one here. The byte counter is read
when that timer expires.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.jit import part
from weft.sim.congestion import NEVER_BYTES, Control, Parameters, Ports
from weft.sim.engine import Network

# Values of the paper, with rates as shares of its 40 Gbit/s line. Firmware of NVIDIA's adapters has the same
# parameters with other defaults, among them 5 Mbit/s per 300 µs, which would take seconds to fill a current line
# again.
ALPHA_GAIN = 1 / 256  # g
FAST_ROUNDS = 5  # F
ADDITIVE_STEP = 1 / 1000  # R_AI: 40 Mbit/s
HYPER_STEP = 1 / 100  # R_HAI: ten times that, as in QCN, on which it is based (IEEE 802.1Qau)
BYTE_COUNTER = 10_000_000  # B: sending this many bytes counts as a round too
SLOWEST = 1 / 1000  # share of the line rate
FORGOTTEN_ROUNDS = 4096  # after this many rounds without notification alpha is 0
# The timers T and K, and N between notifications, for that line; they scale with the line rate: 5 µs between
# notifications at 400 Gbit/s, where NVIDIA's firmware has 4.
LINE_GBIT_S, STEP_PS, NOTIFY_PS = 40, 55_000_000, 50_000_000
# NVIDIA Cumulus Linux, `nv set qos roce`: ECN from 150,000 bytes in the queue, always from 1,500,000, at all speeds,
# with one large shared buffer. If each input pauses at its own share, every packet must be marked before that, or PFC
# prevents ECN from acting (section 4 of the paper): then both are shares of an input buffer.
ECN_LOW_BYTES, ECN_HIGH_BYTES, ECN_PPM = 150_000, 1_500_000, 1_000_000
ECN_LOW_PART, ECN_HIGH_PART = 1 / 4, 3 / 4


def ecn_marks(ports: Ports) -> NDArray[np.int64]:
    """Return ECN thresholds as in RED: random marking from a low threshold, marking of all packets from a high one."""
    marks = np.zeros((len(ports.slot), 4), np.int64)
    marks[:, 0] = np.minimum(ECN_LOW_BYTES, ports.pause_bytes * ECN_LOW_PART)
    marks[:, 1] = np.minimum(ECN_HIGH_BYTES, ports.pause_bytes * ECN_HIGH_PART)
    marks[:, 2] = ECN_PPM
    return marks


def prepare(ports: Ports, qps: Any) -> Parameters:
    slower = LINE_GBIT_S / ports.line_gbit_s
    qps.step_ps = round(STEP_PS * slower)
    return Parameters(marks=ecn_marks(ports), notify_ps=round(NOTIFY_PS * slower))


def prepare_with_routing(ports: Ports, qps: Any) -> Parameters:
    """Mark in front of receivers only: adaptive routing deals with the queues before that."""
    parameters = prepare(ports, qps)
    assert parameters.marks is not None
    fabric, peer = ports.fabric, ports.fabric.ports.peer[ports.slot]
    to_switch = (peer >= 0) & (fabric.nodes.kind[fabric.ports.node[peer]] == NodeKind.SWITCH)
    parameters.marks[to_switch, :2] = NEVER_BYTES
    return parameters


def on_notification(qp, now_ps, table):
    if qp.rate_timer == 0 and qp.rate_due_ps > 0:  # it was at full speed, and the estimate has decayed since
        for _ in range(min((now_ps - qp.rate_due_ps) // qp.step_ps, FORGOTTEN_ROUNDS)):
            qp.alpha *= 1 - ALPHA_GAIN
    qp.target = qp.rate
    qp.rate = max(qp.rate * (1 - qp.alpha / 2), SLOWEST)
    qp.alpha = (1 - ALPHA_GAIN) * qp.alpha + ALPHA_GAIN
    qp.rounds = 0
    qp.byte_rounds = 0
    qp.paced_bytes = 0
    qp.rate_due_ps = now_ps + qp.step_ps


def on_timer(qp, now_ps, table):
    qp.alpha *= 1 - ALPHA_GAIN
    qp.rounds += 1
    _raise_rate(qp)
    while qp.paced_bytes >= BYTE_COUNTER:
        qp.paced_bytes -= BYTE_COUNTER
        qp.byte_rounds += 1
        _raise_rate(qp)
    if qp.rate > 0.999:
        qp.rate = 1.0
    return True


@part
def _raise_rate(qp):
    """Move halfway to the target; after some rounds raise the target too, faster if both counters agree."""
    if min(qp.rounds, qp.byte_rounds) > FAST_ROUNDS:
        qp.target = min(qp.target + HYPER_STEP, 1.0)
    elif max(qp.rounds, qp.byte_rounds) > FAST_ROUNDS:
        qp.target = min(qp.target + ADDITIVE_STEP, 1.0)
    qp.rate = (qp.rate + qp.target) / 2


SPECTRUM_X = Control(
    name="spectrum-x",
    networks=(Network.ROCE, Network.ROCE_V1),
    prepare=prepare_with_routing,
    on_notification=on_notification,
    on_timer=on_timer,
)
DCQCN = Control(
    name="dcqcn",
    networks=(Network.ROCE, Network.ROCE_V1),
    prepare=prepare,
    on_notification=on_notification,
    on_timer=on_timer,
)
