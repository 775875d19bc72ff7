"""Keep ServiceRecords.

A record is identified by service id, GID and P_Key, and expires with its lease. A port that did not register it needs
its key to change or delete it. (OpenSM stores the keys but does not check them.)
(InfiniBand Architecture volume 1, "ServiceRecord".)
"""

from __future__ import annotations

import numpy as np

from weft.ids import Gid, PKey
from weft.sm.discovery.view import View
from weft.sm.events import Event
from weft.sm.inform.subscriptions import find_port, has_p_key
from weft.sm.sa.context import Context, Handler, Reply
from weft.sm.services import FOR_EVER
from weft.wire.mad import Method
from weft.wire.sa import SaAttribute, SaMad, SaStatus, ServiceRecord
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


HANDLERS: dict[tuple[int, int], Handler] = {
    (SaAttribute.SERVICE_RECORD, Method.SET): set_service,
    (SaAttribute.SERVICE_RECORD, Method.DELETE): delete_service,
    (SaAttribute.SERVICE_RECORD, Method.GET): get_services,
    (SaAttribute.SERVICE_RECORD, Method.GET_TABLE): get_services,
}
