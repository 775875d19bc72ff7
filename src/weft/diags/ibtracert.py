"""ibtracert: the path by the forwarding tables from one LID to another, queried switch by switch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from weft.diags.query import HERE, Target, get_smp, own_lid, parse, parse_target
from weft.errors import SubnetError
from weft.mad.carrier import Carrier
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import HOPS_MAX, LinearForwardingTable, NodeInfo, NodeType, SmpAttribute, SwitchInfo

_TYPES = {NodeType.CA: "ca", NodeType.SWITCH: "switch", NodeType.ROUTER: "router"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A node of the path; `left_by` is its output port, 0 at the end."""

    node: NodeInfo
    name: str
    port: PortInfo
    number: int
    at: Target
    left_by: int = 0

    @property
    def is_switch(self) -> bool:
        return self.node.node_type == NodeType.SWITCH

    def lids(self) -> str:
        return f"{self.port.lid}-{self.port.lid + (1 << self.port.lmc) - 1}"

    def kind(self) -> str:
        return _TYPES.get(NodeType(self.node.node_type), "???")

    def end(self, word: str) -> str:
        number = 0 if self.is_switch else self.number
        return f'{word} {self.kind()} {{0x{self.node.node_guid:016x}}} portnum {number} lid {self.lids()} "{self.name}"'

    def after(self, left_by: int) -> str:
        port = f"{self.kind()} port {{0x{self.node.port_guid:016x}}}[{self.number}]"
        return f'[{left_by}] -> {port} lid {self.lids()} "{self.name}"'


def ibtracert(carrier: Carrier, arguments: Sequence[str]) -> str:
    """Run ibtracert FROM TO, both LIDs."""
    options = parse("ibtracert", arguments, positional=("source", "destination"))
    source, target = (parse_target(text, directed=False) for text in (options.source, options.destination))
    hops = trace(carrier, source, target)
    after = [hop.after(before.left_by) for before, hop in pairwise(hops)]
    return "\n".join((hops[0].end("From"), *after, hops[-1].end("To"), ""))


def trace(carrier: Carrier, source: Target, target: Target) -> list[Hop]:
    """Return the path from one LID to another with both ends; raise SubnetError if it does not get there."""
    assert target.lid is not None
    at = HERE if source.lid == own_lid(carrier) else source
    hop, destination = _look(carrier, at), _look(carrier, target)
    hops: list[Hop] = []
    for _ in range(HOPS_MAX):
        if (hop.node.node_guid, hop.port.lid) == (destination.node.node_guid, destination.port.lid):
            return [*hops, hop]
        if not hop.is_switch and hops:
            raise SubnetError(f"the path to {target} ends at {hop.name}, an adapter")
        out = _next_port(carrier, at, hop, target.lid) if hop.is_switch else hop.number
        hops.append(replace(hop, left_by=out))
        at = at.through(out)
        hop = _look(carrier, at)
    raise SubnetError(f"the path from {source} to {target} is longer than {HOPS_MAX} hops: routing loop")


def _look(carrier: Carrier, target: Target) -> Hop:
    node = NodeInfo.unpack(get_smp(carrier, target, SmpAttribute.NODE_INFO))
    name = get_smp(carrier, target, SmpAttribute.NODE_DESCRIPTION).split(b"\0")[0].decode(errors="replace")
    port = PortInfo.unpack(get_smp(carrier, target, SmpAttribute.PORT_INFO))
    if node.node_type != NodeType.SWITCH and port.port_state != PortState.ACTIVE:
        raise SubnetError(f"port {node.local_port_num} of {name} is not Active")
    return Hop(node=node, name=name, port=port, number=node.local_port_num, at=target)


def _next_port(carrier: Carrier, at: Target, hop: Hop, lid: int) -> int:
    top = SwitchInfo.unpack(get_smp(carrier, at, SmpAttribute.SWITCH_INFO)).linear_fdb_top
    block = get_smp(carrier, at, SmpAttribute.LINEAR_FORWARDING_TABLE, lid // 64)
    port = LinearForwardingTable.unpack(block).port[lid % 64]
    if lid > top or port > hop.node.num_ports:
        raise SubnetError(f"{hop.name} has no route to LID {lid}: its entry is {port}, its table ends at {top}")
    return port
