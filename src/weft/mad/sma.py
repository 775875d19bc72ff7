"""Implement the subnet management agent: Get and Set of a node's attributes.

`answer` takes an SMP at the port of its arrival and turns it into the response. An SMP with a wrong M_Key gets no
answer, nor does TrapRepress. SMInfo is answered by the subnet manager on the port, if there is one.

    NodeInfo, NodeDescription, SwitchInfo, GUIDInfo, LedInfo, VendorDiag           here
    PortInfo, PortInfoExtended, Mellanox's ExtendedPortInfo                        here, and `port_settings`
    P_Keys, SL to VL, VL arbitration, linear and multicast forwarding              `sma_tables`
    NVIDIA's adaptive routing, and routers                                         `sma_adaptive`, `sma_router`
    CableInfo: the modules in ports                                                `sma_cable`

Everything else is answered with status 12: no random forwarding table, no table of link speed and width pairs, no
Notice to be polled, as the capability masks say. (InfiniBand Architecture volume 1, "Subnet Management".)
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from weft.mad import m_key, sma_adaptive, sma_cable, sma_router, sma_tables
from weft.mad.devices import NONE, Devices
from weft.mad.port_settings import set_port_info
from weft.wire.mad import Method, Status
from weft.wire.port_info import MlnxExtendedPortInfo, PortInfo, PortInfoExtended
from weft.wire.smp import LedInfo, SmpAttribute, SwitchInfo

DATA, DATA_END = 64, 128
# (devices, node, slot where it came in, attribute modifier, the SMP to read and to write the answer into) -> status
Handler = Callable[[Devices, int, int, int, bytearray], int]
_attribute = struct.Struct(">16xH2xI").unpack_from
_REREGISTER = DATA + PortInfo.client_reregister.bit // 8
_BLANK = bytes(64)
_PERMANENT_GUID = 8  # bytes at the start of GUIDInfo's first block
_SETTABLE_SWITCH = (
    "linear_fdb_top",
    "default_port",
    "default_multicast_primary_port",
    "default_multicast_not_primary_port",
    "life_time_value",
    "multicast_fdb_top",
)


def answer(devices: Devices, slot: int, smp: bytearray) -> bool:
    """Turn an SMP that came in at `slot` into its response; False if there is none."""
    if devices.keyed and not m_key.fits(devices, slot, smp):
        return False
    attribute, modifier = _attribute(smp)
    handler = HANDLERS.get(smp[3] << 16 | attribute)
    if smp[0] != 1 or smp[2] != 1:
        devices.odd["version"] += 1
        status: int = Status.BAD_VERSION
    elif handler is not None:
        status = handler(devices, devices.node_of[slot], slot, modifier, smp)
    elif smp[3] == Method.TRAP_REPRESS:
        if not devices.traps.repress(devices.own_slot(slot), smp):
            devices.odd["trap repress"] += 1
        return False
    else:
        is_supported = smp[3] in (Method.GET, Method.SET)
        status = Status.METHOD_ATTRIBUTE_NOT_SUPPORTED if is_supported else Status.METHOD_NOT_SUPPORTED
    smp[3] = 0x81
    smp[4] = (0x80 if smp[1] == 0x81 else 0) | status >> 8
    smp[5] = status & 0xFF
    return True


# -- node -------------------------------------------------------------------------------------------------------------


def node_info(devices: Devices, slot: int) -> bytes:
    """Return NodeInfo as a Get through this port returns it, 64 bytes."""
    smp = bytearray(DATA_END)
    _get_node_info(devices, devices.node_of[slot], slot, 0, smp)
    return bytes(smp[DATA:])


def _get_node_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    smp[DATA:DATA_END] = devices.node_info[node]
    smp[DATA + 36] = slot - devices.first[node]  # local_port_num
    if not devices.is_switch[node]:
        smp[DATA + 20 : DATA + 28] = devices.port_guid(slot)
    return 0


def _get_node_description(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    smp[DATA:DATA_END] = devices.node_description[node]
    return 0


def _set_node_description(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    devices.node_description[node][:] = smp[DATA:DATA_END]
    return 0


def _get_switch_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    if not devices.is_switch[node]:
        return Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    smp[DATA:DATA_END] = devices.switch_info[node]
    return 0


def _set_switch_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    if not devices.is_switch[node]:
        return Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    info, new_info = devices.switch_info[node], smp[DATA:DATA_END]
    top, cap = SwitchInfo.linear_fdb_top.get(new_info), SwitchInfo.linear_fdb_cap.get(info)
    groups = SwitchInfo.multicast_fdb_top.get(new_info) - 0xC000  # -1, as 0xBFFF, is none
    status = 0
    if top >= cap or groups >= SwitchInfo.multicast_fdb_cap.get(info):
        status = Status.INVALID_FIELD
    else:
        for name in _SETTABLE_SWITCH:
            field = SwitchInfo.fields[name]
            field.set(info, field.get(new_info))
        if SwitchInfo.port_state_change.get(new_info):  # writing 1 clears it
            SwitchInfo.port_state_change.set(info, 0)
        devices.forget_lid_paths()
    smp[DATA:DATA_END] = info
    return status


def _get_guid_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    own = devices.own_slot(slot)
    if modifier * 8 >= PortInfo.guid_cap.get(devices.info(own)):
        smp[DATA:DATA_END] = _BLANK
        return Status.INVALID_FIELD
    smp[DATA:DATA_END] = devices.alias_guids.get(own) or devices.port_guid(own).ljust(64, b"\0")
    return 0


def _set_guid_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    """Set alias GUIDs of an adapter's port; the first GUID is its own and stays."""
    own = devices.own_slot(slot)
    if devices.is_switch[node]:
        return Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    if modifier * 8 < PortInfo.guid_cap.get(devices.info(own)):
        devices.alias_guids[own] = bytearray(devices.port_guid(own) + smp[DATA + _PERMANENT_GUID : DATA_END])
    return _get_guid_info(devices, node, slot, modifier, smp)


