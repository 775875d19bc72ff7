"""The difference between two allocations, printed as Terraform does.

+ acme=0x0101, SL 1, IPoIB          + create, ~ change, - destroy
    + h[1-4] full
~ Default=0x7fff
    ~ members full -> limited
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

from weft.fabric.files.hostlist import compress, natural
from weft.ids import Guid
from weft.sm.conf.qos_options import QosOptions, write_vlarb
from weft.sm.pkey.partitions import DEFAULT_P_KEY
from weft.tenants.partitions import Allocation, EndPort, Inventory, Member, Partition

_SIGNS = {"create": "+", "change": "~", "destroy": "-"}


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """The change of one partition."""

    before: Partition | None
    after: Partition | None

    @property
    def action(self) -> Literal["create", "change", "destroy"]:
        return "create" if self.before is None else "destroy" if self.after is None else "change"

    @property
    def partition(self) -> Partition:
        partition = self.after or self.before
        assert partition is not None
        return partition

    @property
    def members(self) -> dict[int, tuple[Member | None, Member | None]]:
        """The members that differ, before and after, by GUID."""
        before, after = (partition.members if partition else {} for partition in (self.before, self.after))
        return {
            guid: (before.get(guid), after.get(guid))
            for guid in dict.fromkeys([*after, *before])
            if before.get(guid) != after.get(guid)
        }

    @property
    def options(self) -> dict[str, tuple[Any, Any]]:
        """The options that differ, before and after, of a partition that stays."""
        if self.before is None or self.after is None:
            return {}
        names = (field.name for field in fields(Partition) if field.name != "members")
        both = {name: (getattr(self.before, name), getattr(self.after, name)) for name in names}
        return {name: pair for name, pair in both.items() if pair[0] != pair[1]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The changes from one allocation to another."""

    before: Allocation
    after: Allocation
    partitions: tuple[PartitionChange, ...]  # by P_Key

    @property
    def default_changes(self) -> bool:
        return self.before.default_is_full != self.after.default_is_full

    @property
    def lanes_change(self) -> bool:
        return self.before.lanes != self.after.lanes

    @property
    def is_empty(self) -> bool:
        return not (self.partitions or self.default_changes or self.lanes_change)

    @property
    def summary(self) -> str:
        """The last line of the printed plan."""
        if self.is_empty:
            return "No changes: the fabric matches the intent."
        actions = [change.action for change in self.partitions]
        changed = actions.count("change") + self.default_changes + self.lanes_change
        return f"Plan: {actions.count('create')} to create, {changed} to change, {actions.count('destroy')} to destroy."


def compare(before: Allocation, after: Allocation) -> Plan:
    """Return the changes from one allocation to another."""
    p_keys = sorted(before.partitions.keys() | after.partitions.keys())
    pairs = ((before.partitions.get(p_key), after.partitions.get(p_key)) for p_key in p_keys)
    return Plan(before=before, after=after, partitions=tuple(PartitionChange(a, b) for a, b in pairs if a != b))


# -- as text -----------------------------------------------------------------------------------------------------------


class Names:
    """A formatter of port names, in short form: h[1-4] for all ports of four hosts."""

    def __init__(self, inventory: Inventory) -> None:
        self.by_guid, self.by_host = inventory.by_guid(), inventory.by_host()

    def spell(self, guids: Iterable[int]) -> str:
        """Return the names of ports; unknown ports by GUID."""
        by_host: dict[str, list[EndPort]] = {}
        unknown = []
        for guid in guids:
            port = self.by_guid.get(guid)
            if port is None:
                unknown.append(str(Guid(guid)))
            else:
                by_host.setdefault(port.host, []).append(port)
        whole = {host: None for host, ports in by_host.items() if len(ports) == len(self.by_host[host])}
        some = (port.name for host, ports in by_host.items() if host not in whole for port in ports)
        return ", ".join([*([compress(whole)] if whole else []), *sorted(some, key=natural), *unknown])

    def missing(self, guids: Iterable[int]) -> list[int]:
        """Return the ports that are down now."""
        return [guid for guid in guids if not ((port := self.by_guid.get(guid)) and port.is_there)]

    def record(self, guid: int) -> dict[str, Any]:
        port = self.by_guid.get(guid)
        return {"guid": str(Guid(guid)), "port": port.name if port else "", "is_there": not self.missing([guid])}


