"""The result of an audit: findings, and the plugs to touch for each."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from weft.plan.audit.positions import Position, by_walk


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
    """The actions of a technician; `{}` stands for `Action.to`."""

    MOVE = "pull, plug into {}"
    PLUG = "plug in a cable to {}"
    PULL = "pull the cable to {}"
    REPLACE = "reseat or replace the cable to {}"
    INSTALL = "rack it or switch it on{}"
    REMOVE = "take it out{}"
    RENAME = "rename it from {}, or put the right box here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action at one place."""

    do: Do
    at: str  # port or device, by its planned name
    to: str  # port, or other text for `do`
    cable: str = ""  # label as planned; of a pulled cable, in the same form
    position: Position | None = None
    to_position: Position | None = None

    def __str__(self) -> str:
        to_position = self.to_position if self.to_position != self.position else None
        return f"{place(self.at, self.position)}: {self.do.format(place(self.to, to_position))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A difference from the plan, and the actions that repair it."""

    kind: Kind
    text: str
    actions: tuple[Action, ...]
    cables: tuple[tuple[str, str], ...]  # affected planned cables, by ports; for extra cables the found ones
    labels: tuple[str, ...]  # of these cables
    harmless: bool = False  # routing is not affected: the same devices have as many cables


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    found: str
    plan: str
    cables: int  # in the plan
    as_planned: int  # planned cables in their ports, at their speed
    findings: tuple[Finding, ...]  # in the order of the walk
    notes: tuple[str, ...]  # limits of the comparison

    @property
    def ok(self) -> bool:
        return not self.findings

    def walk(self) -> list[tuple[int, Action]]:
        """Return all actions in walking order, with the number of their finding, from 1."""
        every = [
            (number, action) for number, finding in enumerate(self.findings, start=1) for action in finding.actions
        ]
        return sorted(every, key=lambda pair: in_walk(pair[1]))

    def records(self) -> list[dict[str, str | int | None]]:
        """Return the walk as records, one for each action."""
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
    """Return `A03-U12 leaf1/33`, or the name alone if the position is unknown."""
    return f"{position} {name}" if position else name


def in_walk(action: Action) -> tuple[object, ...]:
    """Return the sort key of an action."""
    return by_walk(action.position, action.at)
