"""Performance management: counters of a port (InfiniBand Architecture volume 1, "Performance Management").

Data counters count words of 4 bytes, all counters saturate at their largest value, and `counter_select` selects those
that a Set changes. A MAD of this class is a `PlainMad` whose `data` starts with one of these.
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from enum import IntFlag

from weft.wire.fields import bits, numbers, reserved
from weft.wire.format import Format, Numbered
from weft.wire.mad import ClassPortInfo

ALL_PORTS = 255


class PerfCapability(IntFlag):
    """The ClassPortInfo:CapabilityMask of this class."""

    ALL_PORT_SELECT = 1 << 8
    EXTENDED_WIDTH = 1 << 9
    EXTENDED_WIDTH_NO_IETF = 1 << 10
    SAMPLES_ONLY = 1 << 11
    XMIT_WAIT = 1 << 12
    RS_FEC_COUNTERS = 1 << 14
    QP1_DROPPED = 1 << 15


class PerfCapability2(IntFlag):
    """The ClassPortInfo:CapabilityMask2 of this class."""

    PM_KEY = 1 << 0
    ADDITIONAL_PORT_COUNTERS_EXTENDED = 1 << 1


class PortSelect(Format, size=4):
    """The beginning of nearly all counter attributes."""

    _ = reserved(8)
    port_select = bits(8)
    counter_select = bits(16)


class PortSamplesControl(Format, size=80):
    op_code = bits(8)
    port_select = bits(8)
    tick = bits(8)
    _ = reserved(5)
    counter_width = bits(3)
    _ = reserved(2)
    counter_mask0 = bits(3)
    counter_masks1to9 = bits(27)
    _ = reserved(1)
    counter_masks10to14 = bits(15)
    sample_mechanisms = bits(8)
    _ = reserved(6)
    sample_status = bits(2)
    option_mask = bits(64)
    vendor_mask = bits(64)
    sample_start = bits(32)
    sample_interval = bits(32)
    tag = bits(16)
    counter_select = numbers(15, 16)
    _ = reserved(32)
    samples_only_option_mask = bits(64)


class PortSamplesResult(Format, size=64):
    tag = bits(16)
    _ = reserved(14)
    sample_status = bits(2)
    counter = numbers(15, 32)


class PortCounters(PortSelect, size=44):
    symbol_error_counter = bits(16)
    link_error_recovery_counter = bits(8)
    link_downed_counter = bits(8)
    port_rcv_errors = bits(16)
    port_rcv_remote_physical_errors = bits(16)
    port_rcv_switch_relay_errors = bits(16)
    port_xmit_discards = bits(16)
    port_xmit_constraint_errors = bits(8)
    port_rcv_constraint_errors = bits(8)
    counter_select2 = bits(8)
    local_link_integrity_errors = bits(4)
    excessive_buffer_overrun_errors = bits(4)
    qp1_dropped = bits(16)
    vl15_dropped = bits(16)
    port_xmit_data = bits(32)
    port_rcv_data = bits(32)
    port_xmit_pkts = bits(32)
    port_rcv_pkts = bits(32)
    port_xmit_wait = bits(32)


class PortCountersExtended(PortSelect, size=184):
    """The extended counters; from `symbol_error_counter` on only with ADDITIONAL_PORT_COUNTERS_EXTENDED."""

    counter_select2 = bits(32)
    port_xmit_data = bits(64)
    port_rcv_data = bits(64)
    port_xmit_pkts = bits(64)
    port_rcv_pkts = bits(64)
    port_unicast_xmit_pkts = bits(64)
    port_unicast_rcv_pkts = bits(64)
    port_multicast_xmit_pkts = bits(64)
    port_multicast_rcv_pkts = bits(64)
    symbol_error_counter = bits(64)
    link_error_recovery_counter = bits(64)
    link_downed_counter = bits(64)
    port_rcv_errors = bits(64)
    port_rcv_remote_physical_errors = bits(64)
    port_rcv_switch_relay_errors = bits(64)
    port_xmit_discards = bits(64)
    port_xmit_constraint_errors = bits(64)
    port_rcv_constraint_errors = bits(64)
    local_link_integrity_errors = bits(64)
    excessive_buffer_overrun_errors = bits(64)
    vl15_dropped = bits(64)
    port_xmit_wait = bits(64)
    qp1_dropped = bits(64)


class PortRcvErrorDetails(PortSelect, size=16):
    port_local_physical_errors = bits(16)
    port_malformed_packet_errors = bits(16)
    port_buffer_overrun_errors = bits(16)
    port_dlid_mapping_errors = bits(16)
    port_vl_mapping_errors = bits(16)
    port_looping_errors = bits(16)


class PortXmitDiscardDetails(PortSelect, size=12):
    port_inactive_discards = bits(16)
    port_neighbor_mtu_discards = bits(16)
    port_sw_lifetime_limit_discards = bits(16)
    port_sw_hoq_lifetime_limit_discards = bits(16)


class PortOpRcvCounters(PortSelect, size=12):
    port_op_rcv_pkts = bits(32)
    port_op_rcv_data = bits(32)


class PortFlowCtlCounters(PortSelect, size=12):
    port_xmit_flow_pkts = bits(32)
    port_rcv_flow_pkts = bits(32)


class PortVLOpPackets(PortSelect, size=36):
    port_vl_op_packets = numbers(16, 16)


class PortVLOpData(PortSelect, size=68):
    port_vl_op_data = numbers(16, 32)


class PortVLXmitFlowCtlUpdateErrors(PortSelect, size=8):
    port_vl_xmit_flow_ctl_update_errors = numbers(16, 2)


class PortVLXmitWaitCounters(PortSelect, size=36):
    port_vl_xmit_wait = numbers(16, 16)


class PortExtendedSpeedsCounters(Format, size=152):
    """The counters per lane up to FDR, and EDR without RS-FEC; with it the last three, and lanes count symbols."""

    _ = reserved(8)
    port_select = bits(8)
    _ = reserved(48)
    counter_select = bits(64)
    sync_header_error_counter = bits(16)
    unknown_block_counter = bits(16)
    error_detection_counter_lane = numbers(12, 16)
    fec_correctable_block_ctr_lane = numbers(12, 32)
    fec_uncorrectable_block_ctr_lane = numbers(12, 32)
    port_fec_correctable_block_ctr = bits(32)
    port_fec_uncorrectable_block_ctr = bits(32)
    port_fec_corrected_symbol_ctr = bits(32)


class SwPortVLCongestion(PortSelect, size=36):
    sw_port_vl_congestion = numbers(16, 16)


class PortRcvConCtrl(PortSelect, size=12):
    port_pkt_rcv_fecn = bits(32)
    port_pkt_rcv_becn = bits(32)


class PortSLRcvFECN(PortSelect, size=68):
    port_sl_rcv_fecn = numbers(16, 32)


class PortSLRcvBECN(PortSelect, size=68):
    port_sl_rcv_becn = numbers(16, 32)


class PortXmitConCtrl(PortSelect, size=8):
    port_xmit_time_cong = bits(32)


class PortVLXmitTimeCong(PortSelect, size=64):
    """The time of congestion of VLs 0 to 14."""

    port_vl_xmit_time_cong = numbers(15, 32)


class PortXmitDataSL(PortSelect, size=68):
    port_xmit_data_sl = numbers(16, 32)


class PortRcvDataSL(PortSelect, size=68):
    port_rcv_data_sl = numbers(16, 32)


class PerfAttribute(Numbered):
    CLASS_PORT_INFO = 0x0001, ClassPortInfo
    PORT_SAMPLES_CONTROL = 0x0010, PortSamplesControl
    PORT_SAMPLES_RESULT = 0x0011, PortSamplesResult
    PORT_COUNTERS = 0x0012, PortCounters
    PORT_RCV_ERROR_DETAILS = 0x0015, PortRcvErrorDetails
    PORT_XMIT_DISCARD_DETAILS = 0x0016, PortXmitDiscardDetails
    PORT_OP_RCV_COUNTERS = 0x0017, PortOpRcvCounters
    PORT_FLOW_CTL_COUNTERS = 0x0018, PortFlowCtlCounters
    PORT_VL_OP_PACKETS = 0x0019, PortVLOpPackets
    PORT_VL_OP_DATA = 0x001A, PortVLOpData
    PORT_VL_XMIT_FLOW_CTL_UPDATE_ERRORS = 0x001B, PortVLXmitFlowCtlUpdateErrors
    PORT_VL_XMIT_WAIT_COUNTERS = 0x001C, PortVLXmitWaitCounters
    PORT_COUNTERS_EXTENDED = 0x001D, PortCountersExtended
    PORT_EXTENDED_SPEEDS_COUNTERS = 0x001F, PortExtendedSpeedsCounters
    SW_PORT_VL_CONGESTION = 0x0030, SwPortVLCongestion
    PORT_RCV_CON_CTRL = 0x0031, PortRcvConCtrl
    PORT_SL_RCV_FECN = 0x0032, PortSLRcvFECN
    PORT_SL_RCV_BECN = 0x0033, PortSLRcvBECN
    PORT_XMIT_CON_CTRL = 0x0034, PortXmitConCtrl
    PORT_VL_XMIT_TIME_CONG = 0x0035, PortVLXmitTimeCong
    PORT_XMIT_DATA_SL = 0x0036, PortXmitDataSL
    PORT_RCV_DATA_SL = 0x0037, PortRcvDataSL


ATTRIBUTES = PerfAttribute.forms()
