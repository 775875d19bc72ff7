"""InfiniBand congestion control: BECN raises the index into the congestion control table, a timer lowers it (annex
A10).

Settings of MADs in switches and adapters apply, otherwise defaults: `weft.sim.layout.congestion`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.sim.congestion import MILLION, NEVER_BYTES, Control, Parameters, Ports
from weft.sim.engine import Network
from weft.sim.layout import congestion


def prepare(ports: Ports, qps: Any) -> Parameters:
    """Mark packets at an output that may send when a share of an input buffer waits for it."""
    threshold, marking_rate, smallest_bytes = congestion.switch_marks(ports.fabric)[ports.slot].T
    marks = np.zeros((len(ports.slot), 4), np.int64)
    above_bytes = ports.room_bytes * (congestion.THRESHOLDS - threshold) // congestion.THRESHOLDS
    marks[:, 0] = np.where(threshold > 0, above_bytes, NEVER_BYTES)
    marks[:, 2], marks[:, 3] = MILLION // np.maximum(marking_rate, 1), smallest_bytes
    adapters = congestion.adapters(ports.fabric, ports.line_gbit_s)
    qps.step_ps, qps.ccti_increase, qps.ccti_min = (
        adapters.timer_ps[qps.sl],
        adapters.increase[qps.sl],
        adapters.least[qps.sl],
    )
    qps.rounds = qps.ccti_min  # some start slowed
    qps.rate = adapters.rate[qps.rounds]
    qps.pace_ps_per_kib = np.where((qps.rate < 1) | (qps.slowed > 0), qps.line_ps_per_kib / qps.rate, 0)
    return Parameters(marks=marks, table=adapters.rate)


def on_notification(qp, now_ps, table):
    qp.rounds = min(qp.rounds + qp.ccti_increase, len(table) - 1)
    qp.rate = table[qp.rounds]


def on_timer(qp, now_ps, table):
    qp.rounds = max(qp.rounds - 1, qp.ccti_min)
    qp.rate = table[qp.rounds]
    return qp.rounds > qp.ccti_min


IB = Control(
    name="ib",
    networks=(Network.INFINIBAND, Network.OMNI_PATH),
    prepare=prepare,
    on_notification=on_notification,
    on_timer=on_timer,
)
