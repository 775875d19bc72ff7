"""In which order cables go and come, so that no switch is ever left with less than a share of its uplinks.

First all that finds free ports is plugged in. Then step by step: a leaf gives up a few uplinks, as many as it can
spare, and gets as many new ones in the ports that they leave; spine by spine, so that a new spine has all leaves as
soon as it has one. Ports of spines become free in the same way for the leaves and cores that wait. Cables that nobody
needs the ports of are pulled at the end.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction

from weft.errors import ConfigError
from weft.plan.growth.yard import End, Wire, Yard


class Stuck(ConfigError):
    """No cable can move any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Cables that are pulled, all of them before the first is plugged in."""

    out: tuple[Wire, ...] = ()
    into: tuple[Wire, ...] = ()


def make_batches(yard: Yard, keep: float) -> list[Batch]:
    """`keep`: the share of its uplinks of today that every switch of today has at any moment."""
    floor = _Floor(yard, keep)
    batches = [floor.add()]
    while floor.come:
        batches.append(floor.move())
    while floor.go:
        batches.append(floor.pull_rest())
    return [batch for batch in batches if batch.out or batch.into]


class _Floor:
    """Ports and cables as they are at a moment."""

    def __init__(self, yard: Yard, keep: float) -> None:
        self.yard = yard
        self.come = dict.fromkeys(sorted(yard.come, key=lambda wire: (wire.high, wire.low)))
        self.go = dict.fromkeys(yard.go)
        self.going: dict[int, dict[Wire, None]] = defaultdict(dict)  # device -> its cables that go
        self.parallel: Counter[tuple[int, int]] = Counter()  # of those, between two devices
        for wire in yard.go:
            self._note(wire, 1)
        ports = enumerate(yard.bare.nodes.n_ports.tolist())
        self.free = {device: set(range(1, count + 1)) for device, count in ports}
        for wire in yard.today:
            for device, port in (wire.low, wire.high):
                self.free[device].discard(port)
        self.up = Counter(wire.low[0] for wire in yard.today if yard.is_uplink(wire))
        goal = Counter(wire.low[0] for wire in (*yard.stay, *yard.come) if yard.is_uplink(wire))
        share = Fraction(keep).limit_denominator(10_000)  # 0.55 of 20 is 11: no cable is lost to rounding
        self.least = {device: math.ceil(share * min(count, goal[device])) for device, count in self.up.items()}
        self.waiting = Counter(device for wire in yard.come for device, _ in (wire.low, wire.high))

    def add(self) -> Batch:
        """All that finds its ports free."""
        return self._done([], self._plug_free())

    def _plug_free(self) -> list[Wire]:
        return [self._plug(wire) for wire in list(self.come) if self.free[wire.low[0]] and self.free[wire.high[0]]]

    def move(self) -> Batch:
        """As many at once as switches can spare. Only if that is none, a leaf gives up a cable that none replaces."""
        out: list[Wire] = []
        into: list[Wire] = []
        for for_others in (False, True):
            for wire in list(self.come):
                self._make_room(wire, for_others, out, into)
            if into:
                break
        if not into:
            raise Stuck(f"{len(self.come):,} cables wait for ports that no switch can spare")
        return self._done(out, [*into, *self._plug_free()])

    def pull_rest(self) -> Batch:
        out = [wire for wire in list(self.go) if self._may_go(wire) and self._pull(wire)]
        if not out:
            raise Stuck(f"{len(self.go):,} cables are left over that no switch can spare")
        return Batch(out=tuple(out))

    def _done(self, out: list[Wire], into: list[Wire]) -> Batch:
        """What is plugged in counts from now on: it was not there while others were out."""
        self.up.update(wire.low[0] for wire in into if self.yard.is_uplink(wire))
        return Batch(out=tuple(out), into=tuple(into))

    def _make_room(self, wire: Wire, for_others: bool, out: list[Wire], into: list[Wire]) -> None:
        """Plug it in, where its two switches have ports free or can spare a cable for it."""
        pulled: list[Wire] = []
        ports: dict[int, int] = {}
        for device in (wire.low[0], wire.high[0]):
            if self.free[device]:
                continue
            spare = self._spare(device, for_others)
            if spare is None:
                for one in pulled:
                    self._put_back(one)
                return
            self._pull(spare)
            pulled.append(spare)
            ports[device] = next(port for at, port in (spare.low, spare.high) if at == device)
        out += pulled
        into.append(self._plug(wire, ports))

    def _spare(self, device: int, for_others: bool) -> Wire | None:
        """A cable of it that may go: rather one whose other end somebody waits for, and of the most parallel ones."""
        own = (wire for wire in self.going[device] if for_others or wire.low[0] == device)

        def wish(wire: Wire) -> tuple[bool, int, End, End]:
            other = wire.high[0] if wire.low[0] == device else wire.low[0]
            wanted = self.waiting[other] > len(self.free[other])
            return not wanted, -self.parallel[wire.low[0], wire.high[0]], wire.high, wire.low

        return min(filter(self._may_go, own), key=wish, default=None)

    def _may_go(self, wire: Wire) -> bool:
        return not self.yard.is_uplink(wire) or self.up[wire.low[0]] > self.least.get(wire.low[0], 0)

    def _pull(self, wire: Wire) -> bool:
        del self.go[wire]
        self._note(wire, -1)
        self.up[wire.low[0]] -= self.yard.is_uplink(wire)
        for device, port in (wire.low, wire.high):
            self.free[device].add(port)
        return True

    def _put_back(self, wire: Wire) -> None:
        self.go[wire] = None
        self._note(wire, 1)
        self.up[wire.low[0]] += self.yard.is_uplink(wire)
        for device, port in (wire.low, wire.high):
            self.free[device].remove(port)

    def _note(self, wire: Wire, sign: int) -> None:
        self.parallel[wire.low[0], wire.high[0]] += sign
        for device, _ in (wire.low, wire.high):
            if sign > 0:
                self.going[device][wire] = None
            else:
                del self.going[device][wire]

    def _plug(self, wire: Wire, ports: dict[int, int] | None = None) -> Wire:
        """In the ports that were made free for it, else in its own, else in the first that is free."""
        del self.come[wire]
        ends = []
        for device, port in (wire.low, wire.high):
            free = self.free[device]
            chosen = (ports or {}).get(device) or (port if port in free else min(free))
            free.remove(chosen)
            self.waiting[device] -= 1
            ends.append((device, chosen))
        return replace(wire, low=ends[0], high=ends[1])
