"""What an audit says: findings, and for each the plugs to touch."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from weft.plan.audit.walk import Position, by_walk


class Kind(enum.StrEnum):
    SWAPPED = "swapped"
    WRONG_PORT = "wrong port"
    MISSING = "missing"
    EXTRA = "extra"
    SLOWER = "slower"
    DEVICE_MISSING = "device missing"
    DEVICE_EXTRA = "device extra"
    OTHER_NAME = "other name"


class Do(enum.StrEnum):
    """What a technician does; in the braces goes `Action.to`."""

    MOVE = "pull, plug into {}"
    PLUG = "plug in a cable to {}"
    PULL = "pull the cable to {}"
    REPLACE = "reseat or replace the cable to {}"
    INSTALL = "rack it or switch it on{}"
    REMOVE = "take it out{}"
    RENAME = "rename it from {}, or put the right box here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do at one place."""

    do: Do
    at: str  # port or device, as the plan calls it
    to: str  # port, or what `do` says
    cable: str = ""  # its label, as planned; of what is pulled, as it would be
    position: Position | None = None
    to_position: Position | None = None

    def __str__(self) -> str:
        there = self.to_position if self.to_position != self.position else None
        return f"{place(self.at, self.position)}: {self.do.format(place(self.to, there))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, and what mends it."""

    kind: Kind
    what: str
    actions: tuple[Action, ...]
    cables: tuple[tuple[str, str], ...]  # planned ones that it is about, by their ports; of what is extra, found ones
    labels: tuple[str, ...]  # of the same
    harmless: bool = False  # to routing: the same devices are joined, by as many cables


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    found: str
    plan: str
    cables: int  # in the plan
    as_planned: int  # of them: in their two ports, at their speed
    findings: tuple[Finding, ...]  # in the order of the walk
    notes: tuple[str, ...]  # what was compared otherwise than usual, or not at all

    @property
    def ok(self) -> bool:
        return not self.findings

    def walk(self) -> list[tuple[int, Action]]:
        """Everything to do, in the order of the floor, with the number of its finding, from 1."""
        every = [(number, action) for number, one in enumerate(self.findings, start=1) for action in one.actions]
        return sorted(every, key=lambda pair: in_walk(pair[1]))

    def records(self) -> list[dict[str, str | int | None]]:
        """The walk for programs, a row for each thing to do."""
        return [
            {
                "finding": number,
                "kind": self.findings[number - 1].kind.value,
                "do": action.do.name.lower(),
                "at": action.at,
                "rack": action.position.rack if action.position else "",
                "u": action.position.u if action.position else None,
                "to": action.to,
                "to_rack": action.to_position.rack if action.to_position else "",
                "to_u": action.to_position.u if action.to_position else None,
                "cable": action.cable,
                "text": str(action),
            }
            for number, action in self.walk()
        ]


def place(name: str, position: Position | None) -> str:
    """`A03-U12 leaf1/33`; the name alone where nobody says where it stands."""
    return f"{position} {name}" if position else name


def in_walk(action: Action) -> tuple[object, ...]:
    """What to sort actions by."""
    return by_walk(action.position, action.at)
