"""Steering of raw packets: flow rules, work queues, hashing, counters."""
# ruff: noqa: N801 - the names are those of verbs.h

from __future__ import annotations

from enum import IntEnum


class ibv_flow_attr_type(IntEnum):
    """The type of a flow rule."""

    IBV_FLOW_ATTR_NORMAL = 0
    IBV_FLOW_ATTR_ALL_DEFAULT = 1
    IBV_FLOW_ATTR_MC_DEFAULT = 2
    IBV_FLOW_ATTR_SNIFFER = 3


class ibv_flow_flags(IntEnum):
    """The options of a flow rule."""

    IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 2
    IBV_FLOW_ATTR_FLAGS_EGRESS = 4


class ibv_flow_spec_type(IntEnum):
    """A header that a flow rule matches, or an action of the rule."""

    IBV_FLOW_SPEC_ETH = 0x20
    IBV_FLOW_SPEC_IPV4 = 0x30
    IBV_FLOW_SPEC_IPV6 = 0x31
    IBV_FLOW_SPEC_IPV4_EXT = 0x32
    IBV_FLOW_SPEC_ESP = 0x34
    IBV_FLOW_SPEC_TCP = 0x40
    IBV_FLOW_SPEC_UDP = 0x41
    IBV_FLOW_SPEC_VXLAN_TUNNEL = 0x50
    IBV_FLOW_SPEC_GRE = 0x51
    IBV_FLOW_SPEC_MPLS = 0x60
    IBV_FLOW_SPEC_INNER = 0x100
    IBV_FLOW_SPEC_ACTION_TAG = 0x1000
    IBV_FLOW_SPEC_ACTION_DROP = 0x1001
    IBV_FLOW_SPEC_ACTION_HANDLE = 0x1002
    IBV_FLOW_SPEC_ACTION_COUNT = 0x1003


class ibv_counter_description(IntEnum):
    """The quantity that a flow counter counts."""

    IBV_COUNTER_PACKETS = 0
    IBV_COUNTER_BYTES = 1


class ibv_read_counters_flags(IntEnum):
    """The way flow counters are read."""

    IBV_READ_COUNTERS_ATTR_PREFER_CACHED = 1


class ibv_wq_type(IntEnum):
    """The type of a work queue."""

    IBV_WQT_RQ = 0


class ibv_wq_state(IntEnum):
    """The state of a work queue."""

    IBV_WQS_RESET = 0
    IBV_WQS_RDY = 1
    IBV_WQS_ERR = 2
    IBV_WQS_UNKNOWN = 3


class ibv_wq_flags(IntEnum):
    """The options of a work queue."""

    IBV_WQ_FLAGS_CVLAN_STRIPPING = 1
    IBV_WQ_FLAGS_SCATTER_FCS = 2
    IBV_WQ_FLAGS_DELAY_DROP = 4
    IBV_WQ_FLAGS_PCI_WRITE_END_PADDING = 8


class ibv_wq_init_attr_mask(IntEnum):
    """The fields that are set in WQInitAttr."""

    IBV_WQ_INIT_ATTR_FLAGS = 1


class ibv_wq_attr_mask(IntEnum):
    """The attributes that a modification of a work queue sets."""

    IBV_WQ_ATTR_STATE = 1
    IBV_WQ_ATTR_CURR_STATE = 2
    IBV_WQ_ATTR_FLAGS = 4


class ibv_rx_hash_function_flags(IntEnum):
    """A hash function of receive-side scaling."""

    IBV_RX_HASH_FUNC_TOEPLITZ = 1


class ibv_rx_hash_fields(IntEnum):
    """The header fields that receive-side scaling hashes."""

    IBV_RX_HASH_SRC_IPV4 = 1
    IBV_RX_HASH_DST_IPV4 = 2
    IBV_RX_HASH_SRC_IPV6 = 4
    IBV_RX_HASH_DST_IPV6 = 8
    IBV_RX_HASH_SRC_PORT_TCP = 0x10
    IBV_RX_HASH_DST_PORT_TCP = 0x20
    IBV_RX_HASH_SRC_PORT_UDP = 0x40
    IBV_RX_HASH_DST_PORT_UDP = 0x80
