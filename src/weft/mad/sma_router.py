"""Implement NVIDIA's attributes of routers: which subnets are adjacent. See `weft.wire.router` for how sure this is.

The table has an entry for each other port that is Active and has a site-local prefix, in the order of ports; its top is
their number. There are no next-hop tables and no floating LIDs: their capacities are 0.
"""

from __future__ import annotations

from weft.fabric.subnets import ROUTER_PORTS
from weft.ids import Gid
from weft.mad.devices import Devices
from weft.wire.mad import Status
from weft.wire.port_info import PortInfo
from weft.wire.router import SUBNETS_PER_BLOCK, AdjacentSiteLocalSubnetsTable, AdjacentSubnet, RouterInfo

_DATA, _END = 64, 128
_PREFIX_BITS = 16


def get_router_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    if node not in devices.routers.nodes:
        return Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    info = RouterInfo.pack(
        adjacent_subnets_top=len(_adjacent_ports(devices, node, slot)),
        adjacent_subnets_cap=ROUTER_PORTS - 1,
        supported_subnets=ROUTER_PORTS,
    )
    smp[_DATA:_END] = info.ljust(_END - _DATA, b"\0")
    return 0


def get_adjacent_subnets(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    if node not in devices.routers.nodes:
        return Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    if modifier:
        return Status.INVALID_FIELD  # a router has fewer ports than a block has entries
    subnets = [
        AdjacentSubnet(
            p_key=devices.keys(port)[0],
            subnet_prefix=devices.routers.prefix(port) & (1 << _PREFIX_BITS) - 1,
            master_sm_lid=PortInfo.master_sm_lid.get(devices.info(port)),
        )
        for port in _adjacent_ports(devices, node, slot)[:SUBNETS_PER_BLOCK]
    ]
    subnets += [AdjacentSubnet()] * (SUBNETS_PER_BLOCK - len(subnets))
    smp[_DATA:_END] = AdjacentSiteLocalSubnetsTable.pack(subnet=tuple(subnets))
    return 0


def _adjacent_ports(devices: Devices, node: int, slot: int) -> list[int]:
    """Return the other ports of a router that are in a subnet with a site-local prefix."""
    routers, site_local = devices.routers, Gid.SITE_LOCAL_PREFIX >> _PREFIX_BITS
    ports = (port for port in routers.ports_of(node) if port != slot)
    return [port for port in ports if routers.prefix(port) >> _PREFIX_BITS == site_local]
