"""Notices of traps and reports (InfiniBand Architecture volume 1, "Notice", and the tables of traps).

`Trap` gives the format of the 54 bytes of `data_details` in generic notices of subnet management. Names of LIDs and
GIDs are the standard's: LIDADDR1 is the source, LIDADDR2 the destination.
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from enum import IntEnum

from weft.wire.fields import bits, octets, reserved
from weft.wire.format import Format, Numbered


class NoticeType(IntEnum):
    FATAL = 0
    URGENT = 1
    SECURITY = 2
    SUBNET_MANAGEMENT = 3
    INFORMATIONAL = 4
    EMPTY = 0x7F


class ProducerType(IntEnum):
    CA = 1
    SWITCH = 2
    ROUTER = 3
    CLASS_MANAGER = 4


class GidDetails(Format, size=54):
    """The details of traps 64 to 67: a GID appeared or disappeared."""

    _ = reserved(48)
    gid_addr = bits(128)
    _ = reserved(256)


class PathDetails(Format, size=54):
    """The details of traps 68 and 69: components of a path changed."""

    comp_mask = bits(64)
    wait_for_repath = bits(1)
    _ = reserved(367)


class LinkStateDetails(Format, size=54):
    """The details of trap 128: a port of this switch changed its state."""

    lid_addr = bits(16)
    _ = reserved(416)


class PortDetails(Format, size=54):
    """The details of traps 129 to 131: a threshold of this port was reached, or its watchdog expired."""

    _ = reserved(16)
    lid_addr = bits(16)
    port_no = bits(8)
    _ = reserved(392)


class LocalChangesDetails(Format, size=54):
    """The details of trap 144: the capability mask changed, or another field if `other_local_changes`."""

    _ = reserved(16)
    lid_addr = bits(16)
    _ = reserved(8)
    _ = reserved(7)
    other_local_changes = bits(1)
    capability_mask = bits(32)
    _ = reserved(10)
    capability_mask2_change = bits(1)
    hierarchy_info_change = bits(1)
    sm_priority_change = bits(1)
    link_speed_enabled_change = bits(1)
    link_width_enabled_change = bits(1)
    node_description_change = bits(1)
    capability_mask2 = bits(16)
    _ = reserved(320)


class SystemImageGuidDetails(Format, size=54):
    """The details of trap 145."""

    _ = reserved(16)
    lid_addr = bits(16)
    _ = reserved(16)
    system_image_guid = bits(64)
    _ = reserved(320)


class BadMKeyDetails(Format, size=54):
    """The details of trap 256: an SMP with a wrong M_Key."""

    _ = reserved(16)
    lid_addr = bits(16)
    dr_slid = bits(16)
    method = bits(8)
    _ = reserved(8)
    attribute_id = bits(16)
    attribute_modifier = bits(32)
    m_key = bits(64)
    _ = reserved(8)
    dr_notice = bits(1)
    dr_path_truncated = bits(1)
    dr_hop_count = bits(6)
    dr_notice_return_path = octets(30)


class BadKeyDetails(Format, size=54):
    """The details of traps 257 and 258: a wrong P_Key or Q_Key at a channel adapter."""

    _ = reserved(16)
    lid_addr1 = bits(16)
    lid_addr2 = bits(16)
    key = bits(32)
    sl = bits(4)
    _ = reserved(4)
    qp1 = bits(24)
    _ = reserved(8)
    qp2 = bits(24)
    gid_addr1 = bits(128)
    gid_addr2 = bits(128)
    _ = reserved(32)


class BadSwitchPKeyDetails(Format, size=54):
    """The details of trap 259: a wrong P_Key at a switch's port."""

    data_valid = bits(16)
    lid_addr1 = bits(16)
    lid_addr2 = bits(16)
    p_key = bits(16)
    sl = bits(4)
    _ = reserved(4)
    qp1 = bits(24)
    _ = reserved(8)
    qp2 = bits(24)
    gid_addr1 = bits(128)
    gid_addr2 = bits(128)
    sw_lid_addr = bits(16)
    port_no = bits(8)
    _ = reserved(24)


class Trap(Numbered):
    """The trap numbers of subnet management."""

    GID_IN_SERVICE = 64, GidDetails
    GID_OUT_OF_SERVICE = 65, GidDetails
    MGID_CREATED = 66, GidDetails
    MGID_DESTROYED = 67, GidDetails
    UNPATH = 68, PathDetails
    REPATH = 69, PathDetails
    LINK_STATE_CHANGED = 128, LinkStateDetails
    LINK_INTEGRITY_THRESHOLD = 129, PortDetails
    BUFFER_OVERRUN_THRESHOLD = 130, PortDetails
    WATCHDOG_TIMER_EXPIRED = 131, PortDetails
    LOCAL_CHANGES = 144, LocalChangesDetails
    SYSTEM_IMAGE_GUID_CHANGED = 145, SystemImageGuidDetails
    BAD_M_KEY = 256, BadMKeyDetails
    BAD_P_KEY = 257, BadKeyDetails
    BAD_Q_KEY = 258, BadKeyDetails
    BAD_SWITCH_P_KEY = 259, BadSwitchPKeyDetails


DETAILS = Trap.forms()


class Notice(Format, size=64):
    """The attribute 0x0002 in an SMP. If not generic, the producer type is a vendor and the trap number a device."""

    is_generic = bits(1, default=1)
    type = bits(7, of=NoticeType)
    producer_type = bits(24, of=ProducerType)
    trap_number = bits(16, of=Trap)
    issuer_lid = bits(16)
    notice_toggle = bits(1)
    notice_count = bits(15)
    data_details = octets(54)


class GmpNotice(Notice, size=80):
    """The attribute 0x0002 in all other classes: with the GID of the issuer."""

    issuer_gid = bits(128)


def details(notice: Notice) -> Format | None:
    """Return the details of a generic notice of subnet management, or None if its trap is unknown."""
    form = DETAILS.get(notice.trap_number) if notice.is_generic else None
    return form.unpack(notice.data_details) if form else None
