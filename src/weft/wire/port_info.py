"""PortInfo and related attributes: the port state that a subnet manager reads and sets.

Speeds are in three fields that were added over the years: LinkSpeed (SDR, DDR, QDR), LinkSpeedExt (FDR, EDR, HDR, NDR)
and LinkSpeedExt2 (XDR), the last in bits that had been reserved. FDR10 is in none: Mellanox's ExtendedPortInfo has it.
OpenSM does not support speeds above LinkSpeedExt; rdma-core calls the last three LinkSpeedExtActive2 and so on. All
readers and writers use `LinkSpeed`, where every speed has a separate bit.
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, TypeVar

from weft.wire.fields import Buffer, bits, reserved
from weft.wire.format import Format

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PortState(IntEnum):
    NO_CHANGE = 0
    DOWN = 1
    INITIALIZE = 2
    ARMED = 3
    ACTIVE = 4
    ACTIVE_DEFER = 5


class PortPhysicalState(IntEnum):
    NO_CHANGE = 0
    SLEEP = 1
    POLLING = 2
    DISABLED = 3
    PORT_CONFIGURATION_TRAINING = 4
    LINK_UP = 5
    LINK_ERROR_RECOVERY = 6
    PHY_TEST = 7

    @property
    def word(self) -> str:
        """The name as Linux and the tools write it: `LinkErrorRecovery`."""
        return self.name.title().replace("_", "")


class Mtu(IntEnum):
    """The code of a maximum transfer unit."""

    BYTES_256 = 1
    BYTES_512 = 2
    BYTES_1024 = 3
    BYTES_2048 = 4
    BYTES_4096 = 5

    @property
    def size_bytes(self) -> int:
        return 128 << self


class LinkWidth(IntFlag):
    X1 = 1
    X4 = 2
    X8 = 4
    X12 = 8
    X2 = 16


LANES: dict[int, int] = {LinkWidth.X1: 1, LinkWidth.X2: 2, LinkWidth.X4: 4, LinkWidth.X8: 8, LinkWidth.X12: 12}
WIDTHS = {lanes: width for width, lanes in LANES.items()}


class LinkSpeed(IntFlag):
    """The speeds of a lane, slowest first, by the bits of the verbs API: LinkSpeed's, then the others'."""

    SDR = 1
    DDR = 2
    QDR = 4
    FDR10 = 8
    FDR = 16
    EDR = 32
    HDR = 64
    NDR = 128
    XDR = 256

    @classmethod
    def called(cls, name: str) -> LinkSpeed:
        """Return the speed with this name; speeds beyond PortInfo's last count as that one."""
        return cls.__members__.get(name, cls.XDR)

    @classmethod
    def highest(cls, speeds: int) -> LinkSpeed:
        """Return the fastest of some speeds; 0 if there are none."""
        return cls(min(1 << speeds.bit_length() >> 1, cls.XDR))

    @classmethod
    def active(cls, info: Buffer, fdr10: int = 0, among: int = -1) -> LinkSpeed:
        """Return the speed of a port by its PortInfo and Mellanox's LinkSpeedActive, limited to the node's speeds."""
        slow, ext = PortInfo.link_speed_active.get(info), PortInfo.link_speed_ext_active.get(info)
        return cls.highest(join_speeds(slow, ext, PortInfo.link_speed_ext_active_2.get(info), fdr10) & among)

    @property
    def up_to(self) -> int:
        """The speed itself and all slower ones."""
        return 2 * self - 1

    @property
    def lane_tenths(self) -> int:
        """The lane rate in tenths of Gbit/s, rounded as in Linux (infiniband/core/sysfs.c); SDR if it is unknown."""
        return _LANE_TENTHS.get(self, 25)

    @property
    def active_fields(self) -> dict[str, int]:
        """The PortInfo fields: each has the fastest speed that it has a bit for, so older readers see NDR or QDR."""
        slow, ext, ext2, _ = split_speeds(self.up_to)
        names = "link_speed_active", "link_speed_ext_active", "link_speed_ext_active_2"
        return dict(zip(names, map(int, map(self.highest, (slow, ext, ext2))), strict=True))


