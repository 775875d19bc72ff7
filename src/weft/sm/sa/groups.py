"""MCMemberRecord: Set joins a group and makes it if need be, Delete leaves it, Get and GetTable ask.

The rules and the order in which they are tried are OpenSM's (osm_sa_mcmember_record.c), with the standard's numbers:
o15-0.2.1 and o15-0.2.4 for joining, o15-0.1.14 for leaving, o15-0.1.5 for MGIDs. So are the answers.

A group is that of one subnet: routers forward no multicast. Where a router leads to another subnet the log says so for
each group that comes to life; the answer has no field for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.ids import Gid, PKey, p_keys_match
from weft.sm.discovery.view import View
from weft.sm.events import Event
from weft.sm.inform.subscriptions import has_p_key, share_partition
from weft.sm.mcast.groups import EXACTLY, KEEPS_ALIVE, Group
from weft.sm.pkey.conf_groups import IP_SIGNATURES, broadcast_of, mgid_refusal
from weft.sm.pkey.partitions import LINK_LOCAL
from weft.sm.sa.context import Context, Handler, Reply
from weft.sm.sa.path_query import CODE_OF_RANK, MOST, RANK_OF_CODE, port_ranks
from weft.sm.sa.routers import routers_by_prefix
from weft.sm.state import State
from weft.wire.bulk import Rows
from weft.wire.mad import Method
from weft.wire.notice import Trap
from weft.wire.port_info import PortInfo
from weft.wire.sa import MCMemberRecord, SaAttribute, SaMad, SaStatus, Selector
from weft.wire.sa_query import component_mask

_BIT = {name: component_mask(MCMemberRecord, name) for name in MCMemberRecord.fields}
_LARGEST_MTU = 5  # 4,096 bytes


class _Refused(Exception):
    """A refusal that the handlers below catch: the status of the answer, and the reason for the log."""

    def __init__(self, why: str, status: SaStatus = SaStatus.REQUEST_INVALID) -> None:
        super().__init__(why)
        self.status = status


class _Query:
    """A record as it came, and which of its components count."""

    def __init__(self, request: SaMad) -> None:
        self.record = MCMemberRecord.unpack(request.data)
        self.mask = request.component_mask
        self.guid = int(Gid(self.record.port_gid).guid)

    def has(self, *names: str) -> bool:
        """Return whether the query has all these components."""
        return all(self.mask & _BIT[name] for name in names)

    def check_codes(self) -> None:
        """Raise _Refused if a requested MTU or rate is not a valid code."""
        record = self.record
        if self.has("mtu_selector", "mtu") and not 1 <= record.mtu <= _LARGEST_MTU:
            raise _Refused(f"{record.mtu} is no MTU")
        if self.has("rate_selector", "rate") and not RANK_OF_CODE[int(record.rate)]:
            raise _Refused(f"{int(record.rate)} is no rate")


# -- join and create --------------------------------------------------------------------------------------------------


def join(sa: Context, request: SaMad, slot: int) -> Reply:
    """Join a group; the answer is the record of the member, with all fields of the group."""
    state, query = sa.state, _Query(request)
    try:
        _check(state, query)
        group, port = _join(sa, query, slot)
    except _Refused as refused:
        return _refuse(state, query, refused)
    if state.groups.join(group, query.guid, query.record.join_state, proxy=port != slot):
        state.subscriptions.announce_group(
            sa.view, Trap.MGID_CREATED, group.mgid, group.p_key, state.options.subnet_prefix
        )
        if sa.once(routers_by_prefix):
            state.log.say(Event.MULTICAST, f"{Gid(group.mgid)} stays in this subnet: routers forward no multicast")
    member = group.members[query.guid]
    return Reply(records=group.record.replace(port_gid=query.record.port_gid, join_state=member.join_state).raw)


def _check(state: State, query: _Query) -> None:
    """Check the common conditions of joining and leaving; the default prefix stands for the subnet's own."""
    if not query.has("mgid", "port_gid", "join_state"):
        raise _Refused("MGID, PortGID and JoinState are needed", SaStatus.INSUFFICIENT_COMPONENTS)
    query.check_codes()
    prefix = Gid(query.record.port_gid).subnet_prefix
    if prefix not in (Gid.LINK_LOCAL_PREFIX, state.options.subnet_prefix):
        raise _Refused(f"prefix {prefix:#018x} is another subnet's", SaStatus.INVALID_GID)


def _join(sa: Context, query: _Query, slot: int) -> tuple[Group, int]:
    """Add a port to a group, which is created if necessary; return both."""
    state, view, record = sa.state, sa.view, query.record
    port = sa.directory.slot_of_guid.get(query.guid)
    if port is None:
        raise _Refused("there is no such port")
    if not share_partition(view, port, slot):
        raise _Refused("the asking port and the joining port share no partition")
    if query.has("p_key") and not record.p_key & ~PKey.FULL_MEMBER:
        raise _Refused("P_Key 0 is none")
    group = state.groups.by_mgid.get(record.mgid)
    if group is not None:
        _check_same(query, group.record)
        _check_range(query, group.record)
        _check_join(sa, query, group.record, port)
        _check_rights(query.guid, group, view, slot)
        return group, port
    new_record = _wanted(sa, query, port)
    _check_join(sa, query, new_record, port)
    created = state.groups.create(new_record)
    if created is None:
        raise _Refused("no MLID is left", SaStatus.NO_RESOURCES)
    return created, port


