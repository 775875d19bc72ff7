"""Delay lines: an event queue without a priority queue.

Serialisation, propagation and credit return take constant times, so events with the same delay happen in the order in
which
they were caused: one FIFO line per delay. The next event is the earliest head of all lines; a tournament tree keeps
it at its
root, without unpredictable branches. Events with other delays go on the agenda, a heap.

At one instant the delay lines are served by number, then the agenda. Lines are numbered by kind, then by delay. They
are
chains of chunks from one pool, so no line is full while the pool has chunks. The chunk for the next event is always
allocated: a line whose head equals its tail is empty.
"""

from __future__ import annotations

from weft.jit import handler, part
from weft.sim.packet.state import CHUNK_BITS, CHUNK_EVENTS, DELAY_LINE_BITS, DELAY_LINES, EMPTY


@part
def push(s, line_index, a, b):
    """Add the event (a, b), one delay of this line from now."""
    append(s, line_index, s.run[0].now_ps + s.lines[line_index].delay_ps, a, b)


@part
def append(s, line_index, time_ps, a, b):
    """Add an event at a time, not before the last one of this line. Lines to other groups are not in the tree."""
    run = s.run[0]
    line = s.lines[line_index]
    tail = line.tail
    if line.head == tail and line_index < len(s.tree) >> 1:
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
def contiguous_events(s, line_index):
    """Return the begin and end of the first events of a line that are contiguous in memory."""
    line = s.lines[line_index]
    if (line.head ^ line.tail) < CHUNK_EVENTS:
        return line.head, line.tail
    return line.head, (line.head | (CHUNK_EVENTS - 1)) + 1


@part
def drop(s, line_index, end):
    """Remove the first events of a line, up to an index in the same chunk."""
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
    """Return time and line of the first event of a line, or EMPTY."""
    line = s.lines[line_index]
    if line.head == line.tail:
        return EMPTY
    return (s.events[line.head].time_ps << DELAY_LINE_BITS) | line_index


@part
def second_key(tree, line_index):
    """Return the earliest first event of all other lines."""
    node = (len(tree) >> 1) + line_index
    key = EMPTY
    while node > 1:
        key = min(key, tree[node ^ 1])
        node >>= 1
    return key


@part
def first_key(s):
    """Return time and line of the next event, or EMPTY."""
    return s.tree[1]


@part
def set_head(tree, line_index, key):
    """Update the tournament tree after the first event of a line has changed."""
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
    """Put an event with an irregular delay on the agenda."""
    run = s.run[0]
    run.order += 1
    order = run.order
    agenda = s.agenda
    at = run.agenda
    run.agenda += 1
    while at > 0:
        above = (at - 1) >> 1
        if agenda[above].time_ps <= time_ps:  # entries of equal time stay in order
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
    """Pop the first entry of the agenda: kind, a, b."""
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
def _earlier(agenda, first, second):
    if agenda[first].time_ps != agenda[second].time_ps:
        return agenda[first].time_ps < agenda[second].time_ps
    return agenda[first].order < agenda[second].order