_LANE_TENTHS = dict(zip(LinkSpeed, (25, 50, 100, 100, 140, 250, 500, 1000, 2000), strict=True))
Speeds = TypeVar("Speeds", int, "NDArray[np.int64]")


def join_speeds(slow: Speeds, ext: Speeds, ext2: Speeds, fdr10: Speeds | int = 0) -> Speeds:
    """Combine PortInfo's three fields and Mellanox's one into the bits of `LinkSpeed`."""
    return slow & 7 | (fdr10 & 1) << 3 | (ext & 15) << 4 | ext2 << 8


def split_speeds(speeds: int) -> tuple[int, int, int, int]:
    """Split speeds into LinkSpeed, LinkSpeedExt, LinkSpeedExt2 and Mellanox's LinkSpeed."""
    return speeds & 7, speeds >> 4 & 15, speeds >> 8, speeds >> 3 & 1


class Capability(IntFlag):
    """The PortInfo:CapabilityMask."""

    IS_SM = 1 << 1
    IS_NOTICE_SUPPORTED = 1 << 2
    IS_TRAP_SUPPORTED = 1 << 3
    IS_OPTIONAL_IPD_SUPPORTED = 1 << 4
    IS_AUTOMATIC_MIGRATION_SUPPORTED = 1 << 5
    IS_SL_MAPPING_SUPPORTED = 1 << 6
    IS_M_KEY_NVRAM = 1 << 7
    IS_P_KEY_NVRAM = 1 << 8
    IS_LED_INFO_SUPPORTED = 1 << 9
    IS_SM_DISABLED = 1 << 10
    IS_SYSTEM_IMAGE_GUID_SUPPORTED = 1 << 11
    IS_P_KEY_SWITCH_EXTERNAL_PORT_TRAP_SUPPORTED = 1 << 12
    IS_CABLE_INFO_SUPPORTED = 1 << 13
    IS_EXTENDED_SPEEDS_SUPPORTED = 1 << 14
    IS_CAPABILITY_MASK2_SUPPORTED = 1 << 15
    IS_COMMUNICATION_MANAGEMENT_SUPPORTED = 1 << 16
    IS_SNMP_TUNNELING_SUPPORTED = 1 << 17
    IS_REINIT_SUPPORTED = 1 << 18
    IS_DEVICE_MANAGEMENT_SUPPORTED = 1 << 19
    IS_VENDOR_CLASS_SUPPORTED = 1 << 20
    IS_DR_NOTICE_SUPPORTED = 1 << 21
    IS_CAPABILITY_MASK_NOTICE_SUPPORTED = 1 << 22
    IS_BOOT_MANAGEMENT_SUPPORTED = 1 << 23
    IS_LINK_ROUND_TRIP_LATENCY_SUPPORTED = 1 << 24
    IS_CLIENT_REREGISTRATION_SUPPORTED = 1 << 25
    IS_OTHER_LOCAL_CHANGES_NOTICE_SUPPORTED = 1 << 26
    IS_LINK_SPEED_WIDTH_PAIRS_TABLE_SUPPORTED = 1 << 27
    IS_VENDOR_SPECIFIC_MADS_TABLE_SUPPORTED = 1 << 28
    IS_MCAST_P_KEY_TRAP_SUPPRESSION_SUPPORTED = 1 << 29
    IS_MULTICAST_FDB_TOP_SUPPORTED = 1 << 30
    IS_HIERARCHY_INFO_SUPPORTED = 1 << 31


