"""Subnet administration: the SA's MADs, its records, and component masks.

A record is the answer to a query, padded to a multiple of 8 bytes, since `attribute_offset` counts those. In a query
the component mask selects the fields of the record that count; bit n is the n-th field in the standard's list,
including reserved ones and the fields of parts. (InfiniBand Architecture volume 1, "Subnet Administration".)
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from enum import IntEnum, IntFlag

from weft.wire.fields import bits, numbers, octets, part, reserved
from weft.wire.format import Format, Numbered
from weft.wire.mad import MAD_BYTES, ClassPortInfo, MgmtClass, RmppMad
from weft.wire.notice import GmpNotice
from weft.wire.port_info import PortInfo, PortInfoExtended
from weft.wire.smp import (
    GuidInfo,
    LinearForwardingTable,
    MulticastForwardingTable,
    NodeDescription,
    NodeInfo,
    NodeType,
    PKeyTable,
    RandomForwardingTable,
    SLtoVLMappingTable,
    SMInfo,
    SwitchInfo,
    VLArbitrationTable,
)


class SaMad(RmppMad, size=MAD_BYTES, mgmt_class=MgmtClass.SUBN_ADM, class_version=2):
    """A MAD of the SA; `attribute_offset` is the distance of two records, in units of 8 bytes."""

    sm_key = bits(64)
    attribute_offset = bits(16)
    _ = reserved(16)
    component_mask = bits(64)
    data = octets(200)


SA_HEADER_BYTES = 56  # repeated in every segment of a long answer


class SaStatus(IntEnum):
    """The SA's part of a MAD's status."""

    OK = 0x0000
    NO_RESOURCES = 0x0100
    REQUEST_INVALID = 0x0200
    NO_RECORDS = 0x0300
    TOO_MANY_RECORDS = 0x0400
    INVALID_GID = 0x0500
    INSUFFICIENT_COMPONENTS = 0x0600
    DENIED = 0x0700
    PRIORITY_SUGGESTED = 0x0800


class Selector(IntEnum):
    """The comparison of MTU, rate or life time in a query."""

    GREATER_THAN = 0
    LESS_THAN = 1
    EXACTLY = 2
    BEST = 3  # the largest MTU or rate, the shortest life time


class Rate(IntEnum):
    """The SA's code of a rate, in Gbit/s."""

    GBIT_2_5 = 2
    GBIT_10 = 3
    GBIT_30 = 4
    GBIT_5 = 5
    GBIT_20 = 6
    GBIT_40 = 7
    GBIT_60 = 8
    GBIT_80 = 9
    GBIT_120 = 10
    GBIT_14 = 11
    GBIT_56 = 12
    GBIT_112 = 13
    GBIT_168 = 14
    GBIT_25 = 15
    GBIT_100 = 16
    GBIT_200 = 17
    GBIT_300 = 18
    GBIT_28 = 19
    GBIT_50 = 20
    GBIT_400 = 21
    GBIT_600 = 22
    GBIT_800 = 23
    GBIT_1200 = 24

    @property
    def gbit_s(self) -> float:
        """The signalling rate of the lanes; the data rate depends on their encoding."""
        return float(self.name.removeprefix("GBIT_").replace("_", "."))

    @classmethod
    def of_signal(cls, gbit_s: float) -> Rate:
        """Return the SA's rate for a signalling rate: the highest that is not above it."""
        return max((rate for rate in cls if rate.gbit_s <= gbit_s), key=lambda rate: rate.gbit_s, default=cls.GBIT_2_5)


class JoinState(IntFlag):
    FULL_MEMBER = 1
    NON_MEMBER = 2
    SEND_ONLY_NON_MEMBER = 4
    SEND_ONLY_FULL_MEMBER = 8


class InformInfo(Format, size=36):
    """The attribute 0x0003: a subscription. If not generic, the trap number is a device, the producer a vendor."""

    gid = bits(128)
    lid_range_begin = bits(16)
    lid_range_end = bits(16)
    _ = reserved(16)
    is_generic = bits(8)
    subscribe = bits(8)
    type = bits(16)
    trap_number = bits(16)
    qpn = bits(24)
    _ = reserved(3)
    resp_time_value = bits(5)
    _ = reserved(8)
    producer_type = bits(24)