def _check_join(sa: Context, query: _Query, group: MCMemberRecord, port: int) -> None:
    """Check the port's part of o15-0.2.4."""
    view = sa.view
    if _port_mtu(view, port) < group.mtu:
        raise _Refused("the port's MTU is less than the group's")
    if _port_rank(sa, port) < RANK_OF_CODE[int(group.rate)]:
        raise _Refused("the port's rate is less than the group's")
    if not query.record.join_state:
        raise _Refused("JoinState is 0")
    if not has_p_key(view, port, group.p_key):
        raise _Refused("the port is not in the group's partition")


def _check_rights(guid: int, group: Group, view: View, slot: int) -> None:
    """Check o15-0.2.1: whether a port may change the membership."""
    member = group.members.get(guid)
    if member is None:
        return
    if member.proxy:
        if not has_p_key(view, slot, group.p_key):
            raise _Refused("the requester is not in the group's partition")
    elif int(view.fabric.ports.guid[slot]) != guid:
        raise _Refused("the port joined by itself; another port cannot remove it")


def _wanted(sa: Context, query: _Query, port: int) -> MCMemberRecord:
    """Return the completed record of a group that does not exist yet."""
    state, record = sa.state, query.record
    if not record.join_state & KEEPS_ALIVE:
        raise _Refused("there is no such group, and only a full member makes one")
    if not query.has("q_key", "t_class", "p_key", "flow_label", "sl"):
        why = "there is no such group, and to make one Q_Key, P_Key, SL, FlowLabel and TClass are needed"
        raise _Refused(why, SaStatus.INSUFFICIENT_COMPONENTS)
    mgid = record.mgid
    if mgid:
        _check_mgid(state, query)
        scope = record.scope if query.has("scope") else mgid >> 112 & 0xF
    else:
        scope = record.scope if query.has("scope") else LINK_LOCAL
        mgid = state.groups.new_mgid(scope, state.options.subnet_prefix)
    mtu = _new_mtu(query, _port_mtu(sa.view, port))
    return record.replace(mgid=mgid, scope=scope, mtu=mtu, rate=_new_rate(query, _port_rank(sa, port)))


def _check_mgid(state: State, query: _Query) -> None:
    """Check that the MGID is valid, and that an IP group fits the broadcast group of its partition."""
    mgid, groups = query.record.mgid, state.groups.by_mgid
    why = "a multicast GID begins with ff" if mgid >> 120 != 0xFF else mgid_refusal(mgid, groups)
    if why:
        raise _Refused(why)
    if mgid >> 96 & 0xFFFF in IP_SIGNATURES and mgid != broadcast_of(mgid):
        _check_same(query, groups[broadcast_of(mgid)].record)


def _new_mtu(query: _Query, most: int) -> int:
    """Return the requested MTU, or the largest of the port."""
    requested = query.record.mtu
    match query.record.mtu_selector if query.has("mtu_selector", "mtu") else Selector.BEST:
        case Selector.GREATER_THAN:
            if requested >= most:
                raise _Refused("the port's MTU is not greater")
            return most
        case Selector.LESS_THAN:
            if requested == 1:
                raise _Refused("no MTU is less")
            return min(most, requested - 1)
        case Selector.EXACTLY:
            return requested
    return most


def _new_rate(query: _Query, most: int) -> int:
    """Return the requested rate, or the largest of the port; ranks are compared."""
    requested = int(RANK_OF_CODE[int(query.record.rate)])
    match query.record.rate_selector if query.has("rate_selector", "rate") else Selector.BEST:
        case Selector.GREATER_THAN:
            if requested >= most:
                raise _Refused("the port's rate is not greater")
        case Selector.LESS_THAN:
            if requested == 1:
                raise _Refused("no rate is less")
            most = min(most, requested - 1)
        case Selector.EXACTLY:
            most = requested
    return int(CODE_OF_RANK[min(most, MOST)])


def _port_mtu(view: View, slot: int) -> int:
    """Return the MTU of the port's cable, to which the port is set."""
    peer = int(view.fabric.ports.peer[slot])
    caps = [int(PortInfo.mtu_cap.get(view.port_info[end].tobytes())) for end in (slot, peer) if end >= 0]
    return min(caps)


def _port_rank(sa: Context, slot: int) -> int:
    """Return the rank of the port's rate."""
    return int(sa.once(_ranks)[slot])


def _ranks(sa: Context) -> NDArray[np.uint8]:
    return port_ranks(sa.view.fabric)


# -- does a group have what is asked? ---------------------------------------------------------------------------------


