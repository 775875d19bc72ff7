"""ibstat: the adapter of this host, as far as MADs report it; names and firmware are the driver's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.diags.query import HERE, Target, get_smp, parse
from weft.errors import SubnetError
from weft.mad.carrier import Carrier
from weft.wire.port_info import LANES, LinkSpeed, PortInfo, PortPhysicalState
from weft.wire.smp import NodeInfo, NodeType, SmpAttribute

_STATES = ("???", "Down", "Initializing", "Armed", "Active")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPort:
    """A port of our own node."""

    number: int
    info: PortInfo
    guid: int

    @property
    def rate(self) -> tuple[int, int, str]:
        """The rate in Gbit/s, the lanes, and the name of the speed."""
        speed, lanes = LinkSpeed.active(self.info.raw), LANES.get(self.info.link_width_active, 1)
        return speed.lane_tenths * lanes // 10, lanes, speed.name or "SDR"

    @property
    def physical(self) -> str:
        state = self.info.port_physical_state
        return PortPhysicalState(state).word if state else "No state change"


def query_own_node(carrier: Carrier) -> tuple[NodeInfo, str, list[LocalPort]]:
    """Return our node, the name of the adapter, and its ports."""
    node = NodeInfo.unpack(get_smp(carrier, HERE, SmpAttribute.NODE_INFO))
    words = get_smp(carrier, HERE, SmpAttribute.NODE_DESCRIPTION).split(b"\0")[0].decode(errors="replace").split()
    name = words[-1] if len(words) > 1 else "mlx5_0"  # `h1 mlx5_0`, as drivers describe their nodes
    numbers = [0] if node.node_type == NodeType.SWITCH else range(1, node.num_ports + 1)
    ports = []
    for number in numbers:
        info = PortInfo.unpack(get_smp(carrier, HERE, SmpAttribute.PORT_INFO, number))
        is_own_port = number in (0, node.local_port_num)
        ports.append(
            LocalPort(number=number, info=info, guid=node.port_guid if is_own_port else _guid(carrier, number))
        )
    return node, name, ports


def _guid(carrier: Carrier, number: int) -> int:
    """Return the GUID of another port: a node reports that of the receiving port, so leave by it and come back."""
    try:
        out = Target(None, bytes([number]))
        far = NodeInfo.unpack(get_smp(carrier, out, SmpAttribute.NODE_INFO))
        back = out.through(far.local_port_num)
        return NodeInfo.unpack(get_smp(carrier, back, SmpAttribute.NODE_INFO)).port_guid
    except SubnetError:  # not cabled
        return 0


def ibstat(carrier: Carrier, arguments: Sequence[str]) -> str:
    """Run ibstat [-l | -s | -p]: all, names of adapters, short, GUIDs of ports."""
    options = parse("ibstat", arguments, "l", "s", "p")
    node, name, ports = query_own_node(carrier)
    if options.l:
        return f"{name}\n"
    if options.p:
        return "".join(f"0x{port.guid:016x}\n" for port in ports)
    lines = [
        f"CA '{name}'",
        f"\tCA type: MT{node.device_id}",
        f"\tNumber of ports: {0 if node.node_type == NodeType.SWITCH else node.num_ports}",
        f"\tHardware version: {node.revision:x}",
        f"\tNode GUID: 0x{node.node_guid:016x}",
        f"\tSystem image GUID: 0x{node.system_image_guid:016x}",
    ]
    for port in () if options.s else ports:
        info, (gbit_s, _, _) = port.info, port.rate
        lines += [
            f"\tPort {port.number}:",
            f"\t\tState: {_STATES[info.port_state] if info.port_state < len(_STATES) else '???'}",
            f"\t\tPhysical state: {port.physical}",
            f"\t\tRate: {gbit_s}",
            f"\t\tBase lid: {info.lid}",
            f"\t\tLMC: {info.lmc}",
            f"\t\tSM lid: {info.master_sm_lid}",
            f"\t\tCapability mask: 0x{info.capability_mask:08x}",
            f"\t\tPort GUID: 0x{port.guid:016x}",
            "\t\tLink layer: InfiniBand",
        ]
    return "\n".join(lines) + "\n"
