"""Compare a built fabric with its plan: which plugs to touch, and in which order.

audit = compare(weft.load("found.ibnetdiscover"), read_plan("plan/"))
audit.ok                                  every cable is as planned, at its speed
for number, action in audit.walk(): ...   one action for each plug, with the number of its finding
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
from weft.plan.audit.positions import Planned, Position, natural
from weft.plan.audit.repair import Cable, Repair, repairs

_PORTS = 256  # more than a node has
_TIERS = 1000  # more than a fabric has
_NOT_A_DEVICE = ""


def compare(found: Fabric, planned: Planned) -> Audit:
    """Return all differences in as few findings as possible."""
    return _Comparison(found, planned).audit()


class _Devices:
    """The devices of both fabrics by number: those of the plan, then those found. A port is device * 256 + number."""

    def __init__(self, found: Fabric, planned: Planned, identity: Identity) -> None:
        self.found, self.plan, self.positions = found, planned.fabric, planned.positions
        self.first_found = len(self.plan.nodes)
        strangers = self.first_found + np.arange(len(found.nodes))
        self.of_found = np.where(identity.planned >= 0, identity.planned, strangers)  # [node of FOUND] -> device
        matched = np.flatnonzero(identity.planned >= 0)
        found_boxes, planned_boxes = (_boxes(fabric, cabled(fabric)) for fabric in (found, self.plan))
        self.absent = planned_boxes - found_boxes - _boxes(self.plan, identity.planned[matched])
        self.strange = found_boxes - planned_boxes - _boxes(found, matched)

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

    def distance(self, start: int, end: int) -> int | None:
        """Return how far a plug moves: within a box, within a rack, or further; ties go to the higher tier.

        None if the plug does not fit: adapters and switches have different cages.
        """
        if start // _PORTS == end // _PORTS:
            return 0
        if self.is_host(start // _PORTS) != self.is_host(end // _PORTS):
            return None
        start_position, end_position = self.position(start), self.position(end)
        far = 2 if start_position is None or end_position is None or start_position.rack != end_position.rack else 1
        return far * _TIERS - self.tier(start // _PORTS)

    def owner(self, cable: Cable, missing: bool) -> str:
        """Return the missing or unplanned device that a cable belongs to."""
        boxes = self.absent if missing else self.strange
        return next((box for port in cable if (box := self.box(port // _PORTS)) in boxes), _NOT_A_DEVICE)

    def joins(self, ends: Iterable[Cable]) -> Counter[tuple[int, ...]]:
        """Count the cables between each pair of devices."""
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
        if self._has_speeds():
            moved = [(move.found, move.planned) for fix in fixes for move in fix.moves]
            slower = self._add_slower([(cable, cable) for cable in shared])
            self._add_slower(moved)
        else:
            notes.append(f"{self.found.spec} has no speeds of its cables, so speeds are not compared")
        return Audit(
            found=self.found.spec,
            plan=self.plan.spec,
            cables=len(self.theirs),
            as_planned=len(shared) - slower,
            findings=tuple(sorted(self.findings, key=lambda one: min(map(in_walk, one.actions)))),
            notes=tuple(notes),
        )

    def _notes(self) -> list[str]:
        identity, n_found = self.identity, len(cabled(self.found))
        notes = []
        if identity.by_guid:
            notes.append(
                f"{identity.by_guid:,} devices of {n_found:,} have other names than in the plan, and its GUIDs"
            )
        if 2 * (identity.by_name + identity.by_guid) < min(n_found, len(cabled(self.plan))):
            notes.append(
                f"names of the plan have {identity.by_name:,} of {n_found:,} devices: is it the plan of these?"
            )
        return notes

    def _has_speeds(self) -> bool:
        """Return whether the found fabric has speeds; a dump without them reads as all the slowest."""
        speed, width = parse_label(DEFAULT_RATE)
        links = self.found.links
        links_found = list(self.mine.values())
        return not links_found or not np.all(
            (links.speed[links_found] == speed.index) & (links.width[links_found] == width)
        )

    # -- findings -----------------------------------------------------------------------------------------------

    def _add(
        self, kind: Kind, text: str, actions: Sequence[Action], about: Iterable[Cable], *, harmless: bool = False
    ) -> None:
        about = sorted(about)
        named = tuple((self.devices.port(near), self.devices.port(far)) for near, far in about)
        labels = tuple(map(self._label, about))
        finding = Finding(kind=kind, text=text, actions=tuple(actions), cables=named, labels=labels, harmless=harmless)
        self.findings.append(finding)

    def _label(self, cable: Cable) -> str:
        return " > ".join(place(self.devices.port(end), self.devices.position(end)) for end in cable)

    def _action(self, do: Do, at: int, to: int, cable: Cable) -> Action:
        (at_port, to_port), (position, to_position) = (
            map(self.devices.port, (at, to)),
            map(self.devices.position, (at, to)),
        )
        label = self._label(cable)
        return Action(do=do, at=at_port, to=to_port, cable=label, position=position, to_position=to_position)

    def _at_first_end(self, do: Do, cable: Cable) -> Action:
        """Return the action at the end that comes first in the walk."""
        return min((self._action(do, *ends, cable) for ends in (cable, cable[::-1])), key=in_walk)

    def _text(self, cable: Cable) -> str:
        return " - ".join(map(self.devices.port, cable))

    def _add_fixes(self, fixes: list[Repair]) -> None:
        """Add a finding for each repair; cables of missing or unplanned devices go with the device."""
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
            kind, text = Kind.SWAPPED, _say_circle([move.at for move in moves])
        elif found and about:
            kind, text = Kind.WRONG_PORT, self._say_wrong(found, about)
        elif fix.new:
            kind, text = Kind.MISSING, f"{self._text(fix.new[0])} is missing"
        else:
            kind, text = Kind.EXTRA, f"{self._text(fix.pulled[0])} is not planned"
        if harmless:
            text += "; the same devices are connected, so routing is not affected"
        self._add(kind, text, actions, about or found, harmless=harmless)

    def _say_wrong(self, found: list[Cable], planned: list[Cable]) -> str:
        """Describe a wrong port by a port that has a cable in both fabrics."""
        should = {end: sum(cable) - end for cable in planned for end in cable}
        end, goes = next((end, sum(cable) - end) for cable in found for end in cable if end in should)
        return f"{self.devices.port(end)} goes to {self.devices.port(goes)}, not to {self.devices.port(should[end])}"

    def _add_device(self, box: str, own: list[Cable]) -> None:
        count = f"{len(own)} {'cable' if len(own) == 1 else 'cables'}"
        if box in self.devices.absent:
            kind, do, text = Kind.DEVICE_MISSING, Do.INSTALL, "is not seen"
        else:
            kind, do, text = Kind.DEVICE_EXTRA, Do.REMOVE, "is not planned"
        action = Action(
            do=do, at=box, to=f", with its {count}" if own else "", position=self.devices.positions.get(box)
        )
        self._add(kind, f"{box} {text}, nor {count} of it" if own else f"{box} {text}", [action], own)

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
            text = f"{box} stands where {home} should: another name, or another box"
            self._add(Kind.OTHER_NAME, text, [Action(do=Do.RENAME, at=home, to=box, position=position)], own)

    def _add_slower(self, pairs: Iterable[tuple[Cable, Cable]]) -> int:
        """Add a finding for each cable that is slower than planned; return their number."""
        pairs = list(pairs)
        mine, theirs = [self.mine[actual] for actual, _ in pairs], [self.theirs[other] for _, other in pairs]
        slow = np.flatnonzero(self.found.link_rate_gbit_s[mine] < self.plan.link_rate_gbit_s[theirs])
        for i in slow.tolist():
            runs, planned = self.found.link(mine[i]).label, self.plan.link(theirs[i]).label
            cable = pairs[i][1]
            text = f"{self._text(cable)} runs at {runs}, planned {planned}"
            self._add(Kind.SLOWER, text, [self._at_first_end(Do.REPLACE, cable)], [cable])
        return len(slow)


def _cables(fabric: Fabric, device: NDArray[np.int64]) -> dict[Cable, int]:
    """Return the links by the ports of their cable, the lower port first."""
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