def _check_same(query: _Query, group: MCMemberRecord) -> None:
    record = query.record
    if query.has("p_key") and not p_keys_match(record.p_key, group.p_key):
        raise _Refused("the group has another P_Key")
    for name in ("q_key", "t_class", "sl", "flow_label", "hop_limit"):
        if query.has(name) and getattr(record, name) != getattr(group, name):
            raise _Refused(f"the group has another {name}")


def _check_range(query: _Query, group: MCMemberRecord) -> None:
    """Check MTU and rate by the selectors."""
    record = query.record
    if query.has("mtu_selector"):
        _check_order("MTU", record.mtu_selector, group.mtu, record.mtu)
    if query.has("rate_selector"):
        requested = int(RANK_OF_CODE[int(record.rate)])
        _check_order("rate", record.rate_selector, int(RANK_OF_CODE[group.rate]), requested)


def _check_order(name: str, selector: int, has: int, requested: int) -> None:
    fits = {
        Selector.GREATER_THAN: has > requested,
        Selector.LESS_THAN: has < requested,
        Selector.EXACTLY: has == requested,
    }
    if not fits.get(Selector(selector), True):
        raise _Refused(f"the group's {name} is not what was asked for")


# -- leave ------------------------------------------------------------------------------------------------------------


def leave(sa: Context, request: SaMad, slot: int) -> Reply:
    """Leave a group, o15-0.1.14. The answer repeats the request, with the remaining JoinState."""
    state, query = sa.state, _Query(request)
    record = query.record
    try:
        _check(state, query)
        group = state.groups.by_mgid.get(record.mgid)
        member = group.members.get(query.guid) if group is not None else None
        if group is None or member is None:
            raise _Refused("there is no such member")
        if not record.join_state or record.join_state & ~member.join_state:
            raise _Refused(f"it is {member.join_state:#x} in the group")
        _check_rights(query.guid, group, sa.view, slot)
    except _Refused as refused:
        return _refuse(state, query, refused)
    scope = group.record.scope
    if state.groups.leave(group, query.guid, record.join_state):
        state.subscriptions.announce_group(
            sa.view, Trap.MGID_DESTROYED, group.mgid, group.p_key, state.options.subnet_prefix
        )
    left = group.members.get(query.guid)
    return Reply(records=record.replace(scope=scope, join_state=left.join_state if left else 0, **EXACTLY).raw)


def _refuse(state: State, query: _Query, refused: _Refused) -> Reply:
    where = f"{Gid(query.record.mgid)}, port {query.guid:#018x}"
    state.log.say(Event.MULTICAST, f"refused: {refused}: {where}")
    return Reply(refused.status)


# -- ask --------------------------------------------------------------------------------------------------------------


def get_members(sa: Context, request: SaMad, slot: int) -> Reply:
    """Return groups of the requester's partitions; members only for trusted requests."""
    state, query = sa.state, _Query(request)
    try:
        query.check_codes()
    except _Refused as refused:
        return _refuse(state, query, refused)
    trusted, prefix = sa.is_trusted(request), state.options.subnet_prefix
    rows = [
        _answers(query, group, prefix, trusted=trusted)
        for group in state.groups.by_mgid.values()
        if has_p_key(sa.view, slot, group.p_key) and _fits(query, group.record)
    ]
    return Reply(records=np.concatenate(rows) if rows else np.zeros((0, MCMemberRecord.size), np.uint8))


def _fits(query: _Query, group: MCMemberRecord) -> bool:
    record = query.record
    try:
        _check_same(query, group)
        _check_range(query, group)
    except _Refused:
        return False
    return not any(
        query.has(name) and getattr(record, name) != getattr(group, name) for name in ("mgid", "mlid", "scope")
    )


def _answers(query: _Query, group: Group, prefix: int, *, trusted: bool) -> Rows:
    """Return one record for a group or the requested member, or one for each member."""
    one_port, record = query.has("port_gid"), query.record
    if not trusted and not one_port:
        return np.frombuffer(group.record.raw, np.uint8)[None]
    rows = group.member_rows(prefix)
    keep = np.ones(len(rows), bool)
    if one_port:
        keep &= (rows[:, 24:32] == np.frombuffer(record.port_gid.to_bytes(16, "big")[8:], np.uint8)).all(axis=1)
    if query.has("join_state"):
        keep &= rows[:, 48] & 0xF == record.join_state
    if query.has("proxy_join"):
        keep &= rows[:, 49] >> 7 == record.proxy_join
    rows = rows[keep]
    if not trusted:
        rows[:, 16:32], rows[:, 48], rows[:, 49] = 0, rows[:, 48] & 0xF0, 0
    return rows


HANDLERS: dict[tuple[int, int], Handler] = {
    (SaAttribute.MC_MEMBER_RECORD, Method.SET): join,
    (SaAttribute.MC_MEMBER_RECORD, Method.DELETE): leave,
    (SaAttribute.MC_MEMBER_RECORD, Method.GET): get_members,
    (SaAttribute.MC_MEMBER_RECORD, Method.GET_TABLE): get_members,
}
