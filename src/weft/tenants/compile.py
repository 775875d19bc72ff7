"""From what is wanted to what a fabric shall have: P_Keys, members by GUID, lanes.

    compiled = compile_intent(intent, driver.inventory(), observed.taken, observed.allocation)

Who is there already keeps what it has: a partition of the same name its P_Key, a class its service level. New ones get
the lowest P_Key that nobody has. Slices outside `p_keys` belong to others and stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from weft.errors import ConfigError, UnknownName
from weft.fabric.files.hostlist import expand
from weft.sm.conf.qos_options import QosOptions
from weft.tenants.intent import Intent, IntentError, Members, Tenant, Who
from weft.tenants.members import Ports
from weft.tenants.partitions import Allocation, Inventory, Member, Partition
from weft.tenants.quality import Lane, check_shares, lay_lanes

_NOTHING = Allocation()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    allocation: Allocation
    needs: tuple[Lane, ...] = ()  # by VL; empty: QoS is off, and one lane is enough
    notes: tuple[str, ...] = ()  # what is allowed, and may not be meant


def compile_intent(
    intent: Intent, inventory: Inventory, taken: Set[int] = frozenset(), before: Allocation = _NOTHING
) -> Compiled:
    """IntentError, with its place in the intent, where this fabric cannot have it."""
    kept = {p_key: one for p_key, one in before.partitions.items() if p_key not in intent.pool}
    ports = Ports(inventory, before)
    guids = {who: ports.of(who, one) for who, one in intent.partitions.items()}
    _check_owners(intent, guids, ports)
    _check_manager(intent, guids, inventory)
    _check_kept(intent, guids, kept, ports)
    p_keys = _give_p_keys(intent, taken, before)
    sls = _give_sls(intent, before)
    lanes, needs = _lanes(intent, sls, inventory, kept, before)
    wanted = {
        p_keys[name]: Partition(
            name=name,
            p_key=p_keys[name],
            members=_members(intent, (kind, name), guids),
            ipoib=one.ipoib,
            sl=0 if one.class_ is None else sls[one.class_],
        )
        for (kind, name), one in intent.partitions.items()
    }
    partitions = dict(sorted((kept | wanted).items()))
    _check_capacity(intent, partitions, needs, ports)
    # Full members of Default reach every port, so ports are limited members while there are other partitions. Removing
    # the last partition does not make them full members again.
    default_is_full = before.default_is_full and not partitions
    allocation = Allocation(partitions=partitions, default_is_full=default_is_full, lanes=lanes)
    return Compiled(allocation=allocation, needs=needs, notes=tuple(_notes(intent, guids, ports)))


# -- members -----------------------------------------------------------------------------------------------------------


def _check_owners(intent: Intent, guids: Mapping[Who, list[int]], ports: Ports) -> None:
    """That an exclusive tenant shares no port, index 0 has one key, and nobody is over quota."""
    owners: dict[int, list[Who]] = defaultdict(list)
    for who, those in guids.items():
        for guid in those:
            owners[guid].append(who)
    for guid, several in owners.items():
        if len(several) > 1:
            _check_shared_port(intent, ports.label(guid), several)
    for name, tenant in intent.tenants.items():
        _check_claims(name, tenant)
        most, there = tenant.quota.ports, len(guids["tenant", name])
        if most is not None and there > most:
            place = ("tenant", name, "quota")
            raise IntentError(place, f"{there} ports are more than the {most} of its quota: take some out, or raise it")


def _check_claims(name: str, tenant: Tenant) -> None:
    for text in tenant.quota.hosts:
        try:
            expand(text)
        except ConfigError as error:
            raise IntentError(("tenant", name, "quota"), str(error)) from error


def _check_manager(intent: Intent, guids: Mapping[Who, list[int]], inventory: Inventory) -> None:
    """That nobody who wants to be alone is where everybody can go."""
    port = next((port for port in inventory.ports if port.guid == inventory.manager_guid), None)
    for name, tenant in intent.tenants.items():
        if port is not None and tenant.exclusive and port.guid in guids["tenant", name]:
            raise IntentError(
                ("tenant", name),
                f"{port.label} is the subnet manager's, and everybody reaches it in Default: run the subnet manager on "
                f"a host of no tenant, or let {name} have exclusive = false",
            )


def _check_kept(intent: Intent, guids: Mapping[Who, list[int]], kept: Mapping[int, Partition], ports: Ports) -> None:
    """That no slice of others joins who wants to be alone. Limited members of theirs may use a service."""
    full = {guid: one for one in kept.values() for guid, member in one.members.items() if member.full}
    for name, tenant in intent.tenants.items():
        guid = next((guid for guid in guids["tenant", name] if guid in full), None)
        if tenant.exclusive and guid is not None:
            raise IntentError(
                ("tenant", name),
                f"{ports.label(guid)} is a full member of {full[guid].label} too, which is outside p_keys: take it out "
                f"of one of them, or let {name} have exclusive = false",
            )


def _check_shared_port(intent: Intent, port: str, owners: list[Who]) -> None:
    tenants = [name for kind, name in owners if kind == "tenant"]
    alone = next((name for name in tenants if intent.tenants[name].exclusive), None)
    if alone is not None:
        other = next(who for who in owners if who != ("tenant", alone))
        raise IntentError(
            ("tenant", alone),
            f"{port} is in {' '.join(other)} too: take it out of one of them, or let {alone} have exclusive = false",
        )
    first = [name for name in tenants if intent.tenants[name].has_index0]
    if len(first) > 1:
        raise IntentError(
            ("tenant", first[1], "index0"),
            f"{port} has the key of {first[0]} at index 0 already: only one can be there",
        )


def _members(intent: Intent, who: Who, guids: Mapping[Who, list[int]]) -> dict[int, Member]:
    kind, name = who
    if kind == "tenant":
        tenant = intent.tenants[name]
        return dict.fromkeys(guids[who], Member(full=tenant.membership == "full", index0=tenant.has_index0))
    members = dict.fromkeys(guids[who], Member())
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


def _give_p_keys(intent: Intent, taken: Set[int], before: Allocation) -> dict[str, int]:
    """By name: as asked for, as it was, or the lowest that is free and was nobody's."""
    given: dict[str, int] = {}
    for (kind, name), one in intent.partitions.items():
        if one.p_key is not None:
            given[name] = _asked_p_key(intent, (kind, name), one, taken, given)
    used = {*given.values(), *taken}
    there = {one.name: p_key for p_key, one in before.partitions.items() if p_key in intent.pool}
    for _, name in intent.partitions:
        if name not in given and there.get(name, 0) in intent.pool and there[name] not in used:
            given[name] = there[name]
            used.add(there[name])
    # A key that a slice gives up in the same step is the last choice: some port may still have it for a moment.
    free = (p_key for late in (False, True) for p_key in intent.pool if (p_key in before.partitions) == late)
    for kind, name in intent.partitions:
        if name not in given:
            p_key = next((one for one in free if one not in used), None)
            if p_key is None:
                raise IntentError((kind, name), f"no P_Key of p_keys = {intent.p_keys!r} is free: widen it")
            given[name] = p_key
    return given


