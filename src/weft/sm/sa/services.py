"""Keep ServiceRecords and event subscriptions (InformInfo), and report the SA's capabilities (ClassPortInfo).

A service record is identified by service id, GID and P_Key, and expires with its lease. A port that did not register it
needs its key to change or delete it (OpenSM stores the keys but does not check them). See InfiniBand Architecture
volume 1, "ServiceRecord".
"""

from __future__ import annotations

import math

import numpy as np

from weft.ids import Gid, PKey
from weft.sm.discovery.view import View
from weft.sm.events import Event
from weft.sm.inform.subscriptions import ALL, SECURITY, end_ports, find_port, has_p_key, share_partition
from weft.sm.sa.context import Context, Handler, Reply
from weft.sm.state import FOR_EVER
from weft.wire.mad import QP1_Q_KEY, ClassPortInfo, Method
from weft.wire.sa import InformInfo, InformInfoRecord, SaAttribute, SaMad, SaStatus, ServiceRecord
from weft.wire.sa_query import component_mask, matches

_NEEDED = component_mask(ServiceRecord, "service_id", "service_gid")
_GID = component_mask(ServiceRecord, "service_gid")
_P_KEY = component_mask(ServiceRecord, "service_p_key")
_LEASE = component_mask(ServiceRecord, "service_lease")
_MULTICAST = 0xFF  # the first byte of a multicast GID


def set_service(sa: Context, request: SaMad, slot: int) -> Reply:
    """Register, or change; a lease that was not asked for is for ever, and the partition is the default one."""
    state, now_s = sa.state, sa.state.clock()
    record = _completed(request)
    if request.component_mask & _NEEDED != _NEEDED or not _may(sa.view, request, slot):
        return Reply(SaStatus.REQUEST_INVALID)
    state.services.expire(now_s)
    before, guid = state.services.find(record), _guid(sa.view, slot)
    if before is not None and not before.yields_to(record.service_key, guid):
        return _denied(sa, record)
    state.services.register(record, now_s, guid)
    return Reply(records=_shown(sa, record, request).raw)


def delete_service(sa: Context, request: SaMad, slot: int) -> Reply:
    """Delete a service; the answer is its record."""
    state, now_s = sa.state, sa.state.clock()
    record = _completed(request)
    if not _may(sa.view, request, slot):
        return Reply(SaStatus.REQUEST_INVALID)
    state.services.expire(now_s)
    service = state.services.find(record)
    if service is None:
        return Reply(SaStatus.NO_RECORDS)
    if not service.yields_to(record.service_key, _guid(sa.view, slot)):
        return _denied(sa, record)
    state.services.remove(service)
    return Reply(records=_shown(sa, service.at(now_s), request).raw)


def get_services(sa: Context, request: SaMad, slot: int) -> Reply:
    """Return matching services in the requester's partitions. The remaining lease is not compared."""
    state, now_s = sa.state, sa.state.clock()
    state.services.expire(now_s)
    query, mask = ServiceRecord.unpack(request.data), request.component_mask & ~_LEASE
    rows = [
        np.frombuffer(_shown(sa, service.at(now_s), request).raw, np.uint8)
        for service in state.services.by_key.values()
        if matches(service.record, query, mask) and has_p_key(sa.view, slot, service.record.service_p_key)
    ]
    return Reply(records=np.array(rows, np.uint8).reshape(-1, ServiceRecord.size))


def _completed(request: SaMad) -> ServiceRecord:
    record = ServiceRecord.unpack(request.data)
    if not request.component_mask & _LEASE:
        record = record.replace(service_lease=FOR_EVER)
    return record if record.service_p_key else record.replace(service_p_key=PKey.DEFAULT)


def _may(view: View, request: SaMad, slot: int) -> bool:
    """Return whether the requester, and the service's port if it has one, are in the service's partition."""
    record, mask = ServiceRecord.unpack(request.data), request.component_mask
    if not mask & _P_KEY:
        return True
    if not has_p_key(view, slot, record.service_p_key):
        return False
    if not mask & _GID or record.service_gid >> 120 == _MULTICAST:
        return True
    port = find_port(view, int(Gid(record.service_gid).guid))
    return port is not None and has_p_key(view, port, record.service_p_key)


def _guid(view: View, slot: int) -> int:
    return int(view.fabric.ports.guid[slot])


def _shown(sa: Context, record: ServiceRecord, request: SaMad) -> ServiceRecord:
    """Return the record, without its key unless the request is trusted."""
    return record if sa.is_trusted(request) else record.replace(service_key=0)


def _denied(sa: Context, record: ServiceRecord) -> Reply:
    name = record.service_name.rstrip(b"\0").decode(errors="replace")
    sa.state.log.say(Event.SERVICE, f"{name} {record.service_id:#018x}: refused: wrong service key")
    return Reply(SaStatus.REQUEST_INVALID)


# CapabilityMask
_UD_MULTICAST, _MULTI_PATH, _CAPABILITY_MATCH = 1 << 9, 1 << 10, 1 << 13
# CapabilityMask2
_QOS, _MULTICAST_TOP, _FULL_PORT_INFO, _EXTENDED_SPEEDS, _CAPABILITY2_MATCH = 1 << 1, 1 << 3, 1 << 6, 1 << 7, 1 << 10
_SEND_ONLY_FULL_MEMBER, _WIDTH_2X, _SPEED_HDR, _SPEED_NDR = 1 << 12, 1 << 13, 1 << 15, 1 << 17
_UNIT_MS = 0.004096


def answer_class_port_info(sa: Context, request: SaMad, source_slot: int) -> Reply:
    """Return ClassPortInfo, without OpenSM's bits for notices and alias GUIDs, which are not served here."""
    state = sa.state
    capability2 = _MULTICAST_TOP | _FULL_PORT_INFO | _EXTENDED_SPEEDS | _CAPABILITY2_MATCH
    capability2 |= _SEND_ONLY_FULL_MEMBER | _WIDTH_2X | _SPEED_HDR | _SPEED_NDR
    info = ClassPortInfo(
        class_version=2,
        capability_mask=_UD_MULTICAST | _MULTI_PATH | _CAPABILITY_MATCH,
        capability_mask2=capability2 | (_QOS if state.qos is not None else 0),
        resp_time_value=min(31, math.ceil(math.log2(state.options.transaction_timeout_ms / _UNIT_MS))),
        redirect_qp=1,
        redirect_q_key=QP1_Q_KEY,
        trap_q_key=QP1_Q_KEY,
    )
    return Reply(records=info.raw)


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
    (SaAttribute.CLASS_PORT_INFO, Method.GET): answer_class_port_info,
    (SaAttribute.SERVICE_RECORD, Method.SET): set_service,
    (SaAttribute.SERVICE_RECORD, Method.DELETE): delete_service,
    (SaAttribute.SERVICE_RECORD, Method.GET): get_services,
    (SaAttribute.SERVICE_RECORD, Method.GET_TABLE): get_services,
    (SaAttribute.INFORM_INFO, Method.SET): set_inform_info,
    (SaAttribute.INFORM_INFO_RECORD, Method.GET): get_inform_info_record,
    (SaAttribute.INFORM_INFO_RECORD, Method.GET_TABLE): get_inform_info_record,
}
