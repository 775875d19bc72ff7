"""The clock of each replica: the end of its present steps, and how it is brought forward for new work."""

from __future__ import annotations

import math

import numpy as np

from weft.inference.serving.heap import move, push, remove
from weft.inference.serving.state import GAP_BINS, GAP_LOW_S, GAP_STEP, Kind
from weft.jit import handler, part

_BIN = 1 / math.log(GAP_STEP)


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
