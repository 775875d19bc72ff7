"""The clock of each replica: the end of its present steps, and how it is brought forward for new work."""

from __future__ import annotations

import math

import numpy as np

from weft.inference.serving.heap import move, push, remove
from weft.inference.serving.state import GAP_BINS, GAP_LOW_S, GAP_STEP, Kind
from weft.inference.table import LOADS
from weft.jit import handler, part

_BIN = 1 / math.log(GAP_STEP)
_LOW, _HIGH = LOADS


@part
def set_end(s, row, ends_s):
    """Set the end of a replica's steps."""
    run = s.run[0]
    s.replicas[row].ends_s = ends_s
    if s.clock_place[row] >= 0:
        move(s.clock_s, s.clock_replica, s.clock_place, 0, run.heap, ends_s, row)
    else:
        push(s.clock_s, s.clock_replica, s.clock_place, 0, run.heap, ends_s, row)
        run.heap += 1


@part
def begin_steps(s, row, time_s):
    """Set the end of steps that take a time without hand-offs on the links of their exchanges."""
    replica = s.replicas[row]
    replica.late_s = time_s * (pace(s, row) - 1)
    set_end(s, row, replica.began_s + time_s + replica.late_s)


@handler
def pace(s, row):
    """Return the time of the present step relative to that without hand-offs on the links of its exchanges."""
    replica = s.replicas[row]
    if replica.load == 0:
        return 1.0
    last = s.slowed_s.shape[2] - 1
    tokens = min(replica.step_tokens, last)
    one, more = s.slowed_s[replica.table, 0, tokens], s.slowed_s[replica.table, 1, tokens]
    slowed_s = one * replica.load
    if replica.load > _LOW:
        slowed_s = one + (more - one) * (replica.load - _LOW) / (_HIGH - _LOW)
    return 1 + slowed_s * max(1.0, replica.step_tokens / last) / replica.flat_s


@handler
def set_load(s, row, load):
    """Set the load of hand-offs on the exchanges of a replica: the rest of its present step takes more or less time.

    A run of decode steps ends with the step under way.
    """
    replica, now_s = s.replicas[row], s.run[0].now_s
    if load == replica.load:
        return
    if replica.kind == Kind.DECODE and replica.load == 0:
        wake(s, row)
    before = pace(s, row)
    replica.load = load
    if replica.kind != Kind.IDLE and replica.ends_s > now_s:
        more_s = (replica.ends_s - now_s) * (pace(s, row) / before - 1)
        replica.late_s += more_s
        set_end(s, row, replica.ends_s + more_s)


@part
def stop(s, row):
    """Take a replica without work off the clock."""
    if s.clock_place[row] >= 0:
        remove(s.clock_s, s.clock_replica, s.clock_place, 0, s.run[0].heap, row)
        s.run[0].heap -= 1


@part
def growth(s, row):
    """Return the tokens that a decode step adds to the KV cache of a replica."""
    return s.replicas[row].running * s.rules[0].accepted


@part
def run_s(s, row, steps):
    """Return the time of the first `steps` decode steps of the present run. Each reads the tokens of those before."""
    replica = s.replicas[row]
    return steps * replica.flat_s + s.kv_s[replica.table] * growth(s, row) * steps * (steps - 1) / 2


@handler
def steps_until(s, row, now_s):
    """Return how many decode steps of the present run have to be over before `now_s` is reached: at least one."""
    replica = s.replicas[row]
    passed_s = now_s - replica.began_s
    slope_s = s.kv_s[replica.table] * growth(s, row) / 2
    steps = np.ceil(passed_s / replica.flat_s)
    if slope_s > 0:
        flat_s = replica.flat_s - slope_s
        steps = np.ceil((np.sqrt(flat_s * flat_s + 4 * slope_s * passed_s) - flat_s) / (2 * slope_s))
    steps = max(steps, 1.0)
    while steps > 1 and run_s(s, row, steps - 1) >= passed_s:
        steps -= 1
    while run_s(s, row, steps) < passed_s:
        steps += 1
    return min(steps, replica.steps)


@handler
def wake(s, row):
    """Wake a replica to plan a step: now if it is idle, else at the end of the step under way."""
    replica = s.replicas[row]
    now_s = s.run[0].now_s
    if not replica.alive:
        return
    if replica.kind == Kind.IDLE:
        if s.clock_place[row] < 0:
            set_end(s, row, now_s)
    elif replica.kind == Kind.DECODE:
        steps = steps_until(s, row, now_s)
        if steps < replica.steps:
            replica.steps = steps
            set_end(s, row, replica.began_s + run_s(s, row, steps))


@part
def _bin_of(gap_s):
    return min(max(int(math.log(gap_s / GAP_LOW_S) * _BIN), 0), GAP_BINS - 1)


@part
def count_gap(s, gap_s, tokens):
    """Count tokens by the time since the token before."""
    s.gaps[_bin_of(gap_s)] += tokens


@handler
def count_gaps(s, first_s, slope_s, steps, tokens):
    """Count the tokens of steps whose times grow by `slope_s`."""
    low, high = _bin_of(first_s), _bin_of(first_s + slope_s * (steps - 1))
    done = 0.0
    for i in range(low, high):
        edge_s = GAP_LOW_S * GAP_STEP ** (i + 1)
        until = min(max(np.floor((edge_s - first_s) / slope_s) + 1, done), steps)
        s.gaps[i] += (until - done) * tokens
        done = until
    s.gaps[high] += (steps - done) * tokens
