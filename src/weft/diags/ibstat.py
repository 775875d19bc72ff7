"""ibstat and ibstatus: the adapter of this host, as far as MADs report it; sminfo: the state of a subnet manager."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.diags.query import HERE, Target, get_smp, parse, parse_target
from weft.errors import ConfigError, SubnetError
from weft.mad.carrier import Carrier
from weft.wire.port_info import LANES, LinkSpeed, PortInfo, PortPhysicalState
from weft.wire.smp import NodeInfo, NodeType, SMInfo, SmpAttribute

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


_SYSFS_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")


def ibstatus(carrier: Carrier, arguments: Sequence[str]) -> str:
    """Run ibstatus."""
    parse("ibstatus", arguments)
    _, name, ports = query_own_node(carrier)
    lines = []
    for port in ports:
        info, (gbit_s, lanes, speed) = port.info, port.rate
        gid = f"{info.gid_prefix << 64 | port.guid:032x}"
        lines += [
            f"Infiniband device '{name}' port {port.number} status:",
            f"\tdefault gid:\t {':'.join(gid[at : at + 4] for at in range(0, 32, 4))}",
            f"\tbase lid:\t 0x{info.lid:x}",
            f"\tsm lid:\t\t 0x{info.master_sm_lid:x}",
            f"\tstate:\t\t {info.port_state}: {_SYSFS_STATES[info.port_state]}",
            f"\tphys state:\t {info.port_physical_state}: {port.physical}",
            f"\trate:\t\t {gbit_s} Gb/sec ({lanes}X {speed})",
            "\tlink_layer:\t InfiniBand",
            "",
        ]
    return "\n".join(lines) + "\n"


_SM_STATES = ("SMINFO_NOTACT", "SMINFO_DISCOVER", "SMINFO_STANDBY", "SMINFO_MASTER")


def sminfo(carrier: Carrier, arguments: Sequence[str]) -> str:
    """Run sminfo [-D] [LID|PATH]; without arguments, for the manager of this port."""
    options = parse("sminfo", arguments, "D", positional=("destination",))
    if options.destination:
        target = parse_target(options.destination, options.D)
    else:
        target = Target(PortInfo.master_sm_lid.get(get_smp(carrier, HERE, SmpAttribute.PORT_INFO)))
        if not target.lid:
            raise ConfigError("no subnet manager has configured this port: run one first")
    info = SMInfo.unpack(get_smp(carrier, target, SmpAttribute.SM_INFO))
    state = _SM_STATES[info.sm_state] if info.sm_state < len(_SM_STATES) else "???"
    return (
        f"sminfo: sm lid {target.lid or 0} sm guid 0x{info.guid:x}, activity count {info.act_count} "
        f"priority {info.priority} state {info.sm_state} {state}\n"
    )
