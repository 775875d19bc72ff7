"""Windows: all groups of switches run for a short time at once, then hand over the events that cross.

    run (each group by any thread) -> barrier -> collect (each group by its thread) -> barrier -> next window

A window is as long as the shortest delay between groups, so no event that crosses happens before the window's end. A
line to another group is not in the tournament tree; its events are those of the window. The last thread at a barrier
decides how to go on. Nothing depends on the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.jit import call_kernel, handler, lean_kernel, part, replace_fields
from weft.jit.references import by_reference
from weft.jit.threads import ABORTED, BARRIER_WORDS, WORD, atomic_exchange, atomic_load, is_last, open_barrier
from weft.sim.layout.records import Records
from weft.sim.packet.delay_lines import append
from weft.sim.packet.loop import only_timers
from weft.sim.packet.state import CHUNK_BITS, CHUNK_EVENTS, DELAY_LINE_BITS, EMPTY, State, Stop

RUN, COLLECT, DECIDE = 0, 1, 2  # phases
GOING = -1  # instead of a reason for stopping
# words that only the last thread at a barrier writes
PHASE, STOP, IS_RESUMED, BEGIN_PS, END_PS, UNTIL_PS, WINDOW_PS, LAST_EVENT, KERNEL, TURN, FAILED = range(
    BARRIER_WORDS, BARRIER_WORDS + 11
)
WORDS = BARRIER_WORDS + WORD
NEXT_PS, LEFT, EVENTS, FREE, REASON, COLLECTED_PS, LACKS = range(7)  # columns of `status`
MANY = 1 << 40  # added to the messages left of a group: it goes on when it has none
PLACE_BITS = 24  # of a sort key: the place of an event among those that are collected
LOW_PACKETS = 512  # free packets below which a group gets some of another


class Groups(NamedTuple):
    """The groups in the form that kernels take them."""

    common: State  # its run, lines, tree and agenda belong to no group
    runs: Records  # [group, 2]; the second record only separates the groups in memory
    lines: Records  # [group, line]
    trees: NDArray[np.int64]  # [group, node]
    agendas: Records  # [group, entry]
    source_first: NDArray[np.int64]  # [group + 1] -> its first source
    source_group: NDArray[np.int32]  # [source] -> group that it comes from
    source_line: NDArray[np.int32]  # [source] -> line in it
    source_to: NDArray[np.int32]  # [source] -> line of the group itself, in ascending order
    keys: NDArray[np.int64]  # [group, 2, n] -> for sorting
    places: NDArray[np.int32]  # [group, n] -> events to sort
    words: NDArray[np.int64]
    claims: NDArray[np.int64]  # [group * WORD] -> turn in which a thread took it
    status: NDArray[np.int64]  # [group, WORD]


_with_group = replace_fields(("run", "lines", "tree", "agenda"))


@part
def _state(g, at):
    """Return the state of a group."""
    return _with_group(g.common, (g.runs[at], g.lines[at], g.trees[at], g.agendas[at]))


@lean_kernel
def run_windows(g, thread, threads):
    """Run windows until there is a reason to stop, and return it. All threads call this at once."""
    g = by_reference(g)
    n = len(g.runs)
    words = g.words
    while True:
        if words[PHASE] == RUN:
            turn = words[TURN]
            for i in range(n):
                at = (thread * n // threads + i) % n
                if atomic_load(g.claims, at * WORD) != turn and atomic_exchange(g.claims, at * WORD, turn) != turn:
                    _run_group(g, at)
        elif words[PHASE] == COLLECT:
            for at in range(thread * n // threads, (thread + 1) * n // threads):
                _collect(g, at)
        if is_last(words, threads):
            _decide(g)
            open_barrier(words)
        if words[STOP] != GOING or atomic_load(words, ABORTED) != 0:
            return words[STOP]


@handler
def _run_group(g, at):
    s = _state(g, at)
    if g.words[IS_RESUMED] == 0:
        _clear_outgoing(s)
    s.run[0].until_ps = g.words[END_PS] - 1
    g.status[at, REASON] = call_kernel(g.words[KERNEL], s, MANY)


@handler
def _clear_outgoing(s):
    """Empty the lines to other groups, whose events have been collected."""
    run = s.run[0]
    for line_index in range(len(s.tree) >> 1, len(s.lines)):
        line = s.lines[line_index]
        first, last = line.head >> CHUNK_BITS, line.tail >> CHUNK_BITS
        if first != last:
            chunk = s.next_chunk[first]
            s.next_chunk[last], run.free_chunk = run.free_chunk, chunk
            run.free_chunks += 1
            while chunk != last:
                chunk = s.next_chunk[chunk]
                run.free_chunks += 1
        line.tail = line.head


@handler
def _collect(g, at):
    """Take over the events that other groups have for this one, by time and then by group."""
    status = g.status[at]
    s = by_reference(_state(g, at))
    run = s.run[0]
    if status[COLLECTED_PS] != g.words[BEGIN_PS]:
        status[LACKS] = _lacking(g, at, run.free_chunks - run.room)
        if status[LACKS]:
            return
        source, end = g.source_first[at], g.source_first[at + 1]
        while source < end:
            line_index = g.source_to[source]
            n = 0
            while source < end and g.source_to[source] == line_index:
                n = _gather(g, at, source, n)
                source += 1
            keys = g.keys[at, _sort(g.keys[at], n)]
            for i in range(n):
                event = s.events[g.places[at, keys[i] & ((1 << PLACE_BITS) - 1)]]
                append(s, line_index, event.time_ps, event.a, event.b)
        status[COLLECTED_PS] = g.words[BEGIN_PS]
    status[NEXT_PS] = s.tree[1] >> DELAY_LINE_BITS
    if run.agenda > 0:
        status[NEXT_PS] = min(status[NEXT_PS], s.agenda[0].time_ps)
    status[LEFT] = run.left - MANY
    status[EVENTS] = run.events
    status[FREE] = run.free_packets


@part
def _lacking(g, at, free_chunks):
    """Return 1 if there is no space for the events to collect."""
    total = chunks = 0
    for source in range(g.source_first[at], g.source_first[at + 1]):
        line = g.lines[g.source_group[source], g.source_line[source]]
        chunk, last = line.head >> CHUNK_BITS, line.tail >> CHUNK_BITS
        while chunk != last:
            total += CHUNK_EVENTS
            chunk = g.common.next_chunk[chunk]
        total += line.tail & (CHUNK_EVENTS - 1)
    chunks = total // CHUNK_EVENTS + 1
    return 1 if chunks > free_chunks or total > g.places.shape[1] else 0


@part
def _gather(g, at, source, n):
    """Add the events of a source to the `n` collected ones, and return their number."""
    line = g.lines[g.source_group[source], g.source_line[source]]
    event, tail = line.head, line.tail
    while event != tail:
        g.places[at, n] = event
        g.keys[at, 0, n] = ((g.common.events[event].time_ps - g.words[BEGIN_PS]) << PLACE_BITS) | n
        n += 1
        event += 1
        if event & (CHUNK_EVENTS - 1) == 0:
            event = g.common.next_chunk[(event >> CHUNK_BITS) - 1] << CHUNK_BITS
    return n


@part
def _sort(keys, n):
    """Merge neighbouring ascending runs until one is left. Return the row of `keys` that has it."""
    row = 0
    while True:
        begin, merged = 0, 0
        keys_in, target = keys[row], keys[1 - row]
        while begin < n:
            middle = _end_of_run(keys_in, begin, n)
            end = _end_of_run(keys_in, middle, n)
            _merge(keys_in, target, begin, middle, end)
            begin = end
            merged += 1
        row = 1 - row
        if merged <= 1:
            return row


@part
def _end_of_run(keys, begin, n):
    if begin == n:
        return n
    end = begin + 1
    while end < n and keys[end - 1] <= keys[end]:
        end += 1
    return end


@part
def _merge(keys_in, target, begin, middle, end):
    first, second = begin, middle
    for at in range(begin, end):
        if second == end or (first < middle and keys_in[first] <= keys_in[second]):
            target[at] = keys_in[first]
            first += 1
        else:
            target[at] = keys_in[second]
            second += 1


@handler
def _decide(g):
    """Decide how to go on after a phase."""
    words = g.words
    words[TURN] += 1
    if words[PHASE] == RUN:
        _check_groups(g)
    elif words[PHASE] == COLLECT and _is_lacking(g):
        words[STOP] = Stop.ROOM
    else:
        _begin_window(g)


@part
def _check_groups(g):
    """Stop if a group failed, the first one in time, or has no space; else let the groups collect."""
    words = g.words
    words[PHASE] = COLLECT
    for at in range(len(g.runs)):
        reason = g.status[at, REASON]
        failed = words[FAILED]
        if reason == Stop.ROOM:
            words[PHASE], words[IS_RESUMED] = RUN, 1
        elif reason > Stop.STUCK and (failed < 0 or g.runs[at, 0].now_ps < g.runs[failed, 0].now_ps):
            words[FAILED] = at
    if words[FAILED] >= 0:
        words[STOP] = g.status[words[FAILED], REASON]
    elif words[PHASE] == RUN:
        words[STOP] = Stop.ROOM


@part
def _is_lacking(g):
    for at in range(len(g.runs)):  # noqa: SIM110  (numba)
        if g.status[at, LACKS]:
            return True
    return False


@part
def _begin_window(g):
    """Begin the next window at the first event of all groups, or stop."""
    words = g.words
    words[PHASE] = DECIDE
    next_ps, left, events, free = EMPTY, 0, 0, 1 << 40
    for at in range(len(g.runs)):
        status = g.status[at]
        next_ps = min(next_ps, status[NEXT_PS])
        left += status[LEFT]
        events += status[EVENTS]
        free = min(free, status[FREE])
    if free < LOW_PACKETS:
        _share_packets(g)
    words[STOP] = _reason_to_stop(g, next_ps, left, events)
    if words[STOP] == GOING:
        words[BEGIN_PS] = next_ps
        words[END_PS] = min(next_ps + words[WINDOW_PS], words[UNTIL_PS] + 1)
        words[IS_RESUMED] = 0
        words[PHASE] = RUN


@handler
def _reason_to_stop(g, next_ps, left, events):
    alive, lines, agendas = 0, 0, 0  # the last two: groups with events
    for at in range(len(g.runs)):
        alive += g.runs[at, 0].alive
        lines += g.trees[at, 1] != EMPTY
        agendas += g.runs[at, 0].agenda > 0
    if left == 0 or (lines == 0 and agendas == 0 and alive == 0):
        return Stop.DONE
    if lines == 0 and agendas == 0:
        return Stop.STUCK
    if next_ps > g.words[UNTIL_PS]:
        return Stop.MOMENT
    if lines == 0 and alive > 0 and _only_timers_left(g):
        return Stop.STUCK
    return Stop.SLICE if events >= g.words[LAST_EVENT] else GOING


@part
def _only_timers_left(g):
    for at in range(len(g.runs)):  # noqa: SIM110  (numba)
        if not only_timers(_state(g, at)):
            return False
    return True


@handler
def _share_packets(g):
    """Give free packets of the group that has most to each group that has few."""
    n = len(g.runs)
    packets = g.common.packets
    for at in range(n):
        poor = g.runs[at, 0]
        if poor.free_packets < LOW_PACKETS:
            most = 0
            for other in range(1, n):
                if g.runs[other, 0].free_packets > g.runs[most, 0].free_packets:
                    most = other
            rich = g.runs[most, 0]
            moved = (rich.free_packets - poor.free_packets) >> 1
            if moved > LOW_PACKETS >> 1:
                first = last = rich.free_packet
                for _ in range(moved - 1):
                    last = packets[last].next
                rich.free_packet, packets[last].next = packets[last].next, poor.free_packet
                poor.free_packet = first
                rich.free_packets -= moved
                poor.free_packets += moved
