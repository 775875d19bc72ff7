"""ibnetdiscover: all nodes and cables, in the form that weft, ibsim and OpenSM's tools read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from weft.diags.ask import parse
from weft.mad.carrier import Carrier
from weft.mad.discover import Found, FoundNode, FoundPort, discover
from weft.wire.port_info import Capability, PortInfo
from weft.wire.smp import NodeType

_LETTERS = {NodeType.CA: "H", NodeType.SWITCH: "S", NodeType.ROUTER: "R"}
_WORDS = {NodeType.CA: ("Ca", "caguid"), NodeType.ROUTER: ("Rt", "rtguid")}
_WIDTHS = {1: "1x", 2: "4x", 4: "8x", 8: "12x", 16: "2x"}
_SPEEDS = {1: "SDR", 2: "DDR", 4: "QDR"}
_SPEEDS_EXT = {1: "FDR", 2: "EDR", 4: "HDR", 8: "NDR"}


def ibnetdiscover(carrier: Carrier, arguments: Sequence[str]) -> str:
    """ibnetdiscover"""
    parse("ibnetdiscover", arguments)
    return to_text(discover(carrier))


def to_text(found: Found) -> str:
    """Switches first, then adapters, each in the order in which they were found."""
    start = found.start.ports[found.start_port]
    head = [
        "#",
        f"# Topology file: generated on {time.strftime('%a %b %e %H:%M:%S %Y')}",
        "#",
        f"# Initiated from node {found.start.guid:016x} port {start.guid:016x}",
    ]
    nodes = sorted(found.nodes.values(), key=lambda node: not node.is_switch)  # stable
    return "\n".join((*head, *(line for node in nodes for line in _block(found, node)), ""))


def _block(found: Found, node: FoundNode) -> Iterator[str]:
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
            yield _port(found, node, port)


def _port(found: Found, node: FoundNode, port: FoundPort) -> str:
    assert port.peer is not None
    other = found.nodes[port.peer[0]]
    far = other.ports[port.peer[1]]
    lid = other.lid(far.number)
    if node.is_switch:
        guid = "" if other.is_switch else f"({far.guid:x}) "
        there = f"[{port.number}]\t{_name(other)}[{far.number}]{guid}"
        return f'{there}\t\t# "{other.description}" lid {lid} {_rate(node, port)}'
    guid = "" if other.is_switch else f" ({far.guid:x}) "
    return (
        f"[{port.number}]({port.guid:x}) \t{_name(other)}[{far.number}]{guid}\t\t"
        f'# lid {port.info.lid} lmc {port.info.lmc} "{other.description}" lid {lid} {_rate(node, port)}'
    )


def _name(node: FoundNode) -> str:
    return f'"{_LETTERS.get(NodeType(node.info.node_type), "?")}-{node.guid:016x}"'


def _rate(node: FoundNode, port: FoundPort) -> str:
    """`4xNDR`. Whether the extended speed counts is in the CapabilityMask, which a switch has at port 0."""
    able: PortInfo = node.ports[0].info if node.is_switch and 0 in node.ports else port.info
    ext = port.info.link_speed_ext_active if able.capability_mask & Capability.IS_EXTENDED_SPEEDS_SUPPORTED else 0
    speed = _SPEEDS_EXT.get(ext) if ext else _SPEEDS.get(port.info.link_speed_active)
    return f"{_WIDTHS.get(port.info.link_width_active, '??')}{speed or '???'}"
