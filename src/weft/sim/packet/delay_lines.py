"""Delay lines: events without a priority queue.

Serialisation, propagation and credit return take constant times, so events with one delay are caused in the order in
which they happen: a line for each delay is first in, first out. The next event is the least of the lines' first ones:
a tournament tree has it at its root, and takes no branch that the processor could guess wrong. Whatever has an odd
delay goes on the agenda, a heap of entries.

At one instant delay lines go by their number, first to last, and then the agenda. They are numbered by kind, then by
delay. They are chains of chunks from one pool, so none can be full while the pool has chunks. The chunk where the next
event will stand is always there: a line whose head is its tail is empty.
"""

from __future__ import annotations

from weft.jit import handler, part
from weft.sim.packet.state import CHUNK_BITS, CHUNK_EVENTS, DELAY_LINE_BITS, DELAY_LINES, EMPTY


@part
def push(s, line_index, a, b):
    """The event (a, b) happens one delay of this line from now."""
    run = s.run[0]
    line = s.lines[line_index]
    time_ps = run.now_ps + line.delay_ps
    tail = line.tail
    if line.head == tail:
        key = (time_ps << DELAY_LINE_BITS) | line_index
        set_head(s.tree, line_index, key)
        run.rival = min(run.rival, key)
    event = s.events[tail]
    event.time_ps = time_ps
    event.a = a
    event.b = b
    tail += 1
    if tail & (CHUNK_EVENTS - 1) == 0:
        chunk = run.free_chunk
        run.free_chunk = s.next_chunk[chunk]
        run.free_chunks -= 1
        s.next_chunk[(tail >> CHUNK_BITS) - 1] = chunk
        tail = chunk << CHUNK_BITS
    line.tail = tail


@part
def in_one_piece(s, line_index):
    """Where the first events of a line begin, and where those of them end that stand one after the other."""
    line = s.lines[line_index]
    if (line.head ^ line.tail) < CHUNK_EVENTS:
        return line.head, line.tail
    return line.head, (line.head | (CHUNK_EVENTS - 1)) + 1


@part
def drop(s, line_index, end):
    """Take the first events out of a line, up to a place in one piece with them."""
    run = s.run[0]
    if end & (CHUNK_EVENTS - 1) == 0:
        chunk = (end >> CHUNK_BITS) - 1
        end = s.next_chunk[chunk] << CHUNK_BITS
        s.next_chunk[chunk] = run.free_chunk
        run.free_chunk = chunk
        run.free_chunks += 1
    s.lines[line_index].head = end


@part
def head_key(s, line_index):
    """Time and line of the first event of a line, EMPTY if it has none."""
    line = s.lines[line_index]
    if line.head == line.tail:
        return EMPTY
    return (s.events[line.head].time_ps << DELAY_LINE_BITS) | line_index


@part
def second_key(tree, line_index):
    """The least first event of all other lines."""
    node = (len(tree) >> 1) + line_index
    key = EMPTY
    while node > 1:
        key = min(key, tree[node ^ 1])
        node >>= 1
    return key


@part
def first_key(s):
    """Time and line of the next event, EMPTY if no line has one."""
    return s.tree[1]


@part
def set_head(tree, line_index, key):
    """The first event of a line has changed: play again the matches on its way to the root."""
    node = (len(tree) >> 1) + line_index
    tree[node] = key
    while node > 1:
        key = min(key, tree[node ^ 1])
        node >>= 1
        tree[node] = key


@part
def line_of(key):
    return key & (DELAY_LINES - 1)


@handler
def schedule(s, time_ps, kind, a, b):
    """Put an event with an odd delay on the agenda."""
    run = s.run[0]
    run.order += 1
    order = run.order
    agenda = s.agenda
    at = run.agenda
    run.agenda += 1
    while at > 0:
        above = (at - 1) >> 1
        if agenda[above].time_ps <= time_ps:  # an earlier order is never below a later one of the same time
            break
        agenda[at] = agenda[above]
        at = above
    entry = agenda[at]
    entry.time_ps = time_ps
    entry.order = order
    entry.kind = kind
    entry.a = a
    entry.b = b


@handler
def take_first(s):
    """Take the first entry off the agenda: kind, a, b."""
    run = s.run[0]
    agenda = s.agenda
    kind, a, b = agenda[0].kind, agenda[0].a, agenda[0].b
    run.agenda -= 1
    n = run.agenda
    last = agenda[n]
    at = 0
    child = 1
    while child < n:
        if child + 1 < n and _earlier(agenda, child + 1, child):
            child += 1
        if not _earlier(agenda, child, n):
            break
        agenda[at] = agenda[child]
        at = child
        child = 2 * at + 1
    agenda[at] = last
    return kind, a, b


@part
def _earlier(agenda, one, other):
    if agenda[one].time_ps != agenda[other].time_ps:
        return agenda[one].time_ps < agenda[other].time_ps
    return agenda[one].order < agenda[other].order
