"""Adaptive routing's attributes: the bytes that NVIDIA's headers say.

Round trips and random bytes of these formats are in test_all_formats, as of all others.
"""

from __future__ import annotations

from weft.wire.adaptive import (
    AdaptiveRoutingEntry,
    AdaptiveRoutingGroupTable,
    AdaptiveRoutingInfo,
    AdaptiveRoutingLinearForwardingTable,
    LidState,
)
from weft.wire.attributes import parse_mad
from weft.wire.smp import DirectedSmp, SmpAttribute


def word_and_bit(field) -> tuple[int, int]:
    """Return the end of a field: byte of its 32-bit word, and bit, 0 the last on the wire."""
    last = field.bit + field.width - 1
    return last // 32 * 4, 31 - last % 32


def test_adaptive_routing_info_is_laid_out_as_published():
    """The layout is that of `ib_ar_info_t` in NVIDIA's OpenSM."""
    expected = {
        "enabled": (0x0, 0),
        "is_arn_supported": (0x0, 1),
        "is_frn_supported": (0x0, 2),
        "is_fr_supported": (0x0, 3),
        "fr_enabled": (0x0, 4),
        "rn_xmit_enabled": (0x0, 5),
        "sub_groups_active": (0x0, 8),
        "group_table_copy": (0x0, 12),
        "directions": (0x0, 16),
        "no_fallback": (0x0, 24),
        "is4_mode": (0x0, 25),
        "global_groups": (0x0, 26),
        "by_sl_cap": (0x0, 27),
        "by_sl_enabled": (0x0, 28),
        "by_transport_cap": (0x0, 29),
        "dynamic_cap_calculation": (0x0, 30),
        "group_cap": (0x4, 0),
        "group_top": (0x4, 12),
        "group_table_cap": (0x4, 24),
        "string_width_cap": (0x4, 28),
        "version_cap": (0x8, 0),
        "rn_version_cap": (0x8, 4),
        "sub_groups_supported": (0x8, 8),
        "enable_by_sl_mask": (0x8, 16),
        "by_transport_disable": (0xC, 0),
        "ageing_time_us": (0x10, 0),
    }
    fields = AdaptiveRoutingInfo.fields
    assert {name: word_and_bit(fields[name]) for name in expected} == expected


def test_later_fields_are_at_the_positions_of_opensm():
    """`cap_fields1`, `enable_features1`, `whbf_granularity` and `enable_by_sl_mask_hbf` of `ib_ar_info_t`."""
    info = AdaptiveRoutingInfo(
        is_pfrn_supported=1, is_hbf_supported=1, pfrn_enabled=1, whbf_granularity=5, enable_by_sl_mask_hbf=0x1234
    )
    assert info.raw[20:] == bytes([0x82, 0, 0x10, 0, 0xA0, 0, 0x12, 0x34])


def test_a_lid_entry_is_state_and_table_then_port_then_group():
    assert AdaptiveRoutingEntry(state=LidState.FREE, table=3, port=17, group=0xABC).raw == bytes([0x43, 17, 0x0A, 0xBC])
    assert AdaptiveRoutingLinearForwardingTable.size == 16 * AdaptiveRoutingEntry.size


def test_the_attributes_are_found_by_their_numbers():
    for number, record in (
        (0xFF20, AdaptiveRoutingInfo(enabled=1, group_cap=2048)),
        (0xFF21, AdaptiveRoutingGroupTable(group_1=b"\1" * 32)),
        (0xFF23, AdaptiveRoutingLinearForwardingTable(entry=[AdaptiveRoutingEntry(port=9)])),
    ):
        smp = DirectedSmp(attribute_id=number, data=record.raw)
        assert parse_mad(smp.raw)[1] == record
        assert SmpAttribute(number).name.startswith("ADAPTIVE_ROUTING_")
