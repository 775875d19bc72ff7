"""Services: who offers what, under which name, and for how long. The clock is the subnet manager's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from weft.ids import PKey
from weft.wire.sa import ServiceRecord

FOR_EVER = 0xFFFF_FFFF
Key = tuple[int, int, int]  # service id, GID, P_Key


@dataclass(slots=True, eq=False)
class Service:
    """A registered service. `owner` is the GUID of the registering port, 0 if another manager reported it."""

    record: ServiceRecord
    ends_s: float | None
    owner: int = 0

    def at(self, now_s: float) -> ServiceRecord:
        """Return the record with the remaining lease."""
        if self.ends_s is None:
            return self.record
        return self.record.replace(service_lease=max(1, round(self.ends_s - now_s)))

    def yields_to(self, key: int, guid: int) -> bool:
        """Return whether a port with this key may change it."""
        return self.record.service_key in (0, key) or guid == self.owner


@dataclass(slots=True, eq=False)
class Services:
    by_key: dict[Key, Service] = field(default_factory=dict)

    def register(self, record: ServiceRecord, now_s: float, owner: int = 0) -> None:
        """Register a service, replacing an earlier one."""
        ends_s = None if record.service_lease == FOR_EVER else now_s + record.service_lease
        self.by_key[_key(record)] = Service(record, ends_s, owner)

    def find(self, record: ServiceRecord) -> Service | None:
        """Return the service with the same id, GID and P_Key."""
        return self.by_key.get(_key(record))

    def remove(self, service: Service) -> None:
        del self.by_key[_key(service.record)]

    def expire(self, now_s: float) -> list[ServiceRecord]:
        """Remove services whose lease has ended, and return them."""
        over = [
            candidate
            for candidate in self.by_key.values()
            if candidate.ends_s is not None and candidate.ends_s <= now_s
        ]
        for service in over:
            self.remove(service)
        return [service.record for service in over]

    def load_records(self, records: Iterable[ServiceRecord], now_s: float) -> None:
        """Load the services of another subnet manager."""
        for record in records:
            self.register(record, now_s)


def _key(record: ServiceRecord) -> Key:
    return record.service_id, record.service_gid, record.service_p_key or PKey.DEFAULT
