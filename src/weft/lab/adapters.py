"""Describe the adapters of a host: names, ports, and the values in /sys/class/infiniband.

A host is a server (`dgx1`, with eight adapters `mlx5_0` ...), one adapter (`dgx1/mlx5_3`), a switch (its port 0), or
whatever has that description.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from weft.errors import UnknownName
from weft.fabric.kinds import NodeKind
from weft.lab.planes import is_planarized
from weft.mad.devices import Devices
from weft.wire.fields import Buffer
from weft.wire.port_info import LANES, LinkSpeed, PortInfo, PortPhysicalState, PortState


class Role(Enum):
    """The traffic of a device: a planarised adapter is two devices."""

    ALL = ""
    GSI = "gsi"  # the whole port: everything but SMPs
    SMI = "smi"  # a port in each plane, without RDMA


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """An InfiniBand device of a host."""

    name: str  # as the host calls it
    node: int
    first_port: int
    last_port: int
    role: Role = Role.ALL


def adapters_of(devices: Devices, host: str) -> list[Adapter]:
    """Return all adapters of a host; for an empty name, the first adapter of the fabric.

    A port of a planarised adapter, `h1/2`, is a device with that port alone: programs that bind by port GUID, as OpenSM
    does, then find the plane.
    """
    owner, _, port = host.rpartition("/")
    node = devices.fabric.node_index.get(owner, -1) if port.isdecimal() else -1
    if node >= 0 and is_planarized(devices, node):
        return [Adapter(name="smi0", node=node, first_port=int(port), last_port=int(port), role=Role.SMI)]
    adapters = []
    for number, node in enumerate(_nodes_of(devices, host)):
        first, last = (0, 0) if devices.is_switch[node] else (1, devices.last_port[node])
        name = local_name(devices, node, number)
        if is_planarized(devices, node):
            adapters.append(Adapter(name=name, node=node, first_port=1, last_port=1, role=Role.GSI))
            adapters.append(Adapter(name=f"smi{number}", node=node, first_port=1, last_port=last, role=Role.SMI))
        else:
            adapters.append(Adapter(name=name, node=node, first_port=first, last_port=last))
    return adapters


def first_adapters(devices: Devices) -> list[int]:
    """Return the first adapter of each host, in the fabric's order."""
    fabric, servers = devices.fabric, set()
    first = []
    for node in devices.nodes:
        server = fabric.nodes.server[node]
        if fabric.nodes.kind[node] == NodeKind.HCA and server not in servers:
            first.append(node)
            if server >= 0:
                servers.add(server)
    return first


def _nodes_of(devices: Devices, host: str) -> list[int]:
    fabric, managed = devices.fabric, set(devices.nodes)
    if not host:
        return [next(node for node in devices.nodes if not devices.is_switch[node])]
    if host in fabric.server_index:
        server = fabric.server_index[host]
        nodes = fabric.nodes
        adapters = [n for n in devices.nodes if nodes.server[n] == server and nodes.kind[n] == NodeKind.HCA]
        if adapters:
            return adapters
    if host in fabric.node_index and fabric.node_index[host] in managed:
        return [fabric.node_index[host]]
    if host in fabric.nodes.description:
        return [fabric.nodes.description.index(host)]
    names = [fabric.nodes.name[node] for node in devices.nodes]
    raise UnknownName("host", host, dict.fromkeys([*names, *fabric.servers]), f"In {fabric.spec}.")


def local_name(devices: Devices, node: int, number: int) -> str:
    """Return `mlx5_3` of `dgx1/mlx5_3`; number the adapters of plain hosts and switches as a driver would."""
    _, slash, local = devices.fabric.nodes.name[node].rpartition("/")
    return local if slash else f"mlx5_{number}"


def find_port(devices: Devices, adapters: list[Adapter], name: str, number: int) -> tuple[Adapter, int] | None:
    """Return the port of a name and number; without them the best: Active, then linked, then any enabled one.

    As libibumad chooses (rdma-core libibumad/umad.c, resolve_ca_port), which passes over ports whose SMI is disabled,
    and Ethernet ports that are not named.
    """
    named = [adapter for adapter in adapters if (not name and adapter.role is not Role.GSI) or adapter.name == name]
    ports = [
        (adapter, n) for adapter in named for n in range(adapter.first_port, adapter.last_port + 1) if number in (0, n)
    ]
    if not name:
        ports = [(adapter, n) for adapter, n in ports if devices.slot(adapter.node, n) not in devices.ethernet]
    ranked = sorted(ports, key=lambda port: _rank(devices, devices.slot(port[0].node, port[1])))
    return ranked[0] if ranked else None


def _rank(devices: Devices, slot: int) -> int:
    info = devices.info(slot)
    if PortInfo.port_state.get(info) == PortState.ACTIVE:
        return 0
    physical = PortInfo.port_physical_state.get(info)
    return {PortPhysicalState.LINK_UP: 1, PortPhysicalState.DISABLED: 3}.get(PortPhysicalState(physical), 2)


def rate_gbit_s(info: Buffer) -> int:
    """Return the rate as sysfs rounds it: 400 for 4xNDR, 56 for 4xFDR."""
    return LinkSpeed.active(info).lane_tenths * LANES.get(PortInfo.link_width_active.get(info), 1) // 10
