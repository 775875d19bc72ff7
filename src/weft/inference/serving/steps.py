"""Steps of a replica: requests that join the batch, prefills within the token budget, preemptions, and runs of steps.

As long as the batch stays the same, the time of k decode steps has a closed form, so they are one event: a run ends
with the first request that finishes, before KV room is exhausted, or with the step during which new work arrives.
"""

from __future__ import annotations

import numpy as np

from weft.inference.serving.clock import begin_steps, count_gap, count_gaps, growth, run_s, stop
from weft.inference.serving.handoff import hand_off, start_handoffs, start_stream
from weft.inference.serving.heap import push, remove
from weft.inference.serving.prefix import count_hits, count_unused, evict, hold, insert
from weft.inference.serving.queues import link_running, release, take_waiting, unlink_running, wait_first
from weft.inference.serving.state import NONE, Kind, Role
from weft.jit import handler, part


@handler
def plan(s, row):
    """Choose the next step of a replica, or its next run of decode steps."""
    replica = s.replicas[row]
    replica.kind, replica.batch, replica.chunk = Kind.IDLE, 0, 0
    replica.table = s.table_of[s.run[0].phase, row]
    _make_room(s, row)
    while replica.arrived_head >= 0 and replica.running < replica.seats:
        _join_arrived(s, row)
        _make_room(s, row)
    if replica.role == Role.DECODE:
        start_handoffs(s, row)
    pairs = _schedule_prefills(s, row)
    evict(s, row)
    replica.peak = max(replica.peak, replica.used)
    if replica.batch or replica.chunk:
        _start_prefill(s, row, pairs)
    elif replica.running:
        _start_decode(s, row)
    else:
        stop(s, row)


@part
def _join_arrived(s, row):
    replica = s.replicas[row]
    index = replica.arrived_head
    replica.arrived_head = s.requests[index].next
    if replica.arrived_head < 0:
        replica.arrived_tail = NONE
    replica.staged -= 1
    _join(s, row, index)


@part
def _join(s, row, index):
    """Add a prefilled request to those that decode."""
    replica, request = s.replicas[row], s.requests[index]
    if request.joined_s < 0:
        request.joined_s = s.run[0].now_s
    request.join_step = replica.step
    last = replica.step + np.ceil((request.output - request.made) / s.rules[0].accepted)
    push(s.last_step, s.last_request, s.last_place, row, replica.running, last, index)
    link_running(s, row, index)
    replica.running += 1
    replica.cached += request.prompt + request.made - 1


@part
def _leave(s, row, index):
    """Remove a request from those that decode; return its KV tokens."""
    replica, request = s.replicas[row], s.requests[index]
    tokens = request.prompt + request.made - 1 + (replica.step - request.join_step) * s.rules[0].accepted
    remove(s.last_step, s.last_request, s.last_place, row, replica.running, index)
    unlink_running(s, row, index)
    replica.running -= 1
    replica.cached = replica.cached - tokens if replica.running else 0.0
    return tokens


@handler
def preempt(s, row, index):
    """Remove a decoding request and free its KV; its tokens are to be computed again."""
    request = s.requests[index]
    tokens = _leave(s, row, index)
    done = (s.replicas[row].step - request.join_step) * s.rules[0].accepted
    request.made = min(request.output - 1, request.made + int(done))
    release(s, row, index, tokens)
    request.last_s = s.run[0].now_s
    request.preemptions += 1


@part
def _make_room(s, row):
    """Remove requests, the last first, until the next decode step has room for its tokens."""
    replica = s.replicas[row]
    if replica.partial >= 0 and replica.used + growth(s, row) > replica.room:
        index = replica.partial
        replica.partial = NONE
        release(s, row, index, s.requests[index].prompt + s.requests[index].made)
        wait_first(s, row, index)
    while replica.running and replica.used + growth(s, row) > replica.room:
        index = replica.run_tail
        preempt(s, row, index)
        wait_first(s, row, index)


@part
def _pairs(context, new):
    """Return the pairs of new tokens and the tokens that they attend to."""
    return new * context + new * (new + 1) / 2