def lines(plan: Plan, names: Names) -> Iterator[str]:
    """Yield the lines of a plan, without the summary."""
    for change in plan.partitions:
        yield f"{_SIGNS[change.action]} {_title(change.partition)}"
        yield from (f"    ~ {name} {_spell(old)} -> {_spell(new)}" for name, (old, new) in change.options.items())
        yield from (f"    {line}" for line in _member_lines(change, names))
    if plan.default_changes:
        yield f"~ Default={DEFAULT_P_KEY:#06x}"
        yield f"    ~ members {_full(plan.before.default_is_full)} -> {_full(plan.after.default_is_full)}"
    if plan.lanes_change:
        old, new = (_options(allocation.lanes) for allocation in (plan.before, plan.after))
        sign = "+" if not old else "-" if not new else "~"
        yield f"{sign} lanes"
        for name in new or old:
            values = [options[name] for options in (old, new) if name in options]
            if len({*values}) == len(values):
                yield f"    {sign} {name} {' -> '.join(values)}"


def _title(partition: Partition) -> str:
    sl, ipoib = [f"SL {partition.sl}"] if partition.sl else [], ["IPoIB"] if partition.ipoib else []
    return ", ".join([partition.label, *sl, *ipoib])


def _member_lines(change: PartitionChange, names: Names) -> Iterator[str]:
    by_format: dict[str, list[int]] = {}
    for guid, (old, new) in change.members.items():
        how = _seat(new) if old is None else _seat(old) if new is None else f"{_seat(old)} -> {_seat(new)}"
        by_format.setdefault(f"{'+' if old is None else '-' if new is None else '~'} {{}} {how}", []).append(guid)
    yield from (form.format(names.spell(guids)) for form, guids in by_format.items())


def _seat(member: Member | None) -> str:
    assert member is not None
    return f"{_full(member.full)}{', index 0' if member.index0 else ''}"


def _full(full: bool) -> str:
    return "full" if full else "limited"


def _spell(value: Any) -> str:
    return "none" if value is None else ("off", "on")[value] if isinstance(value, bool) else str(value)


def _options(lanes: QosOptions | None) -> dict[str, str]:
    """Return the QoS options as opensm.conf has them."""
    if lanes is None:
        return {}
    options = {
        "high_limit": lanes.high_limit,
        "vlarb_high": lanes.vlarb_high and write_vlarb(lanes.vlarb_high),
        "vlarb_low": lanes.vlarb_low and write_vlarb(lanes.vlarb_low),
        "sl2vl": lanes.sl2vl and ",".join(map(str, lanes.sl2vl)),
    }
    return {name: str(value) for name, value in options.items() if value is not None}


# -- as JSON -----------------------------------------------------------------------------------------------------------


def records(plan: Plan, names: Names) -> list[dict[str, Any]]:
    """Return the changes of a plan for JSON."""
    changes: list[dict[str, Any]] = [
        {
            "action": change.action,
            "what": "partition",
            "name": change.partition.name,
            "p_key": f"{change.partition.p_key:#06x}",
            "sl": change.partition.sl,
            "ipoib": change.partition.ipoib,
            "members": [
                names.record(guid) | {"before": old and _seat(old), "after": new and _seat(new)}
                for guid, (old, new) in change.members.items()
            ],
            "changed": {name: {"before": old, "after": new} for name, (old, new) in change.options.items()},
        }
        for change in plan.partitions
    ]
    if plan.default_changes:
        both = {"before": _full(plan.before.default_is_full), "after": _full(plan.after.default_is_full)}
        changes.append({"action": "change", "what": "Default", "p_key": f"{DEFAULT_P_KEY:#06x}", **both})
    if plan.lanes_change:
        before, after = (_options(allocation.lanes) for allocation in (plan.before, plan.after))
        action = "create" if not before else "destroy" if not after else "change"
        changes.append({"action": action, "what": "lanes", "before": before, "after": after})
    return changes
