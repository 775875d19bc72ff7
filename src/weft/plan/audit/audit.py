"""What stands against its plan: which plugs to touch, and in which order to walk.

audit = compare(weft.load("found.ibnetdiscover"), read_plan("plan/"))
audit.ok                                  every cable is as planned, at its speed
for number, action in audit.walk(): ...   one line for each plug; the number is that of the finding that it mends
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.fabric.files.discovered import DEFAULT_RATE
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.fabric.rates import parse_label
from weft.plan.audit.findings import Action, Audit, Do, Finding, Kind, in_walk, place
from weft.plan.audit.identity import Identity, box_name, cabled, cables, identify
from weft.plan.audit.positions import Planned
from weft.plan.audit.repair import Cable, Repair, repairs
from weft.plan.audit.walk import Position, natural

_PORTS = 256  # more than a node has
_TIERS = 1000  # more than a fabric has
_NOT_A_DEVICE = ""


def compare(found: Fabric, planned: Planned) -> Audit:
    """All that differs, in as few findings as explain it."""
    return _Comparison(found, planned).audit()


class _Devices:
    """Devices of both by number: those of the plan, then those of FOUND. A port is that times 256, and its own."""

    def __init__(self, found: Fabric, planned: Planned, identity: Identity) -> None:
        self.found, self.plan, self.positions = found, planned.fabric, planned.positions
        self.first_found = len(self.plan.nodes)
        strangers = self.first_found + np.arange(len(found.nodes))
        self.of_found = np.where(identity.planned >= 0, identity.planned, strangers)  # [node of FOUND] -> device
        matched = np.flatnonzero(identity.planned >= 0)
        here, there = (_boxes(fabric, cabled(fabric)) for fabric in (found, self.plan))
        self.absent = there - here - _boxes(self.plan, identity.planned[matched])
        self.strange = here - there - _boxes(found, matched)

    def _look_up(self, device: int) -> tuple[Fabric, int]:
        planned = device < self.first_found
        return (self.plan, device) if planned else (self.found, device - self.first_found)

    def box(self, device: int) -> str:
        return box_name(*self._look_up(device))

    def name(self, device: int) -> str:
        fabric, node = self._look_up(device)
        return fabric.nodes.name[node]

    def is_host(self, device: int) -> bool:
        fabric, node = self._look_up(device)
        return bool(fabric.nodes.kind[node] != NodeKind.SWITCH)

    def tier(self, device: int) -> int:
        fabric, node = self._look_up(device)
        return int(self._levels[fabric is self.plan][node])

    @cached_property
    def _levels(self) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        return levels(self.found), levels(self.plan)

    def port(self, port: int) -> str:
        return f"{self.name(port // _PORTS)}/{port % _PORTS}"

    def position(self, port: int) -> Position | None:
        return self.positions.get(self.box(port // _PORTS))

    def distance(self, one: int, other: int) -> int | None:
        """How far a plug travels: inside a box, inside a rack, further; at equal distance rather high in the tree.

        Adapters and switches have other cages, and cables to hosts are not those between switches.
        """
        if one // _PORTS == other // _PORTS:
            return 0
        if self.is_host(one // _PORTS) != self.is_host(other // _PORTS):
            return None
        here, there = self.position(one), self.position(other)
        far = 2 if here is None or there is None or here.rack != there.rack else 1
        return far * _TIERS - self.tier(one // _PORTS)

    def owner(self, cable: Cable, missing: bool) -> str:
        """The device that is not there, or not planned, and that a cable goes with."""
        boxes = self.absent if missing else self.strange
        return next((box for port in cable if (box := self.box(port // _PORTS)) in boxes), _NOT_A_DEVICE)

    def joins(self, ends: Iterable[Cable]) -> Counter[tuple[int, ...]]:
        """How many cables between which devices."""
        return Counter(tuple(sorted(port // _PORTS for port in cable)) for cable in ends)


class _Comparison:
    def __init__(self, found: Fabric, planned: Planned) -> None:
        self.found, self.plan = found, planned.fabric
        self.identity = identify(found, self.plan)
        self.devices = _Devices(found, planned, self.identity)
        self.mine = _cables(found, self.devices.of_found)
        self.theirs = _cables(self.plan, np.arange(len(self.plan.nodes)))
        self.findings: list[Finding] = []

    def audit(self) -> Audit:
        shared = self.mine.keys() & self.theirs.keys()
        left = self.mine.keys() - shared, self.theirs.keys() - shared
        fixes = list(repairs(*left, self.devices.distance))
        self._add_names()
        self._add_fixes(fixes)
        notes = self._notes()
        slower = 0
        if self._tells_speeds():
            moved = [(move.found, move.planned) for fix in fixes for move in fix.moves]
            slower = self._add_slower([(one, one) for one in shared])
            self._add_slower(moved)
        else:
            notes.append(f"{self.found.spec} tells no speed of its cables: speeds are not compared")
        return Audit(
            found=self.found.spec,
            plan=self.plan.spec,
            cables=len(self.theirs),
            as_planned=len(shared) - slower,
            findings=tuple(sorted(self.findings, key=lambda one: min(map(in_walk, one.actions)))),
            notes=tuple(notes),
        )

    def _notes(self) -> list[str]:
        known, seen = self.identity, len(cabled(self.found))
        notes = []
        if known.by_guid:
            notes.append(f"{known.by_guid:,} devices of {seen:,} have other names than in the plan, and its GUIDs")
        if 2 * (known.by_name + known.by_guid) < min(seen, len(cabled(self.plan))):
            notes.append(f"names of the plan have {known.by_name:,} of {seen:,} devices: is it the plan of these?")
        return notes

    def _tells_speeds(self) -> bool:
        """A dump without speeds reads as the slowest there is, all of it."""
        speed, width = parse_label(DEFAULT_RATE)
        links = self.found.links
        here = list(self.mine.values())
        return not here or not np.all((links.speed[here] == speed.index) & (links.width[here] == width))

    # -- findings -----------------------------------------------------------------------------------------------

    def _add(
        self, kind: Kind, what: str, actions: Sequence[Action], about: Iterable[Cable], *, harmless: bool = False
    ) -> None:
        about = sorted(about)
        named = tuple((self.devices.port(one), self.devices.port(other)) for one, other in about)
        labels = tuple(map(self._label, about))
        made = Finding(kind=kind, what=what, actions=tuple(actions), cables=named, labels=labels, harmless=harmless)
        self.findings.append(made)

    def _label(self, cable: Cable) -> str:
        return " > ".join(place(self.devices.port(end), self.devices.position(end)) for end in cable)

    def _action(self, do: Do, at: int, to: int, cable: Cable) -> Action:
        (here, there), (position, to_position) = map(self.devices.port, (at, to)), map(self.devices.position, (at, to))
        label = self._label(cable)
        return Action(do=do, at=here, to=there, cable=label, position=position, to_position=to_position)

    def _at_first_end(self, do: Do, cable: Cable) -> Action:
        """From the end that the technician comes to first."""
        return min((self._action(do, *ends, cable) for ends in (cable, cable[::-1])), key=in_walk)

    def _text(self, cable: Cable) -> str:
        return " - ".join(map(self.devices.port, cable))

    def _add_fixes(self, fixes: list[Repair]) -> None:
        """A device that is not there, or not planned, takes the cables along that only it explains."""
        of_device: dict[str, list[Cable]] = {box: [] for box in sorted(self.devices.absent | self.devices.strange)}
        for fix in fixes:
            lone = (*fix.new, *fix.pulled)
            alone = not fix.moves and len(lone) == 1
            if alone and (owner := self.devices.owner(lone[0], bool(fix.new))):
                of_device[owner] += lone
            else:
                self._add_fix(fix)
        for box, own in of_device.items():
            self._add_device(box, own)

    def _add_fix(self, fix: Repair) -> None:
        moves = [self._action(Do.MOVE, move.leaves, move.enters, move.planned) for move in fix.moves]
        actions = [
            *moves,
            *(self._at_first_end(Do.PLUG, cable) for cable in fix.new),
            *(self._at_first_end(Do.PULL, cable) for cable in fix.pulled),
        ]
        about = [*(move.planned for move in fix.moves), *fix.new]
        found = [*(move.found for move in fix.moves), *fix.pulled]
        harmless = bool(found) and self.devices.joins(about) == self.devices.joins(found)
        if fix.swap:
            kind, what = Kind.SWAPPED, _say_circle([one.at for one in moves])
        elif found and about:
            kind, what = Kind.WRONG_PORT, self._say_wrong(found, about)
        elif fix.new:
            kind, what = Kind.MISSING, f"{self._text(fix.new[0])} is not there"
        else:
            kind, what = Kind.EXTRA, f"{self._text(fix.pulled[0])} is not planned"
        if harmless:
            what += "; the same devices are joined, no harm to routing"
        self._add(kind, what, actions, about or found, harmless=harmless)

    def _say_wrong(self, found: list[Cable], planned: list[Cable]) -> str:
        """By a port that has a cable in both."""
        should = {end: sum(cable) - end for cable in planned for end in cable}
        end, goes = next((end, sum(cable) - end) for cable in found for end in cable if end in should)
        return f"{self.devices.port(end)} goes to {self.devices.port(goes)}, not to {self.devices.port(should[end])}"

    def _add_device(self, box: str, own: list[Cable]) -> None:
        count = f"{len(own)} {'cable' if len(own) == 1 else 'cables'}"
        if box in self.devices.absent:
            kind, do, what = Kind.DEVICE_MISSING, Do.INSTALL, "is not seen"
        else:
            kind, do, what = Kind.DEVICE_EXTRA, Do.REMOVE, "is not planned"
        action = Action(
            do=do, at=box, to=f", with its {count}" if own else "", position=self.devices.positions.get(box)
        )
        self._add(kind, f"{box} {what}, nor {count} of it" if own else f"{box} {what}", [action], own)

    def _add_names(self) -> None:
        named = {
            planned: (box_name(self.plan, planned), box_name(self.found, node))
            for node, planned in self.identity.by_cables
        }
        boxes: dict[tuple[str, str], set[Cable]] = {pair: set() for pair in named.values()}
        for cable in self.theirs if named else ():
            for end in cable:
                if end // _PORTS in named:
                    boxes[named[end // _PORTS]].add(cable)
        for (home, box), own in boxes.items():
            position = self.devices.positions.get(home)
            what = f"{box} stands where {home} should: another name, or another box"
            self._add(Kind.OTHER_NAME, what, [Action(do=Do.RENAME, at=home, to=box, position=position)], own)

    def _add_slower(self, pairs: Iterable[tuple[Cable, Cable]]) -> int:
        """Cables that run slower than those that they are, or become; how many."""
        pairs = list(pairs)
        mine, theirs = [self.mine[one] for one, _ in pairs], [self.theirs[other] for _, other in pairs]
        slow = np.flatnonzero(self.found.link_rate_gbit_s[mine] < self.plan.link_rate_gbit_s[theirs])
        for i in slow.tolist():
            runs, planned = self.found.link(mine[i]).label, self.plan.link(theirs[i]).label
            cable = pairs[i][1]
            what = f"{self._text(cable)} runs at {runs}, planned {planned}"
            self._add(Kind.SLOWER, what, [self._at_first_end(Do.REPLACE, cable)], [cable])
        return len(slow)


def _cables(fabric: Fabric, device: NDArray[np.int64]) -> dict[Cable, int]:
    """Cables by their ports, the lower first -> link."""
    link = np.flatnonzero(cables(fabric))
    port = device[fabric.ports.node] * _PORTS + fabric.ports.number
    ends = np.sort(np.stack((port[fabric.links.a[link]], port[fabric.links.b[link]]), axis=1), axis=1)
    return dict(zip(map(tuple, ends.tolist()), link.tolist(), strict=True))


def _boxes(fabric: Fabric, nodes: NDArray[np.int64]) -> set[str]:
    return {box_name(fabric, node) for node in nodes.tolist()}


def _say_circle(ports: list[str]) -> str:
    if len(ports) == 2:
        first, second = sorted(ports, key=natural)
        return f"{first} and {second} are swapped"
    start = ports.index(min(ports, key=natural))
    return f"{', '.join((*ports[start:], *ports[:start]))}: each plug is in the port of another"
