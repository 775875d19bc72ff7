"""Compile an intent for a fabric: P_Keys, members by GUID, lanes.

    compiled = compile_intent(intent, driver.inventory(), observed.foreign_p_keys, observed.allocation)

Existing partitions keep their P_Key (by name), existing classes their service level. New partitions get the lowest free
P_Key. Partitions outside of `p_keys` belong to others and are not changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from weft.errors import ConfigError, UnknownName
from weft.fabric.files.hostlist import expand
from weft.sm.conf.qos_options import QosOptions
from weft.tenants.intent import Intent, IntentError, Members, PartitionId, Tenant
from weft.tenants.members import PortResolver
from weft.tenants.partitions import Allocation, Inventory, Member, Partition
from weft.tenants.quality import Lane, check_shares, lay_lanes

_NO_ALLOCATION = Allocation()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A compiled intent."""

    allocation: Allocation
    needs: tuple[Lane, ...] = ()  # by VL; empty: QoS is off, one lane is enough
    notes: tuple[str, ...] = ()  # warnings: allowed, but perhaps not intended


def compile_intent(
    intent: Intent, inventory: Inventory, foreign_p_keys: Set[int] = frozenset(), before: Allocation = _NO_ALLOCATION
) -> Compiled:
    """Compile an intent. Raise IntentError, with the place in the intent, if the fabric cannot have it.

    foreign_p_keys: P_Keys that weft does not manage. before: the current partitions.
    """
    unmanaged = {p_key: partition for p_key, partition in before.partitions.items() if p_key not in intent.pool}
    ports = PortResolver(inventory, before)
    guids = {key: ports.resolve(key, members) for key, members in intent.partitions.items()}
    _check_owners(intent, guids, ports)
    _check_manager(intent, guids, inventory)
    _check_unmanaged(intent, guids, unmanaged, ports)
    p_keys = _assign_p_keys(intent, foreign_p_keys, before)
    sls = _assign_sls(intent, before)
    lanes, needs = _lanes(intent, sls, inventory, unmanaged, before)
    compiled = {
        p_keys[name]: Partition(
            name=name,
            p_key=p_keys[name],
            members=_members(intent, (kind, name), guids),
            ipoib=entry.ipoib,
            sl=0 if entry.class_ is None else sls[entry.class_],
        )
        for (kind, name), entry in intent.partitions.items()
    }
    partitions = dict(sorted((unmanaged | compiled).items()))
    _check_capacity(intent, partitions, needs, ports)
    # Full members of Default reach every port, so ports are limited members while there are other partitions. Removing
    # the last partition does not make them full members again.
    default_is_full = before.default_is_full and not partitions
    allocation = Allocation(partitions=partitions, default_is_full=default_is_full, lanes=lanes)
    return Compiled(allocation=allocation, needs=needs, notes=tuple(_notes(intent, guids, ports)))


# -- members -----------------------------------------------------------------------------------------------------------


def _check_owners(intent: Intent, guids: Mapping[PartitionId, list[int]], ports: PortResolver) -> None:
    """Check that exclusive tenants share no port, index 0 is used once per port, and quotas are kept."""
    owners: dict[int, list[PartitionId]] = defaultdict(list)
    for key, members in guids.items():
        for guid in members:
            owners[guid].append(key)
    for guid, several in owners.items():
        if len(several) > 1:
            _check_shared_port(intent, ports.label(guid), several)
    for name, tenant in intent.tenants.items():
        _check_claims(name, tenant)
        most, n_ports = tenant.quota.ports, len(guids["tenant", name])
        if most is not None and n_ports > most:
            place = ("tenant", name, "quota")
            raise IntentError(place, f"{n_ports} ports exceed the quota of {most}: remove ports, or raise the quota")


def _check_claims(name: str, tenant: Tenant) -> None:
    for text in tenant.quota.hosts:
        try:
            expand(text)
        except ConfigError as error:
            raise IntentError(("tenant", name, "quota"), str(error)) from error


def _check_manager(intent: Intent, guids: Mapping[PartitionId, list[int]], inventory: Inventory) -> None:
    """Check that no exclusive tenant has the subnet manager's port, which all ports reach."""
    port = next((port for port in inventory.ports if port.guid == inventory.manager_guid), None)
    for name, tenant in intent.tenants.items():
        if port is not None and tenant.exclusive and port.guid in guids["tenant", name]:
            raise IntentError(
                ("tenant", name),
                f"{port.label} is the subnet manager's port, which all ports reach in Default: run the subnet manager "
                f"on a host without a tenant, or set exclusive = false for {name}",
            )


