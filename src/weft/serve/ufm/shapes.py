"""Systems, ports and links as UFM describes them, from a subnet manager's inventory.

A host with all its adapters is one system; so is a switch. Systems and ports are identified by node GUIDs. Values that
only UFM's agents know (addresses, firmware, temperatures) have UFM's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from weft.sm.inventory import Subnet

NONE = "N/A"
NO_ADDRESS = "0.0.0.0"  # UFM's value for an unknown address
_CAPABILITIES = ("reset", "healthy_operations", "disable", "get_cables_info")
_SWITCH, _ADAPTER, _HOST = "switch", "HCA", "host"
_OF_KIND = {_SWITCH: "Switch", _HOST: "Computer"}
_MELLANOX = (0x02C9, "Mellanox")


class Port(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A port in UFM's JSON."""

    name: str  # node GUID and port number
    guid: str
    number: int
    external_number: int
    dname: str  # its label: HCA-1/1
    description: str  # Computer IB Port
    node_description: str
    physical_state: str
    logical_state: str
    lid: int
    mtu: int
    tier: int
    path: str
    severity: str
    active_speed: str | None
    enabled_speed: list[str]
    supported_speed: list[str]
    active_width: str | None
    enabled_width: list[str]
    supported_width: list[str]
    system_id: str = msgspec.field(name="systemID")
    system_name: str
    system_ip: str = NO_ADDRESS
    system_capabilities: list[str] = []
    peer: str = NONE
    peer_guid: str = NONE
    peer_lid: int | None = None
    peer_ip: str = NONE
    peer_node_guid: str = NONE
    peer_node_name: str = NONE
    peer_node_description: str = NONE
    peer_port_dname: str = NONE
    high_ber_severity: str = NONE
    mirror: str = "disable"
    module: str = NONE
    capabilities: tuple[str, ...] = _CAPABILITIES


