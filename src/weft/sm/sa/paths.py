"""PathRecord and MultiPathRecord: how to get from one port to another.

A path follows the forwarding tables, and is as wide as its narrowest link. From one port to all others it is one walk
over arrays: after a fault every host asks again at once. What a query may want of a path, and the order of several
between two ports (with LMC, those that share no LID come first), is as in OpenSM.

The path to a GID of another subnet is that to the router, whose LID is the DLID, or the floating LID in the prefix of
that GID; its hop limit allows routers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.ids import Gid, Lid
from weft.sm.events import Event
from weft.sm.mcast.groups import EXACTLY
from weft.sm.sa import kernels
from weft.sm.sa.context import Context, Handler, Reply
from weft.sm.sa.path_query import ANY_PATHS, PathQuery, read_query
from weft.sm.sa.path_tables import Directory, Pairs, PathTables
from weft.sm.sa.routers import flid_to, routers_to
from weft.wire.mad import Method
from weft.wire.sa import MultiPathRecord, PathRecord, SaAttribute, SaMad, SaStatus

RECORDS_MAX = 1 << 19  # 32 MiB: all paths among 700 ports, or from one port with LMC 2 to 30,000
_SHARES_A_LID = 2  # preference of paths that have a LID in common with a better one; OpenSM never gives 1
_LINK_LOCAL = 0xFE80 >> 6
_MULTICAST = 0xFF
_LINK_LOCAL_SCOPE = 2
_HOP_LIMIT_MAX = 255
_DGID, _HOP_LIMIT_AT = slice(8, 24), PathRecord.hop_limit.bit // 8
_DLID = slice(PathRecord.dlid.bit // 8, PathRecord.dlid.bit // 8 + 2)
_GUID = (1 << 64) - 1
_LIDS_MAX = 256  # more than a port can have
_NONE = np.zeros((0, PathRecord.size), np.uint8)
Slots = NDArray[np.intp]


class _Refused(Exception):
    """A query that names a port that is not there, or two."""

    def __init__(self, status: SaStatus) -> None:
        super().__init__(status)
        self.status = status


# -- queries -----------------------------------------------------------------------------------------------------------


def answer_paths(sa: Context, request: SaMad, source_slot: int) -> Reply:
    """Get and GetTable of PathRecord."""
    query = read_query(PathRecord, request)
    if isinstance(query, SaStatus):
        return Reply(query)
    try:
        source = _end(sa, query, "sgid", "slid")
        if "dgid" in query.named and query.record.dgid >> 120 == _MULTICAST:
            return _multicast_path(sa, query, source)
        routers = _routers(sa, query)
        ends = routers or (_end(sa, query, "dgid", "dlid"),)
        flid = flid_to(sa, query.record.dgid) if routers else 0
        if flid:  # the path in this subnet is that to the router's own LID
            query = replace(query, named=query.named - {"dlid"})
    except _Refused as refused:
        return Reply(refused.status)
    rows = _NONE
    for destination in ends:
        if not len(rows):  # of several routers, the first that there is a path to
            paths = _find_paths(sa, query, source, destination, source_slot)
            if paths is None:
                return Reply(SaStatus.NO_RESOURCES)
            rows = paths
    if routers or ("dgid" in query.named and _is_alias(query.record.dgid)):
        rows[:, _DGID] = np.frombuffer(query.record.dgid.to_bytes(16, "big"), np.uint8)
    if routers:
        rows[:, _HOP_LIMIT_AT] = _HOP_LIMIT_MAX
        if flid:
            rows[:, _DLID] = np.frombuffer(flid.to_bytes(2, "big"), np.uint8)
    if "sgid" in query.named:
        rows[:, 24:40] = np.frombuffer(request.raw[80:96], np.uint8)  # the GID that was asked for
    return Reply(records=rows[:1] if query.is_get else rows)


def _find_paths(
    sa: Context, query: PathQuery[PathRecord], source: int | None, destination: int | None, source_slot: int
) -> NDArray[np.uint8] | None:
    """Return the paths between ports that the sender of the query may see; None if there are too many."""
    tables = sa.path_tables
    directory = tables.directory
    visible = directory.visible(source_slot)
    if source is not None and destination is not None:
        is_visible = visible[source] and visible[destination]
        return _between(tables, query, source, destination) if is_visible else _NONE
    ends = directory.ends[visible[directory.ends]]
    sources = ends if source is None else ends[ends == source]
    destinations = ends if destination is None else ends[ends == destination]
    count = _count(directory, query, sources, destinations)
    if count > RECORDS_MAX:
        sa.state.log.say_once(
            Event.SA_REFUSED,
            f"a table of {count:,} paths is more than {RECORDS_MAX:,}: ask for those of one port, by LID or GID",
        )
        return None
    pairs = np.repeat(sources, len(destinations)), np.tile(destinations, len(sources))
    return _among(tables, query, *pairs, query.at_most)


def answer_multi_path(sa: Context, request: SaMad, source_slot: int) -> Reply:
    """Answer GetMulti of MultiPathRecord: paths between two sets of ports, those without a common end first."""
    query = read_query(MultiPathRecord, request)
    if isinstance(query, SaStatus):
        return Reply(query)
    if not {"sgid_count", "dgid_count"} <= query.named:
        return Reply(SaStatus.INSUFFICIENT_COMPONENTS)
    record = query.record
    count = min(record.sgid_count, len(record.gids)), record.dgid_count
    try:
        slots = [_slot_of_gid(sa, gid) for gid in record.gids[: sum(count)]]
    except _Refused as refused:
        return Reply(refused.status)
    ends = np.array(slots, np.intp)
    sources, destinations = ends[: count[0]], ends[count[0] :]
    if not len(sources) or not len(destinations):
        return Reply(SaStatus.REQUEST_INVALID)
    a, b = (grid.ravel() for grid in np.indices((len(sources), len(destinations))))
    order = np.argsort((b - a) % len(destinations), kind="stable")
    source, destination = sources[a[order]], destinations[b[order]]
    visible = sa.directory.visible(source_slot)
    both = visible[source] & visible[destination]
    rows = _among(sa.path_tables, query, source[both], destination[both], None)
    return Reply(records=rows[: ANY_PATHS if query.at_most is None else query.at_most])


def _end(sa: Context, query: PathQuery[Any], gid_name: str, lid_name: str) -> int | None:
    """Return the port that a query names by GID, LID or both; None if it names neither."""
    slot = None
    if gid_name in query.named:
        slot = _slot_of_gid(sa, getattr(query.record, gid_name))
    if lid_name in query.named:
        at = sa.directory.slot_at(getattr(query.record, lid_name))
        if at < 0:
            raise _Refused(SaStatus.NO_RECORDS)
        if slot not in (None, at):
            raise _Refused(SaStatus.REQUEST_INVALID)
        slot = at
    return slot


def _routers(sa: Context, query: PathQuery[PathRecord]) -> tuple[int, ...]:
    """Return the ports of routers to the DGID of a query; none for a DGID of this subnet, or if none leads there."""
    if "dgid" not in query.named or _is_local(sa, query.record.dgid):
        return ()
    slots, dlid = routers_to(sa, query.record.dgid), query.value("dlid")
    flid = flid_to(sa, query.record.dgid)
    named = tuple(slot for slot in slots if dlid in (None, flid or int(sa.directory.lid[slot])))
    if slots and not named:
        raise _Refused(SaStatus.REQUEST_INVALID)
    return named


def _is_local(sa: Context, gid: int) -> bool:
    return gid >> 118 == _LINK_LOCAL or Gid(gid).subnet_prefix == sa.state.options.subnet_prefix


def _is_alias(gid: int) -> bool:
    """Return whether a GID is an alias: its second half is a LID."""
    return 0 < gid & _GUID < Lid.FIRST_MULTICAST


def _slot_of_gid(sa: Context, gid: int) -> int:
    slot = None
    if _is_local(sa, gid):
        at, known = sa.directory.slot_at(gid & _GUID) if _is_alias(gid) else -1, sa.state.known
        # Aliases are written where routers lead to other subnets, and nowhere else.
        has_alias = known is not None and at >= 0 and known.alias_lid[at] == gid & _GUID
        slot = at if has_alias else sa.directory.slot_of_guid.get(gid & _GUID)
    if slot is None:
        raise _Refused(SaStatus.INVALID_GID)
    return slot


def _multicast_path(sa: Context, query: PathQuery[PathRecord], source: int | None) -> Reply:
    """Return the path to a group, for its members, with the group's MTU, rate and so on."""
    group_entry = sa.state.groups.by_mgid.get(query.record.dgid)
    if group_entry is None:
        return Reply(records=_NONE)
    group = group_entry.record
    hop_limit = group.hop_limit if group.mgid >> 112 & 0xF == _LINK_LOCAL_SCOPE else _HOP_LIMIT_MAX
    own = {
        "dlid": group.mlid,
        "flow_label": group.flow_label,
        "hop_limit": hop_limit,
        "t_class": group.t_class,
        "p_key": group.p_key,
        "sl": group.sl,
    }
    if any(query.value(name) not in (None, value) for name, value in own.items()):
        return Reply(records=_NONE)
    if source is not None and int(sa.view.fabric.ports.guid[source]) not in group_entry.members:
        return Reply(records=_NONE)
    record = query.record.replace(
        **own,
        qos_class=0,
        reversible=0,
        numb_path=1,
        mtu=group.mtu,
        rate=group.rate,
        packet_life_time=group.packet_life_time,
        **EXACTLY,
    )
    return Reply(records=record.raw)


