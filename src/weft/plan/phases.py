"""Phases of a plan: dates on which parts of it run, with what is bought for each and when it is ordered.

    [[phase]]
    name = "pilot"
    date = 2027-03-01        the servers of the phase run
    servers = 32             in all, so far; or gpus = 256
    [[phase]]
    date = 2027-09-01        the last phase is the whole plan
    servers = 128

    [lead_weeks]             from order to delivery, by kind of part
    switch = 16
    cable = 8

Servers come in the order of the plan, with the switches above them, as `--grow-to` builds the first part of a later
fabric. Racks, lengths and parts are those of the whole plan, so that nothing is moved: a part with two ports is bought
when the first is used.
"""

from __future__ import annotations

import csv
import datetime
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.files.lab.document import Document
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.prices import Band, Prices
from weft.plan.bill import KINDS, Item, list_items, list_servers
from weft.plan.floor.cables import Cabling
from weft.plan.size import Size, first_part

LEAD_KINDS = (*KINDS, "server")


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A phase of a file."""

    date: datetime.date
    name: str = ""
    servers: int | None = None
    gpus: int | None = None


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file of phases."""

    phase: list[Step]
    lead_weeks: dict[str, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase with the parts that are bought for it; servers and GPUs are those that run in all."""

    name: str
    date: datetime.date
    servers: int
    gpus: int
    items: tuple[Item, ...]
    lead_weeks: Mapping[str, float]

    @property
    def total(self) -> Band:
        """The price of the fabric's parts, without servers."""
        parts = (item.total for item in self.items if item.kind != "server")
        return sum(parts, Band(low_usd=0.0, high_usd=0.0))

    def count(self, *kinds: str) -> int:
        return sum(item.count for item in self.items if item.kind in kinds)

    def order_by(self, kind: str) -> datetime.date:
        """Return the last day to order parts of a kind."""
        return self.date - datetime.timedelta(weeks=self.lead_weeks[kind])

    @property
    def first_order(self) -> datetime.date:
        """The first day on which a part of the phase must be ordered."""
        return min((self.order_by(item.kind) for item in self.items), default=self.date)

    def report(self) -> dict[str, Any]:
        """Return the phase as `--json` prints it."""
        return {
            "name": self.name,
            "date": str(self.date),
            "order_by": str(self.first_order),
            "servers": self.servers,
            "gpus": self.gpus,
            "usd": (self.total.low_usd, self.total.high_usd),
            "items": [_facts(item) | {"order_by": str(self.order_by(item.kind))} for item in self.items],
        }


def read_schedule(path: Path) -> Schedule:
    """Read a file of phases."""
    document = Document.load(path, otherwise=".toml")
    schedule = document.convert((), Schedule)
    for kind, weeks in schedule.lead_weeks.items():
        if kind not in LEAD_KINDS or not 0 <= weeks < 1_000:
            document.refuse(("lead_weeks", kind), f"weeks from 0 up for one of {', '.join(LEAD_KINDS)}")
    for earlier, later in zip(schedule.phase, schedule.phase[1:], strict=False):
        if later.date <= earlier.date:
            raise ConfigError(f"{path}: the phase of {later.date} must be later than that of {earlier.date}")
    if any((step.servers is None) == (step.gpus is None) for step in schedule.phase):
        raise ConfigError(f"{path}: each phase needs servers = N or gpus = N, the number that runs from its date on")
    return schedule


def plan_phases(
    schedule: Schedule, sized: Size, cabling: Cabling, prices: Prices, *, lead_weeks: float
) -> tuple[Phase, ...]:
    """Return the phases of a plan; kinds without lead time in the schedule have the given one."""
    if sized.grows:
        raise ConfigError("--phases divides the whole plan: leave out --grow-to, and plan the last phase")
    fabric = cabling.fabric
    counts = _servers(schedule, fabric)
    weeks = {kind: schedule.lead_weeks.get(kind, lead_weeks) for kind in LEAD_KINDS}
    bought: Counter[Item] = Counter()
    phases = []
    for number, (step, servers) in enumerate(zip(schedule.phase, counts, strict=True), 1):
        part = fabric if servers == len(fabric.servers) else first_part(fabric, servers)
        so_far = Counter({replace(item, count=1): item.count for item in _items(part, cabling, prices)})
        phases.append(
            Phase(
                name=step.name or f"phase {number}",
                date=step.date,
                servers=servers,
                gpus=len(part.of_kind(NodeKind.GPU)),
                items=tuple(replace(item, count=count) for item, count in (so_far - bought).items()),
                lead_weeks=weeks,
            )
        )
        bought = so_far
    return tuple(phases)


def _servers(schedule: Schedule, fabric: Fabric) -> list[int]:
    """Return the servers of each phase; raise ConfigError unless they grow to those of the plan."""
    whole, gpus = len(fabric.servers), len(fabric.of_kind(NodeKind.GPU))
    each = gpus // whole
    if not each and any(step.gpus is not None for step in schedule.phase):
        raise ConfigError("these servers have no GPUs: give phases with servers = N")
    counts = [step.servers if step.gpus is None else -(-step.gpus // each) for step in schedule.phase]
    numbers = [count or 0 for count in counts]
    if numbers != sorted(set(numbers)) or not numbers or numbers[0] < 1 or numbers[-1] != whole:
        each_phase = ", ".join(f"{count:,}" for count in numbers) or "none"
        raise ConfigError(
            f"phases must grow to the {whole:,} servers of the plan, got {each_phase}; "
            f"give the last phase servers = {whole}"
        )
    return numbers


def _items(part: Fabric, cabling: Cabling, prices: Prices) -> tuple[Item, ...]:
    """Return the parts of the first servers and their switches, chosen as for the whole plan; power is left out."""
    racks = cabling.racks
    names = set(part.nodes.name)
    node_here = np.fromiter((name in names for name in cabling.fabric.nodes.name), bool, len(cabling.fabric.nodes))
    box_here = np.zeros(len(racks.boxes), bool)
    box_here[racks.box_of[node_here & (racks.box_of >= 0)]] = True
    some = _only(cabling, box_here[cabling.low_box] & box_here[cabling.high_box])
    counts: Counter[Item] = Counter()
    for item in (*list_items(part, some, prices), *list_servers(racks, prices, box_here)):
        counts[replace(item, count=1, power_w=None, inside_w=0.0)] += item.count
    return tuple(replace(item, count=count) for item, count in counts.items())


def _only(cabling: Cabling, mask: NDArray[np.bool_]) -> Cabling:
    """Return the same cabling with some of its cables."""
    columns = ("link", "low_box", "high_box", "low_slot", "high_slot", "route_m", "length_m", "part", "joint", "cross")
    return replace(cabling, **{name: getattr(cabling, name)[mask] for name in columns}, bundle=cabling.bundle[mask])


def _facts(item: Item) -> dict[str, Any]:
    total = item.total if item.price else None
    return {
        "kind": item.kind,
        "part": item.order or item.name,
        "length_m": item.length_m,
        "count": item.count,
        "low_usd": total.low_usd if total else None,
        "high_usd": total.high_usd if total else None,
    }


def to_csv(phases: tuple[Phase, ...]) -> str:
    """Return a CSV line for each part of each phase."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("phase", "date", "order_by", "kind", "part", "length_m", "count", "low_usd", "high_usd"))
    for phase in phases:
        for item in phase.items:
            facts = _facts(item)
            writer.writerow((phase.name, phase.date, phase.order_by(item.kind), *facts.values()))
    return text.getvalue()
