"""Apply a congestion control's rate to the pace of a queue pair, and schedule its timer."""

from __future__ import annotations

from weft.jit import ask, call, handler
from weft.sim.packet.delay_lines import schedule
from weft.sim.packet.state import PacketEvent


@handler
def slow_down(s, qp_index):
    """Handle a congestion notification for a queue pair."""
    run = s.run[0]
    qp = s.qps[qp_index]
    if run.on_notification == 0:
        return
    call(run.on_notification, qp, run.now_ps, s.control_table)
    set_pace(s, qp_index)
    if qp.rate_timer == 0 and run.on_timer != 0:
        qp.rate_timer = 1
        schedule(s, run.now_ps + qp.step_ps, PacketEvent.RATE, qp_index, 0)


@handler
def speed_up(s, qp_index):
    """Raise the rate of a queue pair by one step."""
    run = s.run[0]
    qp = s.qps[qp_index]
    if run.now_ps < qp.rate_due_ps:  # a notification has arrived since
        schedule(s, qp.rate_due_ps, PacketEvent.RATE, qp_index, 0)
        return
    qp.rate_due_ps = run.now_ps + qp.step_ps
    goes_on = ask(run.on_timer, qp, run.now_ps, s.control_table)
    set_pace(s, qp_index)
    qp.rate_timer = 0
    if goes_on and qp.rate < 1:
        qp.rate_timer = 1
        schedule(s, qp.rate_due_ps, PacketEvent.RATE, qp_index, 0)


@handler
def set_pace(s, qp_index):
    qp = s.qps[qp_index]
    qp.pace_ps_per_kib = 0 if qp.rate >= 1 and qp.slowed == 0 else int(qp.line_ps_per_kib / qp.rate)