# -- pairs -------------------------------------------------------------------------------------------------------------


def _between(tables: PathTables, query: PathQuery[Any], source: int, destination: int) -> NDArray[np.uint8]:
    """Return the paths between two ports; most queries are this, between ports with one LID each."""
    directory = tables.directory
    slid, dlid = query.value("slid"), query.value("dlid")
    several = (slid is None and directory.lids[source] > 1) or (dlid is None and directory.lids[destination] > 1)
    if several or query.at_most == 0:
        return _among(tables, query, np.array([source]), np.array([destination]), query.at_most)
    limits = tables.limits(query, source, destination)
    if limits is None:
        return _NONE
    slid, dlid = slid or int(directory.lid[source]), dlid or int(directory.lid[destination])
    return tables.records(np.array(((source, destination, slid, dlid, *limits, 0),), np.int64), query.wanted)


def _among(
    tables: PathTables, query: PathQuery[Any], source: Slots, destination: Slots, at_most: int | None
) -> NDArray[np.uint8]:
    """Return the paths of pairs of ports, `at_most` so many for each."""
    pairs = _lid_pairs(tables.directory, query, source, destination, at_most)
    due = len(pairs)
    pairs = tables.with_limits(query, pairs)
    rows = tables.records(pairs, query.wanted)
    if at_most is None or len(rows) == due or not (tables.directory.lids > 1).any():
        return rows
    pairs = tables.with_limits(query, _lid_pairs(tables.directory, query, source, destination, None))
    rows = tables.records(pairs, query.wanted)  # the best pairs of LIDs did not do: others may
    ends = pairs[: len(rows), [kernels.SOURCE, kernels.DESTINATION]]
    first = np.flatnonzero(np.append(True, (ends[1:] != ends[:-1]).any(axis=1))) if len(rows) else np.zeros(0, np.intp)
    place = np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
    return rows[place < at_most]