def _check_unmanaged(
    intent: Intent, guids: Mapping[PartitionId, list[int]], unmanaged: Mapping[int, Partition], ports: PortResolver
) -> None:
    """Check that ports of exclusive tenants are no full members of unmanaged partitions."""
    full = {guid: partition for partition in unmanaged.values() for guid, m in partition.members.items() if m.full}
    for name, tenant in intent.tenants.items():
        guid = next((guid for guid in guids["tenant", name] if guid in full), None)
        if tenant.exclusive and guid is not None:
            raise IntentError(
                ("tenant", name),
                f"{ports.label(guid)} is also a full member of {full[guid].label}, which is outside p_keys: remove it "
                f"from one of them, or set exclusive = false for {name}",
            )


def _check_shared_port(intent: Intent, port: str, owners: list[PartitionId]) -> None:
    tenants = [name for kind, name in owners if kind == "tenant"]
    exclusive = next((name for name in tenants if intent.tenants[name].exclusive), None)
    if exclusive is not None:
        other = next(key for key in owners if key != ("tenant", exclusive))
        raise IntentError(
            ("tenant", exclusive),
            f"{port} is also in {' '.join(other)}: remove it from one, or set exclusive = false for {exclusive}",
        )
    first = [name for name in tenants if intent.tenants[name].has_index0]
    if len(first) > 1:
        raise IntentError(
            ("tenant", first[1], "index0"),
            f"{port} has the P_Key of {first[0]} at index 0 already; set index0 = false for one of them",
        )


def _members(intent: Intent, key: PartitionId, guids: Mapping[PartitionId, list[int]]) -> dict[int, Member]:
    kind, name = key
    if kind == "tenant":
        tenant = intent.tenants[name]
        return dict.fromkeys(guids[key], Member(full=tenant.membership == "full", index0=tenant.has_index0))
    members = dict.fromkeys(guids[key], Member())
    for tenant_name in _tenants_of(intent, name):
        for guid in guids["tenant", tenant_name]:
            members.setdefault(guid, Member(full=False))
    return members


def _tenants_of(intent: Intent, service: str) -> Iterator[str]:
    named = intent.services[service].tenants
    for name in intent.tenants if named == "all" else named:
        if name not in intent.tenants:
            raise IntentError(("service", service, "tenants"), str(UnknownName("tenant", name, intent.tenants)))
        yield name


# -- P_Keys ------------------------------------------------------------------------------------------------------------


def _assign_p_keys(intent: Intent, foreign_p_keys: Set[int], before: Allocation) -> dict[str, int]:
    """Return P_Keys by partition name: as requested, as before, or the lowest that is free."""
    assigned: dict[str, int] = {}
    for key, entry in intent.partitions.items():
        if entry.p_key is not None:
            assigned[key[1]] = _requested_p_key(intent, key, entry, foreign_p_keys, assigned)
    used = {*assigned.values(), *foreign_p_keys}
    current = {partition.name: p_key for p_key, partition in before.partitions.items() if p_key in intent.pool}
    for _, name in intent.partitions:
        if name not in assigned and current.get(name, 0) in intent.pool and current[name] not in used:
            assigned[name] = current[name]
            used.add(current[name])
    # P_Keys that become free in the same change come last: some port may still have them for a moment.
    free = (p_key for late in (False, True) for p_key in intent.pool if (p_key in before.partitions) == late)
    for kind, name in intent.partitions:
        if name not in assigned:
            p_key = next((p_key for p_key in free if p_key not in used), None)
            if p_key is None:
                raise IntentError((kind, name), f"no P_Key of p_keys = {intent.p_keys!r} is free: widen the range")
            assigned[name] = p_key
    return assigned


def _requested_p_key(
    intent: Intent, key: PartitionId, entry: Members, foreign_p_keys: Set[int], assigned: Mapping[str, int]
) -> int:
    place, pool = (*key, "p_key"), intent.pool
    try:
        p_key = entry.p_key if isinstance(entry.p_key, int) else int(entry.p_key or "", 16)
    except ValueError:
        raise IntentError(place, f'the P_Key {entry.p_key!r} is not a hexadecimal number; example: "0x0101"') from None
    label = f"the P_Key {p_key:#06x}"
    if p_key not in pool:
        raise IntentError(place, f"{label} is out of range: it must be in p_keys, {pool[0]:#06x} to {pool[-1]:#06x}")
    if p_key in foreign_p_keys:
        raise IntentError(place, f"{label} is taken by a partition that weft does not manage: use another, or omit it")
    for name, other in assigned.items():
        if other == p_key:
            raise IntentError(place, f"{label} is also requested by {name}: use another, or omit it")
    return p_key


