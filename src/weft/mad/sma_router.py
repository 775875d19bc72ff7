"""Implement NVIDIA's attributes of routers: adjacent subnets and floating LIDs. `weft.wire.router`: how sure this is.

The table has an entry for each other port that is Active and has a site-local prefix, in the order of ports; its top is
their number. There are no next-hop tables: their capacity is 0.

The manager of a subnet writes the ranges of floating LIDs, and those that are enabled, to the ports in its subnet. A
port answers with its own, and with those that the managers of adjacent subnets enabled at the other ports.
"""

from __future__ import annotations

import numpy as np

from weft.fabric.subnets import ROUTER_PORTS
from weft.ids import Gid, Lid
from weft.mad.devices import Devices
from weft.mad.router_state import FloatingLids
from weft.wire.mad import Status
from weft.wire.port_info import PortInfo
from weft.wire.router import (
    LIDS_PER_BLOCK,
    SUBNETS_PER_BLOCK,
    AdjacentRouterLids,
    AdjacentSiteLocalSubnetsTable,
    AdjacentSubnet,
    AdjacentSubnetsRouterLidInfo,
    RouterInfo,
)

_DATA, _END = 64, 128
_PREFIX_BITS = 16


def get_router_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    if node not in devices.routers.nodes:
        return Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    lids = devices.routers.floating.get(slot, FloatingLids())
    info = RouterInfo.pack(
        adjacent_subnets_top=len(_adjacent_ports(devices, node, slot)),
        adjacent_subnets_cap=ROUTER_PORTS - 1,
        supported_subnets=ROUTER_PORTS,
        adjacent_router_lid_top=len(_ports_with_lids(devices, node, slot)),
        router_lid_cap=Lid.FIRST_MULTICAST,
        global_router_lid_base=lids.all[0],
        global_router_lid_top=lids.all[1],
        local_router_lid_base=lids.local[0],
        local_router_lid_top=lids.local[1],
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


# -- floating LIDs ----------------------------------------------------------------------------------------------------


def set_router_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    """Set the ranges of floating LIDs: of all subnets, and in it that of this one. Zeros: there are none."""
    if node not in devices.routers.nodes:
        return Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    new = RouterInfo.unpack(bytes(smp[_DATA : _DATA + RouterInfo.size]))
    everywhere = (new.global_router_lid_base, new.global_router_lid_top)
    local = (new.local_router_lid_base, new.local_router_lid_top)
    status = 0
    if _is_range(everywhere) and (
        local == (0, 0) or (_is_range(local) and everywhere[0] <= local[0] <= local[1] <= everywhere[1])
    ):
        devices.routers.set_ranges(slot, everywhere, local)
    else:
        status = Status.INVALID_FIELD
    return status | get_router_info(devices, node, slot, modifier, smp)


def _is_range(lids: tuple[int, int]) -> bool:
    return lids == (0, 0) or 0 < lids[0] <= lids[1] < Lid.FIRST_MULTICAST


def get_adjacent_lids(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    if node not in devices.routers.nodes:
        return Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    if modifier:
        return Status.INVALID_FIELD  # a router has fewer ports than a block has entries
    floating, subnets = devices.routers.floating, []
    for port in _ports_with_lids(devices, node, slot):
        first, last = floating[port].local
        prefix = devices.routers.prefix(port) & (1 << _PREFIX_BITS) - 1
        subnets.append(AdjacentRouterLids(subnet_prefix=prefix, first=first, last=last))
    subnets += [AdjacentRouterLids()] * (SUBNETS_PER_BLOCK - len(subnets))
    smp[_DATA:_END] = AdjacentSubnetsRouterLidInfo.pack(subnet=tuple(subnets))
    return 0


def get_lid_table(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    if node not in devices.routers.nodes:
        return Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    if modifier * LIDS_PER_BLOCK >= Lid.FIRST_MULTICAST:
        return Status.INVALID_FIELD
    enabled = devices.routers.enabled(slot)
    for port in _ports_with_lids(devices, node, slot):
        enabled = enabled | devices.routers.enabled(port)
    block = enabled[modifier * LIDS_PER_BLOCK : (modifier + 1) * LIDS_PER_BLOCK]
    smp[_DATA:_END] = np.packbits(block).tobytes()
    return 0


def set_lid_table(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    """Enable the floating LIDs of this subnet that are in a block; bits of other subnets are not changed."""
    if node in devices.routers.nodes and modifier * LIDS_PER_BLOCK < Lid.FIRST_MULTICAST:
        bits = np.unpackbits(np.frombuffer(bytes(smp[_DATA:_END]), np.uint8)).astype(bool)
        devices.routers.enable(slot, modifier * LIDS_PER_BLOCK, bits)
    return get_lid_table(devices, node, slot, modifier, smp)


def _ports_with_lids(devices: Devices, node: int, slot: int) -> list[int]:
    """Return the other ports that lead to a subnet with floating LIDs."""
    floating = devices.routers.floating
    ports = _adjacent_ports(devices, node, slot)
    return [port for port in ports if port in floating and floating[port].local[0]]