class NodeRecord(Format, size=112):
    lid = bits(16)
    _ = reserved(16)
    node_info = part(NodeInfo)
    node_description = part(NodeDescription)
    _ = reserved(32)


class PortInfoRecord(Format, size=72):
    """The PortInfo of a port. With `options` 0x80 a query requests actual link speeds, else QDR for those above it."""

    endport_lid = bits(16)
    port_num = bits(8)
    options = bits(8)
    port_info = part(PortInfo)
    _ = reserved(32)


class SLtoVLMappingTableRecord(Format, size=16):
    lid = bits(16)
    input_port_num = bits(8)
    output_port_num = bits(8)
    _ = reserved(32)
    table = part(SLtoVLMappingTable)


class SwitchInfoRecord(Format, size=24):
    lid = bits(16)
    _ = reserved(16)
    switch_info = part(SwitchInfo)


class LinearForwardingTableRecord(Format, size=72):
    lid = bits(16)
    block_num = bits(16)
    _ = reserved(32)
    table = part(LinearForwardingTable)


class RandomForwardingTableRecord(Format, size=72):
    lid = bits(16)
    block_num = bits(16)
    _ = reserved(32)
    table = part(RandomForwardingTable)


class MulticastForwardingTableRecord(Format, size=72):
    lid = bits(16)
    position = bits(4)
    _ = reserved(3)
    block_num = bits(9)
    _ = reserved(32)
    table = part(MulticastForwardingTable)


class SMInfoRecord(Format, size=32):
    lid = bits(16)
    _ = reserved(16)
    sm_info = part(SMInfo)
    _ = reserved(56)


class LinkRecord(Format, size=8):
    from_lid = bits(16)
    from_port = bits(8)
    to_port = bits(8)
    to_lid = bits(16)
    _ = reserved(16)


class GuidInfoRecord(Format, size=72):
    lid = bits(16)
    block_num = bits(8)
    _ = reserved(8)
    _ = reserved(32)
    guid_info = part(GuidInfo)


class ServiceRecord(Format, size=176):
    service_id = bits(64)
    service_gid = bits(128)
    service_p_key = bits(16)
    _ = reserved(16)
    service_lease = bits(32)  # seconds; all ones is for ever
    service_key = bits(128)
    service_name = octets(64)
    service_data8 = numbers(16, 8)
    service_data16 = numbers(8, 16)
    service_data32 = numbers(4, 32)
    service_data64 = numbers(2, 64)


class PKeyTableRecord(Format, size=72):
    lid = bits(16)
    block_num = bits(16)
    port_num = bits(8)
    _ = reserved(24)
    table = part(PKeyTable)


class PathRecord(Format, size=64):
    """A path record. The service id is two fields because it uses bits that had been two reserved fields."""

    service_id_8msb = bits(8)
    service_id_56lsb = bits(56)
    dgid = bits(128)
    sgid = bits(128)
    dlid = bits(16)
    slid = bits(16)
    raw_traffic = bits(1)
    _ = reserved(3)
    flow_label = bits(20)
    hop_limit = bits(8)
    t_class = bits(8)
    reversible = bits(1)
    numb_path = bits(7)
    p_key = bits(16)
    qos_class = bits(12)
    sl = bits(4)
    mtu_selector = bits(2, of=Selector)
    mtu = bits(6)
    rate_selector = bits(2, of=Selector)
    rate = bits(6, of=Rate)
    packet_life_time_selector = bits(2, of=Selector)
    packet_life_time = bits(6)  # 4.096 us * 2^n
    preference = bits(8)
    _ = reserved(48)


class VLArbitrationTableRecord(Format, size=72):
    lid = bits(16)
    output_port_num = bits(8)
    block_num = bits(8)
    _ = reserved(32)
    table = part(VLArbitrationTable)