def _asked_p_key(intent: Intent, who: Who, one: Members, taken: Set[int], given: Mapping[str, int]) -> int:
    place, pool = (*who, "p_key"), intent.pool
    try:
        p_key = one.p_key if isinstance(one.p_key, int) else int(one.p_key or "", 16)
    except ValueError:
        raise IntentError(place, f'the P_Key {one.p_key!r} is not a hexadecimal number: write "0x0101"') from None
    label = f"the P_Key {p_key:#06x}"
    if p_key not in pool:
        raise IntentError(place, f"{label} is out of range: it must be in p_keys, {pool[0]:#06x} to {pool[-1]:#06x}")
    if p_key in taken:
        raise IntentError(place, f"{label} is taken by a partition that is not weft's: take another, or leave it out")
    for name, other in given.items():
        if other == p_key:
            raise IntentError(place, f"{label} is asked for by {name} too: take another, or leave it out")
    return p_key


# -- lanes -------------------------------------------------------------------------------------------------------------


def _give_sls(intent: Intent, before: Allocation) -> dict[str, int]:
    """By class: that of a partition which had the class before, or the lowest that is free."""
    there = {one.name: one.sl for one in before.partitions.values()}
    given: dict[str, int] = {}
    for (kind, name), one in intent.partitions.items():
        if one.class_ is None:
            continue
        if one.class_ not in intent.classes:
            unknown = UnknownName("class", one.class_, intent.classes, "Add it: [class.NAME] with a share.")
            raise IntentError((kind, name, "class"), str(unknown))
        sl = there.get(name, 0)
        if sl and one.class_ not in given and sl not in given.values():
            given[one.class_] = sl
        _check_share(intent, name, one)
    free = iter(sl for sl in range(1, len(intent.classes) + 1) if sl not in given.values())
    return {name: given[name] if name in given else next(free) for name in intent.classes}


