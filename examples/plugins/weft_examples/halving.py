"""A congestion control: half the rate at every notification, a twentieth of the line rate more every 20 µs.

Additive increase, multiplicative decrease (Chiu and Jain, 1989). The functions are kernels: the packet engine
compiles them. They
get one queue pair, the time in picoseconds, and a table of numbers, which this one does not need.
"""

from __future__ import annotations

from weft.sim.congestion import Control, Parameters, Ports
from weft.sim.packet.congestion.dcqcn import ecn_marks


def prepare(ports: Ports, qps) -> Parameters:
    """Mark in switches as for DCQCN; notify a sender at most once in 5 µs."""
    qps.step_ps = 20_000_000
    return Parameters(marks=ecn_marks(ports), notify_ps=5_000_000)


def on_notification(qp, now_ps, table):
    qp.rate = max(qp.rate / 2, 0.01)


def on_timer(qp, now_ps, table):
    qp.rate = min(qp.rate + 0.05, 1.0)
    return True


HALVING = Control(
    name="halving",
    networks=("roce", "roce-v1"),
    prepare=prepare,
    on_notification=on_notification,
    on_timer=on_timer,
)


ENTRY_POINTS = {"weft.congestion": {"halving": HALVING}}  # for weft --plugin
