"""The kernel of `optimise`: simulated annealing over the positions of switches.

A move puts one switch into free units of a rack, usually near a box that it is cabled to, or swaps two switches. It is
accepted if cables become cheaper, and with decreasing probability if they do not. Cables that share a plug form a group
with the length of the longest; the cost of a link depends on that length, plus 1 for every metre.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.jit import lean_kernel, part
from weft.plan.floor.room import UNIT_M

_MODULUS, _FACTOR = 2147483647, 48271  # Park and Miller's generator: the same compiled and interpreted


class Floor(NamedTuple):
    """The floor: positions of boxes, cables between them, and cable costs."""

    # The state, changed in place.
    rack: NDArray[np.int64]  # [box]
    u: NDArray[np.int64]  # [box]
    occupied: NDArray[np.int8]  # [rack, unit], including gaps above switches
    free_w: NDArray[np.float64]  # [rack]
    # The boxes.
    switches: NDArray[np.int64]  # boxes that may move
    height_u: NDArray[np.int64]  # [box]
    needs_u: NDArray[np.int64]  # [box] with the gap
    power_w: NDArray[np.float64]  # [box]
    # The cables, in groups.
    first: NDArray[np.int64]  # [group] -> its first cable; one more at the end
    low: NDArray[np.int64]  # [cable] -> box
    high: NDArray[np.int64]  # [cable] -> box
    kind: NDArray[np.int64]  # [group]
    first_of_box: NDArray[np.int64]  # [box] -> first of its groups; one more at the end
    groups: NDArray[np.int64]  # of each box in turn
    counted: NDArray[np.int64]  # [group] -> stamp of the last evaluation
    # The room, and the cost of a cable by kind and length.
    along_m: NDArray[np.float64]  # [rack, rack]
    neighbour: NDArray[np.int64]  # [rack, n] -> nearest racks
    reach_m: NDArray[np.float64]  # [kind, step]
    cost: NDArray[np.float64]  # [kind, step]
    tray_m: float
    slack_m: float
    rack_u: int


@part
def _route_m(floor, a, b):
    """Return the length of a cable between two boxes, as `cables` measures it."""
    a_m = (floor.u[a] - 1 + 0.5 * floor.height_u[a]) * UNIT_M
    b_m = (floor.u[b] - 1 + 0.5 * floor.height_u[b]) * UNIT_M
    if floor.rack[a] == floor.rack[b]:
        return abs(a_m - b_m) + 2 * floor.slack_m
    return floor.along_m[floor.rack[a], floor.rack[b]] + 2 * floor.tray_m - a_m - b_m + 2 * floor.slack_m


@part
def _cost_of(floor, group):
    longest_m = total_m = 0.0
    for cable in range(floor.first[group], floor.first[group + 1]):
        route_m = _route_m(floor, floor.low[cable], floor.high[cable])
        longest_m = max(longest_m, route_m)
        total_m += route_m
    kind, step = floor.kind[group], 0
    while longest_m > floor.reach_m[kind, step]:  # the last step has no limit
        step += 1
    each = floor.cost[kind, step]
    return each * (floor.first[group + 1] - floor.first[group]) + total_m


@part
def _cost_around(floor, box, other, stamp):
    """Return the cost of the groups of a box and of another one (-1: none), each group once."""
    total = 0.0
    for moved in (box, other):
        if moved >= 0:
            for i in range(floor.first_of_box[moved], floor.first_of_box[moved + 1]):
                group = floor.groups[i]
                if floor.counted[group] != stamp:
                    floor.counted[group] = stamp
                    total += _cost_of(floor, group)
    return total


@part
def _put(floor, box, rack, u):
    floor.rack[box], floor.u[box] = rack, u
    floor.free_w[rack] -= floor.power_w[box]
    for unit in range(u, u + floor.needs_u[box]):
        floor.occupied[rack, unit] += 1


@part
def _take(floor, box):
    rack, u = floor.rack[box], floor.u[box]
    floor.free_w[rack] += floor.power_w[box]
    for unit in range(u, u + floor.needs_u[box]):
        floor.occupied[rack, unit] -= 1


@part
def _is_free(floor, rack, u, needs_u):
    if u < 1 or u + needs_u - 1 > floor.rack_u:
        return False
    filled = 0
    for unit in range(u, u + needs_u):
        filled += floor.occupied[rack, unit]
    return filled == 0


@part
def _next(state):
    return state * _FACTOR % _MODULUS


@lean_kernel
def total_cost(floor):
    total = 0.0
    for group in range(len(floor.kind)):
        total += _cost_of(floor, group)
    return total


@lean_kernel
def try_moves(floor, moves, temperature, state, stamp):
    """Try moves; return the saving, the random state and the last stamp."""
    saved = 0.0
    for _ in range(moves):
        state = _next(state)
        box = floor.switches[state % len(floor.switches)]
        kind = _next(state)
        pick = _next(kind)
        state = _next(pick)
        if kind % 4 == 0:
            other = floor.switches[pick % len(floor.switches)]
            rack, u = _place_of(floor, box, other)
        else:
            other = -1
            rack = _near(floor, box, pick, state, kind % 31 == 0)
            u = _free_unit(floor, box, rack, floor.rack_u if kind % 3 == 0 else state % floor.rack_u + 1)
        if u == 0:
            continue
        old_rack, old_u = floor.rack[box], floor.u[box]
        before = _cost_around(floor, box, other, stamp + 1)
        _move(floor, box, rack, u, other, old_rack, old_u)
        after = _cost_around(floor, box, other, stamp + 2)
        stamp += 2
        state = _next(state)
        if after < before or np.exp((before - after) / temperature) * _MODULUS > state:
            saved += before - after
        else:
            _move(floor, box, old_rack, old_u, other, rack, u)
    return saved, state, stamp


@part
def _place_of(floor, box, other):
    """Return the position of another switch if the two can swap; unit 0 if they cannot."""
    rack, u = floor.rack[other], floor.u[other]
    more_w = floor.power_w[other] - floor.power_w[box]
    if other == box or floor.needs_u[other] != floor.needs_u[box]:
        return rack, 0
    if rack != floor.rack[box] and (floor.free_w[floor.rack[box]] < more_w or floor.free_w[rack] < -more_w):
        return rack, 0
    return rack, u


@part
def _free_unit(floor, box, rack, start):
    """Return the first free unit for a box from `start` downwards, wrapping at the bottom; 0 if there is none."""
    old_rack, old_u = floor.rack[box], floor.u[box]
    if rack != old_rack and floor.free_w[rack] < floor.power_w[box]:
        return 0
    _take(floor, box)
    unit = 0
    for i in range(floor.rack_u):
        u = (start - i - 1) % floor.rack_u + 1
        if _is_free(floor, rack, u, floor.needs_u[box]):
            unit = u
            break
    _put(floor, box, old_rack, old_u)
    return unit


@part
def _near(floor, box, pick, chance, anywhere):
    """Pick a rack of a box that this one is cabled to, or one near it; rarely any rack."""
    mine = floor.first_of_box[box + 1] - floor.first_of_box[box]
    if anywhere or mine == 0:
        return pick % len(floor.free_w)
    group = floor.groups[floor.first_of_box[box] + pick % mine]
    cable = floor.first[group]
    far = floor.high[cable] if floor.low[cable] == box else floor.low[cable]
    return floor.neighbour[floor.rack[far], chance % floor.neighbour.shape[1]]


@part
def _move(floor, box, rack, u, other, old_rack, old_u):
    """Move a box to a position; another one (-1: none) takes its old position."""
    _take(floor, box)
    if other >= 0:
        _take(floor, other)
        _put(floor, other, old_rack, old_u)
    _put(floor, box, rack, u)