# -- lanes -------------------------------------------------------------------------------------------------------------


def _assign_sls(intent: Intent, before: Allocation) -> dict[str, int]:
    """Return service levels by class: that of a partition of the class before, or the lowest that is free."""
    current = {partition.name: partition.sl for partition in before.partitions.values()}
    assigned: dict[str, int] = {}
    for (kind, name), entry in intent.partitions.items():
        if entry.class_ is None:
            continue
        if entry.class_ not in intent.classes:
            unknown = UnknownName("class", entry.class_, intent.classes, "Add it: [class.NAME] with a share.")
            raise IntentError((kind, name, "class"), str(unknown))
        sl = current.get(name, 0)
        if sl and entry.class_ not in assigned and sl not in assigned.values():
            assigned[entry.class_] = sl
        _check_share(intent, name, entry)
    free = iter(sl for sl in range(1, len(intent.classes) + 1) if sl not in assigned.values())
    return {name: assigned[name] if name in assigned else next(free) for name in intent.classes}


def _check_share(intent: Intent, name: str, entry: Members) -> None:
    if isinstance(entry, Tenant) and entry.quota.share is not None and entry.class_ is not None:
        share = intent.classes[entry.class_].share
        if share > entry.quota.share:
            message = f"class {entry.class_} has {share:g} % of a link, more than the quota of {entry.quota.share:g} %"
            raise IntentError(("tenant", name, "class"), f"{message}: use another class, or raise the quota")


def _lanes(
    intent: Intent,
    sls: Mapping[str, int],
    inventory: Inventory,
    unmanaged: Mapping[int, Partition],
    before: Allocation,
) -> tuple[QosOptions | None, tuple[Lane, ...]]:
    classed = next((partition for partition in unmanaged.values() if partition.sl), None)
    if not intent.classes:
        return (before.lanes if classed else None), ()
    first = ("class", next(iter(intent.classes)))
    if classed is not None:
        raise IntentError(
            first,
            f"{classed.label}, which is outside p_keys, uses service level {classed.sl}, which these classes would "
            "redefine: add its tenant, its class and its P_Key to this intent",
        )
    if inventory.routing_sls > 1:
        raise IntentError(
            first,
            "the routing engine of this fabric uses several service levels against deadlock, so classes cannot use "
            "them: route with up-down or fat-tree (updn, ftree), or remove the classes",
        )
    check_shares(intent.classes)
    return lay_lanes(intent.classes, sls)


# -- capacity of ports -------------------------------------------------------------------------------------------------


def _check_capacity(
    intent: Intent, partitions: Mapping[int, Partition], needs: tuple[Lane, ...], ports: PortResolver
) -> None:
    kind_of = {name: kind for kind, name in intent.partitions}
    by_guid: dict[int, list[Partition]] = defaultdict(list)
    for partition in partitions.values():
        for guid in partition.members:
            by_guid[guid].append(partition)
    for guid, port_partitions in by_guid.items():
        port = ports.by_guid.get(guid)
        if port is None:
            continue
        managed = [partition for partition in port_partitions if partition.name in kind_of]
        if managed and len(port_partitions) + 1 > port.p_keys:
            raise IntentError(
                (kind_of[managed[-1].name], managed[-1].name),
                f"{port.label} would need {len(port_partitions) + 1} P_Keys including Default's, but its table has "
                f"{port.p_keys}: remove it from a partition",
            )
        classed = next((partition for partition in managed if partition.sl), None)
        if classed is not None and len(needs) > port.data_vls:
            raise IntentError(
                (kind_of[classed.name], classed.name, "class"),
                f"{len(needs)} lanes are needed (one per class and one for the rest), but {port.label} has "
                f"{port.data_vls}: use at most {port.data_vls - 1} classes, or no class here",
            )


def _notes(intent: Intent, guids: Mapping[PartitionId, list[int]], ports: PortResolver) -> Iterator[str]:
    for (kind, name), members in guids.items():
        if not members:
            yield f"{kind} {name} has no ports"
        missing = ports.missing(members)
        if missing:
            rest = "is not in the fabric now; it gets its P_Keys when it comes up"
            if len(missing) > 1:
                rest = "are not in the fabric now; they get their P_Keys when they come up"
            yield f"{kind} {name}: {', '.join(missing)} {rest}"
    for name, tenant in intent.tenants.items():
        if tenant.membership == "limited" and len(guids["tenant", name]) > 1:
            yield f"tenant {name} has limited members only: they do not reach each other"
    used = {entry.class_ for entry in intent.partitions.values()}
    yield from (f"class {name} is not used" for name in intent.classes if name not in used)
