"""ibnetdiscover: all nodes and cables, in the form that weft, ibsim and OpenSM's tools read; ibtracert: a path."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from weft.diags.query import HERE, Target, get_smp, own_lid, parse, parse_target
from weft.errors import SubnetError
from weft.mad.carrier import Carrier
from weft.mad.discover import Found, FoundNode, FoundPort, discover
from weft.wire.port_info import LANES, Capability, Capability2, LinkSpeed, MlnxExtendedPortInfo, PortInfo, PortState
from weft.wire.smp import HOPS_MAX, LinearForwardingTable, NodeInfo, NodeType, SmpAttribute, SwitchInfo

_LETTERS = {NodeType.CA: "H", NodeType.SWITCH: "S", NodeType.ROUTER: "R"}
_MELLANOX = 0x2C9
_WORDS = {NodeType.CA: ("Ca", "caguid"), NodeType.ROUTER: ("Rt", "rtguid")}


def ibnetdiscover(carrier: Carrier, arguments: Sequence[str]) -> str:
    """Run ibnetdiscover."""
    parse("ibnetdiscover", arguments)
    fabric = discover(carrier)
    return to_text(fabric, _at_fdr10(carrier, fabric))


def _at_fdr10(carrier: Carrier, fabric: Found) -> set[tuple[int, int]]:
    """Return GUID and number of ports at FDR10: PortInfo shows QDR, a vendor attribute of Mellanox the speed."""
    ports = set()
    for node in fabric.nodes.values():
        for number, port in node.ports.items():
            if node.info.vendor_id == _MELLANOX and port.peer and _speed(node, port) is LinkSpeed.QDR:
                with contextlib.suppress(SubnetError):  # older devices do not support the attribute
                    raw = get_smp(carrier, Target(None, node.path), SmpAttribute.MLNX_EXTENDED_PORT_INFO, number)
                    ports |= {(node.guid, number)} if MlnxExtendedPortInfo.unpack(raw).link_speed_active else set()
    return ports


def to_text(fabric: Found, at_fdr10: Collection[tuple[int, int]] = ()) -> str:
    """Format switches first, then adapters, each in the order of discovery."""
    start = fabric.start.ports[fabric.start_port]
    head = [
        "#",
        f"# Topology file: generated on {time.strftime('%a %b %e %H:%M:%S %Y')}",
        "#",
        f"# Initiated from node {fabric.start.guid:016x} port {start.guid:016x}",
    ]
    nodes = sorted(fabric.nodes.values(), key=lambda node: not node.is_switch)  # stable
    return "\n".join((*head, *(line for node in nodes for line in _block(fabric, node, at_fdr10)), ""))


def _block(fabric: Found, node: FoundNode, at_fdr10: Collection[tuple[int, int]]) -> Iterator[str]:
    info = node.info
    yield ""
    yield f"vendid=0x{info.vendor_id:x}"
    yield f"devid=0x{info.device_id:x}"
    if info.system_image_guid:
        yield f"sysimgguid=0x{info.system_image_guid:x}"
    if node.is_switch:
        kind, own = "enhanced" if node.switch_info.enhanced_port_0 else "base", node.ports.get(0, FoundPort(0))
        yield f"switchguid=0x{node.guid:x}({info.port_guid:x})"
        yield (
            f"Switch\t{info.num_ports} {_name(node)}\t\t"
            f'# "{node.description}" {kind} port 0 lid {own.info.lid} lmc {own.info.lmc}'
        )
    else:
        word, guid = _WORDS.get(NodeType(info.node_type), ("???", "???guid"))
        yield f"{guid}=0x{node.guid:x}"
        yield f'{word}\t{info.num_ports} {_name(node)}\t\t# "{node.description}"'
    for number in range(1, info.num_ports + 1):
        port = node.ports.get(number)
        if port is not None and port.peer is not None:
            speed = LinkSpeed.FDR10 if (node.guid, number) in at_fdr10 else _speed(node, port)
            lanes = LANES.get(port.info.link_width_active)
            yield f"{_port(fabric, node, port)} {f'{lanes}x' if lanes else '??'}{speed.name or '???'}"


def _port(fabric: Found, node: FoundNode, port: FoundPort) -> str:
    assert port.peer is not None
    other = fabric.nodes[port.peer[0]]
    far = other.ports[port.peer[1]]
    lid = other.lid(far.number)
    if node.is_switch:
        guid = "" if other.is_switch else f"({far.guid:x}) "
        peer = f"[{port.number}]\t{_name(other)}[{far.number}]{guid}"
        return f'{peer}\t\t# "{other.description}" lid {lid}'
    guid = "" if other.is_switch else f" ({far.guid:x}) "
    return (
        f"[{port.number}]({port.guid:x}) \t{_name(other)}[{far.number}]{guid}\t\t"
        f'# lid {port.info.lid} lmc {port.info.lmc} "{other.description}" lid {lid}'
    )


def _name(node: FoundNode) -> str:
    return f'"{_LETTERS.get(NodeType(node.info.node_type), "?")}-{node.guid:016x}"'


def _speed(node: FoundNode, port: FoundPort) -> LinkSpeed:
    """Return the active speed. The CapabilityMasks, at port 0 of a switch, say whether extended speeds are valid."""
    able: PortInfo = node.ports[0].info if node.is_switch and 0 in node.ports else port.info
    fastest = LinkSpeed.QDR
    if able.capability_mask & Capability.IS_EXTENDED_SPEEDS_SUPPORTED:
        second = able.capability_mask2 & Capability2.IS_EXTENDED_SPEEDS_2_SUPPORTED
        fastest = LinkSpeed.XDR if second else LinkSpeed.NDR
    return LinkSpeed.active(port.info.raw, among=fastest.up_to)


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
