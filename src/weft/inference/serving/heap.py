"""Binary heaps in rows of arrays, whose entries can be moved and removed by their place."""

from __future__ import annotations

from weft.inference.serving.state import NONE
from weft.jit import part


@part
def _up(keys, items, places, row, at, key, item):
    """Put an entry at `at` or above."""
    while at > 0:
        above = (at - 1) >> 1
        if keys[row, above] <= key:
            break
        keys[row, at], items[row, at] = keys[row, above], items[row, above]
        places[items[row, at]] = at
        at = above
    keys[row, at], items[row, at] = key, item
    places[item] = at


@part
def _down(keys, items, places, row, count, at, key, item):
    """Put an entry at `at` or below."""
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and keys[row, below + 1] < keys[row, below]:
            below += 1
        if keys[row, below] >= key:
            break
        keys[row, at], items[row, at] = keys[row, below], items[row, below]
        places[items[row, at]] = at
        at = below
    keys[row, at], items[row, at] = key, item
    places[item] = at


@part
def push(keys, items, places, row, count, key, item):
    """Add an entry to a row that has `count`."""
    _up(keys, items, places, row, count, key, item)


@part
def move(keys, items, places, row, count, key, item):
    """Change the key of an entry."""
    at = places[item]
    if key < keys[row, at]:
        _up(keys, items, places, row, at, key, item)
    else:
        _down(keys, items, places, row, count, at, key, item)


@part
def remove(keys, items, places, row, count, item):
    """Remove an entry from a row that has `count`."""
    at, last = places[item], count - 1
    places[item] = NONE
    if at < last:
        key, other = keys[row, last], items[row, last]
        if at > 0 and keys[row, (at - 1) >> 1] > key:
            _up(keys, items, places, row, at, key, other)
        else:
            _down(keys, items, places, row, last, at, key, other)