class MCMemberRecord(Format, size=56):
    """A multicast member record. OpenSM keeps `proxy_join` in the byte's last bit, the standard in the first."""

    mgid = bits(128)
    port_gid = bits(128)
    q_key = bits(32)
    mlid = bits(16)
    mtu_selector = bits(2, of=Selector)
    mtu = bits(6)
    t_class = bits(8)
    p_key = bits(16)
    rate_selector = bits(2, of=Selector)
    rate = bits(6, of=Rate)
    packet_life_time_selector = bits(2, of=Selector)
    packet_life_time = bits(6)
    sl = bits(4)
    flow_label = bits(20)
    hop_limit = bits(8)
    scope = bits(4)
    join_state = bits(4)
    proxy_join = bits(1)
    _ = reserved(55)


class TraceRecord(Format, size=48):
    gid_prefix = bits(64)
    id_generation = bits(16)
    _ = reserved(8)
    node_type = bits(8, of=NodeType)
    node_id = bits(64)
    chassis_id = bits(64)
    entry_port_id = bits(64)
    exit_port_id = bits(64)
    entry_port = bits(8)
    exit_port = bits(8)
    _ = reserved(16)


class MultiPathRecord(Format, size=200):
    """A multipath record: the source GIDs, then the destination GIDs: at most 11, which fit into one MAD."""

    raw_traffic = bits(1)
    _ = reserved(3)
    flow_label = bits(20)
    hop_limit = bits(8)
    t_class = bits(8)
    reversible = bits(1)
    numb_path = bits(7)
    p_key = bits(16)
    qos_class = bits(12)
    sl = bits(4)
    mtu_selector = bits(2, of=Selector)
    mtu = bits(6)
    rate_selector = bits(2, of=Selector)
    rate = bits(6, of=Rate)
    packet_life_time_selector = bits(2, of=Selector)
    packet_life_time = bits(6)
    service_id_8msb = bits(8)
    independence_selector = bits(2)
    _ = reserved(6)
    sgid_count = bits(8)
    dgid_count = bits(8)
    service_id_56lsb = bits(56)
    gids = numbers(11, 128)


class ServiceAssociationRecord(Format, size=80):
    service_key = bits(128)
    service_name = octets(64)


class PortInfoExtendedRecord(Format, size=72):
    endport_lid = bits(16)
    port_num = bits(8)
    options = bits(8)
    port_info_extended = part(PortInfoExtended)
    _ = reserved(32)


class InformInfoRecord(Format, size=64):
    subscriber_gid = bits(128)
    enum = bits(16)
    _ = reserved(48)
    inform_info = part(InformInfo)
    _ = reserved(32)


class SaAttribute(Numbered):
    CLASS_PORT_INFO = 0x0001, ClassPortInfo
    NOTICE = 0x0002, GmpNotice
    INFORM_INFO = 0x0003, InformInfo
    NODE_RECORD = 0x0011, NodeRecord
    PORT_INFO_RECORD = 0x0012, PortInfoRecord
    SL_TO_VL_MAPPING_TABLE_RECORD = 0x0013, SLtoVLMappingTableRecord
    SWITCH_INFO_RECORD = 0x0014, SwitchInfoRecord
    LINEAR_FORWARDING_TABLE_RECORD = 0x0015, LinearForwardingTableRecord
    RANDOM_FORWARDING_TABLE_RECORD = 0x0016, RandomForwardingTableRecord
    MULTICAST_FORWARDING_TABLE_RECORD = 0x0017, MulticastForwardingTableRecord
    SM_INFO_RECORD = 0x0018, SMInfoRecord
    LINK_RECORD = 0x0020, LinkRecord
    GUID_INFO_RECORD = 0x0030, GuidInfoRecord
    SERVICE_RECORD = 0x0031, ServiceRecord
    P_KEY_TABLE_RECORD = 0x0033, PKeyTableRecord
    PATH_RECORD = 0x0035, PathRecord
    VL_ARBITRATION_TABLE_RECORD = 0x0036, VLArbitrationTableRecord
    MC_MEMBER_RECORD = 0x0038, MCMemberRecord
    TRACE_RECORD = 0x0039, TraceRecord
    MULTI_PATH_RECORD = 0x003A, MultiPathRecord
    SERVICE_ASSOCIATION_RECORD = 0x003B, ServiceAssociationRecord
    PORT_INFO_EXTENDED_RECORD = 0x003E, PortInfoExtendedRecord
    INFORM_INFO_RECORD = 0x00F3, InformInfoRecord


ATTRIBUTES = SaAttribute.forms()