def _get_led(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    requested = devices.port_slot(node, slot, modifier & 0xFF)
    if requested == NONE:
        return Status.INVALID_FIELD
    smp[DATA:DATA_END] = LedInfo.pack(led_mask=int(requested in devices.leds)).ljust(64, b"\0")
    return 0


def _set_led(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    requested = devices.port_slot(node, slot, modifier & 0xFF)
    (devices.leds.add if smp[DATA] >> 7 else devices.leds.discard)(requested)
    return _get_led(devices, node, slot, modifier, smp)


def _get_vendor_diag(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    """Answer with zeros; only index 0 is valid."""
    smp[DATA:DATA_END] = _BLANK
    return Status.INVALID_FIELD if modifier else 0


# -- port -------------------------------------------------------------------------------------------------------------


def _get_port_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    """Return a port's PortInfo; LocalPortNum in it is the port of arrival, not the requested port."""
    requested = devices.port_slot(node, slot, modifier & 0xFF)
    if requested == NONE:
        smp[DATA:DATA_END] = _BLANK
        return Status.INVALID_FIELD
    _show_port_info(devices, node, slot, requested, smp)
    return 0


def _show_port_info(devices: Devices, node: int, slot: int, requested: int, smp: bytearray) -> None:
    smp[DATA:DATA_END] = devices.port_info[requested]  # type: ignore[assignment]
    smp[DATA + 28] = slot - devices.first[node]  # local_port_num
    if devices.keyed:
        m_key.hide(devices, requested, smp, DATA)


def _set_port_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    requested = devices.port_slot(node, slot, modifier & 0xFF)
    if requested == NONE or (requested != slot and not devices.is_switch[node]):
        return Status.INVALID_FIELD  # an adapter's port is set through that port
    status = set_port_info(devices, requested, smp, DATA)
    registers = smp[_REREGISTER] & 0x80
    _show_port_info(devices, node, slot, requested, smp)
    if registers:
        smp[_REREGISTER] |= registers  # o14-12.2.1: the answer says it again
    return status


def _get_port_info_extended(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    """Forward error correction: the link does what its speed asks for, nothing can be chosen."""
    if devices.port_slot(node, slot, modifier & 0xFF) == NONE:
        return Status.INVALID_FIELD
    smp[DATA:DATA_END] = PortInfoExtended.blank
    return 0


def _get_mlnx_port_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    requested = devices.port_slot(node, slot, modifier & 0xFF)
    if requested == NONE:
        return Status.INVALID_FIELD
    can, may, does = devices.tables.fdr10[requested].tolist()
    smp[DATA:DATA_END] = MlnxExtendedPortInfo.pack(
        link_speed_supported=can, link_speed_enabled=may, link_speed_active=does
    )
    return 0


def _set_mlnx_port_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    """Set whether FDR10 may be used when the link next trains."""
    requested = devices.port_slot(node, slot, modifier & 0xFF)
    enabled = MlnxExtendedPortInfo.link_speed_enabled.get(smp, DATA)
    status = 0
    if requested != NONE and devices.tables.fdr10[requested, 0] and enabled in (0, 1):
        devices.tables.fdr10[requested, 1] = enabled
    elif enabled:
        status = Status.INVALID_FIELD
    return status | _get_mlnx_port_info(devices, node, slot, modifier, smp)


_PAIRS: dict[int, tuple[Handler | None, Handler | None]] = {
    SmpAttribute.NODE_DESCRIPTION: (_get_node_description, _set_node_description),
    SmpAttribute.NODE_INFO: (_get_node_info, None),
    SmpAttribute.SWITCH_INFO: (_get_switch_info, _set_switch_info),
    SmpAttribute.GUID_INFO: (_get_guid_info, _set_guid_info),
    SmpAttribute.PORT_INFO: (_get_port_info, _set_port_info),
    SmpAttribute.P_KEY_TABLE: (sma_tables.get_pkeys, sma_tables.set_pkeys),
    SmpAttribute.SL_TO_VL_MAPPING_TABLE: (sma_tables.get_sl2vl, sma_tables.set_sl2vl),
    SmpAttribute.VL_ARBITRATION_TABLE: (sma_tables.get_vlarb, sma_tables.set_vlarb),
    SmpAttribute.LINEAR_FORWARDING_TABLE: (sma_tables.get_lft, sma_adaptive.set_lft),
    SmpAttribute.MULTICAST_FORWARDING_TABLE: (sma_tables.get_mft, sma_tables.set_mft),
    SmpAttribute.VENDOR_DIAG: (_get_vendor_diag, None),
    SmpAttribute.LED_INFO: (_get_led, _set_led),
    SmpAttribute.PORT_INFO_EXTENDED: (_get_port_info_extended, None),
    SmpAttribute.ADAPTIVE_ROUTING_INFO: (sma_adaptive.get_info, sma_adaptive.set_info),
    SmpAttribute.ADAPTIVE_ROUTING_GROUP_TABLE: (sma_adaptive.get_groups, sma_adaptive.set_groups),
    SmpAttribute.ADAPTIVE_ROUTING_LINEAR_FORWARDING_TABLE: (sma_adaptive.get_lft, sma_adaptive.set_adaptive_lft),
    SmpAttribute.CABLE_INFO: (sma_cable.get_cable_info, None),
    SmpAttribute.MLNX_EXTENDED_PORT_INFO: (_get_mlnx_port_info, _set_mlnx_port_info),
    SmpAttribute.ROUTER_INFO: (sma_router.get_router_info, sma_router.set_router_info),
    SmpAttribute.ADJACENT_SITE_LOCAL_SUBNETS_TABLE: (sma_router.get_adjacent_subnets, None),
    SmpAttribute.ADJACENT_SUBNETS_ROUTER_LID_INFO: (sma_router.get_adjacent_lids, None),
    SmpAttribute.ROUTER_LID_TABLE: (sma_router.get_lid_table, sma_router.set_lid_table),
}
HANDLERS: dict[int, Handler] = {
    method << 16 | attribute: handler
    for attribute, pair in _PAIRS.items()
    for method, handler in zip((Method.GET, Method.SET), pair, strict=True)
    if handler is not None
}
