"""Subnet management packets and their attributes (InfiniBand Architecture volume 1, "Subnet Management").

An SMP carries one attribute in `data`, 64 bytes; shorter ones are padded with zeros. `ATTRIBUTES` maps attribute ids to
formats. PortInfo and related attributes are in `port_info`, notices in `notice`, adaptive routing in `adaptive`,
routers in `router`, modules of cables in `cable_info`.
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from enum import IntEnum

from weft.wire.adaptive import AdaptiveRoutingGroupTable, AdaptiveRoutingInfo, AdaptiveRoutingLinearForwardingTable
from weft.wire.cable_info import CableInfo
from weft.wire.fields import bits, numbers, octets, parts, reserved
from weft.wire.format import Format, Numbered
from weft.wire.mad import MAD_BYTES, MadHeader, Method, MgmtClass
from weft.wire.notice import Notice
from weft.wire.port_info import MlnxExtendedPortInfo, PortInfo, PortInfoExtended
from weft.wire.router import (
    AdjacentSiteLocalSubnetsTable,
    AdjacentSubnetsRouterLidInfo,
    RouterInfo,
    RouterLidTable,
)

HOPS_MAX = 64
PERMISSIVE_LID = 0xFFFF


class Smp(MadHeader, size=MAD_BYTES, mgmt_class=MgmtClass.SUBN_LID_ROUTED):
    """A LID-routed SMP."""

    m_key = bits(64)
    _ = reserved(256)
    data = octets(64)
    _ = reserved(1024)


class DirectedSmp(Format, size=MAD_BYTES):
    """A directed-route SMP: entry n of `initial_path` is the output port of hop n; entry 0 is not used.

    `d` is the direction: 0 on the way out, 1 on the way back.
    """

    base_version = bits(8, default=1)
    mgmt_class = bits(8, of=MgmtClass, default=MgmtClass.SUBN_DIRECTED_ROUTE)
    class_version = bits(8, default=1)
    method = bits(8, of=Method)
    d = bits(1)
    status = bits(15)
    hop_pointer = bits(8)
    hop_count = bits(8)
    transaction_id = bits(64)
    attribute_id = bits(16)
    _ = reserved(16)
    attribute_modifier = bits(32)
    m_key = bits(64)
    dr_slid = bits(16, default=PERMISSIVE_LID)
    dr_dlid = bits(16, default=PERMISSIVE_LID)
    _ = reserved(224)
    data = octets(64)
    initial_path = octets(HOPS_MAX)
    return_path = octets(HOPS_MAX)


class NodeType(IntEnum):
    CA = 1
    SWITCH = 2
    ROUTER = 3


class SMState(IntEnum):
    NOT_ACTIVE = 0
    DISCOVERING = 1
    STANDBY = 2
    MASTER = 3


class SMControl(IntEnum):
    """The attribute modifiers of Set(SMInfo), by which one SM controls another."""

    HANDOVER = 1
    ACKNOWLEDGE = 2
    DISABLE = 3
    STANDBY = 4
    DISCOVER = 5


class NodeDescription(Format, size=64):
    """The attribute 0x0010: text in UTF-8, without a terminating zero if it fills all 64 bytes."""

    node_string = octets(64)


class NodeInfo(Format, size=40):
    """The attribute 0x0011."""

    base_version = bits(8, default=1)
    class_version = bits(8, default=1)
    node_type = bits(8, of=NodeType)
    num_ports = bits(8)
    system_image_guid = bits(64)
    node_guid = bits(64)
    port_guid = bits(64)
    partition_cap = bits(16)
    device_id = bits(16)
    revision = bits(32)
    local_port_num = bits(8)
    vendor_id = bits(24)


ALL_INPUTS = 1 << 17  # in the modifier of an SL to VL table: for every input, if `optimized_sl_to_vl_...` is 1


class SwitchInfo(Format, size=20):
    """The attribute 0x0012. `life_time_value` and the next two fields share a byte that OpenSM calls life_state."""

    linear_fdb_cap = bits(16)
    random_fdb_cap = bits(16)
    multicast_fdb_cap = bits(16)
    linear_fdb_top = bits(16)
    default_port = bits(8)
    default_multicast_primary_port = bits(8)
    default_multicast_not_primary_port = bits(8)
    life_time_value = bits(5)
    port_state_change = bits(1)
    optimized_sl_to_vl_mapping_programming = bits(2)
    lids_per_port = bits(16)
    partition_enforcement_cap = bits(16)
    inbound_enforcement_cap = bits(1)
    outbound_enforcement_cap = bits(1)
    filter_raw_inbound_cap = bits(1)
    filter_raw_outbound_cap = bits(1)
    enhanced_port_0 = bits(1)
    _ = reserved(3)
    _ = reserved(8)
    multicast_fdb_top = bits(16)


class GuidInfo(Format, size=64):
    """The attribute 0x0014; the modifier is the block of eight."""

    guid = numbers(8, 64)


class PKeyTable(Format, size=64):
    """The attribute 0x0016; the modifier is the block of 32, on a switch with the port in its upper half."""

    p_key = numbers(32, 16)


class SLtoVLMappingTable(Format, size=8):
    """The attribute 0x0017: the VL of each SL; the modifier is 256 * in port + out port on a switch."""

    vl = numbers(16, 4)


class VLArbitrationEntry(Format, size=2):
    _ = reserved(4)
    vl = bits(4)
    weight = bits(8)  # units of 64 bytes


class VLArbitrationTable(Format, size=64):
    """The attribute 0x0018; blocks 1 and 2 are the low, 3 and 4 the high priority."""

    entry = parts(32, VLArbitrationEntry)


class LinearForwardingTable(Format, size=64):
    """The attribute 0x0019: the out ports of 64 LIDs; 255 drops."""

    port = numbers(64, 8)


class RandomForwardingEntry(Format, size=4):
    lid = bits(16)
    valid = bits(1)
    lmc = bits(3)
    _ = reserved(4)
    port = bits(8)


class RandomForwardingTable(Format, size=64):
    """The attribute 0x001A."""

    entry = parts(16, RandomForwardingEntry)


class MulticastForwardingTable(Format, size=64):
    """The attribute 0x001B: for 32 multicast LIDs 16 bits of their port mask; the modifier has position and block."""

    port_mask = numbers(32, 16)


class LinkSpeedWidthPairsTable(Format, size=36):
    """The attribute 0x001C: widths that go with each speed, for the ports of a mask."""

    num_tables = bits(8)
    port_mask = octets(32)
    speed_2_5 = bits(8)
    speed_5 = bits(8)
    speed_10 = bits(8)


class SMInfo(Format, size=21):
    """The attribute 0x0020."""

    guid = bits(64)
    sm_key = bits(64)
    act_count = bits(32)
    priority = bits(4)
    sm_state = bits(4, of=SMState)


class VendorDiag(Format, size=64):
    """The attribute 0x0030."""

    next_index = bits(16)
    diag_data = octets(62)


class LedInfo(Format, size=4):
    """The attribute 0x0031."""

    led_mask = bits(1)
    _ = reserved(31)


class SmpAttribute(Numbered):
    NOTICE = 0x0002, Notice
    NODE_DESCRIPTION = 0x0010, NodeDescription
    NODE_INFO = 0x0011, NodeInfo
    SWITCH_INFO = 0x0012, SwitchInfo
    GUID_INFO = 0x0014, GuidInfo
    PORT_INFO = 0x0015, PortInfo
    P_KEY_TABLE = 0x0016, PKeyTable
    SL_TO_VL_MAPPING_TABLE = 0x0017, SLtoVLMappingTable
    VL_ARBITRATION_TABLE = 0x0018, VLArbitrationTable
    LINEAR_FORWARDING_TABLE = 0x0019, LinearForwardingTable
    RANDOM_FORWARDING_TABLE = 0x001A, RandomForwardingTable
    MULTICAST_FORWARDING_TABLE = 0x001B, MulticastForwardingTable
    LINK_SPEED_WIDTH_PAIRS_TABLE = 0x001C, LinkSpeedWidthPairsTable
    SM_INFO = 0x0020, SMInfo
    VENDOR_DIAG = 0x0030, VendorDiag
    LED_INFO = 0x0031, LedInfo
    PORT_INFO_EXTENDED = 0x0033, PortInfoExtended
    ADAPTIVE_ROUTING_INFO = 0xFF20, AdaptiveRoutingInfo
    ADAPTIVE_ROUTING_GROUP_TABLE = 0xFF21, AdaptiveRoutingGroupTable
    ADAPTIVE_ROUTING_LINEAR_FORWARDING_TABLE = 0xFF23, AdaptiveRoutingLinearForwardingTable
    CABLE_INFO = 0xFF60, CableInfo
    MLNX_EXTENDED_PORT_INFO = 0xFF90, MlnxExtendedPortInfo
    ROUTER_INFO = 0xFFD0, RouterInfo
    ADJACENT_SITE_LOCAL_SUBNETS_TABLE = 0xFFD2, AdjacentSiteLocalSubnetsTable
    ADJACENT_SUBNETS_ROUTER_LID_INFO = 0xFFD5, AdjacentSubnetsRouterLidInfo
    ROUTER_LID_TABLE = 0xFFD6, RouterLidTable


ATTRIBUTES = SmpAttribute.forms()
