"""Print devices as ibv_devices and ibv_devinfo of rdma-core do."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Sequence
from typing import Any

from weft.errors import ConfigError
from weft.verbs import enums as e
from weft.verbs.attributes.address import NO_GID
from weft.verbs.attributes.device import DeviceAttr, DeviceAttrEx, PortAttr
from weft.verbs.attributes.device_text import guid_format
from weft.verbs.attributes.text import mtu_to_str
from weft.verbs.enums import ibv_device_cap_flags, ibv_odp_general_caps, ibv_odp_transport_cap_bits
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.perftest.arguments import Arguments, find_device
from weft.verbs.pyverbs.device import Context, Device, get_device_list
from weft.wire.port_info import LANES, LinkSpeed, PortPhysicalState

_TRANSPORTS = {0: "InfiniBand", 1: "iWARP", 2: "usNIC", 3: "usNIC UDP"}
_STATES = {1: "PORT_DOWN", 2: "PORT_INIT", 3: "PORT_ARMED", 4: "PORT_ACTIVE"}
_PHYSICAL = {int(state): state.name for state in PortPhysicalState if state}
_PHYSICAL |= {4: "PORT_CONFIGURATION TRAINNING", 7: "PHY TEST"}  # rdma-core's spelling
_ATOMICS = {0: "ATOMIC_NONE", 1: "ATOMIC_HCA", 2: "ATOMIC_GLOB"}
_LANES = {1: "1", 2: "2", 3: "4", 4: "8", 5: "15"}
_DEEP = "\t" * 5


def devices() -> str:
    """Return the output of ibv_devices."""
    rows = [f"    {device.name.decode():<16}\t{device.guid:016x}" for device in get_device_list()]
    return "\n".join([f"    {'device':<16}\t   node GUID", f"    {'------':<16}\t----------------", *rows])


def main(words: Sequence[str]) -> str:
    """Return the output of ibv_devinfo."""
    arguments = _arguments().parse_args(list(words))
    devices_present = get_device_list()
    if arguments.list:
        names = [f"\t{device.name.decode()}" for device in devices_present]
        return "\n".join([f"{len(devices_present)} HCA{'s' * (len(devices_present) != 1)} found:", *names, ""])
    name = find_device(arguments.device)
    devices_present = [device for device in devices_present if device.name.decode() == name or not arguments.device]
    return "\n".join(
        line for device in devices_present for line in _device(device, arguments.ib_port, arguments.verbose)
    )


def _arguments() -> Arguments:
    parser = Arguments("ibv_devinfo", "List RDMA devices and their capabilities.")
    parser.add_device(port=0)
    parser.add_argument("-l", "--list", action="store_true", help="only names")
    parser.add_argument("-v", "--verbose", action="store_true", help="all attributes")
    return parser


def _device(device: Device, port: int, verbose: bool) -> list[str]:
    with Context(name=device.name.decode()) as ctx:
        more = ctx.query_device_ex()
        attr = ctx.query_device()
        if port > attr.phys_port_cnt:
            raise ConfigError(f"{ctx.name} has no port {port}: it has {attr.phys_port_cnt}")
        lines = [
            f"hca_id:\t{ctx.name}",
            _row(
                "transport", f"{_TRANSPORTS.get(device.transport_type, 'invalid transport')} ({device.transport_type})"
            ),
            *([_row("fw_ver", attr.fw_version)] if attr.fw_version else []),
            _row("node_guid", guid_format(attr.node_guid)),
            _row("sys_image_guid", guid_format(attr.sys_image_guid)),
            _row("vendor_id", f"{attr.vendor_id:#06x}"),
            _row("vendor_part_id", attr.vendor_part_id),
            _row("hw_ver", f"0x{attr.hw_ver:X}"),
            _row("phys_port_cnt", attr.phys_port_cnt),
        ]
        if verbose:
            lines += [*_limits(attr), *_extended(more)]
        for number in [port] if port else range(1, attr.phys_port_cnt + 1):
            lines += _port(ctx, device, number, verbose)
        return lines


def _row(name: str, value: Any, *, column: int = 40, indent: str = "\t") -> str:
    """Format a row whose value starts at a column, after tabs."""
    at = 8 * len(indent) + len(name) + 1
    tabs = "\t" * max(1, -(-(column - at) // 8))
    return f"{indent}{name}:{tabs}{value}"


def _limits(attr: DeviceAttr) -> list[str]:
    names = [
        *("max_sge", "max_sge_rd", "max_cq", "max_cqe", "max_mr", "max_pd", "max_qp_rd_atom", "max_ee_rd_atom"),
        *("max_res_rd_atom", "max_qp_init_rd_atom", "max_ee_init_rd_atom"),
    ]
    rest = [
        *("max_ee", "max_rdd", "max_mw", "max_raw_ipv6_qp", "max_raw_ethy_qp", "max_mcast_grp"),
        *("max_mcast_qp_attach", "max_total_mcast_qp_attach", "max_ah", "max_fmr", "max_srq"),
        *(("max_srq_wr", "max_srq_sge") if attr.max_srq else ()),
        *("max_pkeys", "local_ca_ack_delay"),
    ]
    values = vars(attr) | {  # pyverbs has another name for the first, and lacks the second
        "max_raw_ipv6_qp": attr.max_raw_ipv6_qps,
        "max_total_mcast_qp_attach": attr.max_mcast_grp * attr.max_mcast_qp_attach,
    }
    return [
        _row("max_mr_size", f"{attr.max_mr_size:#x}"),
        _row("page_size_cap", f"{attr.page_size_cap:#x}"),
        _row("max_qp", attr.max_qp),
        _row("max_qp_wr", attr.max_qp_wr),
        _row("device_cap_flags", f"{attr.device_cap_flags:#010x}"),
        *_flags(attr.device_cap_flags, ibv_device_cap_flags, "IBV_DEVICE_"),
        *(_row(name, values[name]) for name in names),
        _row("atomic_cap", f"{_ATOMICS.get(attr.atomic_caps, 'invalid atomic capability')} ({int(attr.atomic_caps)})"),
        *(_row(name, values[name]) for name in rest),
    ]


def _flags(value: int, kind: Any, prefix: str) -> list[str]:
    """Return the names of the bits that are set, without their common prefix."""
    known = [flag for flag in kind if flag and value & flag]
    lines = [f"{_DEEP}{flag.name.lstrip('_').removeprefix(prefix)}" for flag in known]
    unknown = value & ~sum(int(flag) for flag in known)
    return [*lines, f"{_DEEP}Unknown flags: 0x{unknown:X}"] if unknown else lines


def _extended(more: DeviceAttrEx) -> list[str]:
    odp = more.odp_caps
    lines = ["\tgeneral_odp_caps:", *_flags(odp.general_caps, ibv_odp_general_caps, "IBV_")]
    for name in ("rc", "uc", "ud", "xrc"):
        caps = getattr(odp, f"{name}_odp_caps")
        shown = _flags(caps, ibv_odp_transport_cap_bits, "IBV_ODP_") if caps else [f"{_DEEP}NO SUPPORT"]
        lines += [f"\t{name}_odp_caps:", *(line.replace("SUPPORT_SRQ_RECV", "SUPPORT_SRQ") for line in shown)]
    rss, pacing = more.rss_caps, more.packet_pacing_caps
    lines += [
        f"\tcompletion timestamp_mask:\t\t\t{more.completion_timestamp_mask:#018x}",
        _row("hca_core_clock", f"{more.hca_core_clock}kHZ") if more.hca_core_clock else "\tcore clock not supported",
        _row("device_cap_flags_ex", f"0x{more.device_cap_flags_ex:X}"),
        "\ttso_caps:",
        _row("max_tso", more.tso_caps.max_tso),
        "\trss_caps:",
        f"\t\tmax_rwq_indirection_tables:\t\t\t{rss.max_rwq_indirection_tables}",
        f"\t\tmax_rwq_indirection_table_size:\t\t\t{rss.max_rwq_indirection_table_size}",
        f"\t\trx_hash_function:\t\t\t\t0x{rss.rx_hash_function:x}",
        f"\t\trx_hash_fields_mask:\t\t\t\t0x{rss.rx_hash_fields_mask:X}",
        _row("max_wq_type_rq", more.max_wq_type_rq),
        "\tpacket_pacing_caps:",
        f"\t\tqp_rate_limit_min:\t{pacing.qp_rate_limit_min}kbps",
        f"\t\tqp_rate_limit_max:\t{pacing.qp_rate_limit_max}kbps",
        "\ttag matching not supported",
    ]
    if more.max_dm_size:
        lines += [f"\tmaximum available device memory:\t{more.max_dm_size}Bytes", ""]
    return lines


# -- ports ------------------------------------------------------------------------------------------------------------


def _port(ctx: Context, device: Device, number: int, verbose: bool) -> list[str]:
    attr = ctx.query_port(number)
    layer = {1: "InfiniBand", 0: "InfiniBand", 2: "Ethernet"}.get(attr.link_layer, "Unknown")
    lines = [
        f"\t\tport:\t{number}",
        _of_port("state", f"{_STATES.get(attr.state, 'invalid state')} ({int(attr.state)})"),
        _of_port("max_mtu", f"{mtu_to_str(attr.max_mtu)} ({int(attr.max_mtu)})"),
        _of_port("active_mtu", f"{mtu_to_str(attr.active_mtu)} ({int(attr.active_mtu)})"),
        _of_port("sm_lid", attr.sm_lid),
        _of_port("port_lid", attr.lid),
        _of_port("port_lmc", f"{attr.lmc:#04x}"),
        _of_port("link_layer", layer),
    ]
    if verbose:
        lines += [*_port_details(ctx, number, attr, device), *_gids(ctx, number, attr)]
    return [*lines, ""]


def _of_port(name: str, value: Any) -> str:
    return _row(name, value, column=48, indent="\t\t\t")


def _port_details(ctx: Context, number: int, attr: PortAttr, device: Device) -> list[str]:
    speed = attr.active_speed_ex or attr.active_speed
    shown = f"{LinkSpeed(speed).lane_tenths / 10:.1f} Gbps" if speed in set(LinkSpeed) else "invalid speed"
    plain = ("sm_sl", "pkey_tbl_len", "gid_tbl_len", "subnet_timeout", "init_type_reply")
    lines = [
        _of_port("max_msg_sz", f"{attr.max_msg_sz:#x}"),
        _of_port("port_cap_flags", f"{attr.port_cap_flags:#010x}"),
        _of_port("port_cap_flags2", f"{attr.port_cap_flags2:#06x}"),
        _of_port("max_vl_num", f"{_LANES.get(attr.max_vl_num, 'invalid value')} ({attr.max_vl_num})"),
        _of_port("bad_pkey_cntr", f"{attr.bad_pkey_cntr:#x}"),
        _of_port("qkey_viol_cntr", f"{attr.qkey_viol_cntr:#x}"),
        *(_of_port(name, getattr(attr, name)) for name in plain),
        _of_port("active_width", f"{LANES.get(attr.active_width, 'invalid width')}X ({attr.active_width})"),
        _of_port("active_speed", f"{shown} ({speed})"),
    ]
    with contextlib.suppress(PyverbsRDMAError):  # rdma-core omits the line too if the adapter does not know
        lines.append(_of_port("effective_speed", f"{ctx.query_port_speed(number) / 10:.1f} Gbps"))
    if device.transport_type == e.IBV_TRANSPORT_IB:
        physical = _PHYSICAL.get(attr.phys_state, "invalid physical state")
        lines.append(_of_port("phys_state", f"{physical} ({attr.phys_state})"))
    return lines


def _gids(ctx: Context, number: int, attr: PortAttr) -> list[str]:
    lines = []
    for index in range(attr.gid_tbl_len):
        raw = ctx.query_gid(number, index).raw
        if raw[8:] == NO_GID[8:]:
            continue
        is_v2 = ctx.query_gid_type(number, index) == e.IBV_GID_TYPE_SYSFS_ROCE_V2
        kind = f", RoCE v{1 + is_v2}" if attr.link_layer == e.IBV_LINK_LAYER_ETHERNET else ""
        lines.append(f"\t\t\tGID[{index:3d}]:\t\t{gid_text(raw) if is_v2 else raw.hex(':', 2)}{kind}")
    return lines


def gid_text(raw: bytes) -> str:
    """Format a GID as inet_ntop formats an IPv6 address."""
    address = ipaddress.IPv6Address(raw)
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)