def _check_share(intent: Intent, name: str, one: Members) -> None:
    if isinstance(one, Tenant) and one.quota.share is not None and one.class_ is not None:
        share = intent.classes[one.class_].share
        if share > one.quota.share:
            message = f"class {one.class_} has {share:g} % of a link, more than the {one.quota.share:g} % of its quota"
            raise IntentError(("tenant", name, "class"), f"{message}: take another class, or raise it")


def _lanes(
    intent: Intent, sls: Mapping[str, int], inventory: Inventory, kept: Mapping[int, Partition], before: Allocation
) -> tuple[QosOptions | None, tuple[Lane, ...]]:
    others = next((one for one in kept.values() if one.sl), None)
    if not intent.classes:
        return (before.lanes if others else None), ()
    first = ("class", next(iter(intent.classes)))
    if others is not None:
        raise IntentError(
            first,
            f"{others.label}, which is outside p_keys, has service level {others.sl} of classes that these would "
            "replace: put its tenant, its class and its P_Key into this intent",
        )
    if inventory.routing_sls > 1:
        raise IntentError(
            first,
            "routing itself puts the paths of this fabric on several service levels, against deadlock, and a class "
            "needs one of its own: route with up-down or fat-tree (updn, ftree), or leave out classes",
        )
    check_shares(intent.classes)
    return lay_lanes(intent.classes, sls)


# -- what ports have room for ------------------------------------------------------------------------------------------


def _check_capacity(intent: Intent, partitions: Mapping[int, Partition], needs: tuple[Lane, ...], ports: Ports) -> None:
    kind_of = {name: kind for kind, name in intent.partitions}
    by_guid: dict[int, list[Partition]] = defaultdict(list)
    for one in partitions.values():
        for guid in one.members:
            by_guid[guid].append(one)
    for guid, those in by_guid.items():
        port = ports.by_guid.get(guid)
        if port is None:
            continue
        mine = [one for one in those if one.name in kind_of]
        if mine and len(those) + 1 > port.p_keys:
            raise IntentError(
                (kind_of[mine[-1].name], mine[-1].name),
                f"{port.label} would need {len(those) + 1} P_Keys, Default's among them, and its table has room for "
                f"{port.p_keys}: take it out of some partition",
            )
        classed = next((one for one in mine if one.sl), None)
        if classed is not None and len(needs) > port.data_vls:
            raise IntentError(
                (kind_of[classed.name], classed.name, "class"),
                f"{len(needs)} lanes are needed, one for each class and one for the rest, and {port.label} has "
                f"{port.data_vls}: have {port.data_vls - 1} classes at most, or none here",
            )


def _notes(intent: Intent, guids: Mapping[Who, list[int]], ports: Ports) -> Iterator[str]:
    for (kind, name), those in guids.items():
        if not those:
            yield f"{kind} {name} has no ports"
        missing = ports.missing(those)
        if missing:
            rest = "is not there now; it gets its keys when it comes"
            if len(missing) > 1:
                rest = "are not there now; they get their keys when they come"
            yield f"{kind} {name}: {', '.join(missing)} {rest}"
    for name, tenant in intent.tenants.items():
        if tenant.membership == "limited" and len(guids["tenant", name]) > 1:
            yield f"tenant {name} has limited members only: they do not reach each other"
    used = {one.class_ for one in intent.partitions.values()}
    yield from (f"class {name} is nobody's" for name in intent.classes if name not in used)
