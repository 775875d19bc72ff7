"""Provide the devices of a lab host: `weft exec h1 python app.py` has h1's adapters, on InfiniBand.

Queries return the current settings by the subnet manager; changes of the port are events. When the lab ends, the port
goes down, and operations end as without a response.
"""

from __future__ import annotations

import errno
import threading
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.errors import ConfigError, SubnetError
from weft.ids import Lid
from weft.verbs.attributes.address import AHAttr
from weft.verbs.attributes.text import be64toh
from weft.verbs.carriers.lab.carrier import LabCarrier
from weft.verbs.carriers.lab.connection import Line
from weft.verbs.carriers.lab.memory_grants import MemoryGrants
from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.carriers.lab.port_facts import Facts, Watcher
from weft.verbs.carriers.processes.adapter import Opening
from weft.verbs.carriers.processes.device import LOOPBACK
from weft.verbs.enums import IBV_GID_TYPE_IB, ibv_event_type
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.adapter import Adapter
from weft.verbs.shm.queue_memory import QueueMemory

if TYPE_CHECKING:
    from weft.verbs.attributes.device import DeviceAttr, PortAttr

PORT = 1
_HOSTS = 0xFFFF_7F01_0000  # 127.1.0.0, mapped: addresses of hosts, reachable by TCP too


def devices_of(lab: str, host: str) -> tuple[LabDevice, ...]:
    """Return the devices of a host; `lab` is the path of the lab's socket."""
    try:
        line = Line(lab)
        try:
            devices = line.ask("devices", host=host)["devices"]
        finally:
            line.close()
    except (ConfigError, SubnetError) as error:
        raise PyverbsRDMAError("Failed to get devices list", errno.ENODEV, str(error)) from error
    return tuple(
        LabDevice(lab, host, str(device["name"]), int(device["node_guid"]), int(device["system_guid"]))
        for device in devices
    )


class LabDevice:
    """A device with one port of a lab host's adapter."""

    def __init__(self, lab: str, host: str, name: str, guid: int, system_guid: int) -> None:
        self.name, self.guid = name, guid
        self._lab, self._host, self._system_guid = lab, host, system_guid
        self._opening = Opening(name, self._open, _work)
        self._watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()

    # -- adapter ------------------------------------------------------------------------------------------------------

    def adapter(self) -> Adapter:
        return self._opening.opened()[0]

    @property
    def _carrier(self) -> LabCarrier:
        return self._opening.opened()[1]

    def _open(self) -> tuple[Adapter, LabCarrier]:
        try:
            carrier = self._attach()
        except (ConfigError, SubnetError) as error:
            raise PyverbsRDMAError(f"Failed to open device {self.name}", errno.ENODEV, str(error)) from error
        facts = carrier.facts
        memory = QueueMemory(can_be_shared=True)
        adapter = Adapter(carrier, mtu_bytes=facts.mtu_bytes, p_keys=facts.p_keys, memory=memory)
        carrier.open(adapter)
        carrier.on_change = self._on_change
        return adapter, carrier

    def _attach(self) -> LabCarrier:
        line = Line(self._lab)
        try:
            answer, meters = line.ask_for_file("attach", host=self._host, device=self.name)
        except (ConfigError, SubnetError):
            line.close()
            raise
        grants = MemoryGrants(line, answer["guid"], answer["program"], meters) if meters >= 0 else None
        return LabCarrier(line, answer["program"], Facts.unpack(bytes.fromhex(answer["facts"])), grants)

    def _on_change(self, events: list[ibv_event_type]) -> None:
        adapter, carrier = self._opening.opened()
        adapter.p_keys, adapter.mtu_bytes = carrier.facts.p_keys, carrier.facts.mtu_bytes
        adapter.show()
        for event in events:
            for watcher in list(self._watchers):
                watcher.raise_event(event, PORT)

    def watch(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)

    # -- what it is ---------------------------------------------------------------------------------------------------

    def _facts(self) -> Facts:
        adapter, carrier = self._opening.opened()
        adapter.progress()  # read new frames of the lab
        return carrier.facts

    def device_attr(self) -> DeviceAttr:
        from weft.verbs.attributes.device import DeviceAttr

        return replace(
            DeviceAttr(),
            node_guid=be64toh(self.guid),
            sys_image_guid=be64toh(self._system_guid),
            max_pkeys=len(self._facts().p_keys),
        )

    def port_attr(self) -> PortAttr:
        return self._facts().port_attr()

    def speed_100_mbps(self) -> int:
        return self._facts().speed_100_mbps

    def gids(self) -> tuple[bytes, ...]:
        return self._facts().gids

    def gid_type(self, index: int) -> int:
        return IBV_GID_TYPE_IB

    # -- addresses ----------------------------------------------------------------------------------------------------

    def wrong_address(self, address: AHAttr) -> str:
        gids = self._carrier.facts.gids
        if address.is_global:
            index = address.route.sgid_index
            if index >= len(gids) or not any(gids[index]):
                return f"sgid_index {index}: the port has no such GID"
            if not address.dlid and self._path(address) is None:
                return f"the subnet administrator knows no path to {address.dgid}"
        elif not address.dlid:
            return "dlid 0 is no LID"
        return "dlid 65535 is the permissive LID, for management only" if address.dlid == Lid.PERMISSIVE else ""

    def address_vector(self, address: AHAttr) -> AddressVector:
        """Return the address vector; with a GID only, as with RoCE, query the subnet administrator for the LID."""
        path = self._path(address) if address.is_global and not address.dlid else None
        if path is not None:
            return path
        route = address.route
        return AddressVector(
            address.dlid,
            self._gids(address) if address.is_global else None,
            sl=address.sl & 0xF,
            path_bits=address.src_path_bits,
            flow_label=route.flow_label,
            hop_limit=route.hop_limit,
            traffic_class=route.traffic_class,
        )

    def gid_at(self, address: int) -> int:
        """Return the GID of an address: hosts have 127.1.0.1, 127.1.0.2, ... in the fabric's order."""
        number = address - _HOSTS
        if address in LOOPBACK:
            return self._gid(self._carrier.facts.guids[0])
        host = self._find(number=number) if 0 < number < 1 << 16 else None
        return int(host["gid"]) if host else address

    def address_of(self, gid: int) -> int:
        host = self._find(guid=gid & (1 << 64) - 1)
        return _HOSTS + int(host["number"]) if host and host["gid"] == gid else gid

    def gid_of_host(self, name: str) -> int | None:
        host = self._find(host=name)
        return int(host["gid"]) if host else None

    def _gid(self, guid: int) -> int:
        return int(self._carrier.facts.info.gid_prefix) << 64 | guid

    def _find(self, **criteria: Any) -> dict[str, Any] | None:
        try:
            return self._carrier.line.ask("find", **criteria)
        except (ConfigError, SubnetError):
            return None

    def _path(self, address: AHAttr) -> AddressVector | None:
        return self._carrier.paths.to(self._gids(address))

    def _gids(self, address: AHAttr) -> tuple[int, int]:
        gids = self._carrier.facts.gids
        index = address.route.sgid_index
        own = gids[index] if index < len(gids) else bytes(16)
        return int.from_bytes(address.route.raw_dgid, "big"), int.from_bytes(own, "big")


def _work(adapter: Adapter, carrier: LabCarrier) -> None:
    """Respond to other programs in the background while the program does something else, as hardware does."""
    adapter.background = threading.get_ident()
    while not carrier.line.is_closed:
        carrier.wait(adapter.rest_s())
        adapter.progress()
