"""Repair a cabling with as few plugs as possible.

    found   a --- x     b --- y          a port has at most one cable in each, so the differences form
    plan    a --- y     b --- x          chains and circles of alternating found and planned cables

    circle  a=x-b=y-a          every cable has one plug in the wrong port: two are swapped, or three rotated, ...
    chain   a=x-b              a plug in the wrong port; in longer chains each takes the port that the next leaves
            a=x-b=y            one more found than planned: one is pulled
            a-x                a cable is missing

A found cable can become a planned one that shares an end with it, if its other plug fits there: one action for two
cables. The algorithm makes as many such pairs as possible, with the least movement of plugs: by dynamic programming
along a chain, and around a circle with and without its last pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Cable = tuple[int, int]  # ports, the lower first
Distance = Callable[[int, int], int | None]  # from port to port; None: the plug does not fit there


@dataclass(frozen=True, slots=True)
class Move:
    """A move of one plug of a cable: the end that stays, and the old and new port of the other."""

    stays: int
    leaves: int
    enters: int

    @property
    def found(self) -> Cable:
        return _cable(self.stays, self.leaves)

    @property
    def planned(self) -> Cable:
        return _cable(self.stays, self.enters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A repair of one chain or circle."""

    swap: bool = False  # cables exchange ports
    moves: tuple[Move, ...] = ()
    new: tuple[Cable, ...] = ()
    pulled: tuple[Cable, ...] = ()


def repairs(found: Iterable[Cable], plan: Iterable[Cable], distance: Distance) -> Iterator[Repair]:
    """Yield the repairs that turn the found cables into the planned ones, both without common cables."""
    mine, theirs = _plugged(found), _plugged(plan)
    for port in sorted(mine.keys() ^ theirs.keys()):
        if port in mine:
            yield _repair(_follow(mine, theirs, port), True, False, distance)
        elif port in theirs:
            yield _repair(_follow(theirs, mine, port), False, False, distance)
    for port in sorted(mine):
        if port in mine:
            yield _repair([*_follow(mine, theirs, port), port], True, True, distance)


def _follow(now: dict[int, int], then: dict[int, int], port: int) -> list[int]:
    """Remove the chain or circle that begins at a port from both, and return its ports (a circle's start once)."""
    chain = [port]
    while (far := now.pop(port, None)) is not None:
        del now[far]
        if far == chain[0]:
            break
        chain.append(far)
        port, now, then = far, then, now
    return chain


def _repair(ports: list[int], found_first: bool, circle: bool, distance: Distance) -> Repair:
    """Return the repair of a chain or circle of ports, with found and planned cables in turn."""
    cables = len(ports) - 1
    joints = [_move(ports[i : i + 3], found_first == (i % 2 == 0)) for i in range(cables - 1)]
    costs = [distance(move.leaves, move.enters) for move in joints]
    chosen = _pairs(costs)
    if circle:
        last = _move([ports[-2], ports[0], ports[1]], not found_first)
        cost = distance(last.leaves, last.enters)
        inner = [i + 1 for i in _pairs(costs[1:-1])]
        if cost is not None and _worth(costs, chosen) < (len(inner) + 1, _worth(costs, inner)[1] - cost):
            joints, chosen = [*joints, last], [*inner, cables - 1]
    paired = {i for joint in chosen for i in (joint, (joint + 1) % cables)}
    left = [(_cable(ports[i], ports[i + 1]), found_first == (i % 2 == 0)) for i in range(cables) if i not in paired]
    return Repair(
        swap=circle and not left,
        moves=tuple(joints[i] for i in chosen),
        new=tuple(cable for cable, is_found in left if not is_found),
        pulled=tuple(cable for cable, is_found in left if is_found),
    )


def _move(ports: list[int], found_first: bool) -> Move:
    """Return the move that turns the found into the planned one of two cables that share the middle port."""
    first, shared, last = ports
    return Move(shared, first, last) if found_first else Move(shared, last, first)


def _pairs(costs: list[int | None]) -> list[int]:
    """Return as many non-adjacent joints of a chain as possible, with the lowest total cost."""
    best = [(0, 0)]  # for the first n joints: pairs, minus cost
    for joint, cost in enumerate(costs):
        pairs, worth = best[max(joint - 1, 0)]
        best.append(max(best[-1], (pairs + 1, worth - cost)) if cost is not None else best[-1])
    chosen, joint = [], len(costs)
    while joint > 0:
        if best[joint] == best[joint - 1]:
            joint -= 1
        else:
            chosen.append(joint - 1)
            joint -= 2
    return chosen[::-1]


def _worth(costs: list[int | None], chosen: list[int]) -> tuple[int, int]:
    """Return the value of a choice: more pairs first, then less movement."""
    return len(chosen), -sum(costs[i] or 0 for i in chosen)


def _plugged(cables: Iterable[Cable]) -> dict[int, int]:
    return {near: far for cable in cables for near, far in (cable, cable[::-1])}


def _cable(near: int, far: int) -> Cable:
    return (near, far) if near < far else (far, near)
