"""From the cables that are there to those that should be, touching as few plugs as possible.

    found   a --- x     b --- y          a port has at most one cable in each: those that only one has form
    plan    a --- y     b --- x          chains and circles in which found and planned take turns

    circle  a=x-b=y-a          every cable has one plug in the wrong port: two are swapped, or three go round, ...
    chain   a=x-b              a plug in the wrong port; in longer ones each takes the port that the next leaves
            a=x-b=y            one more is found than planned: one is pulled
            a-x                nothing found: a cable is missing

A found cable becomes a planned one that shares an end with it, if its other plug fits there: that is one thing to do
for two cables. As many such pairs as possible are made, and among those the ones whose plugs travel least: along a
chain by the best of each beginning, around a circle with and without its last pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Cable = tuple[int, int]  # ports, the lower first
Distance = Callable[[int, int], int | None]  # from port to port; None: the plug does not fit there


@dataclass(frozen=True, slots=True)
class Move:
    """Of a cable: the end that stays, and the port from which and into which the other goes."""

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
    """One chain or circle: what to do with its cables."""

    swap: bool = False  # each cable takes the place of another
    moves: tuple[Move, ...] = ()
    new: tuple[Cable, ...] = ()
    pulled: tuple[Cable, ...] = ()


def repairs(found: Iterable[Cable], plan: Iterable[Cable], distance: Distance) -> Iterator[Repair]:
    """What makes one of the other; both without the cables that they share."""
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
    """The ports of the chain or circle that begins here, which is taken out of both; a circle does not repeat it."""
    chain = [port]
    while (far := now.pop(port, None)) is not None:
        del now[far]
        if far == chain[0]:
            break
        chain.append(far)
        port, now, then = far, then, now
    return chain


def _repair(ports: list[int], found_first: bool, circle: bool, distance: Distance) -> Repair:
    """Cables between ports next to each other, found and planned in turn."""
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
    """Of two cables that share the port in the middle, the found one becomes the planned one."""
    one, shared, other = ports
    return Move(shared, one, other) if found_first else Move(shared, other, one)


def _pairs(costs: list[int | None]) -> list[int]:
    """Joints of a chain, no two next to each other: as many as can be, of those the cheapest."""
    best = [(0, 0)]  # of the first joints: pairs, less what they cost
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
    """More pairs, then less travel, is better."""
    return len(chosen), -sum(costs[i] or 0 for i in chosen)


def _plugged(cables: Iterable[Cable]) -> dict[int, int]:
    return {one: other for cable in cables for one, other in (cable, cable[::-1])}


def _cable(one: int, other: int) -> Cable:
    return (one, other) if one < other else (other, one)
