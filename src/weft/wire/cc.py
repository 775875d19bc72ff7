"""Congestion control: the management class for thresholds at switches and rate tables at adapters (annex A10).

The two sources, rdma-core and OpenSM, disagree in places. There the layouts are rdma-core's, since its ibccquery and
ibccconfig print and set them; OpenSM's are noted.
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from weft.wire.fields import bits, octets, parts, reserved
from weft.wire.format import Format, Numbered
from weft.wire.mad import MAD_BYTES, ClassPortInfo, MadHeader, MgmtClass
from weft.wire.notice import GmpNotice


class CcMad(MadHeader, size=MAD_BYTES, mgmt_class=MgmtClass.CONG_CTRL, class_version=2):
    """A congestion control MAD: a log starts in `log_data` and continues in `data`; all else is in `data`."""

    cc_key = bits(64)
    log_data = octets(32)
    data = octets(192)


class CongestionInfo(Format, size=4):
    congestion_info = bits(16)  # bit 0: credit starvation is supported
    control_table_cap = bits(8)  # blocks of 64 entries
    _ = reserved(8)


class CongestionKeyInfo(Format, size=16):
    cc_key = bits(64)
    cc_key_protect_bit = bits(1)
    _ = reserved(15)
    cc_key_lease_period = bits(16)
    cc_key_violations = bits(16)
    _ = reserved(16)


class CongestionLogEventSwitch(Format, size=12):
    slid = bits(16)
    dlid = bits(16)
    sl = bits(4)
    _ = reserved(28)
    timestamp = bits(32)


class CongestionLogSwitch(Format, size=220):
    """The congestion log of a switch: `log_type` 1."""

    log_type = bits(8, default=1)
    congestion_flags = bits(8)
    log_events_counter = bits(16)
    current_time_stamp = bits(32)
    port_map = octets(32)
    event = parts(15, CongestionLogEventSwitch)


class CongestionLogEventCA(Format, size=16):
    """An event in an adapter's log. In OpenSM SL and service type follow the remote QP, and there is no local LID."""

    local_qp_cn_entry = bits(24)
    sl_cn_entry = bits(4)
    service_type_cn_entry = bits(4)
    remote_qp_number_cn_entry = bits(24)
    _ = reserved(8)
    local_lid_cn = bits(16)
    remote_lid_cn_entry = bits(16)
    timestamp_cn_entry = bits(32)


class CongestionLogCA(Format, size=220):
    """The congestion log of an adapter: `log_type` 2."""

    log_type = bits(8, default=2)
    congestion_flags = bits(8)
    threshold_event_counter = bits(16)
    threshold_congestion_event_map = bits(16)
    _ = reserved(16)
    current_time_stamp = bits(32)
    event = parts(13, CongestionLogEventCA)


class SwitchCongestionSetting(Format, size=76):
    control_map = bits(32)
    victim_mask = octets(32)
    credit_mask = octets(32)
    threshold = bits(4)
    _ = reserved(4)
    packet_size = bits(8)  # units of 64 bytes
    cs_threshold = bits(4)
    _ = reserved(12)
    cs_return_delay = bits(16)
    marking_rate = bits(16)


class SwitchPortCongestionSettingElement(Format, size=4):
    valid = bits(1)
    control_type = bits(1)
    _ = reserved(2)
    threshold = bits(4)
    packet_size = bits(8)
    cong_parm_marking_rate = bits(16)


class SwitchPortCongestionSetting(Format, size=192):
    """A block of ports; rdma-core counts 48 to a block, OpenSM fills and counts 32."""

    element = parts(48, SwitchPortCongestionSettingElement)


class CACongestionEntry(Format, size=8):
    ccti_timer = bits(16)  # units of 1.024 us
    ccti_increase = bits(8)
    trigger_threshold = bits(8)
    ccti_min = bits(8)
    _ = reserved(24)


class CACongestionSetting(Format, size=132):
    port_control = bits(16)  # bit 0: by SL and port, not by QP
    control_map = bits(16)
    entry = parts(16, CACongestionEntry)  # by SL


class CongestionControlTableEntry(Format, size=2):
    cct_shift = bits(2)
    cct_multiplier = bits(14)


class CongestionControlTable(Format, size=132):
    """A congestion control table; the modifier is the block of 64 entries."""

    ccti_limit = bits(16)
    _ = reserved(16)
    entry = parts(64, CongestionControlTableEntry)


class TimeStamp(Format, size=4):
    timestamp = bits(32)  # units of 1.024 us


class CcAttribute(Numbered):
    CLASS_PORT_INFO = 0x0001, ClassPortInfo
    NOTICE = 0x0002, GmpNotice
    CONGESTION_INFO = 0x0011, CongestionInfo
    CONGESTION_KEY_INFO = 0x0012, CongestionKeyInfo
    CONGESTION_LOG = 0x0013  # has two formats, see `congestion_log`
    SWITCH_CONGESTION_SETTING = 0x0014, SwitchCongestionSetting
    SWITCH_PORT_CONGESTION_SETTING = 0x0015, SwitchPortCongestionSetting
    CA_CONGESTION_SETTING = 0x0016, CACongestionSetting
    CONGESTION_CONTROL_TABLE = 0x0017, CongestionControlTable
    TIME_STAMP = 0x0018, TimeStamp


ATTRIBUTES = CcAttribute.forms()


def congestion_log(mad: CcMad) -> CongestionLogSwitch | CongestionLogCA:
    """Return the log in an answer; its first byte says whether a switch or an adapter wrote it."""
    form = CongestionLogCA if CcMad.log_data.get(mad.raw)[:1] == b"\x02" else CongestionLogSwitch
    return form.unpack(mad.log_data + mad.data)
