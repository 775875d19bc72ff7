"""Trace the path between two ports by a fabric's forwarding tables, hop by hop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.forwarding import ANY, Reason
from weft.fabric.joined_subnets import join_subnets
from weft.fabric.kernels.forwarding import arrays, walk_all
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import lid_block


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A cable on the path."""

    port: str  # output port of the packet
    peer: str  # input port at the other end
    vl: int
    rate: str  # 4xNDR


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The path to one LID of the destination."""

    source: str
    destination: str
    dlid: int  # as the packet leaves the source: the LID of the router, if the destination is in another subnet
    sl: int
    hops: tuple[Hop, ...]
    arrived: bool
    end: str  # last port or switch, with the reason if it is not the destination


def trace(fabric: Fabric, source: int, destination: int) -> list[Trace]:
    """Return the paths from a port of an adapter to each LID of another, both given by slot."""
    original, fabric = fabric, join_subnets(fabric)
    tables, ports = fabric.tables, fabric.ports
    lid = int(tables.lid[destination])
    if not lid:
        raise ConfigError(f"{fabric.port(destination).name} has no LID, so no packet can be addressed to it")
    dlids = np.array(lid_block(lid, int(tables.lmc[destination])), np.int64)
    levels = np.zeros(len(dlids), np.int64)
    leaf = int(tables.switch_row[ports.node[ports.peer[source]]])
    if "path_sl" in vars(tables) and leaf >= 0:
        levels = tables.path_sl[leaf, dlids].astype(np.int64)
    nothing = np.zeros(len(dlids), np.int64)
    walks = walk_all(arrays(fabric), np.column_stack((nothing + source, dlids, levels, nothing + ANY, nothing)))
    traces = []
    for row, (dlid, sl) in enumerate(zip(dlids.tolist(), levels.tolist(), strict=True)):
        count, end = int(walks.hops[row]), int(walks.end[row])
        arrived = walks.reason[row] == Reason.ARRIVED and end == destination
        why = "" if arrived else f": {Reason(int(walks.reason[row])).text}"
        place = fabric.node(int(ports.node[end])) if _is_switch(fabric, end) else fabric.port(end)
        traces.append(
            Trace(
                source=fabric.port(source).name,
                destination=fabric.port(destination).name,
                dlid=dlid if original is fabric else _real_lid(original, walks.out[row, :count], destination, row),
                sl=sl,
                hops=tuple(_hop(fabric, *pair) for pair in zip(walks.out[row, :count], walks.vls[row], strict=False)),
                arrived=bool(arrived),
                end=f"{place}{why}",
            )
        )
    return traces


def _real_lid(fabric: Fabric, out: NDArray[np.int32], destination: int, offset: int) -> int:
    """Return the DLID by which a packet of several subnets leaves its source: the destination's, or the router's."""
    entered = fabric.ports.peer[out]
    routers = entered[fabric.nodes.kind[fabric.ports.node[entered]] == NodeKind.ROUTER]
    target = int(routers[0]) if len(routers) else destination
    return int(fabric.tables.lid[target]) + offset % (1 << int(fabric.tables.lmc[target]))


def _is_switch(fabric: Fabric, slot: int) -> bool:
    return bool(fabric.nodes.kind[fabric.ports.node[slot]] == NodeKind.SWITCH)


def _hop(fabric: Fabric, slot: np.int32, vl: np.int8) -> Hop:
    port = fabric.port(int(slot))
    return Hop(port=port.name, peer=str(port.peer), vl=int(vl), rate=port.link.label if port.link else "")
