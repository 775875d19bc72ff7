"""Which block waits for which others, and in which wave it is written; `upload_order` says why.

Entries of one destination stand in blocks of one number, so the blocks of each number are ordered by themselves.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.fabric.tables import NO_ROUTE
from weft.jit import handler, kernel, part

BLOCK = 64  # LIDs in a block
NOT_WRITTEN = -1  # a block that stays as it is
NO_SWITCH = -1


class Scratch(NamedTuple):
    """The working memory of the kernels; [switch] unless noted."""

    # For one destination.
    before: Any  # next switch by the old tables
    after: Any  # and by the new
    changed: Any  # list of those where the two differ
    number: Any  # order of the search, rising from destination to destination
    low: Any  # lowest number that it leads back to
    component: Any
    tried: Any  # edges that the search has taken
    is_open: Any
    path: Any
    stack: Any
    # For the blocks of one number.
    waits: Any  # [switch, lid of the block] -> switch that must be written before
    left: Any  # entries that wait
    first_behind: Any  # [switch + 1] -> where the entries that wait for it begin in `behind`
    behind: Any  # [switch * lid] -> entries
    done: Any
    met: Any  # last search that came by
    ready: Any
    circle: Any  # [switch + 1]


def scratch_for(n: int) -> Scratch:
    sizes = {"waits": (n, BLOCK), "behind": (n * BLOCK,), "first_behind": (n + 1,), "circle": (n + 1,)}
    kinds = {"is_open": np.bool_, "done": np.bool_}
    return Scratch(**{name: np.zeros(sizes.get(name, (n,)), kinds.get(name, np.int64)) for name in Scratch._fields})


@kernel
def order_blocks(far, old, new, todo, first, wave, s):
    """Fill `wave` where there is something to do, set entries of `first` to NO_ROUTE; returns how many.

    todo   bool[switch, block]; wave: int32 of that shape
    first  uint8[switch, lid], the new tables: what is to be written at first
    """
    dropped = seen = 0
    for block in range(todo.shape[1]):
        waiting = 0
        for here in range(len(far)):
            for at in range(BLOCK):
                s.waits[here, at] = NO_SWITCH
        for at in range(BLOCK):
            lid = block * BLOCK + at
            n_changed = find_changed(far, old, new, todo, block, lid, s)
            if n_changed < 2:  # one switch alone cannot close a circle that is in neither table
                continue
            seen = find_components(n_changed, seen, s)
            for index in range(n_changed):
                there = next_changed(s.changed[index], s)
                s.waits[s.changed[index], at] = there
                waiting += there != NO_SWITCH
        if waiting:
            dropped += set_waves(block, todo, first, wave, s)
    return dropped


# -- one destination --------------------------------------------------------------------------------------------------


@part
def next_switch(far, here, port):
    """Return the next switch of a packet; NO_SWITCH if it ends here, at an adapter, or at no port."""
    return np.int64(far[here, port]) if 0 < port < far.shape[1] else np.int64(NO_SWITCH)


@part
def find_changed(far, old, new, todo, block, lid, s):
    """List the switches whose next switch is another one; another link to the same is no matter. Returns how many."""
    count = 0
    for here in range(len(far)):
        if not todo[here, block] or old[here, lid] == new[here, lid]:
            continue
        if next_switch(far, here, old[here, lid]) != next_switch(far, here, new[here, lid]):
            s.changed[count] = here
            count += 1
    if count > 1:
        for here in range(len(far)):
            s.before[here] = next_switch(far, here, old[here, lid])
            s.after[here] = next_switch(far, here, new[here, lid])
    return count


@part
def find_components(n_changed, base, s):
    """Set `component` of all that the changed switches lead to by either table; equal: strongly connected.

    Tarjan, "Depth-first search and linear graph algorithms", 1972. Numbers up to `base` are of earlier searches.
    Returns the highest number given.
    """
    seen, top = base, 0
    for index in range(n_changed):
        if s.number[s.changed[index]] > base:
            continue
        s.path[0], depth, entering = s.changed[index], 0, True
        while depth >= 0:
            here = s.path[depth]
            if entering:
                seen += 1
                s.number[here] = s.low[here] = seen
                s.tried[here], s.is_open[here] = 0, True
                s.stack[top] = here
                top += 1
                entering = False
            elif s.tried[here] < 2:
                there = s.after[here] if s.tried[here] == 0 else s.before[here]
                s.tried[here] += 1
                if there != NO_SWITCH and s.number[there] <= base:
                    depth += 1
                    s.path[depth], entering = there, True
                elif there != NO_SWITCH and s.is_open[there]:
                    s.low[here] = min(s.low[here], s.number[there])
            else:
                if s.low[here] == s.number[here]:
                    top = close_component(here, top, s)
                depth -= 1
                if depth >= 0:
                    s.low[s.path[depth]] = min(s.low[s.path[depth]], s.low[here])
    return seen


@part
def close_component(root, top, s):
    """Take its switches off the stack; returns what is left there."""
    there = -1
    while there != root:
        top -= 1
        there = s.stack[top]
        s.component[there], s.is_open[there] = s.number[root], False
    return top


@part
def next_changed(here, s):
    """Return the next changed switch on the new path, NO_SWITCH if the path leaves the component before."""
    there = s.after[here]
    for _ in range(len(s.after)):  # a new table with a circle would lead round for ever
        if there == NO_SWITCH or s.component[there] != s.component[here]:
            return np.int64(NO_SWITCH)
        if s.before[there] != s.after[there]:
            return there
        there = s.after[there]
    return np.int64(NO_SWITCH)


# -- the blocks of one number -----------------------------------------------------------------------------------------


@handler
def set_waves(block, todo, first, wave, s):
    """Assign waves by the longest chain of waits; drop entries in circles of waits, and return how many."""
    n = len(s.left)
    list_who_waits(s)
    taken = found = dropped = 0
    for here in range(n):
        s.done[here], s.met[here] = not todo[here, block], -1
        if todo[here, block] and s.left[here] == 0:
            s.ready[found] = here
            found += 1
    for begin in range(n):
        while True:
            while taken < found:
                found = release(s.ready[taken], found, block, wave, s)
                taken += 1
            if s.done[begin]:
                break
            here, there = lightest(find_circle(begin, dropped, s), s)
            dropped += drop(here, there, block, first, s)
            if s.left[here] == 0:
                s.ready[found] = here
                found += 1
    return dropped


@part
def list_who_waits(s):
    """Sort the entries that wait by whom they wait for."""
    n = len(s.left)
    for here in range(n + 1):
        s.first_behind[here] = 0
    for here in range(n):
        s.left[here] = 0
        for at in range(BLOCK):
            if s.waits[here, at] != NO_SWITCH:
                s.left[here] += 1
                s.first_behind[s.waits[here, at]] += 1
    for here in range(n):
        s.first_behind[here + 1] += s.first_behind[here]  # the end of its list, which is filled from there
    for here in range(n):
        for at in range(BLOCK):
            if s.waits[here, at] != NO_SWITCH:
                s.first_behind[s.waits[here, at]] -= 1
                s.behind[s.first_behind[s.waits[here, at]]] = here * BLOCK + at


@part
def release(here, found, block, wave, s):
    """Mark a switch as written, and release those that waited for it. Return the new end of `ready`."""
    s.done[here] = True
    for position in range(s.first_behind[here], s.first_behind[here + 1]):
        there, at = divmod(s.behind[position], BLOCK)
        if s.waits[there, at] == here:  # not dropped meanwhile
            wave[there, block] = max(wave[there, block], wave[here, block] + 1)
            s.left[there] -= 1
            if s.left[there] == 0:
                s.ready[found] = there
                found += 1
    return found


@part
def find_circle(begin, mark, s):
    """Follow waits until a switch repeats; `circle` starts and ends with it.

    Return its length. Each search has its own `mark`, and ends with entries dropped.
    """
    here, length = np.int64(begin), 0
    while s.met[here] != mark:
        s.met[here] = mark
        s.circle[length] = here
        length += 1
        at = 0
        while s.waits[here, at] == NO_SWITCH or s.done[s.waits[here, at]]:
            at += 1
        here = s.waits[here, at]
    start = 0
    while s.circle[start] != here:
        start += 1
    for position in range(start, length):
        s.circle[position - start] = s.circle[position]
    s.circle[length - start] = here
    return length - start


@part
def lightest(length, s):
    """Return the wait of the circle with the fewest entries."""
    best, fewest = 0, BLOCK + 1
    for position in range(length):
        entries = 0
        for at in range(BLOCK):
            entries += s.waits[s.circle[position], at] == s.circle[position + 1]
        if entries < fewest:
            best, fewest = position, entries
    return s.circle[best], s.circle[best + 1]


@part
def drop(here, there, block, first, s):
    """Let `here` wait for `there` no more: its entries that do are to drop packets at first. Returns how many."""
    count = 0
    for at in range(BLOCK):
        if s.waits[here, at] == there:
            s.waits[here, at] = NO_SWITCH
            first[here, block * BLOCK + at] = NO_ROUTE
            count += 1
    s.left[here] -= count
    return count
