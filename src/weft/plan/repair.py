"""From the cables that are there to those that should be, touching as few plugs as possible.

    found   a --- x     b --- y          a port has at most one cable in each: those that only one has form
    plan    a --- y     b --- x          chains and circles in which found and planned take turns

    circle  a=x-b=y-a          every cable has one plug in the wrong port: two are swapped, or three go round, ...
    chain   a=x-b              a plug in the wrong port; in longer ones each takes the port that the next leaves
            a=x-b=y            one more is found than planned: one is pulled
            a-x                nothing found: a cable is missing

Each found cable becomes a planned one that shares an end with it, so that only its other plug moves. That is as few as
can be: each cable that is not planned is touched, and each planned cable that is not there is made, once. In a circle
there are two ways, and in a chain of odd length several: the one whose plugs travel least is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Cable = tuple[int, int]  # ports, the lower first
Distance = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class Move:
    """Of a cable: the end that stays, and the port from which and into which the other goes."""

    stays: int
    leaves: int
    enters: int

    @property
    def ends(self) -> tuple[int, int, int]:
        return self.stays, self.leaves, self.enters

    @property
    def found(self) -> Cable:
        return _cable(self.stays, self.leaves)

    @property
    def planned(self) -> Cable:
        return _cable(self.stays, self.enters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One chain or circle: what to do with its cables."""

    circle: bool = False
    moves: tuple[Move, ...] = ()
    new: tuple[Cable, ...] = ()
    pulled: tuple[Cable, ...] = ()


def repairs(found: Iterable[Cable], plan: Iterable[Cable], distance: Distance) -> Iterator[Repair]:
    """What makes one of the other; both without the cables that they share."""
    mine, theirs = _plugged(found), _plugged(plan)
    for port in sorted(mine.keys() ^ theirs.keys()):
        if port in mine:
            yield _repair_chain(_follow(mine, theirs, port), True, distance)
        elif port in theirs:
            yield _repair_chain(_follow(theirs, mine, port), False, distance)
    for port in sorted(mine):
        if port in mine:
            yield _repair_circle(_follow(mine, theirs, port), distance)


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


def _repair_circle(circle: list[int], distance: Distance) -> Repair:
    around = [*circle, circle[0], circle[1]]
    forward = [Move(around[i + 1], around[i], around[i + 2]) for i in range(0, len(circle), 2)]
    back = [Move(around[i], around[i + 1], around[i - 1 if i else len(circle) - 1]) for i in range(0, len(circle), 2)]
    shorter = forward if _travel(forward, distance) <= _travel(back, distance) else back
    return Repair(circle=True, moves=tuple(shorter))


def _repair_chain(chain: list[int], found_first: bool, distance: Distance) -> Repair:
    cables = len(chain) - 1
    forward = [Move(chain[i + 1], chain[i], chain[i + 2]) for i in range(not found_first, cables - 1, 2)]
    # Walked from the other end the same rule gives the moves back.
    first_back = 2 if found_first else 1
    back = [Move(chain[i], chain[i + 1], chain[i - 1]) for i in range(first_back, cables, 2)]
    if cables % 2 == 0:
        return Repair(moves=tuple(forward if found_first else back))
    # One is left over: of the found ones, those before it go forward and those after it back; of the planned ones, the
    # other way round.
    before, after = (forward, back) if found_first else (back, forward)
    spare = _least_travel(before, after, distance)
    over = _cable(chain[2 * spare], chain[2 * spare + 1])
    moves = (*before[:spare], *after[spare:])
    return Repair(moves=moves, pulled=(over,)) if found_first else Repair(moves=moves, new=(over,))


def _least_travel(before: list[Move], after: list[Move], distance: Distance) -> int:
    """How many of `before` to take, and then the rest of `after`."""
    travel = _travel(after, distance)
    best, fewest = 0, travel
    for taken, (one, other) in enumerate(zip(before, after, strict=True), start=1):
        travel += _travel([one], distance) - _travel([other], distance)
        if travel < fewest:
            best, fewest = taken, travel
    return best


def _travel(moves: list[Move], distance: Distance) -> int:
    return sum(distance(move.leaves, move.enters) for move in moves)


def _plugged(cables: Iterable[Cable]) -> dict[int, int]:
    return {one: other for cable in cables for one, other in (cable, cable[::-1])}


def _cable(one: int, other: int) -> Cable:
    return (one, other) if one < other else (other, one)
