"""ibtracert: the way that forwarding tables lead from one LID to another, asked switch by switch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from weft.diags.ask import HERE, Target, get_smp, own_lid, parse, parse_target
from weft.errors import SubnetError
from weft.mad.carrier import Carrier
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import HOPS_MAX, LinearForwardingTable, NodeInfo, NodeType, SmpAttribute, SwitchInfo

_TYPES = {NodeType.CA: "ca", NodeType.SWITCH: "switch", NodeType.ROUTER: "router"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A node where the way comes in, or begins, or ends; `left_by` the port that it goes on by, 0 at its end."""

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
    """ibtracert FROM TO, both LIDs."""
    given = parse("ibtracert", arguments, positional=("source", "destination"))
    source, target = (parse_target(text, directed=False) for text in (given.source, given.destination))
    hops = trace(carrier, source, target)
    after = [hop.after(before.left_by) for before, hop in pairwise(hops)]
    return "\n".join((hops[0].end("From"), *after, hops[-1].end("To"), ""))


def trace(carrier: Carrier, source: Target, target: Target) -> list[Hop]:
    """The way from one LID to another, both ends in it; SubnetError where it does not get there."""
    assert target.lid is not None
    at = HERE if source.lid == own_lid(carrier) else source
    hop, wanted = _look(carrier, at), _look(carrier, target)
    hops: list[Hop] = []
    for _ in range(HOPS_MAX):
        if (hop.node.node_guid, hop.port.lid) == (wanted.node.node_guid, wanted.port.lid):
            return [*hops, hop]
        if not hop.is_switch and hops:
            raise SubnetError(f"the way to {target} ends at {hop.name}: an adapter passes nothing on")
        out = _next_port(carrier, at, hop, target.lid) if hop.is_switch else hop.number
        hops.append(replace(hop, left_by=out))
        at = at.through(out)
        hop = _look(carrier, at)
    raise SubnetError(
        f"there is no end to the way from {source} to {target} within {HOPS_MAX} hops: the tables go round"
    )


def _look(carrier: Carrier, target: Target) -> Hop:
    node = NodeInfo.unpack(get_smp(carrier, target, SmpAttribute.NODE_INFO))
    name = get_smp(carrier, target, SmpAttribute.NODE_DESCRIPTION).split(b"\0")[0].decode(errors="replace")
    port = PortInfo.unpack(get_smp(carrier, target, SmpAttribute.PORT_INFO))
    if node.node_type != NodeType.SWITCH and port.port_state != PortState.ACTIVE:
        raise SubnetError(f"port {node.local_port_num} of {name} is not Active: no way leads there")
    return Hop(node=node, name=name, port=port, number=node.local_port_num, at=target)


def _next_port(carrier: Carrier, at: Target, hop: Hop, lid: int) -> int:
    top = SwitchInfo.unpack(get_smp(carrier, at, SmpAttribute.SWITCH_INFO)).linear_fdb_top
    block = get_smp(carrier, at, SmpAttribute.LINEAR_FORWARDING_TABLE, lid // 64)
    port = LinearForwardingTable.unpack(block).port[lid % 64]
    if lid > top or port > hop.node.num_ports:
        raise SubnetError(f"{hop.name} has no way to LID {lid}: its entry is {port}, its table ends at {top}")
    return port
