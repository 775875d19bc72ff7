"""Waits of blocks for others, and the wave in which each is written; `upload_order` has the reason.

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
    """Fill `wave` for the blocks to write, set entries of `first` to NO_ROUTE and return their number.

    todo   bool[switch, block]; wave: int32 of that shape
    first  uint8[switch, lid], the new tables: the entries to write at first
    """
    dropped = highest = 0
    for block in range(todo.shape[1]):
        waiting = 0
        for switch in range(len(far)):
            for at in range(BLOCK):
                s.waits[switch, at] = NO_SWITCH
        for at in range(BLOCK):
            lid = block * BLOCK + at
            n_changed = find_changed(far, old, new, todo, block, lid, s)
            if n_changed < 2:  # one switch alone cannot close a circle that is in neither table
                continue
            highest = find_components(n_changed, highest, s)
            for index in range(n_changed):
                target = next_changed(s.changed[index], s)
                s.waits[s.changed[index], at] = target
                waiting += target != NO_SWITCH
        if waiting:
            dropped += set_waves(block, todo, first, wave, s)
    return dropped


# -- one destination --------------------------------------------------------------------------------------------------


@part
def next_switch(far, switch, port):
    """Return the next switch of a packet; NO_SWITCH if it ends here, at an adapter, or at no port."""
    return np.int64(far[switch, port]) if 0 < port < far.shape[1] else np.int64(NO_SWITCH)


@part
def find_changed(far, old, new, todo, block, lid, s):
    """List the switches whose next switch differs, and return their number."""
    count = 0
    for switch in range(len(far)):
        if not todo[switch, block] or old[switch, lid] == new[switch, lid]:
            continue
        if next_switch(far, switch, old[switch, lid]) != next_switch(far, switch, new[switch, lid]):
            s.changed[count] = switch
            count += 1
    if count > 1:
        for switch in range(len(far)):
            s.before[switch] = next_switch(far, switch, old[switch, lid])
            s.after[switch] = next_switch(far, switch, new[switch, lid])
    return count


@part
def find_components(n_changed, base, s):
    """Set `component` of all that the changed switches lead to by either table; equal: strongly connected.

    Tarjan, "Depth-first search and linear graph algorithms", 1972. Numbers up to `base` are of earlier searches.
    Returns the highest number.
    """
    highest, top = base, 0
    for index in range(n_changed):
        if s.number[s.changed[index]] > base:
            continue
        s.path[0], depth, entering = s.changed[index], 0, True
        while depth >= 0:
            switch = s.path[depth]
            if entering:
                highest += 1
                s.number[switch] = s.low[switch] = highest
                s.tried[switch], s.is_open[switch] = 0, True
                s.stack[top] = switch
                top += 1
                entering = False
            elif s.tried[switch] < 2:
                target = s.after[switch] if s.tried[switch] == 0 else s.before[switch]
                s.tried[switch] += 1
                if target != NO_SWITCH and s.number[target] <= base:
                    depth += 1
                    s.path[depth], entering = target, True
                elif target != NO_SWITCH and s.is_open[target]:
                    s.low[switch] = min(s.low[switch], s.number[target])
            else:
                if s.low[switch] == s.number[switch]:
                    top = close_component(switch, top, s)
                depth -= 1
                if depth >= 0:
                    s.low[s.path[depth]] = min(s.low[s.path[depth]], s.low[switch])
    return highest


@part
def close_component(root, top, s):
    """Take the switches of a component off the stack, and return the height that is left."""
    target = -1
    while target != root:
        top -= 1
        target = s.stack[top]
        s.component[target], s.is_open[target] = s.number[root], False
    return top


@part
def next_changed(switch, s):
    """Return the next changed switch on the new path, NO_SWITCH if the path leaves the component before."""
    target = s.after[switch]
    for _ in range(len(s.after)):  # a new table with a circle has no end
        if target == NO_SWITCH or s.component[target] != s.component[switch]:
            return np.int64(NO_SWITCH)
        if s.before[target] != s.after[target]:
            return target
        target = s.after[target]
    return np.int64(NO_SWITCH)


# -- the blocks of one number -----------------------------------------------------------------------------------------


@handler
def set_waves(block, todo, first, wave, s):
    """Assign waves by the longest chain of waits; drop entries in circles of waits, and return how many."""
    n = len(s.left)
    sort_waits(s)
    n_released = n_ready = dropped = 0
    for switch in range(n):
        s.done[switch], s.met[switch] = not todo[switch, block], -1
        if todo[switch, block] and s.left[switch] == 0:
            s.ready[n_ready] = switch
            n_ready += 1
    for begin in range(n):
        while True:
            while n_released < n_ready:
                n_ready = release(s.ready[n_released], n_ready, block, wave, s)
                n_released += 1
            if s.done[begin]:
                break
            switch, target = lightest(find_circle(begin, dropped, s), s)
            dropped += drop(switch, target, block, first, s)
            if s.left[switch] == 0:
                s.ready[n_ready] = switch
                n_ready += 1
    return dropped


@part
def sort_waits(s):
    """Sort the waiting entries by the switch for which they wait."""
    n = len(s.left)
    for switch in range(n + 1):
        s.first_behind[switch] = 0
    for switch in range(n):
        s.left[switch] = 0
        for at in range(BLOCK):
            if s.waits[switch, at] != NO_SWITCH:
                s.left[switch] += 1
                s.first_behind[s.waits[switch, at]] += 1
    for switch in range(n):
        s.first_behind[switch + 1] += s.first_behind[switch]  # the end of its list, which is filled from there
    for switch in range(n):
        for at in range(BLOCK):
            if s.waits[switch, at] != NO_SWITCH:
                s.first_behind[s.waits[switch, at]] -= 1
                s.behind[s.first_behind[s.waits[switch, at]]] = switch * BLOCK + at


@part
def release(switch, n_ready, block, wave, s):
    """Mark a switch as written, and release those that waited for it. Return the new end of `ready`."""
    s.done[switch] = True
    for position in range(s.first_behind[switch], s.first_behind[switch + 1]):
        target, at = divmod(s.behind[position], BLOCK)
        if s.waits[target, at] == switch:  # not dropped meanwhile
            wave[target, block] = max(wave[target, block], wave[switch, block] + 1)
            s.left[target] -= 1
            if s.left[target] == 0:
                s.ready[n_ready] = target
                n_ready += 1
    return n_ready


@part
def find_circle(begin, mark, s):
    """Follow waits until a switch repeats; `circle` starts and ends with it.

    Return its length. Each search has its own `mark`, and ends with entries dropped.
    """
    switch, length = np.int64(begin), 0
    while s.met[switch] != mark:
        s.met[switch] = mark
        s.circle[length] = switch
        length += 1
        at = 0
        while s.waits[switch, at] == NO_SWITCH or s.done[s.waits[switch, at]]:
            at += 1
        switch = s.waits[switch, at]
    start = 0
    while s.circle[start] != switch:
        start += 1
    for position in range(start, length):
        s.circle[position - start] = s.circle[position]
    s.circle[length - start] = switch
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
def drop(switch, target, block, first, s):
    """Remove the waits of a switch for `target`: these entries drop packets at first. Return their number."""
    count = 0
    for at in range(BLOCK):
        if s.waits[switch, at] == target:
            s.waits[switch, at] = NO_SWITCH
            first[switch, block * BLOCK + at] = NO_ROUTE
            count += 1
    s.left[switch] -= count
    return count