class Capability2(IntFlag):
    """The PortInfo:CapabilityMask2."""

    IS_SET_NODE_DESCRIPTION_SUPPORTED = 1 << 0
    IS_PORT_INFO_EXTENDED_SUPPORTED = 1 << 1
    IS_VIRTUALIZATION_SUPPORTED = 1 << 2
    IS_SWITCH_PORT_STATE_TABLE_SUPPORTED = 1 << 3
    IS_LINK_WIDTH_2X_SUPPORTED = 1 << 4
    IS_LINK_SPEED_HDR_SUPPORTED = 1 << 5
    IS_M_KEY_PROTECT_BITS_EXT_SUPPORTED = 1 << 6
    IS_ENHANCED_TRAP_128_SUPPORTED = 1 << 7
    IS_PARTITION_TOP_SUPPORTED = 1 << 8
    IS_ENHANCED_QOS_ARBITER_SUPPORTED = 1 << 9
    IS_LINK_SPEED_NDR_SUPPORTED = 1 << 10
    IS_EXTENDED_SPEEDS_2_SUPPORTED = 1 << 11
    IS_LINK_SPEED_XDR_SUPPORTED = 1 << 12


class PortInfo(Format, size=64):
    """The attribute 0x0015; the modifier is the port's number."""

    m_key = bits(64)
    gid_prefix = bits(64)
    lid = bits(16)
    master_sm_lid = bits(16)
    capability_mask = bits(32)
    diag_code = bits(16)
    m_key_lease_period = bits(16)  # seconds
    local_port_num = bits(8)
    link_width_enabled = bits(8)
    link_width_supported = bits(8)
    link_width_active = bits(8)
    link_speed_supported = bits(4)
    port_state = bits(4, of=PortState)
    port_physical_state = bits(4, of=PortPhysicalState)
    link_down_default_state = bits(4, of=PortPhysicalState)
    m_key_protect_bits = bits(2)
    _ = reserved(3)
    lmc = bits(3)
    link_speed_active = bits(4)
    link_speed_enabled = bits(4)
    neighbor_mtu = bits(4, of=Mtu)
    master_sm_sl = bits(4)
    vl_cap = bits(4)
    init_type = bits(4)
    vl_high_limit = bits(8)
    vl_arbitration_high_cap = bits(8)
    vl_arbitration_low_cap = bits(8)
    init_type_reply = bits(4)
    mtu_cap = bits(4, of=Mtu)
    vl_stall_count = bits(3)
    hoq_life = bits(5)
    operational_vls = bits(4)
    partition_enforcement_inbound = bits(1)
    partition_enforcement_outbound = bits(1)
    filter_raw_inbound = bits(1)
    filter_raw_outbound = bits(1)
    m_key_violations = bits(16)
    p_key_violations = bits(16)
    q_key_violations = bits(16)
    guid_cap = bits(8)
    client_reregister = bits(1)
    mcast_p_key_trap_suppression_enabled = bits(2)
    subnet_time_out = bits(5)  # 4.096 us * 2^n
    _ = reserved(3)
    resp_time_value = bits(5)
    local_phy_errors = bits(4)
    overrun_errors = bits(4)
    max_credit_hint = bits(16)
    _ = reserved(1)
    link_speed_ext_active_2 = bits(2, component=False)
    link_speed_ext_supported_2 = bits(2, component=False)
    link_speed_ext_enabled_2 = bits(3, component=False)
    link_round_trip_latency = bits(24)
    capability_mask2 = bits(16)
    link_speed_ext_active = bits(4)
    link_speed_ext_supported = bits(4)
    _ = reserved(3)
    link_speed_ext_enabled = bits(5)


class PortInfoExtended(Format, size=64):
    """The attribute 0x0033: forward error correction, by speed."""

    capability_mask = bits(32)
    fec_mode_active = bits(16)
    fdr_fec_mode_supported = bits(16)
    fdr_fec_mode_enabled = bits(16)
    edr_fec_mode_supported = bits(16)
    edr_fec_mode_enabled = bits(16)
    hdr_fec_mode_supported = bits(16)
    hdr_fec_mode_enabled = bits(16)
    ndr_fec_mode_supported = bits(16)
    ndr_fec_mode_enabled = bits(16)
    _ = reserved(336)


class MlnxExtendedPortInfo(Format, size=64):
    """The attribute 0xFF90, of Mellanox: FDR10."""

    _ = reserved(24)
    state_change_enable = bits(8)
    _ = reserved(24)
    link_speed_supported = bits(8)
    _ = reserved(24)
    link_speed_enabled = bits(8)
    _ = reserved(24)
    link_speed_active = bits(8)
    _ = reserved(384)
