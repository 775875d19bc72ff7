"""Translate host names, from users and SIM_HOST, to port slots and back.

h1  dgx7  leaf3      a host, a server (its first adapter), a switch (its port 0)
h1/2                 the second port of an adapter
0x0002c90300001230   by node GUID; also "S-0002c90300001230", as ibnetdiscover writes it
"h1 mlx5_0"          by node description
"""

from __future__ import annotations

import re

from weft.errors import ConfigError, UnknownName
from weft.fabric.views import Port
from weft.lab.protocol import NAME_BYTES
from weft.mad.devices import Devices

_GUID = re.compile(r"(?:0x|[HSR]-)([0-9a-fA-F]{1,16})")


class Places:
    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        nodes = devices.fabric.nodes
        managed = devices.nodes
        self._by_guid = {int(nodes.guid[node]): node for node in managed}
        self._by_description = {nodes.description[node]: node for node in reversed(managed)}
        self._managed = set(managed)

    def find(self, name: str) -> int:
        """Return the slot of a name; an empty name is the first host."""
        devices = self.devices
        if not name:
            return self._first_slot(next((n for n in devices.nodes if not devices.is_switch[n]), devices.nodes[0]))
        node = self._node(name)
        if node is not None:
            return self._first_slot(node)
        owner, _, number = name.rpartition("/")
        node = self._node(owner) if owner and number.isascii() and number.isdecimal() else None
        if node is None:
            names = [n for n in devices.fabric.node_index if devices.fabric.node_index[n] in self._managed]
            raise UnknownName("host", name, names, f"In {devices.fabric.spec}.")
        return self._numbered(node, int(number))

    def is_node(self, name: str) -> bool:
        """Return whether a name is that of a host or a switch, not of one of its ports."""
        return not name or self._node(name) is not None

    def name(self, slot: int) -> str:
        """Return the shortest name that `find` understands."""
        devices = self.devices
        node, number = devices.node_of[slot], devices.number(slot)
        owner = devices.fabric.nodes.name[node]
        return owner if slot == self._first_slot(node) else f"{owner}/{number}"

    def sim_host(self, slot: int) -> str:
        """Return a name for SIM_HOST, which is cut to 31 bytes."""
        name = self.name(slot)
        if len(name.encode()) <= NAME_BYTES:
            return name
        devices = self.devices
        return f"0x{int(devices.fabric.nodes.guid[devices.node_of[slot]]):x}/{devices.number(slot)}"

    def _node(self, name: str) -> int | None:
        fabric = self.devices.fabric
        node = fabric.node_index.get(name)
        if node is None and name in fabric.server_index:
            node = next((node.index for node in fabric.find_server(name).nodes if node.index in self._managed), None)
        if node is None:
            node = self._by_description.get(name)
        match = _GUID.fullmatch(name)
        if node is None and match:
            node = self._by_guid.get(int(match[1], 16))
        return node if node in self._managed else None

    def _first_slot(self, node: int) -> int:
        """Return port 0 of a switch, port 1 of an adapter, as ibsim does; or the first with a cable."""
        devices = self.devices
        if devices.is_switch[node]:
            return devices.first[node]
        ports = range(devices.first[node] + 1, devices.first[node] + devices.last_port[node] + 1)
        return next((slot for slot in ports if devices.cable[slot] >= 0), ports[0])

    def _numbered(self, node: int, number: int) -> int:
        devices = self.devices
        first = 0 if devices.is_switch[node] else 1
        if not first <= number <= devices.last_port[node]:
            owner = devices.fabric.nodes.name[node]
            raise ConfigError(f"{owner} has no port {number}: it has {first} to {devices.last_port[node]}")
        if devices.is_switch[node] and number:
            owner = devices.fabric.nodes.name[node]
            raise ConfigError(f"programs attach to port 0 of a switch, {owner}, not to {owner}/{number}")
        return devices.slot(node, number)


def cables(devices: Devices, name: str) -> list[int]:
    """Return the slots of a name's cables: of a port, or of a node, a server or a tray."""
    fabric = devices.fabric
    if name in fabric and isinstance(port := fabric[name], Port):
        slots = [port.slot]
    else:
        nodes = fabric.nodes_of(name)
        slots = [devices.first[node] + number for node in nodes for number in range(1, devices.last_port[node] + 1)]
    cabled = [slot for slot in slots if devices.cable[slot] >= 0 or slot in devices.ethernet]
    if not cabled:
        raise ConfigError(f"{name} has no InfiniBand or Ethernet cable")
    return cabled


def far_end(devices: Devices, slot: int) -> int:
    """Return the port at the other end of a cable, InfiniBand or Ethernet."""
    return devices.ethernet.far[slot] if slot in devices.ethernet else devices.cable[slot]
