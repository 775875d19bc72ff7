"""Discover a subnet and return it as objects, for tools that visit one node after the other.

found = discover(carrier)
found.nodes[guid].ports[3].peer            (guid, port) at the other end
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from weft.mad.carrier import RETRIES, TIMEOUT_MS, Carrier
from weft.mad.walk import Walk, walk
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo
from weft.wire.smp import DirectedSmp, NodeInfo, NodeType, SwitchInfo


@dataclass(slots=True)
class FoundPort:
    """A port of a node. `guid` is known of those that a way came in by."""

    number: int
    info: PortInfo = field(default_factory=PortInfo)
    guid: int = 0
    peer: tuple[int, int] | None = None  # GUID of the node at the other end, and its port


@dataclass(slots=True)
class FoundNode:
    """A switch, adapter or router. `path` leads there: the ports by which each hop leaves."""

    info: NodeInfo
    path: bytes
    description: str = ""
    switch_info: SwitchInfo = field(default_factory=SwitchInfo)
    ports: dict[int, FoundPort] = field(default_factory=dict)

    @property
    def guid(self) -> int:
        return self.info.node_guid

    @property
    def is_switch(self) -> bool:
        return self.info.node_type == NodeType.SWITCH

    def lid(self, port: int) -> int:
        """Return the LID of a port; the ports of a switch share that of port 0."""
        at = self.ports.get(0 if self.is_switch else port)
        return at.info.lid if at else 0


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a walk, in its order; `unanswered` are the paths to nodes that should be there and are silent."""

    nodes: dict[int, FoundNode]
    start: FoundNode
    start_port: int
    unanswered: list[bytes]


def directed_get(path: bytes, attribute: int, modifier: int = 0) -> bytes:
    """Return a SubnGet along a directed path."""
    return DirectedSmp.pack(
        method=Method.GET,
        attribute_id=attribute,
        attribute_modifier=modifier,
        hop_count=len(path),
        initial_path=b"\0" + path,
    )


def discover(carrier: Carrier, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES) -> Found:
    """Walk everything that is reachable from the carrier's port; raise SubnetError if its own node does not answer."""
    walked = walk(carrier, timeout_ms=timeout_ms, retries=retries)
    nodes = [_node(walked, row) for row in range(len(walked))]
    owner = np.repeat(np.arange(len(walked)), [node.info.num_ports + 1 for node in nodes])
    for slot in np.flatnonzero(walked.peer >= 0).tolist():
        far = int(walked.peer[slot])
        near_node, far_node = int(owner[slot]), int(owner[far])
        port = nodes[near_node].ports[slot - int(walked.first[near_node])]
        port.peer = nodes[far_node].guid, far - int(walked.first[far_node])
    unanswered = [odd.path for odd in walked.oddities if odd.kind == "silent"]
    return Found({node.guid: node for node in nodes}, nodes[0], walked.start_port, unanswered)


def _node(walked: Walk, row: int) -> FoundNode:
    info = NodeInfo.unpack(walked.node_info[row].tobytes())
    node = FoundNode(
        info=info,
        path=walked.path[row, 1 : int(walked.hops[row]) + 1].tobytes(),
        description=walked.description[row],
        switch_info=SwitchInfo.unpack(walked.switch_info[row].tobytes()),
    )
    first = int(walked.first[row])
    for number in range(0 if node.is_switch else 1, info.num_ports + 1):
        slot = first + number
        port_info = PortInfo.unpack(walked.port_info[slot].tobytes())
        node.ports[number] = FoundPort(number, port_info, int(walked.port_guid[slot]))
    return node
