"""Numbers for groups of ports: each switch has its own, from 0 up, and what is in use keeps its number."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from weft.jit import kernel

STATIC = -1  # the number of no group
WORDS = 4  # bits of 64 ports
_NEW = -2  # that of a group which has none yet


@kernel
def count_groups(of_lid, n_groups):
    """Return the largest number of groups that a switch uses."""
    seen = np.full(n_groups, -1, np.int64)  # the last switch that used it
    most = 0
    for switch in range(len(of_lid)):
        count = 0
        for lid in range(of_lid.shape[1]):
            group = of_lid[switch, lid]
            if group >= 0 and seen[group] != switch:
                seen[group] = switch
                count += 1
        most = max(most, count)
    return most


@kernel
def copy_used(number, mask, known, held):
    """Take over the masks to which a LID points."""
    for switch in range(len(number)):
        if known[switch]:
            for lid in range(number.shape[1]):
                place = number[switch, lid]
                if 0 <= place < held.shape[1]:
                    held[switch, place] = mask[switch, place]


@kernel
def number_groups(of_lid, masks, cap, held, number):
    """Fill `number[switch, lid]`, and `held[switch, number]`, which has the masks of before: all zeros is none.

    A mask that is held keeps its number; a new one takes the first that is free, else the first that no LID uses now.
    """
    seen = np.full(len(masks), -1, np.int64)
    given = np.empty(len(masks), np.int64)  # group -> its number on the switch that saw it last
    used = np.empty(held.shape[1], np.bool_)
    for switch in range(len(of_lid)):
        limit = min(cap[switch], held.shape[1])
        used[:] = False
        for lid in range(of_lid.shape[1] if limit else 0):
            group = of_lid[switch, lid]
            if group >= 0 and seen[group] != switch:
                seen[group] = switch
                given[group] = _place_of(held, switch, masks[group], limit)
                if given[group] >= 0:
                    used[given[group]] = True
        for lid in range(of_lid.shape[1] if limit else 0):
            group = of_lid[switch, lid]
            if group >= 0:
                if given[group] == _NEW:
                    given[group] = _place_of(held, switch, masks[group], limit)  # another of the same ports may be in
                    if given[group] == _NEW:
                        given[group] = _free(held, switch, used, limit)
                    if given[group] >= 0:
                        used[given[group]] = True
                        held[switch, given[group]] = masks[group]
                number[switch, lid] = given[group]


@kernel
def _place_of(held, switch, mask, limit):
    """Return the number of a held group; STATIC for a group without ports."""
    if _is_empty(mask):
        return STATIC
    for place in range(limit):
        same = True
        for word in range(WORDS):
            same = same and held[switch, place, word] == mask[word]
        if same:
            return place
    return _NEW


@kernel
def _free(held, switch, used, limit):
    for place in range(limit):
        if _is_empty(held[switch, place]):
            return place
    for place in range(limit):
        if not used[place]:
            return place
    return STATIC


@kernel
def _is_empty(mask):
    return not mask.any()
