"""Adaptive routing of NVIDIA's switches: vendor attributes of subnet management, SwitchX and later.

    AdaptiveRoutingInfo 0xFF20                        whether it is enabled, and the number of port groups
    AdaptiveRoutingGroupTable 0xFF21                  the ports of a group; the modifier is a block of two groups
    AdaptiveRoutingLinearForwardingTable 0xFF23       the group of each LID; the modifier is a block of 16 LIDs

Certainty: none of this is in the standard, and it was not tested against a real switch. The layouts are those of
NVIDIA's OpenSM (`ib_ar_info_t`, `ib_ar_group_table_t` and `ib_ar_lft_t` of its `ib_types.h`). The modifiers are less
certain; they come from one public header of NVIDIA's, `nvsdm.h`: in the group table bits 0 to 11 are the block, 16 to
19 the table, 24 to 31 the private forwarding table; in the forwarding table bits 0 to 23 are the block, 24 to 31 the
private table. That two groups form a block if each has one sub-group is from OpenSM's `osm_armgr_types.hpp`; with more
sub-groups a block is two of those, and bits 12 and 13 are unclear: weft uses one sub-group, table 0 and private table
0. The older 0xFF22, with 32 LIDs to a block, is InfiniScale IV's.
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from enum import IntEnum

from weft.wire.fields import bits, octets, parts, reserved
from weft.wire.format import Format

LIDS_PER_BLOCK = 16
GROUPS_PER_BLOCK = 2
MASK_BYTES = 32  # a group: port p is bit p % 8 of byte 31 - p // 8


class LidState(IntEnum):
    """The forwarding mode of a switch for a LID."""

    BOUNDED = 0  # adaptive, but packets in quick succession take the same port and stay in order
    FREE = 1  # adaptive, packet by packet
    STATIC = 2  # by the port in the entry
    HASH = 3  # by a hash of the headers over the group


class AdaptiveRoutingInfo(Format, size=28):
    """The attribute 0xFF20. Settable: `enabled`, `group_top`, the masks, and fields named `..._enabled`."""

    _ = reserved(1)
    dynamic_cap_calculation = bits(1)
    by_transport_cap = bits(1)
    by_sl_enabled = bits(1)
    by_sl_cap = bits(1)
    global_groups = bits(1)
    is4_mode = bits(1)
    no_fallback = bits(1)  # a Set of the plain forwarding table: 0 disables adaptive routing, 1 is refused
    directions = bits(8)
    group_table_copy = bits(4)
    sub_groups_active = bits(4)
    _ = reserved(1)
    is_trial_supported = bits(1)
    rn_xmit_enabled = bits(1)  # RN: routing notifications, by which switches warn each other
    fr_enabled = bits(1)
    is_fr_supported = bits(1)
    is_frn_supported = bits(1)
    is_arn_supported = bits(1)
    enabled = bits(1)
    string_width_cap = bits(4)
    group_table_cap = bits(4)
    group_top = bits(12)  # the last group in use
    group_cap = bits(12)  # number of groups; 0: no adaptive routing
    enable_by_sl_mask = bits(16)
    sub_groups_supported = bits(8)
    rn_version_cap = bits(4)
    version_cap = bits(4)
    _ = reserved(24)
    by_transport_disable = bits(8)
    ageing_time_us = bits(32)  # after which a flow of a BOUNDED LID may change its port
    is_hbf_supported = bits(1)  # HBF: forwarding by hash
    is_whbf_supported = bits(1)
    is_symmetric_hash_supported = bits(1)
    is_dceth_hash_supported = bits(1)
    is_bth_dqp_hash_supported = bits(1)
    by_vl_cap = bits(1)  # nvsdm.h: forwarding by hash on NVLink
    is_pfrn_supported = bits(1)
    _ = reserved(9)
    by_sl_hbf_enabled = bits(1)
    whbf_enabled = bits(1)
    by_vl_enabled = bits(1)
    pfrn_enabled = bits(1)
    _ = reserved(12)
    whbf_granularity = bits(3)
    _ = reserved(13)
    enable_by_sl_mask_hbf = bits(16)


class AdaptiveRoutingGroupTable(Format, size=64):
    """The attribute 0xFF21: port masks."""

    group_0 = octets(MASK_BYTES)
    group_1 = octets(MASK_BYTES)


class AdaptiveRoutingEntry(Format, size=4):
    """The entry of a LID. `port` is that of the plain forwarding table, for packets that are not routed adaptively.

    Some readers take the group of a STATIC entry for its port, OpenSM reads `port` there: write both.
    """

    state = bits(2, of=LidState)
    _ = reserved(2)
    table = bits(4)
    port = bits(8)
    _ = reserved(4)
    group = bits(12)


class AdaptiveRoutingLinearForwardingTable(Format, size=64):
    """The attribute 0xFF23."""

    entry = parts(LIDS_PER_BLOCK, AdaptiveRoutingEntry)
