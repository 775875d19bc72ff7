"""Failed replicas: their requests go back to the router, which has the tokens so far computed again elsewhere."""

from __future__ import annotations

from weft.inference.serving.clock import run_s, steps_until, stop, wake
from weft.inference.serving.prefix import clear
from weft.inference.serving.queues import lose, release, send_to_replica
from weft.inference.serving.state import NONE, Kind, Role, Stream
from weft.inference.serving.steps import end_steps, preempt
from weft.inference.serving.wire import advance, can_send, remove_flow, solve
from weft.jit import handler, lean_kernel, part
from weft.jit.references import by_reference


@lean_kernel
def change_phase(s):
    """Begin the next phase: replicas fail or return, and tables and routes change.

    It is a kernel of its own, so that only runs with faults compile it.
    """
    s = by_reference(s)
    run = s.run[0]
    advance(s)
    for row in range(len(s.replicas)):
        if s.replicas[row].alive and not s.alive[run.phase + 1, row]:
            _end_whole_steps(s, row)
        else:
            wake(s, row)
    run.phase += 1
    for row in range(len(s.replicas)):
        replica = s.replicas[row]
        fails = replica.alive and not s.alive[run.phase, row]
        replica.alive = s.alive[run.phase, row]
        s.serves[0, row] = replica.alive and replica.role != Role.DECODE
        s.serves[1, row] = replica.alive and replica.role == Role.DECODE
        if fails:
            _evacuate(s, row)
    _leave_cut_routes(s)
    solve(s)
    index = run.lost_head
    run.lost_head = run.lost_tail = NONE
    while index >= 0:
        following = s.requests[index].next
        send_to_replica(s, index)
        index = following


@part
def _end_whole_steps(s, row):
    """End the decode steps that are over; the step under way is lost."""
    replica = s.replicas[row]
    now_s = s.run[0].now_s
    if replica.kind == Kind.DECODE:
        steps = steps_until(s, row, now_s)
        if replica.began_s + run_s(s, row, steps) + (replica.late_s if steps == replica.steps else 0.0) > now_s:
            steps -= 1
            replica.late_s = 0.0
        replica.steps = steps
        if steps > 0:
            end_steps(s, row)


@handler
def _evacuate(s, row):
    """Send all requests of a failed replica back to the router. They keep their tokens, and lose their KV."""
    replica = s.replicas[row]
    stop(s, row)
    while replica.run_tail >= 0:
        index = replica.run_tail
        preempt(s, row, index)
        s.requests[index].preemptions -= 1  # counted as a retry
        _retry(s, row, index)
    for i in range(replica.batch):
        _drop_prefill(s, row, s.batch[row, i])
    if replica.partial >= 0:
        _drop_prefill(s, row, replica.partial)
    replica.kind, replica.batch, replica.chunk, replica.partial = Kind.IDLE, 0, 0, NONE
    replica.stall_s, replica.blocked = 0.0, 0
    index, replica.wait_head, replica.wait_tail = replica.wait_head, NONE, NONE
    while index >= 0:
        following = s.requests[index].next
        _retry(s, row, index)
        index = following
    index, replica.arrived_head, replica.arrived_tail = replica.arrived_head, NONE, NONE
    while index >= 0:
        following = s.requests[index].next
        release(s, row, index, s.requests[index].prompt + s.requests[index].made - 1)
        replica.staged -= 1
        _retry(s, row, index)
        index = following
    _drop_handoffs(s, row)
    clear(s, row)


@part
def _retry(s, row, index):
    """Queue a request for another replica; the router sends it at the end of this change."""
    request = s.requests[index]
    s.outstanding[row] -= 1
    request.retries += 1
    request.left, request.stream, request.source = 0, Stream.NO, NONE
    if request.made > 0 and request.last_s < 0:
        request.last_s = s.run[0].now_s
    lose(s, index)


@handler
def _drop_prefill(s, row, index):
    """End a prefill, and the hand-off that started with it."""
    request = s.requests[index]
    if request.stream != Stream.NO:
        if request.flow >= 0:
            remove_flow(s, index)
        _free_target(s, index)
    release(s, row, index, request.prompt + request.made)
    _retry(s, row, index)


@part
def _free_target(s, index):
    """Free the room of a hand-off at its decode replica."""
    request = s.requests[index]
    target = s.replicas[request.replica]
    target.used -= request.prompt + request.made - (1 if request.stream == Stream.CLOSED else 0) + s.rules[0].waste
    target.staged -= 1
    s.outstanding[request.replica] -= 1
    request.stream = Stream.NO
    wake(s, request.replica)


@handler
def _drop_handoffs(s, row):
    """End all hand-offs from and to a failed replica."""
    at = 0
    while at < s.run[0].flows:
        index = s.flow_request[at]
        if s.requests[index].source == row or s.requests[index].replica == row:
            _drop_flow(s, index)
        else:
            at += 1
    _drop_set_up(s, row)
    for other in range(len(s.replicas)):
        _drop_queued(s, other, row)
        _drop_drained(s, other, row)


@handler
def _drop_flow(s, index):
    """End a hand-off on the wire. A prefill under way goes on, and is handed to another replica."""
    request = s.requests[index]
    if request.flow >= 0:
        remove_flow(s, index)
    closed = request.stream == Stream.CLOSED
    _free_target(s, index)
    if closed:
        release(s, request.source, index, request.prompt + request.made - 1)
        wake(s, request.source)
        _retry(s, request.source, index)


@handler
def _drop_set_up(s, row):
    """End the hand-offs from and to a failed replica that have sent all their bytes."""
    run = s.run[0]
    index, run.lane_head, run.lane_tail = run.lane_head, NONE, NONE
    while index >= 0:
        request = s.requests[index]
        following, request.next = request.next, NONE
        if request.source == row or request.replica == row:
            _drop_flow(s, index)
        else:
            if run.lane_tail >= 0:
                s.requests[run.lane_tail].next = index
            else:
                run.lane_head = index
            run.lane_tail = index
        index = following


@handler
def _drop_queued(s, other, row):
    """Take requests out of the queue of a decode replica, where it or their prefill replica has failed."""
    replica = s.replicas[other]
    index, replica.hand_head, replica.hand_tail = replica.hand_head, NONE, NONE
    while index >= 0:
        request = s.requests[index]
        following, request.next = request.next, NONE
        if other == row or request.source == row:
            s.outstanding[other] -= 1
            release(s, request.source, index, request.prompt + request.made - 1)
            wake(s, request.source)
            _retry(s, request.source, index)
        else:
            if replica.hand_tail >= 0:
                s.requests[replica.hand_tail].next = index
            else:
                replica.hand_head = index
            replica.hand_tail = index
        index = following


@part
def _drop_drained(s, other, row):
    """Forget the sent layers of prefills under way on `other` whose decode replica has failed."""
    replica = s.replicas[other]
    if replica.role != Role.PREFILL:
        return
    for i in range(replica.batch + 1):
        index = s.batch[other, i] if i < replica.batch else replica.partial
        if index >= 0 and s.requests[index].stream == Stream.DRAINED and s.requests[index].replica == row:
            _free_target(s, index)


@handler
def _leave_cut_routes(s):
    """Send hand-offs whose route is gone back to the router."""
    at = 0
    while at < s.run[0].flows:
        index = s.flow_request[at]
        if can_send(s, s.requests[index].source, s.requests[index].replica):
            at += 1
        else:
            _drop_flow(s, index)
