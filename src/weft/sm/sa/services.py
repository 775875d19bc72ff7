"""Services: who offers what, under which name, and for how long.

A record is told apart by service id, GID and P_Key. It goes when its lease is over. Whoever did not register it needs
its key to change or to end it. (OpenSM keeps the keys but asks nobody for them.) The clock is the subnet manager's.
(InfiniBand Architecture volume 1, "ServiceRecord".)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from weft.ids import Gid, PKey
from weft.sm.discovery.view import View
from weft.sm.events import Event
from weft.sm.sa.reply import Handler, Reply
from weft.sm.sa.subscriptions import find_port, has_p_key
from weft.wire.mad import Method
from weft.wire.sa import SaAttribute, SaMad, SaStatus, ServiceRecord
from weft.wire.sa_query import component_mask, matches

if TYPE_CHECKING:
    from weft.sm.sa.administrator import Administrator

FOR_EVER = 0xFFFF_FFFF
Key = tuple[int, int, int]  # service id, GID, P_Key
_NEEDED = component_mask(ServiceRecord, "service_id", "service_gid")
_GID = component_mask(ServiceRecord, "service_gid")
_P_KEY = component_mask(ServiceRecord, "service_p_key")
_LEASE = component_mask(ServiceRecord, "service_lease")
_MULTICAST = 0xFF  # the first byte of a multicast GID


@dataclass(slots=True, eq=False)
class Service:
    """`owner` is the GUID of the port that registered it, 0 if another subnet manager told us of it."""

    record: ServiceRecord
    ends_s: float | None
    owner: int = 0

    def at(self, now_s: float) -> ServiceRecord:
        """With what is left of its lease."""
        if self.ends_s is None:
            return self.record
        return self.record.replace(service_lease=max(1, round(self.ends_s - now_s)))

    def yields_to(self, key: int, guid: int) -> bool:
        """May a port that gives this key change it?"""
        return self.record.service_key in (0, key) or guid == self.owner


@dataclass(slots=True, eq=False)
class Services:
    by_key: dict[Key, Service] = field(default_factory=dict)

    def register(self, record: ServiceRecord, now_s: float, owner: int = 0) -> None:
        """Whatever stood there before is gone."""
        ends_s = None if record.service_lease == FOR_EVER else now_s + record.service_lease
        self.by_key[_key(record)] = Service(record, ends_s, owner)

    def find(self, record: ServiceRecord) -> Service | None:
        """The one with the same id, GID and P_Key."""
        return self.by_key.get(_key(record))

    def remove(self, service: Service) -> None:
        del self.by_key[_key(service.record)]

    def expire(self, now_s: float) -> list[ServiceRecord]:
        """Those whose lease is over, which are no more."""
        over = [one for one in self.by_key.values() if one.ends_s is not None and one.ends_s <= now_s]
        for service in over:
            self.remove(service)
        return [service.record for service in over]

    def load_records(self, records: Iterable[ServiceRecord], now_s: float) -> None:
        """What another subnet manager knew."""
        for record in records:
            self.register(record, now_s)


def _key(record: ServiceRecord) -> Key:
    return record.service_id, record.service_gid, record.service_p_key or PKey.DEFAULT


# -- the administrator's part -----------------------------------------------------------------------------------------


def set_service(administrator: Administrator, request: SaMad, slot: int) -> Reply:
    """Register, or change; a lease that was not asked for is for ever, and the partition is the default one."""
    state, now_s = administrator.state, administrator.state.clock()
    record = _completed(request)
    if request.component_mask & _NEEDED != _NEEDED or not _may(administrator.view, request, slot):
        return Reply(SaStatus.REQUEST_INVALID)
    state.services.expire(now_s)
    before, guid = state.services.find(record), _guid(administrator.view, slot)
    if before is not None and not before.yields_to(record.service_key, guid):
        return _denied(administrator, record)
    state.services.register(record, now_s, guid)
    return Reply(records=_shown(administrator, record, request).raw)


def delete_service(administrator: Administrator, request: SaMad, slot: int) -> Reply:
    """The answer is the record that is no more."""
    state, now_s = administrator.state, administrator.state.clock()
    record = _completed(request)
    if not _may(administrator.view, request, slot):
        return Reply(SaStatus.REQUEST_INVALID)
    state.services.expire(now_s)
    found = state.services.find(record)
    if found is None:
        return Reply(SaStatus.NO_RECORDS)
    if not found.yields_to(record.service_key, _guid(administrator.view, slot)):
        return _denied(administrator, record)
    state.services.remove(found)
    return Reply(records=_shown(administrator, found.at(now_s), request).raw)


def get_services(administrator: Administrator, request: SaMad, slot: int) -> Reply:
    """Those that match, of partitions that the asking port is in. How long a lease still runs is not compared."""
    state, now_s = administrator.state, administrator.state.clock()
    state.services.expire(now_s)
    query, mask = ServiceRecord.unpack(request.data), request.component_mask & ~_LEASE
    rows = [
        np.frombuffer(_shown(administrator, service.at(now_s), request).raw, np.uint8)
        for service in state.services.by_key.values()
        if matches(service.record, query, mask) and has_p_key(administrator.view, slot, service.record.service_p_key)
    ]
    return Reply(records=np.array(rows, np.uint8).reshape(-1, ServiceRecord.size))


def _completed(request: SaMad) -> ServiceRecord:
    record = ServiceRecord.unpack(request.data)
    if not request.component_mask & _LEASE:
        record = record.replace(service_lease=FOR_EVER)
    return record if record.service_p_key else record.replace(service_p_key=PKey.DEFAULT)


def _may(view: View, request: SaMad, slot: int) -> bool:
    """Are who asks and the port of the service, if it is one, in the service's partition?"""
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


def _shown(administrator: Administrator, record: ServiceRecord, request: SaMad) -> ServiceRecord:
    """Keys are for trusted eyes."""
    return record if administrator.is_trusted(request) else record.replace(service_key=0)


def _denied(administrator: Administrator, record: ServiceRecord) -> Reply:
    name = record.service_name.rstrip(b"\0").decode(errors="replace")
    administrator.state.log.say(Event.SERVICE, f"{name} {record.service_id:#018x}: refused to who has not its key")
    return Reply(SaStatus.REQUEST_INVALID)


HANDLERS: dict[tuple[int, int], Handler] = {
    (SaAttribute.SERVICE_RECORD, Method.SET): set_service,
    (SaAttribute.SERVICE_RECORD, Method.DELETE): delete_service,
    (SaAttribute.SERVICE_RECORD, Method.GET): get_services,
    (SaAttribute.SERVICE_RECORD, Method.GET_TABLE): get_services,
}
