"""The event loop: arrivals, ends of hand-offs, ends of steps, and changes of phase, in the order of time."""

from __future__ import annotations

import enum

from weft.inference.serving.handoff import receive
from weft.inference.serving.queues import send_to_replica
from weft.inference.serving.state import NEVER_S, NONE, Stream
from weft.inference.serving.steps import end_steps, plan
from weft.inference.serving.wire import advance, remove_flow, solve
from weft.jit import handler, lean_kernel, part
from weft.jit.references import by_reference

_ROUNDING_BYTES = 0.5  # a hand-off with less to send has ended


class Stop(enum.IntEnum):
    """The reason for which the loop returns."""

    DONE = 0
    SLICE = 1
    STUCK = 2  # requests remain, and nothing can happen
    PHASE = 3  # the next phase begins: the caller changes to it


@lean_kernel
def run_events(s, budget):
    """Advance by at most `budget` events and return the reason for stopping."""
    s = by_reference(s)
    run = s.run[0]
    for _ in range(budget):
        if run.finished == len(s.requests):
            return Stop.DONE
        arrival_s = s.requests[run.next].arrival_s if run.next < run.issued else NEVER_S
        phase_s = s.phase_s[run.phase + 1] if run.phase + 1 < len(s.phase_s) else NEVER_S
        lane_s = _lane_s(s)
        step_s = s.clock_s[0, 0] if run.heap else NEVER_S
        now_s = min(min(arrival_s, phase_s), min(min(run.wire_end_s, lane_s), step_s))
        if now_s == NEVER_S:
            return Stop.STUCK
        run.area += run.inside * (now_s - run.now_s)
        run.now_s = now_s
        if phase_s == now_s:
            return Stop.PHASE
        if arrival_s == now_s:
            run.next += 1
            run.inside += 1
            send_to_replica(s, run.next - 1)
        elif run.wire_end_s == now_s:
            _end_flows(s)
        elif lane_s == now_s:
            index = run.lane_head
            run.lane_head = s.requests[index].next
            if run.lane_head < 0:
                run.lane_tail = NONE
            receive(s, index)
        else:
            row = s.clock_replica[0, 0]
            end_steps(s, row)
            plan(s, row)
    return Stop.SLICE


@part
def _lane_s(s):
    """Return when the next hand-off that has sent all its bytes is set up."""
    run = s.run[0]
    return s.requests[run.lane_head].sent_s + s.rules[0].setup_s if run.lane_head >= 0 else NEVER_S


@handler
def _end_flows(s):
    """End the hand-offs that have sent all their bytes."""
    run = s.run[0]
    advance(s)
    at = 0
    while at < run.flows:
        index = s.flow_request[at]
        if s.flow_left[at] > _ROUNDING_BYTES:
            at += 1
            continue
        remove_flow(s, index)
        if s.requests[index].stream == Stream.OPEN:
            s.requests[index].stream = Stream.DRAINED
        else:
            _set_up(s, index)
    solve(s)


@part
def _set_up(s, index):
    """Queue a hand-off for the time that its set-up takes."""
    run = s.run[0]
    request = s.requests[index]
    request.sent_s, request.next = run.now_s, NONE
    if run.lane_tail >= 0:
        s.requests[run.lane_tail].next = index
    else:
        run.lane_head = index
    run.lane_tail = index
