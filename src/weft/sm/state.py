"""The state that a subnet manager keeps from one sweep to the next, with the services that programs registered."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.ids import PKey
from weft.routing.route import Routing
from weft.sm.allocation import NOTHING, FileConfig, RuntimeConfig
from weft.sm.conf.options import Options
from weft.sm.conf.qos_options import Qos
from weft.sm.discovery.differences import Flaps
from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View
from weft.sm.events import Log
from weft.sm.flids import Flids
from weft.sm.inform.subscriptions import Subscriptions
from weft.sm.mcast.groups import Groups
from weft.sm.pkey.partitions import NO_FILE, Partitions
from weft.sm.protection import PortKey
from weft.sm.sender import Sender
from weft.sm.ucast.adaptive import AdaptiveState
from weft.wire.sa import ServiceRecord

if TYPE_CHECKING:
    from weft.sm.qos.policy import Policy


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


@dataclass(slots=True, eq=False, kw_only=True)
class State:
    """The state of a manager. `view` is that of the last complete sweep; None before the first."""

    options: Options
    sender: Sender
    log: Log
    clock: Callable[[], float] = time.monotonic
    filed: FileConfig = field(default_factory=lambda: FileConfig(partitions=NO_FILE))
    told: RuntimeConfig = NOTHING  # over its socket
    partitions: Partitions = NO_FILE  # both together
    lacking: tuple[str, ...] = ()  # P_Keys that do not fit into tables
    port_key: PortKey = field(default_factory=PortKey)  # settings of ports
    drift: tuple[str, ...] = ()  # ports that something else has changed, and that were not repaired yet
    repaired: deque[str] = field(default_factory=lambda: deque(maxlen=1000))  # drift, since a client last asked
    adopts_partitions: bool = False  # at the next sweep: those that the ports are in
    qos: Qos | None = None  # QoS of ports; None: QoS is off
    policy: Policy | None = None  # which service level a path gets
    roots: tuple[int, ...] = ()  # GUIDs of switches that up/down may call the top
    remembered: dict[int, int] = field(default_factory=dict)  # first LID by port GUID
    view: View | None = None
    known: Known | None = None  # tables in the devices
    routing: Routing | None = None
    adaptive: AdaptiveState | None = None
    flids: Flids | None = None  # floating LIDs; None: no range
    groups: Groups = field(default_factory=Groups)  # multicast
    services: Services = field(default_factory=Services)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    flaps: Flaps = field(default_factory=Flaps)

    def merge(self, files: FileConfig, runtime: RuntimeConfig) -> None:
        """Combine files and runtime configuration; raise ConfigError, and change nothing, if they contradict."""
        self.partitions, self.qos = files.with_runtime_config(runtime)
        self.filed, self.told = files, runtime

    @property
    def sm_lid(self) -> int:
        """The LID of our own port; 0 before the first sweep."""
        return int(self.view.fabric.tables.lid[self.view.own_slot]) if self.view is not None else 0