def _count(directory: Directory, query: PathQuery[Any], sources: Slots, destinations: Slots) -> int:
    """Return the largest possible number of LID pairs."""
    pairs = len(sources) * len(destinations)
    each = int(directory.lids[sources].max(initial=1) * directory.lids[destinations].max(initial=1))
    return pairs * (each if query.at_most is None else min(each, query.at_most))


def _lid_offsets(sources: int, destinations: int, at_most: int | None) -> NDArray[np.int64]:
    """Return int64[path, 3]: offsets of both LIDs and the preference, the best first."""
    source, destination = (grid.ravel() for grid in np.indices((sources, destinations)))
    preference = np.where(source == destination, 0, _SHARES_A_LID)
    order = np.argsort(preference, kind="stable")[:at_most]
    return np.stack((source, destination, preference), axis=1)[order]


def _lid_pairs(
    directory: Directory, query: PathQuery[Any], source: Slots, destination: Slots, at_most: int | None
) -> Pairs:
    """Return all LID pairs of these pairs of ports, grouped by pair."""
    slid, dlid = query.value("slid"), query.value("dlid")
    size = np.stack(
        (
            directory.lids[source] if slid is None else np.ones(len(source), np.int64),
            directory.lids[destination] if dlid is None else np.ones(len(source), np.int64),
        ),
        axis=1,
    )
    base = np.stack((directory.lid[source], directory.lid[destination]), axis=1)
    if slid is not None:
        base[:, 0] = slid
    if dlid is not None:
        base[:, 1] = dlid
    kinds, kind = np.unique(size @ (1, _LIDS_MAX), return_inverse=True)  # at most 4: adapters have 2**lmc, switches one
    offsets = [_lid_offsets(both % _LIDS_MAX, both // _LIDS_MAX, at_most) for both in kinds.tolist()]
    count = np.array([len(offset_rows) for offset_rows in offsets], np.int64)[kind.ravel()]
    begin = np.cumsum(count) - count
    pairs = np.zeros((int(count.sum()), kernels.COLUMNS), np.int64)
    for index, offset in enumerate(offsets):
        rows = np.flatnonzero(kind.ravel() == index)
        at = (begin[rows, None] + np.arange(len(offset))).ravel()
        pairs[at, kernels.SOURCE] = np.repeat(source[rows], len(offset))
        pairs[at, kernels.DESTINATION] = np.repeat(destination[rows], len(offset))
        pairs[at, kernels.SLID] = (base[rows, 0, None] + offset[:, 0]).ravel()
        pairs[at, kernels.DLID] = (base[rows, 1, None] + offset[:, 1]).ravel()
        pairs[at, kernels.PREFERENCE] = np.tile(offset[:, 2], len(rows))
    return pairs


HANDLERS: dict[tuple[int, int], Handler] = {
    (SaAttribute.PATH_RECORD, Method.GET): answer_paths,
    (SaAttribute.PATH_RECORD, Method.GET_TABLE): answer_paths,
    (SaAttribute.MULTI_PATH_RECORD, Method.GET_MULTI): answer_multi_path,
}
