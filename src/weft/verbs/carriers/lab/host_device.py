"""A device of a lab host, whatever its link layer: opening it, settings of its port, addresses of hosts.

Queries return the current settings by the lab; changes of the port are events. When the lab ends, the port
goes down, and operations end as without a response.
"""

from __future__ import annotations

import errno
import threading
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from weft.errors import ConfigError, SubnetError
from weft.verbs.attributes.text import be64toh
from weft.verbs.carriers.lab.connection import Line
from weft.verbs.carriers.lab.line_carrier import LineCarrier
from weft.verbs.carriers.lab.memory_grants import MemoryGrants
from weft.verbs.carriers.processes.adapter import Opening
from weft.verbs.carriers.processes.device import LOOPBACK
from weft.verbs.enums import ibv_event_type
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.adapter import Adapter
from weft.verbs.shm.queue_memory import QueueMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.verbs.attributes.address import AHAttr
    from weft.verbs.attributes.device import DeviceAttr, PortAttr
    from weft.verbs.carriers.lab.port_facts import Watcher

PORT = 1
C = TypeVar("C", bound=LineCarrier[Any])
F = TypeVar("F")
_HOSTS = 0xFFFF_7F01_0000  # 127.1.0.0, mapped: addresses of hosts, reachable by TCP too


class PortFacts(Protocol):
    """The settings of a port, of either link layer."""

    @property
    def gids(self) -> tuple[bytes, ...]: ...

    @property
    def p_keys(self) -> tuple[int, ...]: ...

    @property
    def speed_100_mbps(self) -> int: ...

    def port_attr(self) -> PortAttr: ...


class HostDevice(Generic[C]):
    """A device with one port of a lab host's adapter; its link layer is that of the subclass."""

    def __init__(self, lab: str, host: str, name: str, guid: int, system_guid: int) -> None:
        self.name, self.guid = name, guid
        self._lab, self._host, self._system_guid = lab, host, system_guid
        self._opening = Opening(name, self._open, _work)
        self._watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()

    # -- adapter ------------------------------------------------------------------------------------------------------

    def adapter(self) -> Adapter:
        return self._opening.opened()[0]

    @property
    def _carrier(self) -> C:
        return self._opening.opened()[1]

    def _open(self) -> tuple[Adapter, C]:
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

    def _attach(self) -> C:
        """Attach this program to the port."""
        raise NotImplementedError

    def _take_port(self, unpack: Callable[[bytes], F]) -> tuple[Line, int, F, MemoryGrants | None]:
        """Attach this program to the port; return the arguments of a carrier."""
        line = Line(self._lab)
        try:
            answer, meters = line.ask_for_file("attach", host=self._host, device=self.name)
        except (ConfigError, SubnetError):
            line.close()
            raise
        grants = MemoryGrants(line, answer["guid"], answer["program"], meters) if meters >= 0 else None
        return line, answer["program"], unpack(bytes.fromhex(answer["facts"])), grants

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

    def _facts(self) -> PortFacts:
        adapter, carrier = self._opening.opened()
        adapter.progress()  # read new frames of the lab
        facts: PortFacts = carrier.facts
        return facts

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

    # -- addresses -----------------------------------------------------------------------------------------------------

    def gid_at(self, address: int) -> int:
        """Return the GID of an address: hosts have 127.1.0.1, 127.1.0.2, ... in the fabric's order."""
        number = address - _HOSTS
        if address in LOOPBACK:
            return self._own_gid()
        host = self._find(number=number) if 0 < number < 1 << 16 else None
        return int(host["gid"]) if host else address

    def address_of(self, gid: int) -> int:
        host = self._find(guid=gid & (1 << 64) - 1)
        return _HOSTS + int(host["number"]) if host and host["gid"] == gid else gid

    def gid_of_host(self, name: str) -> int | None:
        host = self._find(host=name)
        return int(host["gid"]) if host else None

    def _own_gid(self) -> int:
        raise NotImplementedError

    def _find(self, **criteria: Any) -> dict[str, Any] | None:
        try:
            return self._carrier.line.ask("find", **criteria)
        except (ConfigError, SubnetError):
            return None

    def _gids(self, address: AHAttr) -> tuple[int, int]:
        gids = self._carrier.facts.gids
        index = address.route.sgid_index
        own = gids[index] if index < len(gids) else bytes(16)
        return int.from_bytes(address.route.raw_dgid, "big"), int.from_bytes(own, "big")


def _work(adapter: Adapter, carrier: LineCarrier[Any]) -> None:
    """Respond to other programs in the background while the program does something else, as hardware does."""
    adapter.background = threading.get_ident()
    while not carrier.line.is_closed:
        carrier.wait(adapter.rest_s())
        adapter.progress()