class System(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A system in UFM's JSON."""

    name: str  # its GUID
    guid: str
    system_guid: str
    system_name: str
    type: str  # switch, host, router
    role: str  # endpoint, tor, core
    model: str
    description: str
    vendor: str
    ports: list[str]
    ip: str = NO_ADDRESS
    technology: str = NONE
    fw_version: str = NONE
    sw_version: str = NONE
    psid: str = NONE
    state: str = "active"
    severity: str = "Info"
    total_alarms: int = 0
    temperature: str = NONE
    modules: list[str] = []
    is_managed: bool = True
    is_manual_ip: bool = False
    groups: list[str] = []
    sm_mode: str = "noSM"
    server_operation_mode: str = "Stand_Alone"
    url: str = ""
    script: str = ""
    capabilities: tuple[str, ...] = ("healthy_operations",)


class Link(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A link in UFM's JSON."""

    name: str
    source_guid: str
    source_port: str
    source_port_dname: str
    source_port_node_description: str
    destination_guid: str
    destination_port: str
    destination_port_dname: str
    destination_port_node_description: str
    width: str  # IB_4x
    severity: str
    capabilities: list[str] = []
    cable_info: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Machine:
    """A system: a switch, or a host with its adapters."""

    guid: str  # the lowest of its nodes
    name: str
    kind: str
    nodes: tuple[int, ...]  # by GUID


class Picture:
    """A subnet as UFM describes it. It is immutable: a changed subnet gets a new picture."""

    def __init__(self, subnet: Subnet) -> None:
        self.subnet = subnet
        self.revision = subnet.revision
        self._machines = _machines(subnet)
        self._machine = {node: machine for machine in self._machines for node in machine.nodes}
        self._level = _levels(subnet)
        self._names = _names(subnet)
        self._dnames = _dnames(subnet, self._machine)
        self._descriptions = _descriptions(subnet)
        self._lids = _lids(subnet)

    # -- ports: created on demand, since there are very many -----------------------------------------------------------

    @cached_property
    def ports(self) -> list[Port]:
        """The ports, without management ports of switches."""
        return self._get_ports(self._index.values())

    def named(self, name: str) -> Port | None:
        index = self._index.get(name)
        return None if index is None else self._get_ports([index])[0]

    def of_system(self, word: str) -> list[Port]:
        """Return the ports of a system, by its GUID or name."""
        return self._get_ports(self._index[name] for name in self._ports_of.get(self._guids.get(word, word), ()))

    def of_kind(self, word: str) -> list[Port]:
        """Return the ports of a kind of system: Computer or Switch."""
        kinds = {machine.guid: _OF_KIND.get(machine.kind, machine.kind).lower() for machine in self._machines}
        names = (name for guid, some in self._ports_of.items() if kinds[guid] == word.lower() for name in some)
        return self._get_ports(self._index[name] for name in names)

    def _get_ports(self, indexes: Iterable[int]) -> list[Port]:
        cache = self._port_cache
        ports = []
        for index in indexes:
            port = cache[index]
            if port is None:
                port = cache[index] = self._port(index)
            ports.append(port)
        return ports

    @cached_property
    def _port_cache(self) -> list[Port | None]:
        return [None] * len(self._names)

    @cached_property
    def _index(self) -> dict[str, int]:
        numbers = self.subnet.ports.number
        return {name: index for index, name in enumerate(self._names) if numbers[index]}

    @cached_property
    def _ports_of(self) -> dict[str, list[str]]:
        """The port names of each system, by its GUID."""
        by_system: dict[str, list[str]] = {machine.guid: [] for machine in self._machines}
        for name, index in self._index.items():
            by_system[self._machine[self.subnet.ports.node[index]].guid].append(name)
        return by_system

    @cached_property
    def _guids(self) -> dict[str, str]:
        """The GUIDs of systems, by name."""
        return {machine.name: machine.guid for machine in self._machines}

    # -- systems and links --------------------------------------------------------------------------------------------

    @cached_property
    def systems(self) -> list[System]:
        return [self._system(machine, self._ports_of[machine.guid]) for machine in self._machines]

    @cached_property
    def links(self) -> list[Link]:
        return [self._link(index, peer) for index, peer in enumerate(self.subnet.ports.peer) if index < peer]

    def _port(self, index: int) -> Port:
        ports = self.subnet.ports
        node, number, peer = ports.node[index], ports.number[index], ports.peer[index]
        machine, dname = self._machine[node], self._dnames[index]
        kind = _OF_KIND.get(machine.kind, machine.kind)
        return Port(
            name=self._names[index],
            guid=hex_guid(ports.guid[index]),
            number=number,
            external_number=number,
            dname=dname,
            description=f"{kind} IB Port",
            node_description=self._descriptions[index],
            physical_state=_spaced(ports.physical_state[index]),
            logical_state=ports.state[index],
            lid=self._lids[index],
            mtu=ports.mtu_bytes[index],
            tier=max(self._level[node], self._level[ports.node[peer]] if peer >= 0 else 1),
            path=f"default / {kind}: {machine.name} / {NONE} / {dname}",
            severity="Info" if peer < 0 or ports.state[index] == "Active" else "Warning",
            active_speed=ports.active_speed[index] or None,
            enabled_speed=ports.enabled_speed[index],
            supported_speed=ports.supported_speed[index],
            active_width=ports.active_width[index] or None,
            enabled_width=ports.enabled_width[index],
            supported_width=ports.supported_width[index],
            system_id=machine.guid,
            system_name=machine.name,
            **({} if peer < 0 else self._peer(peer)),
        )

    def _peer(self, peer: int) -> dict[str, Any]:
        """Return the fields of a port that describe the other end of its cable."""
        ports = self.subnet.ports
        machine = self._machine[ports.node[peer]]
        return {
            "peer": self._names[peer],
            "peer_guid": hex_guid(ports.guid[peer]),
            "peer_lid": self._lids[peer],
            "peer_ip": NO_ADDRESS,
            "peer_node_guid": machine.guid,
            "peer_node_name": machine.name,
            "peer_node_description": self._descriptions[peer],
            "peer_port_dname": self._dnames[peer],
        }

    def _system(self, machine: Machine, ports: list[str]) -> System:
        nodes, first = self.subnet.nodes, machine.nodes[0]
        return System(
            name=machine.guid,
            guid=machine.guid,
            system_guid=hex_guid(nodes.system_guid[first] or nodes.guid[first]),
            system_name=machine.name,
            type=machine.kind,
            role="endpoint" if machine.kind == _HOST else "tor" if self._level[first] == 1 else "core",
            model=nodes.model[first] or _OF_KIND.get(machine.kind, machine.kind),
            description=nodes.description[first],
            vendor=_MELLANOX[1] if nodes.vendor_id[first] == _MELLANOX[0] else f"{nodes.vendor_id[first]:#08x}",
            ports=ports,
        )

    def _link(self, index: int, peer: int) -> Link:
        ports = self.subnet.ports
        return Link(
            name=f"{self._names[index]}:{self._names[peer]}",
            source_guid=self._machine[ports.node[index]].guid,
            source_port=str(ports.number[index]),
            source_port_dname=self._dnames[index],
            source_port_node_description=self._descriptions[index],
            destination_guid=self._machine[ports.node[peer]].guid,
            destination_port=str(ports.number[peer]),
            destination_port_dname=self._dnames[peer],
            destination_port_node_description=self._descriptions[peer],
            width=f"IB_{ports.active_width[index] or NONE}",
            severity="Info" if ports.state[index] == "Active" else "Warning",
        )


# -- columns, by port -------------------------------------------------------------------------------------------------


def _names(subnet: Subnet) -> list[str]:
    guids = list(map(hex_guid, subnet.nodes.guid))
    return [f"{guids[node]}_{number}" for node, number in zip(subnet.ports.node, subnet.ports.number, strict=True)]


def _dnames(subnet: Subnet, machines: dict[int, Machine]) -> list[str]:
    prefix = [
        f"HCA-{machines[node].nodes.index(node) + 1}/" if machines[node].kind == _HOST else ""
        for node in range(len(subnet.nodes.guid))
    ]
    return [f"{prefix[node]}{number}" for node, number in zip(subnet.ports.node, subnet.ports.number, strict=True)]


def _descriptions(subnet: Subnet) -> list[str]:
    nodes = subnet.nodes
    pairs = zip(subnet.ports.node, subnet.ports.number, strict=True)
    return [nodes.description[at] + (f":{number}" if nodes.kind[at] == _SWITCH else "") for at, number in pairs]


def _lids(subnet: Subnet) -> list[int]:
    """Return the LID of each port; ports of a switch have its LID."""
    ports = subnet.ports
    of_switch = {ports.node[at]: ports.lid[at] for at, number in enumerate(ports.number) if not number}
    return [of_switch.get(node, lid) for node, lid in zip(ports.node, ports.lid, strict=True)]


# -- systems ----------------------------------------------------------------------------------------------------------


def _machines(subnet: Subnet) -> list[Machine]:
    nodes = subnet.nodes
    nodes_by_machine: dict[tuple[str, str], list[int]] = {}
    for node, (kind, name) in enumerate(zip(nodes.kind, nodes.name, strict=True)):
        key = (_HOST, name.partition("/")[0]) if kind == _ADAPTER else (kind, name)  # dgx1/mlx5_0 is one of dgx1's
        nodes_by_machine.setdefault(key, []).append(node)
    ordered = {key: tuple(sorted(some, key=nodes.guid.__getitem__)) for key, some in nodes_by_machine.items()}
    return [Machine(hex_guid(nodes.guid[some[0]]), name, kind, some) for (kind, name), some in ordered.items()]


def _levels(subnet: Subnet) -> list[int]:
    """Return the distance of each node from the nearest host; 1 for a switch that reaches none."""
    ports = subnet.ports
    beside: list[set[int]] = [set() for _ in subnet.nodes.guid]
    for node, peer in zip(ports.node, ports.peer, strict=True):
        if peer >= 0:
            beside[node].add(ports.node[peer])
    level = {node: 0 for node, kind in enumerate(subnet.nodes.kind) if kind == _ADAPTER}
    edge, depth = set(level), 0
    while edge:
        depth += 1
        edge = {other for node in edge for other in beside[node] if other not in level}
        level.update(dict.fromkeys(edge, depth))
    return [level.get(node, 1) for node in range(len(subnet.nodes.guid))]


def hex_guid(guid: int) -> str:
    """Format a GUID as UFM does, without 0x."""
    return f"{guid:016x}"


@lru_cache(maxsize=1024)
def _spaced(words: str) -> str:
    """Insert spaces: LinkUp becomes Link Up."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", words)
