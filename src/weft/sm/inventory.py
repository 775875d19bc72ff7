"""Return the subnet as columns for programs: nodes, ports, and cables between ports."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.fabric import catalog
from weft.sm.discovery.view import View
from weft.wire.bulk import column
from weft.wire.port_info import LANES, LinkSpeed, Mtu, PortInfo, PortPhysicalState, PortState, join_speeds
from weft.wire.smp import NodeInfo

_DATA_VLS = (0, 1, 2, 4, 8, 15)  # by the code of VLCap
_STATES = {int(state): state.name.title().replace("_", "") for state in PortState}
_PHYSICAL = {int(state): state.word for state in PortPhysicalState}


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    name: list[str]  # as weft calls it: h1
    guid: list[int]
    system_guid: list[int]
    kind: list[str]  # switch, HCA, aggregation node, router
    description: list[str]
    vendor_id: list[int]
    device_id: list[int]
    model: list[str]  # name in the catalog; empty: unknown
    partition_cap: list[int]  # P_Keys that an end port of it holds


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The ports: of switches from 0, of others from 1. Unknown names are empty, unknown numbers 0."""

    node: list[int]  # index
    number: list[int]
    guid: list[int]
    lid: list[int]  # first one; 0: none
    state: list[str]  # Down, Initialize, Armed, Active
    physical_state: list[str]  # LinkUp, Polling, Disabled
    mtu_bytes: list[int]  # in use
    mtu_cap_bytes: list[int]
    active_width: list[str]  # 4x
    enabled_width: list[list[str]]
    supported_width: list[list[str]]
    active_speed: list[str]  # NDR
    enabled_speed: list[list[str]]
    supported_speed: list[list[str]]
    peer: list[int]  # index of a port, -1: no cable
    data_vls: list[int]


class Subnet(msgspec.Struct, frozen=True, kw_only=True):
    """The subnet of the last sweep. An equal revision means that nothing of it has changed."""

    revision: str
    nodes: Nodes
    ports: Ports
    routing_sls: int = 1  # service levels of paths: more than one if the routing engine needs them against deadlock


def take_inventory(view: View) -> Subnet:
    nodes, ports, tables = _nodes(view), _ports(view), view.fabric.tables
    routing_sls = int(tables.path_sl.max(initial=0)) + 1 if "path_sl" in vars(tables) else 1
    digest = hashlib.blake2b(msgspec.json.encode((nodes, ports, routing_sls)), digest_size=12).hexdigest()
    return Subnet(revision=digest, nodes=nodes, ports=ports, routing_sls=routing_sls)


def _nodes(view: View) -> Nodes:
    nodes = view.fabric.nodes
    pairs = list(zip(nodes.vendor_id.tolist(), nodes.device_id.tolist(), strict=True))
    model = {pair: catalog.by_device_id(*pair) for pair in set(pairs)}
    return Nodes(
        name=list(nodes.name),
        guid=nodes.guid.tolist(),
        system_guid=nodes.system_guid.tolist(),
        kind=[view.fabric.node(node).kind.label for node in range(len(nodes))],
        description=list(nodes.description),
        vendor_id=nodes.vendor_id.tolist(),
        device_id=nodes.device_id.tolist(),
        model=["" if (device := model[pair]) is None else device.name for pair in pairs],
        partition_cap=column(view.node_info, NodeInfo.partition_cap).tolist(),
    )


def _ports(view: View) -> Ports:
    ports = view.fabric.ports
    slots = np.flatnonzero(view.is_switch[ports.node] | (ports.number > 0))
    place = np.full(len(ports) + 1, -1)  # the last serves what has no peer
    place[slots] = np.arange(len(slots))
    infos = view.port_info[slots]

    def said(field: str, named: Callable[[int], Any]) -> list[Any]:
        return _each(column(infos, getattr(PortInfo, field)).astype(np.int64), named)

    def speeds(field: str, named: Callable[[int], Any]) -> list[Any]:
        names = f"link_speed_{field}", f"link_speed_ext_{field}", f"link_speed_ext_{field}_2"
        slow, ext, ext2 = (column(infos, getattr(PortInfo, name)).astype(np.int64) for name in names)
        return _each(join_speeds(slow, ext, ext2), named)

    return Ports(
        node=ports.node[slots].tolist(),
        number=ports.number[slots].tolist(),
        guid=ports.guid[slots].tolist(),
        lid=view.fabric.tables.lid[slots].tolist(),
        state=said("port_state", lambda code: _STATES.get(code, "")),
        physical_state=said("port_physical_state", lambda code: _PHYSICAL.get(code, "")),
        mtu_bytes=said("neighbor_mtu", _bytes),
        mtu_cap_bytes=said("mtu_cap", _bytes),
        active_width=said("link_width_active", lambda code: "".join(_widths(code)[:1])),
        enabled_width=said("link_width_enabled", _widths),
        supported_width=said("link_width_supported", _widths),
        active_speed=speeds("active", lambda code: "".join(_speeds(code)[-1:])),
        enabled_speed=speeds("enabled", _speeds),
        supported_speed=speeds("supported", _speeds),
        peer=place[ports.peer[slots]].tolist(),
        data_vls=said("vl_cap", lambda code: _DATA_VLS[code] if code < len(_DATA_VLS) else 0),
    )


def _each(codes: NDArray[np.int64], named: Callable[[int], Any]) -> list[Any]:
    """Map codes to names, calling `named` once for each code: ports are many, codes few."""
    names = {code: named(code) for code in np.unique(codes).tolist()}
    return [names[code] for code in codes.tolist()]


def _bytes(code: int) -> int:
    return Mtu(code).size_bytes if code in list(Mtu) else 0


def _widths(code: int) -> list[str]:
    return [f"{lanes}x" for width, lanes in LANES.items() if code & width and code <= sum(LANES)]


def _speeds(code: int) -> list[str]:
    return [speed.name for speed in LinkSpeed if code & speed and speed.name]
