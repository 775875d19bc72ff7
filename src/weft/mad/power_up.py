"""Set the state of switches and adapters after power-up, before a subnet manager configures them."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from weft.fabric.forwarding import NONE
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import speeds
from weft.fabric.tables import ATTRIBUTE_BYTES, NO_ROUTE
from weft.ids import PKey
from weft.mad.devices import Devices
from weft.wire.port_info import (
    WIDTHS,
    Capability,
    Capability2,
    LinkSpeed,
    Mtu,
    PortInfo,
    PortPhysicalState,
    PortState,
    split_speeds,
)
from weft.wire.smp import NodeDescription, NodeInfo, NodeType, SwitchInfo

LINEAR_FDB_CAP = 0xC000
MULTICAST_FDB_CAP = 0x1000
PARTITION_CAP = 128
SWITCH_PARTITION_CAP = 32  # as on real switches
VL_CAP = 4  # code for VL0 to VL7
DEFAULT_PREFIX = 0xFE80_0000_0000_0000

_TYPES = {
    NodeKind.SWITCH: NodeType.SWITCH,
    NodeKind.HCA: NodeType.CA,
    NodeKind.AGGREGATION: NodeType.CA,
    NodeKind.ROUTER: NodeType.ROUTER,
}
_BOTH = (
    Capability.IS_TRAP_SUPPORTED
    | Capability.IS_SL_MAPPING_SUPPORTED
    | Capability.IS_LED_INFO_SUPPORTED
    | Capability.IS_SYSTEM_IMAGE_GUID_SUPPORTED
    | Capability.IS_EXTENDED_SPEEDS_SUPPORTED
    | Capability.IS_CAPABILITY_MASK2_SUPPORTED
    | Capability.IS_DR_NOTICE_SUPPORTED
    | Capability.IS_CAPABILITY_MASK_NOTICE_SUPPORTED
    | Capability.IS_OTHER_LOCAL_CHANGES_NOTICE_SUPPORTED
    | Capability.IS_CLIENT_REREGISTRATION_SUPPORTED
)
_CA = _BOTH | Capability.IS_AUTOMATIC_MIGRATION_SUPPORTED | Capability.IS_COMMUNICATION_MANAGEMENT_SUPPORTED
_SWITCH = _BOTH | Capability.IS_MULTICAST_FDB_TOP_SUPPORTED | Capability.IS_P_KEY_SWITCH_EXTERNAL_PORT_TRAP_SUPPORTED
_SECOND = (
    Capability2.IS_SET_NODE_DESCRIPTION_SUPPORTED
    | Capability2.IS_PORT_INFO_EXTENDED_SUPPORTED
    | Capability2.IS_LINK_WIDTH_2X_SUPPORTED
    | Capability2.IS_LINK_SPEED_HDR_SUPPORTED
    | Capability2.IS_LINK_SPEED_NDR_SUPPORTED
    | Capability2.IS_EXTENDED_SPEEDS_2_SUPPORTED
    | Capability2.IS_LINK_SPEED_XDR_SUPPORTED
)


def switch_on(fabric: Fabric, *, seed: int = 1, clock: Callable[[], float] = time.monotonic) -> Devices:
    """Return all nodes in the state before a subnet manager runs, with LIDs and limits that the fabric has."""
    devices = Devices(fabric, seed=seed, clock=clock)
    tables, blank = devices.tables, dict[tuple[bool, str, int, bool], bytes]()
    lid, lmc, limit = tables.lid.copy(), tables.lmc, tables.vl_high_limit.copy()
    for node in devices.nodes:
        _start_node(devices, node, blank)
    tables.lid[:], tables.vl_high_limit[:] = lid, limit
    tables.set_lmc(slice(None), lmc)
    return devices


def restart(devices: Devices, node: int) -> None:
    """Reset a node that lost power: settings, tables and counters."""
    fabric, tables = devices.fabric, devices.tables
    _start_node(devices, node, {})
    for slot in devices.ports_of(node):
        tables.pkey[slot] = 0
        tables.pkey[slot, 0] = PKey.DEFAULT
        tables.vl_arbitration[slot] = 0
        fabric.counters[slot] = 0
        if "fec" in vars(devices):
            devices.fec[slot] = 0
        devices.keyed.discard(slot)
        devices.sent[slot] = devices.received[slot] = 0
        devices.alias_guids.pop(slot, None)
        devices.m_key_lease.pop(slot, None)
        if devices.cable[slot] != NONE:  # it has not trained yet
            PortInfo.port_state.set(devices.info(slot), PortState.DOWN)
            PortInfo.port_physical_state.set(devices.info(slot), PortPhysicalState.POLLING)
    pairs = int(tables.first_pair[node])
    ports = int(fabric.nodes.n_ports[node]) + 1
    tables.sl2vl[pairs : pairs + (ports**2 if devices.is_switch[node] else ports)] = 0
    if devices.is_switch[node]:
        tables.lft[tables.switch_row[node]] = NO_ROUTE
        tables.mft[tables.switch_row[node]] = 0
        devices.adaptive.pop(node, None)
        if "ar_group" in vars(tables):
            tables.ar_group[tables.switch_row[node]] = -1


def _start_node(devices: Devices, node: int, blank: dict[tuple[bool, str, int, bool], bytes]) -> None:
    fabric, switch = devices.fabric, devices.is_switch[node]
    nodes, links, names = fabric.nodes, fabric.links, speeds()
    info = NodeInfo.pack(
        node_type=_TYPES[NodeKind(nodes.kind[node])],
        num_ports=devices.last_port[node],
        system_image_guid=int(nodes.system_guid[node]),
        node_guid=int(nodes.guid[node]),
        port_guid=int(nodes.guid[node]),
        partition_cap=SWITCH_PARTITION_CAP if switch else PARTITION_CAP,
        device_id=int(nodes.device_id[node]) & 0xFFFF,
        vendor_id=int(nodes.vendor_id[node]) & 0xFFFFFF,
    )
    devices.node_info[node] = _write(devices.node_infos, node, info)
    text = nodes.description[node].encode()[: NodeDescription.size]
    devices.node_description[node] = _write(devices.node_descriptions, node, text)
    if switch:
        devices.switch_info[node] = _write(
            devices.tables.switch_info, node, _switch_info(bool(nodes.enhanced_port_0[node]))
        )
    for slot in devices.ports_of(node):
        link, port = devices.link[slot], slot - devices.first[node]
        speed, width = ("", 0) if link < 0 else (names[links.speed[link]].name, int(links.width[link]))
        key = (switch, speed, width, port == 0)
        if key not in blank:
            blank[key] = _port_info(*key)
        row = devices.port_info[slot] = _write(devices.tables.port_info, slot, blank[key])
        row[28] = port  # local_port_num
        if _fastest(speed) >= LinkSpeed.FDR10 and port:
            devices.tables.fdr10[slot] = 1, 1, speed == "FDR10"


def _write(rows: NDArray[np.uint8], index: int, raw: bytes) -> memoryview:
    """Write an attribute into its row and return the row."""
    row: memoryview = rows[index].data
    row[:] = raw.ljust(ATTRIBUTE_BYTES, b"\0")
    return row


def _switch_info(enhanced_port_0: bool) -> bytes:
    return SwitchInfo.pack(
        linear_fdb_cap=LINEAR_FDB_CAP,
        multicast_fdb_cap=MULTICAST_FDB_CAP,
        life_time_value=18,
        optimized_sl_to_vl_mapping_programming=1,
        partition_enforcement_cap=SWITCH_PARTITION_CAP,
        inbound_enforcement_cap=1,
        outbound_enforcement_cap=1,
        filter_raw_inbound_cap=1,
        filter_raw_outbound_cap=1,
        enhanced_port_0=enhanced_port_0,
    )


def _port_info(switch: bool, speed: str, width: int, management: bool) -> bytes:
    """Return the PortInfo of a port in its power-up state; without a speed, no cable is connected."""
    up = bool(speed) or management
    fastest = _fastest(speed)
    slow, ext, ext2, _ = split_speeds(fastest.up_to)
    widest = width or 4
    usual = {1, 2, 4, widest} if fastest >= LinkSpeed.HDR else {1, 4, widest}
    widths = sum(WIDTHS[lanes] for lanes in usual if lanes <= widest)  # no port trains wider than its cable is
    return PortInfo.pack(
        gid_prefix=DEFAULT_PREFIX,
        capability_mask=_SWITCH if switch else _CA,
        capability_mask2=_SECOND,
        link_width_enabled=widths,
        link_width_supported=widths,
        link_width_active=WIDTHS[widest],
        link_speed_supported=slow,
        link_speed_enabled=slow,
        link_speed_ext_supported=ext,
        link_speed_ext_enabled=ext,
        link_speed_ext_supported_2=ext2,
        link_speed_ext_enabled_2=ext2,
        **(fastest if up else LinkSpeed.QDR).active_fields,
        port_state=PortState.ACTIVE if management else PortState.INITIALIZE if up else PortState.DOWN,
        port_physical_state=PortPhysicalState.LINK_UP if up else PortPhysicalState.POLLING,
        link_down_default_state=PortPhysicalState.POLLING,
        neighbor_mtu=Mtu.BYTES_4096,  # all that it can: OpenSM takes a port down once if it has to raise these
        mtu_cap=Mtu.BYTES_4096,
        vl_cap=VL_CAP,
        operational_vls=VL_CAP,
        vl_arbitration_high_cap=64,
        vl_arbitration_low_cap=64,
        hoq_life=18,
        vl_stall_count=7,
        guid_cap=1 if switch else 8,
        subnet_time_out=18,
        resp_time_value=16,
        local_phy_errors=8,
        overrun_errors=8,
    )


def _fastest(speed: str) -> LinkSpeed:
    """Return the fastest speed of a port, that of its cable; NDR without a cable."""
    return LinkSpeed.called(speed or "NDR")
