"""Set(InformInfo) subscribes to events; InformInfoRecords say who did."""

from __future__ import annotations

import numpy as np

from weft.ids import Gid
from weft.sm.discovery.view import View
from weft.sm.inform.subscriptions import ALL, SECURITY, end_ports, share_partition
from weft.sm.sa.context import Context, Handler, Reply
from weft.wire.mad import Method
from weft.wire.sa import InformInfo, InformInfoRecord, SaAttribute, SaMad, SaStatus
from weft.wire.sa_query import component_mask, matches

_BY_RID = component_mask(InformInfoRecord, "subscriber_gid", "enum")  # all that OpenSM compares, too


def set_inform_info(sa: Context, request: SaMad, slot: int) -> Reply:
    """Subscribe, or unsubscribe; the answer repeats the request."""
    state, view = sa.state, sa.view
    info, refusal = InformInfo.unpack(request.data), Reply(SaStatus.REQUEST_INVALID)
    if info.subscribe > 1:
        return refusal
    gid = state.options.subnet_prefix << 64 | int(view.fabric.ports.guid[slot])
    address = sa.source
    if not info.subscribe:
        return Reply(records=info.raw) if state.subscriptions.unsubscribe(gid, info, address) else refusal
    trusted = sa.is_trusted(request)
    if (info.is_generic and info.trap_number in SECURITY and not trusted) or not _may_watch(view, slot, info):
        return refusal
    state.subscriptions.subscribe(gid, info, address, trusted=trusted)
    return Reply(records=info.raw)


def _may_watch(view: View, slot: int, info: InformInfo) -> bool:
    """Do all ports that it names share a partition with the subscriber?"""
    ports, tables, ends = view.fabric.ports, view.fabric.tables, view.end_ports
    if info.gid:
        watched = ends[ports.guid[ends] == np.uint64(Gid(info.gid).guid)]
        if not len(watched):
            return False
    elif info.lid_range_begin == ALL:
        return True
    else:
        last = info.lid_range_end or info.lid_range_begin
        if info.lid_range_begin > int(tables.lid[ends].max(initial=0)):
            return False
        watched = ends[(tables.lid[ends] >= info.lid_range_begin) & (tables.lid[ends] <= last)]
    return all(share_partition(view, slot, int(watched_slot)) for watched_slot in watched)


def get_inform_info_record(sa: Context, request: SaMad, slot: int) -> Reply:
    """Return subscriptions of ports that share a partition with the requester; their QP only for trusted requests."""
    view = sa.view
    slots = end_ports(view)
    query, mask = InformInfoRecord.unpack(request.data), request.component_mask & _BY_RID
    rows = []
    for subscription in sa.state.subscriptions.all:
        record, theirs = subscription.record, slots.get(subscription.guid)
        if theirs is not None and matches(record, query, mask) and share_partition(view, slot, theirs):
            if not sa.is_trusted(request):
                record = record.replace(inform_info=subscription.info.replace(qpn=0))
            rows.append(np.frombuffer(record.raw, np.uint8))
    return Reply(records=np.array(rows, np.uint8).reshape(-1, InformInfoRecord.size))


HANDLERS: dict[tuple[int, int], Handler] = {
    (SaAttribute.INFORM_INFO, Method.SET): set_inform_info,
    (SaAttribute.INFORM_INFO_RECORD, Method.GET): get_inform_info_record,
    (SaAttribute.INFORM_INFO_RECORD, Method.GET_TABLE): get_inform_info_record,
}
