"""Walk a subnet by directed routes, many MADs in flight, and draw what is there.

    found = discover(carrier)
    found.nodes[guid].ports[3].peer            (guid, port) at the other end

Nothing is assumed: no LIDs, no tables. Every answer leads to the next questions: NodeInfo behind a port; then the
node's description, all its ports, and behind each that is up another NodeInfo. A node that is reached again is known by
its GUID, and tells only which of its ports the way came in by: that is a cable. Only switches pass MADs on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from weft.errors import SubnetError
from weft.mad.carrier import RETRIES, TIMEOUT_MS, Carrier
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo, PortPhysicalState, PortState
from weft.wire.smp import HOPS_MAX, DirectedSmp, NodeInfo, NodeType, SmpAttribute, SwitchInfo

_DATA = 64  # where it begins in an SMP
_PATIENCE_S = 1.0


@dataclass(slots=True)
class FoundPort:
    """A port of a node. `guid` is known of those that a way came in by."""

    number: int
    info: PortInfo = field(default_factory=PortInfo)
    guid: int = 0
    peer: tuple[int, int] | None = None  # GUID of the node at the other end, and its port

    @property
    def is_up(self) -> bool:
        up = self.info.port_physical_state == PortPhysicalState.LINK_UP
        return up and self.info.port_state != PortState.DOWN


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
        """Of a port; switches have theirs at port 0."""
        at = self.ports.get(0 if self.is_switch else port)
        return at.info.lid if at else 0


@dataclass(frozen=True, slots=True)
class Found:
    """What a walk saw, in the order of the walk; `unanswered` are the paths of what should be there but was silent."""

    nodes: dict[int, FoundNode]
    start: FoundNode
    start_port: int
    unanswered: list[bytes]


def directed_get(path: bytes, attribute: int, modifier: int = 0) -> bytes:
    """A SubnGet along a path."""
    return DirectedSmp.pack(
        method=Method.GET,
        attribute_id=attribute,
        attribute_modifier=modifier,
        hop_count=len(path),
        initial_path=b"\0" + path,
    )


def discover(carrier: Carrier, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES) -> Found:
    """All that can be reached from the carrier's port; SubnetError if not even its own node answers."""
    walk = _Walk(carrier, timeout_ms, retries)
    walk.visit(b"", None)
    walk.run()
    if walk.start is None:
        raise SubnetError("the node of this port does not answer NodeInfo: is it up?")
    return Found(walk.nodes, walk.start[0], walk.start[1], walk.unanswered)


class _Walk:
    def __init__(self, carrier: Carrier, timeout_ms: int, retries: int) -> None:
        self.carrier, self.timeout_ms, self.retries = carrier, timeout_ms, retries
        self.nodes: dict[int, FoundNode] = {}
        self.start: tuple[FoundNode, int] | None = None
        self.unanswered: list[bytes] = []
        self._then: dict[int, tuple[bytes, Callable[[bytes], None]]] = {}

    def run(self) -> None:
        while self._then:
            for token, answer in self.carrier.poll(_PATIENCE_S):
                asked = self._then.pop(token, None)
                if asked is None:
                    continue
                path, then = asked
                if answer is None:
                    self.unanswered.append(path)
                elif not DirectedSmp.status.get(answer):
                    then(answer[_DATA : _DATA + 64])

    def ask(self, path: bytes, attribute: int, modifier: int, then: Callable[[bytes], None]) -> None:
        smp = directed_get(path, attribute, modifier)
        self._then[self.carrier.send(smp, timeout_ms=self.timeout_ms, retries=self.retries)] = path, then

    def visit(self, path: bytes, came_from: tuple[FoundNode, int] | None) -> None:
        self.ask(path, SmpAttribute.NODE_INFO, 0, lambda data: self.on_node_info(path, came_from, data))

    def on_node_info(self, path: bytes, came_from: tuple[FoundNode, int] | None, data: bytes) -> None:
        info = NodeInfo.unpack(data)
        node, port = self.nodes.get(info.node_guid), info.local_port_num
        is_new = node is None
        if node is None:
            node = self.nodes[info.node_guid] = FoundNode(info, path)
        node.ports.setdefault(port, FoundPort(port)).guid = info.port_guid
        if came_from is None:
            self.start = node, port
        else:
            before, left_by = came_from
            before.ports[left_by].peer = node.guid, port
            node.ports[port].peer = before.guid, left_by
        if is_new:
            self.look_at(node)

    def look_at(self, node: FoundNode) -> None:
        def on_description(data: bytes) -> None:
            node.description = data.split(b"\0")[0].decode(errors="replace")

        def on_switch_info(data: bytes) -> None:
            node.switch_info = SwitchInfo.unpack(data)

        self.ask(node.path, SmpAttribute.NODE_DESCRIPTION, 0, on_description)
        if node.is_switch:
            self.ask(node.path, SmpAttribute.SWITCH_INFO, 0, on_switch_info)
        for number in range(0 if node.is_switch else 1, node.info.num_ports + 1):
            self.ask(node.path, SmpAttribute.PORT_INFO, number, self.port_reader(node, number))

    def port_reader(self, node: FoundNode, number: int) -> Callable[[bytes], None]:
        def on_port_info(data: bytes) -> None:
            port = node.ports.setdefault(number, FoundPort(number))
            port.info = PortInfo.unpack(data)
            passes_on = node.is_switch or not node.path  # adapters do not, but from our own every port leads out
            if number and port.is_up and port.peer is None and passes_on and len(node.path) + 1 < HOPS_MAX:
                self.visit(node.path + bytes([number]), (node, number))

        return on_port_info
