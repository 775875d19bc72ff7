"""The switches of a fabric as a graph that kernels walk: directed edges, switch by switch, in the order of ports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwitchGraph:
    """The switches as a directed graph.

    Edge e leaves its switch by `port[e]` to `far[e]`; `back[e]` is the reverse edge.
    """

    switches: NDArray[np.int32]  # [switch] -> node
    first: NDArray[np.int32]  # [switch + 1] -> first edge
    near: NDArray[np.int32]  # [edge] -> switch that it leaves
    far: NDArray[np.int32]  # [edge] -> switch that it enters
    port: NDArray[np.int32]  # [edge] -> port number that it leaves by
    back: NDArray[np.int32]  # [edge] -> the edge of the same link in the other direction
    # Ports with a LID, grouped by their switch.
    lid: NDArray[np.int32]  # [destination]
    at: NDArray[np.int32]  # [destination] -> switch
    out: NDArray[np.int32]  # [destination] -> port of that switch, 0 for the switch itself
    is_host: NDArray[np.bool_]  # [destination] -> an HCA, whose traffic is balanced

    @property
    def n_switches(self) -> int:
        return len(self.switches)

    @property
    def hosts(self) -> NDArray[np.int64]:
        """The number of host LIDs on each switch: the traffic that starts there."""
        return np.bincount(self.at[self.is_host], minlength=self.n_switches)


def switch_graph(fabric: Fabric, lid: NDArray[np.integer[Any]], lmc: NDArray[np.uint8]) -> SwitchGraph:
    """Return the graph of a fabric's network links, with LIDs by port slot."""
    switches = fabric.of_kind(NodeKind.SWITCH)
    row = np.full(len(fabric.nodes), -1, np.int32)
    row[switches] = np.arange(len(switches), dtype=np.int32)
    ports = fabric.ports
    plugged = np.flatnonzero(ports.peer >= 0)
    plugged = plugged[fabric.network_links[ports.link[plugged]]]
    near, far = row[ports.node[plugged]], row[ports.node[ports.peer[plugged]]]
    between = (near >= 0) & (far >= 0) & (near != far)
    slots = plugged[between]  # sorted by node and port
    edge_of_slot = np.full(len(ports), -1, np.int32)
    edge_of_slot[slots] = np.arange(len(slots), dtype=np.int32)
    to_end = plugged[(near >= 0) & (far < 0)]
    return SwitchGraph(
        switches=switches,
        first=np.searchsorted(near[between], np.arange(len(switches) + 1)).astype(np.int32),
        near=near[between],
        far=far[between],
        port=ports.number[slots].astype(np.int32),
        back=edge_of_slot[ports.peer[slots]],
        **_destinations(fabric, row, to_end, lid, lmc),
    )


def _destinations(
    fabric: Fabric,
    row: NDArray[np.int32],
    to_end: NDArray[np.intp],
    lid: NDArray[np.integer[Any]],
    lmc: NDArray[np.uint8],
) -> dict[str, Any]:
    ports = fabric.ports
    own = fabric.first_port[fabric.of_kind(NodeKind.SWITCH)]
    ends = ports.peer[to_end]
    slots = np.concatenate((own, ends))
    at = np.concatenate((row[ports.node[own]], row[ports.node[to_end]]))
    out = np.concatenate((np.zeros(len(own), np.int32), ports.number[to_end].astype(np.int32)))
    is_host = np.isin(fabric.nodes.kind[ports.node[slots]], (NodeKind.HCA, NodeKind.ROUTER))
    slots, at, out, is_host = (column[lid[slots] > 0] for column in (slots, at, out, is_host))
    blocks = 1 << lmc[slots].astype(np.int64)
    offset = np.arange(int(blocks.sum())) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    all_lids = np.repeat(lid[slots], blocks) + offset
    at, out, is_host = (np.repeat(column, blocks) for column in (at, out, is_host))
    order = np.lexsort((offset, out, at))
    return {
        "lid": all_lids[order].astype(np.int32),
        "at": at[order].astype(np.int32),
        "out": out[order].astype(np.int32),
        "is_host": is_host[order],
    }
