"""Planarised ports of a lab: an adapter's port as one port in each plane, all with one port GUID.

    mlx5_0     port 1            the whole port: its rate is that of all Active planes (GSI device, RDMA)
    smi0       ports 1, 2 ...    one in each plane, for subnet management (SMI device)

rdma-core pairs both by the port GUID, and knows the first by its capability mask, which says that the SMI is disabled
(libibumad, `umad_get_smi_gsi_pairs`); Linux adds the second by `rdma dev add smi0 type SMI parent mlx5_0`.

Each plane is a subnet with a manager of its own (of several subnets, each plane of each, with its own routers). The LID
of a planarised port is one number: a plane whose manager gave another LID than the first Active plane carries no data.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.fabric.forwarding import ANY, HEADERS_BYTES, NONE, Reason
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.planes import expand
from weft.mad.devices import Devices
from weft.mad.routers import walk_global
from weft.routing.patterns import host_ports
from weft.wire.port_info import LANES, WIDTHS, Capability, LinkSpeed, PortInfo


def planarize(fabric: Fabric) -> Fabric:
    """Return the fabric of a lab: with all planes written out, and one GUID for all plane ports of an adapter."""
    whole = expand(fabric)
    if whole.planes == 1:
        return whole
    ports = whole.ports
    of_planes = (whole.nodes.kind[ports.node] == NodeKind.HCA) & (ports.number > 0) & (ports.number <= whole.planes)
    first = whole.first_port[ports.node] + 1
    guids = np.where(of_planes, ports.guid[np.where(of_planes, first, 0)], ports.guid)
    return replace(whole, ports=replace(ports, guid=guids).freeze())


def without_unused_planes(fabric: Fabric) -> Fabric:
    """Return a fabric of planes without the cables of ports whose LID is not that of their adapter's first plane.

    Such a plane carries no data of the adapter.
    """
    if not fabric.expanded:
        return fabric
    lid, first = fabric.tables.lid.astype(np.int64), host_ports(fabric).astype(np.int64)
    ports = first[:, None] + np.arange(fabric.planes)
    active = (fabric.ports.peer[ports] >= 0) & (lid[ports] > 0)
    leading = ports[np.arange(len(first)), np.argmax(active, axis=1)]
    unused = ports[~active | (lid[ports] != lid[leading][:, None])]
    links = fabric.links
    return fabric.sharing_tables_with(links.take(~(np.isin(links.a, unused) | np.isin(links.b, unused))))


def plane_hosts(fabric: Fabric, host: str) -> list[str]:
    """Return the names by which a manager of each plane starts on a host: h1/1, h1/2."""
    return [f"{host}/{plane}" for plane in range(1, fabric.planes + 1)]


def is_planarized(devices: Devices, node: int) -> bool:
    """Return whether the ports of an adapter are planes of one port."""
    return devices.fabric.expanded and devices.fabric.nodes.kind[node] == NodeKind.HCA


def ports_of(devices: Devices, slot: int) -> range:
    """Return the ports of a planarised port, one in each plane; any other port is alone."""
    node = devices.node_of[slot]
    if not is_planarized(devices, node):
        return range(slot, slot + 1)
    first = devices.first[node] + 1
    return range(first, first + devices.last_port[node])


def leading_port(devices: Devices, slot: int) -> int:
    """Return the first Active plane of a planarised port; the first plane if none is Active."""
    ports = ports_of(devices, slot)
    return next((port for port in ports if devices.is_active(port)), ports[0])


def usable_ports(devices: Devices, slot: int) -> list[int]:
    """Return the planes of a port that carry data: Active, with the LID of the first that is."""
    lid = devices.lid(leading_port(devices, slot))
    return [port for port in ports_of(devices, slot) if devices.is_active(port) and devices.lid(port) == lid]


def choose_port(
    devices: Devices, slot: int, turn: int, *, dlid: int, sl: int, dgid: int = NONE, hop_limit: int = 0
) -> int:
    """Return the port of the next plane in turn that leads to a destination; the leading port if none does."""
    ports = usable_ports(devices, slot)
    for place in range(len(ports)):
        port = ports[(turn + place) % len(ports)]
        if len(ports) == 1 or leads_to(devices, port, dlid=dlid, sl=sl, dgid=dgid, hop_limit=hop_limit):
            return port
    return leading_port(devices, slot)


def leads_to(devices: Devices, port: int, *, dlid: int, sl: int, dgid: int = NONE, hop_limit: int = 0) -> bool:
    """Return whether tables lead from a port to a LID, and the router that has it to the GID, as far as it knows."""
    way = walk_global(
        devices, port, dlid=dlid, sl=sl, p_key=ANY, size_bytes=HEADERS_BYTES, dgid=dgid, hop_limit=hop_limit
    )
    return way.path.reason in (Reason.ARRIVED, Reason.NOT_RESOLVED)


def whole_info(devices: Devices, slot: int) -> bytearray:
    """Return the PortInfo of a whole port: that of its leading plane, with the SMI disabled and the width of all."""
    info = bytearray(devices.info(leading_port(devices, slot)))
    ports = ports_of(devices, slot)
    if len(ports) == 1:
        return info
    mask = PortInfo.capability_mask.get(info)
    PortInfo.capability_mask.set(info, mask & ~int(Capability.IS_SM) | int(Capability.IS_SM_DISABLED))
    lanes = LANES.get(PortInfo.link_width_active.get(info), 1) * sum(map(devices.is_active, ports))
    if lanes in WIDTHS:  # three lanes have no code: a lost plane shows in the rate alone
        PortInfo.link_width_active.set(info, WIDTHS[lanes])
    return info


def whole_rate_gbit_s(devices: Devices, slot: int) -> int:
    """Return the rate of all Active planes of a port, or of one if none is Active."""
    info = devices.info(leading_port(devices, slot))
    planes = max(1, sum(map(devices.is_active, ports_of(devices, slot))))
    return LinkSpeed.active(info).lane_tenths * LANES.get(PortInfo.link_width_active.get(info), 1) * planes // 10