@handler
def _schedule_prefills(s, row):
    """Choose the prefills of the next step within the budget of tokens; return their pairs of tokens."""
    replica, rules = s.replicas[row], s.rules[0]
    budget = replica.budget - (replica.running * rules.tokens if rules.mixed else 0)
    pairs = 0.0
    replica.blocked = 0
    if replica.partial >= 0:
        new = min(s.requests[replica.partial].left, budget)
        pairs += _go_on(s, row, new)
        budget -= new
    while replica.wait_head >= 0 and replica.partial < 0:
        index = replica.wait_head
        if replica.running + replica.batch >= replica.seats or budget <= 0 or not _fits(s, row, index, budget):
            replica.blocked = 1
            break
        tokens = _admit(s, row, take_waiting(s, row))
        request = s.requests[index]
        new = min(tokens, budget) if rules.chunked else tokens
        pairs += _pairs(request.prompt + request.made - tokens, new)
        budget -= new
        if new < tokens:
            replica.partial, replica.chunk = index, new
            request.left = tokens
        else:
            s.batch[row, replica.batch] = index
            replica.batch += 1
    replica.step_tokens = replica.budget - budget
    return pairs


@part
def _go_on(s, row, new):
    """Schedule the next tokens of a prompt, the last ones in the batch; return their pairs of tokens."""
    replica = s.replicas[row]
    index = replica.partial
    request = s.requests[index]
    if new == request.left:
        s.batch[row, 0] = index
        replica.batch, replica.partial = 1, NONE
    else:
        replica.chunk = new
    return _pairs(request.prompt + request.made - request.left, new)


@part
def _fits(s, row, index, budget):
    """Return whether a replica has room for the KV of a request, and without chunks the step for its tokens."""
    replica, rules, request = s.replicas[row], s.rules[0], s.requests[index]
    tokens = request.prompt + request.made
    hits = count_hits(s, row, index)
    new = tokens - hits * rules.block
    needed = new + count_unused(s, row, index, hits) * rules.block + rules.waste
    alone = replica.batch == 0 and replica.running == 0
    if not rules.chunked and new > budget and not alone:
        return False
    return replica.used + growth(s, row) + needed <= replica.room


@part
def _admit(s, row, index):
    """Allocate the KV of a request and return the tokens that are to be computed."""
    replica, rules, request = s.replicas[row], s.rules[0], s.requests[index]
    hits = count_hits(s, row, index)
    new = request.prompt + request.made - hits * rules.block
    replica.used += new + count_unused(s, row, index, hits) * rules.block + rules.waste
    hold(s, row, index, hits)
    if request.scheduled_s < 0:
        request.scheduled_s = s.run[0].now_s
        request.hit = hits * rules.block
    if replica.role == Role.PREFILL and rules.streams and request.output - request.made > 1:
        start_stream(s, row, index)
    return new


@part
def _flat_s(s, row):
    """Return the time of a step without attention; beyond the table it grows with the tokens."""
    replica = s.replicas[row]
    last = s.flat_s.shape[1] - 1
    if replica.step_tokens <= last:
        return s.flat_s[replica.table, replica.step_tokens]
    return s.flat_s[replica.table, last] * replica.step_tokens / last


@part
def _start_prefill(s, row, pairs):
    replica = s.replicas[row]
    now_s = s.run[0].now_s
    prefilling = replica.batch + (1 if replica.chunk else 0)
    attention_s = s.pair_s[replica.table] * pairs
    replica.kind = Kind.PREFILL
    if replica.running and s.rules[0].mixed:
        replica.kind = Kind.MIXED
        attention_s += s.kv_s[replica.table] * replica.cached
    replica.began_s, replica.steps, replica.flat_s = now_s, 1, _flat_s(s, row) + attention_s
    _count_work(s, row, attention_s, prefilling)
    if replica.running and not s.rules[0].mixed and replica.stall_s == 0:
        replica.stalled = replica.running
    begin_steps(s, row, replica.flat_s)


@part
def _start_decode(s, row):
    replica, rules = s.replicas[row], s.rules[0]
    replica.kind, replica.began_s = Kind.DECODE, s.run[0].now_s
    replica.step_tokens = replica.running * rules.tokens
    replica.flat_s = _flat_s(s, row) + s.kv_s[replica.table] * replica.cached
    room = np.floor((replica.room - replica.used) / growth(s, row))
    replica.steps = max(1.0, min(s.last_step[row, 0] - replica.step, room))
    if replica.load > 0:
        replica.steps = 1.0
    begin_steps(s, row, run_s(s, row, replica.steps))


