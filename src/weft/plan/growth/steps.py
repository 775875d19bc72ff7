"""The order in which cables go and come, so that every switch always keeps a share of its uplinks.

First, all new cables with free ports are plugged in. Then, step by step, a leaf gives up as many uplinks as it can
spare and gets new ones in their ports, spine by spine, so that a new spine gets all its leaves at once. Ports of spines
become free in the same way for waiting leaves and cores. Cables whose ports are not needed are pulled at the end.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction

from weft.errors import ConfigError
from weft.plan.growth.merged import Cable, End, MergedFabric


class Stuck(ConfigError):
    """An error: no further cable can move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch of cables: all of `out` are pulled before the first of `into` is plugged in."""

    out: tuple[Cable, ...] = ()
    into: tuple[Cable, ...] = ()


def make_batches(merged: MergedFabric, keep: float) -> list[Batch]:
    """Return the batches; `keep` is the share of today's uplinks that every switch keeps at any moment."""
    floor = _Floor(merged, keep)
    batches = [floor.add()]
    while floor.come:
        batches.append(floor.move())
    while floor.go:
        batches.append(floor.pull_rest())
    return [batch for batch in batches if batch.out or batch.into]


class _Floor:
    """The state of ports and cables during the growth."""

    def __init__(self, merged: MergedFabric, keep: float) -> None:
        self.merged = merged
        self.come = dict.fromkeys(sorted(merged.come, key=lambda wire: (wire.high, wire.low)))
        self.go = dict.fromkeys(merged.go)
        self.going: dict[int, dict[Cable, None]] = defaultdict(dict)  # device -> its cables to pull
        self.parallel: Counter[tuple[int, int]] = Counter()  # number of cables to pull between two devices
        for wire in merged.go:
            self._note(wire, 1)
        ports = enumerate(merged.bare.nodes.n_ports.tolist())
        self.free = {device: set(range(1, count + 1)) for device, count in ports}
        for wire in merged.today:
            for device, port in (wire.low, wire.high):
                self.free[device].discard(port)
        self.up = Counter(wire.low[0] for wire in merged.today if merged.is_uplink(wire))
        goal = Counter(wire.low[0] for wire in (*merged.stay, *merged.come) if merged.is_uplink(wire))
        share = Fraction(keep).limit_denominator(10_000)  # exact: 0.55 of 20 is 11
        self.least = {device: math.ceil(share * min(count, goal[device])) for device, count in self.up.items()}
        self.waiting = Counter(device for wire in merged.come for device, _ in (wire.low, wire.high))

    def add(self) -> Batch:
        """Plug in all cables with free ports."""
        return self._done([], self._plug_free())

    def _plug_free(self) -> list[Cable]:
        return [self._plug(wire) for wire in list(self.come) if self.free[wire.low[0]] and self.free[wire.high[0]]]

    def move(self) -> Batch:
        """Move as many cables as switches can spare; if there are none, a leaf gives up one without replacement."""
        out: list[Cable] = []
        into: list[Cable] = []
        for for_others in (False, True):
            for wire in list(self.come):
                self._make_room(wire, for_others, out, into)
            if into:
                break
        if not into:
            raise Stuck(f"{len(self.come):,} cables need ports that no switch can spare")
        return self._done(out, [*into, *self._plug_free()])

    def pull_rest(self) -> Batch:
        out = [wire for wire in list(self.go) if self._may_go(wire) and self._pull(wire)]
        if not out:
            raise Stuck(f"{len(self.go):,} cables remain that no switch can spare")
        return Batch(out=tuple(out))

    def _done(self, out: list[Cable], into: list[Cable]) -> Batch:
        """Return the batch; its new cables count as uplinks only from now on."""
        self.up.update(wire.low[0] for wire in into if self.merged.is_uplink(wire))
        return Batch(out=tuple(out), into=tuple(into))

    def _make_room(self, wire: Cable, for_others: bool, out: list[Cable], into: list[Cable]) -> None:
        """Plug in a cable if both switches have a free port or can spare a cable for it."""
        pulled: list[Cable] = []
        ports: dict[int, int] = {}
        for device in (wire.low[0], wire.high[0]):
            if self.free[device]:
                continue
            spare = self._spare(device, for_others)
            if spare is None:
                for cable in pulled:
                    self._put_back(cable)
                return
            self._pull(spare)
            pulled.append(spare)
            ports[device] = next(port for at, port in (spare.low, spare.high) if at == device)
        out += pulled
        into.append(self._plug(wire, ports))

    def _spare(self, device: int, for_others: bool) -> Cable | None:
        """Return a cable that a device can spare; prefer one whose other port is needed, then one of many parallel."""
        own = (wire for wire in self.going[device] if for_others or wire.low[0] == device)

        def wish(wire: Cable) -> tuple[bool, int, End, End]:
            other = wire.high[0] if wire.low[0] == device else wire.low[0]
            needed = self.waiting[other] > len(self.free[other])
            return not needed, -self.parallel[wire.low[0], wire.high[0]], wire.high, wire.low

        return min(filter(self._may_go, own), key=wish, default=None)

    def _may_go(self, wire: Cable) -> bool:
        return not self.merged.is_uplink(wire) or self.up[wire.low[0]] > self.least.get(wire.low[0], 0)

    def _pull(self, wire: Cable) -> bool:
        del self.go[wire]
        self._note(wire, -1)
        self.up[wire.low[0]] -= self.merged.is_uplink(wire)
        for device, port in (wire.low, wire.high):
            self.free[device].add(port)
        return True

    def _put_back(self, wire: Cable) -> None:
        self.go[wire] = None
        self._note(wire, 1)
        self.up[wire.low[0]] += self.merged.is_uplink(wire)
        for device, port in (wire.low, wire.high):
            self.free[device].remove(port)

    def _note(self, wire: Cable, sign: int) -> None:
        self.parallel[wire.low[0], wire.high[0]] += sign
        for device, _ in (wire.low, wire.high):
            if sign > 0:
                self.going[device][wire] = None
            else:
                del self.going[device][wire]

    def _plug(self, wire: Cable, ports: dict[int, int] | None = None) -> Cable:
        """Plug in a cable: into the given ports, else into its own, else into the first free ones."""
        del self.come[wire]
        ends = []
        for device, port in (wire.low, wire.high):
            free = self.free[device]
            chosen = (ports or {}).get(device) or (port if port in free else min(free))
            free.remove(chosen)
            self.waiting[device] -= 1
            ends.append((device, chosen))
        return replace(wire, low=ends[0], high=ends[1])