@part
def _count_work(s, row, attention_s, prefilling):
    """Count the requests of a step by its number of tokens: results divide their time into parts of a step."""
    replica = s.replicas[row]
    at = min(replica.step_tokens, s.flat_s.shape[1] - 1)
    s.prefill_weight[replica.table, at] += prefilling
    s.attention[replica.table, 0] += attention_s * prefilling
    if replica.kind != Kind.PREFILL:
        s.decode_weight[replica.table, at] += replica.running * replica.steps
        s.attention[replica.table, 1] += attention_s * replica.running


@handler
def end_steps(s, row):
    """Carry out the steps that have ended."""
    replica = s.replicas[row]
    if replica.kind == Kind.IDLE:
        return
    time_s = run_s(s, row, replica.steps) if replica.kind == Kind.DECODE else replica.flat_s
    replica.busy_s += time_s + replica.late_s
    s.late[0] += replica.late_s * (replica.batch + (1 if replica.chunk else 0))
    if replica.kind != Kind.PREFILL:
        s.late[1] += replica.late_s * replica.running
    elif replica.running:
        replica.stall_s += time_s + replica.late_s
    if replica.kind == Kind.DECODE:
        _count_work(s, row, time_s - replica.steps * _flat_s(s, row), 0)
    if replica.kind != Kind.PREFILL:
        _end_decode(s, row)
    if replica.chunk:
        s.requests[replica.partial].left -= replica.chunk
    for i in range(replica.batch):
        _end_prefill(s, row, s.batch[row, i])
    replica.kind, replica.batch, replica.chunk = Kind.IDLE, 0, 0


@part
def _end_decode(s, row):
    replica = s.replicas[row]
    new = growth(s, row) * replica.steps
    slope_s = s.kv_s[replica.table] * growth(s, row)
    if replica.late_s > 0:
        _count_late_gaps(s, row, slope_s)
    elif replica.stall_s > 0:
        stalled = min(replica.stalled, replica.running)
        count_gap(s, replica.flat_s + replica.stall_s, stalled)
        count_gap(s, replica.flat_s, replica.running - stalled)
        if replica.steps > 1:
            count_gaps(s, replica.flat_s + slope_s, slope_s, replica.steps - 1, replica.running)
        replica.stall_s = 0.0
    else:
        count_gaps(s, replica.flat_s, slope_s, replica.steps, replica.running)
    replica.step += replica.steps
    replica.cached += new
    replica.used += new
    replica.peak = max(replica.peak, replica.used)
    s.run[0].emitted += new
    while replica.running and s.last_step[row, 0] <= replica.step:
        index = s.last_request[row, 0]
        tokens = _leave(s, row, index)
        release(s, row, index, tokens)
        _finish(s, row, index)


@handler
def _count_late_gaps(s, row, slope_s):
    """Count the tokens of steps of which hand-offs have slowed the last."""
    replica = s.replicas[row]
    before = replica.steps - 1
    if before > 0:
        count_gaps(s, replica.flat_s, slope_s, before, replica.running)
    count_gap(s, replica.flat_s + slope_s * before + replica.late_s + replica.stall_s, replica.running)
    replica.stall_s = 0.0


@handler
def _end_prefill(s, row, index):
    """Emit the token that a prefill computes."""
    replica, request, now_s = s.replicas[row], s.requests[index], s.run[0].now_s
    request.made += 1
    request.left = 0
    s.run[0].emitted += 1
    insert(s, row, index)
    if request.prefilled_s < 0:
        request.prefilled_s = now_s
    if request.last_s >= 0:
        count_gap(s, now_s - request.last_s, 1)
        request.preempted_s += now_s - request.last_s
        request.last_s = -1.0
    if request.made >= request.output:
        if request.first_s < 0:
            request.first_s = now_s
        release(s, row, index, request.prompt + request.made - 1)
        _finish(s, row, index)
    elif replica.role == Role.PREFILL:
        hand_off(s, row, index)
    else:
        if request.first_s < 0:
            request.first_s = now_s
        _join(s, row, index)


@handler
def _finish(s, row, index):
    """End a request; in a closed loop its user sends the next one."""
    run = s.run[0]
    s.requests[index].finished_s = run.now_s
    s.requests[index].made = s.requests[index].output
    s.outstanding[row] -= 1
    run.finished += 1
    run.inside -= 1
    if run.issued < len(s.requests):
        s.requests[run.issued].arrival_s = run.now_s + s.rules[0].think_s
        run.issued += 1
