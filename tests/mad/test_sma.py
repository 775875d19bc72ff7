"""Attributes of subnet management except PortInfo: Gets, Sets and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from weft.fabric.tables import NO_ROUTE
from weft.mad.carrier import ask
from weft.wire.mad import Method, Status
from weft.wire.port_info import Capability, MlnxExtendedPortInfo, PortInfo
from weft.wire.smp import (
    ALL_INPUTS,
    DirectedSmp,
    GuidInfo,
    LedInfo,
    LinearForwardingTable,
    MulticastForwardingTable,
    NodeDescription,
    NodeInfo,
    NodeType,
    PKeyTable,
    SLtoVLMappingTable,
    SmpAttribute,
    SwitchInfo,
    VLArbitrationEntry,
    VLArbitrationTable,
)

GET, SET = Method.GET, Method.SET
LEAF, SPINE = [1], [1, 3]
UNSUPPORTED, INVALID = Status.METHOD_ATTRIBUTE_NOT_SUPPORTED, Status.INVALID_FIELD


def test_node_info_says_who_answers_and_by_which_port(bench):
    nodes = bench.devices.fabric.nodes
    for path, name, kind, port in (
        ([], "h1", NodeType.CA, 1),
        (LEAF, "leaf1", NodeType.SWITCH, 1),
        (SPINE, "spine1", NodeType.SWITCH, 1),
        ([1, 3, 2], "leaf2", NodeType.SWITCH, 3),
    ):
        info = bench.get(path, NodeInfo)
        assert (info.node_type, info.local_port_num) == (kind, port)
        assert info.node_guid == int(nodes.guid[bench.node(name)])


def test_every_port_of_an_adapter_has_its_own_guid(bench):
    info = bench.get([], NodeInfo)
    assert info.port_guid == int(bench.devices.fabric.ports.guid[bench.slot])
    assert bench.get([], GuidInfo).guid[0] == info.port_guid
    assert bench.get(LEAF, NodeInfo).port_guid == bench.get(LEAF, NodeInfo).node_guid


def test_a_node_description_can_be_set_by_who_manages(bench):
    assert bench.get(LEAF, NodeDescription).node_string.rstrip(b"\0") == b"leaf1"
    assert bench.ask(LEAF, SET, SmpAttribute.NODE_DESCRIPTION, data=b"rack 7")[0] == 0
    assert bench.get(LEAF, NodeDescription).node_string.rstrip(b"\0") == b"rack 7"


def test_an_alias_guid_is_kept_and_the_first_cannot_be_changed(bench):
    own = bench.get([], GuidInfo).guid[0]
    status, raw = bench.ask([], SET, SmpAttribute.GUID_INFO, data=GuidInfo(guid=(99, 0xABC)).raw)
    assert status == 0
    assert GuidInfo.unpack(raw).guid[:3] == (own, 0xABC, 0)
    assert bench.get([], GuidInfo).guid[1] == 0xABC
    assert bench.ask([], GET, SmpAttribute.GUID_INFO, 1)[0] == INVALID
    assert bench.ask(LEAF, SET, SmpAttribute.GUID_INFO)[0] == UNSUPPORTED


def test_switch_info_belongs_to_switches(bench):
    assert bench.ask([], GET, SmpAttribute.SWITCH_INFO)[0] == UNSUPPORTED
    assert bench.ask([], SET, SmpAttribute.SWITCH_INFO)[0] == UNSUPPORTED
    assert bench.get(LEAF, SwitchInfo).linear_fdb_cap == 0xC000


def test_capacities_of_a_switch_stay_and_tops_are_set(bench):
    info = bench.get(LEAF, SwitchInfo)
    expected = info.replace(linear_fdb_cap=1, linear_fdb_top=77, multicast_fdb_top=0xC010, life_time_value=3)
    assert bench.put(LEAF, expected) == 0
    assert bench.get(LEAF, SwitchInfo) == expected.replace(linear_fdb_cap=0xC000)


@pytest.mark.parametrize("change", [{"linear_fdb_top": 0xC000}, {"multicast_fdb_top": 0xD000}])
def test_a_top_beyond_the_capacity_is_refused(bench, change):
    info = bench.get(LEAF, SwitchInfo)
    assert bench.put(LEAF, info.replace(**change)) == INVALID
    assert bench.get(LEAF, SwitchInfo) == info


def test_writing_one_clears_the_port_state_change(running):
    SwitchInfo.port_state_change.set(running.devices.switch_info[running.node("leaf1")], 1)
    info = running.get(LEAF, SwitchInfo)
    assert running.put(LEAF, info.replace(port_state_change=0)) == 0
    assert running.get(LEAF, SwitchInfo).port_state_change
    assert running.put(LEAF, info) == 0
    assert not running.get(LEAF, SwitchInfo).port_state_change


def test_pkeys_are_the_fabrics_own(bench):
    keys = PKeyTable(p_key=(0xFFFF, 0x8001))
    assert bench.put([], keys, 1) == 0
    assert bench.devices.tables.pkey[bench.slot, 32:34].tolist() == [0xFFFF, 0x8001]
    assert bench.get([], PKeyTable, 1) == keys
    assert bench.get([], PKeyTable).p_key[0] == 0xFFFF


def test_a_switch_keeps_pkeys_by_port(bench):
    assert bench.put(LEAF, PKeyTable(p_key=(0x8005,)), 3 << 16) == 0
    assert bench.devices.tables.pkey[bench.slot_of("leaf1/3"), 0] == 0x8005
    assert bench.get(LEAF, PKeyTable, 2 << 16).p_key[0] == 0xFFFF
    assert bench.ask(LEAF, GET, SmpAttribute.P_KEY_TABLE, 5 << 16)[0] == INVALID
    assert bench.ask(LEAF, GET, SmpAttribute.P_KEY_TABLE, 1)[0] == INVALID  # 32 entries: one block
    assert bench.ask([], GET, SmpAttribute.P_KEY_TABLE, 4)[0] == INVALID  # 128: four


def test_sl_to_vl_of_a_switch_is_by_both_ports(bench):
    table = SLtoVLMappingTable(vl=tuple(sl % 5 for sl in range(16)))
    assert bench.put(LEAF, table, 1 << 8 | 3) == 0
    assert bench.get(LEAF, SLtoVLMappingTable, 1 << 8 | 3) == table
    assert bench.get(LEAF, SLtoVLMappingTable, 3 << 8 | 1).vl == (0,) * 16
    row = int(bench.devices.tables.first_pair[bench.node("leaf1")]) + 1 * 5 + 3
    assert bench.devices.tables.sl2vl[row].tolist() == list(table.vl)
    assert bench.ask(LEAF, GET, SmpAttribute.SL_TO_VL_MAPPING_TABLE, 5 << 8)[0] == INVALID


def test_sl_to_vl_of_a_switch_is_set_for_all_inputs_at_once(bench):
    assert bench.get(LEAF, SwitchInfo).optimized_sl_to_vl_mapping_programming == 1
    table = SLtoVLMappingTable(vl=tuple(sl % 5 for sl in range(16)))
    assert bench.put(LEAF, table, ALL_INPUTS | 3) == 0
    assert [bench.get(LEAF, SLtoVLMappingTable, into << 8 | 3) for into in range(5)] == [table] * 5
    assert bench.get(LEAF, SLtoVLMappingTable, 3 << 8 | 1).vl == (0,) * 16
    assert bench.put(LEAF, table, ALL_INPUTS | 5) == INVALID


def test_sl_to_vl_of_an_adapter_is_by_port(bench):
    table = SLtoVLMappingTable(vl=(3, 2, 1))
    assert bench.put([], table) == 0
    assert bench.devices.tables.sl2vl[int(bench.devices.tables.first_pair[bench.node("h1")]) + 1, :3].tolist() == [
        3,
        2,
        1,
    ]


@pytest.mark.parametrize(("block", "table", "first"), [(1, 0, 0), (2, 0, 32), (3, 1, 0), (4, 1, 32)])
def test_vl_arbitration_has_two_blocks_of_low_then_two_of_high(bench, block, table, first):
    entries = VLArbitrationTable(entry=[VLArbitrationEntry(vl=5, weight=77)])
    assert bench.put(LEAF, entries, block << 16 | 2) == 0
    assert bench.devices.tables.vl_arbitration[bench.slot_of("leaf1/2"), table, first].tolist() == [5, 77]
    assert bench.get(LEAF, VLArbitrationTable, block << 16 | 2) == entries


def test_vl_arbitration_has_no_fifth_block(bench):
    assert bench.ask(LEAF, GET, SmpAttribute.VL_ARBITRATION_TABLE, 5 << 16)[0] == INVALID
    assert bench.ask(LEAF, GET, SmpAttribute.VL_ARBITRATION_TABLE, 1)[0] == INVALID


def test_forwarding_tables_grow_to_the_lids_that_are_set(bench):
    table = LinearForwardingTable(port=range(64))
    assert bench.put(SPINE, table, 40) == 0
    assert bench.get(SPINE, LinearForwardingTable, 40) == table
    assert set(bench.get(SPINE, LinearForwardingTable, 41).port) == {NO_ROUTE}
    assert set(bench.get(LEAF, LinearForwardingTable, 40).port) == {NO_ROUTE}
    row = bench.devices.tables.switch_row[bench.node("spine1")]
    assert bench.devices.tables.lft[row, 40 * 64 : 41 * 64].tolist() == list(range(64))


def test_tables_by_lid_keep_one_width(bench):
    tables = bench.devices.tables
    before = tables.path_sl.shape, tables.ar_group.shape
    assert bench.put(SPINE, LinearForwardingTable(port=range(64)), 40) == 0
    assert tables.path_sl.shape == tables.ar_group.shape == tables.lft.shape != before[0]
    assert (tables.ar_group == -1).all()


def test_adapters_forward_nothing(bench):
    for attribute in (SmpAttribute.LINEAR_FORWARDING_TABLE, SmpAttribute.MULTICAST_FORWARDING_TABLE):
        assert bench.ask([], GET, attribute)[0] == UNSUPPORTED
        assert bench.ask([], SET, attribute)[0] == UNSUPPORTED


def test_no_lid_above_unicast_is_in_a_forwarding_table(bench):
    assert bench.ask(LEAF, GET, SmpAttribute.LINEAR_FORWARDING_TABLE, 0xC000 // 64)[0] == INVALID
    assert bench.ask(LEAF, SET, SmpAttribute.LINEAR_FORWARDING_TABLE, 0xC000 // 64)[0] == INVALID


def test_a_multicast_table_is_by_block_and_position(bench):
    table = MulticastForwardingTable(port_mask=(0b110, 0, 0b1000))
    assert bench.ask(LEAF, SET, SmpAttribute.MULTICAST_FORWARDING_TABLE, 2, table.raw)[0] == 0
    assert bench.ask(LEAF, GET, SmpAttribute.MULTICAST_FORWARDING_TABLE, 2) == (0, table.raw)
    row = bench.devices.tables.switch_row[bench.node("leaf1")]
    assert np.flatnonzero(bench.devices.tables.mft[row, :, 0]).tolist() == [64, 66]
    shape = bench.devices.tables.mft.shape
    assert bench.ask(LEAF, SET, SmpAttribute.MULTICAST_FORWARDING_TABLE, 4, table.raw)[0] == 0
    assert bench.devices.tables.mft.shape == (shape[0], shape[1] + 64, shape[2])
    assert np.flatnonzero(bench.devices.tables.mft[row, :, 0]).tolist() == [64, 66, 128, 130]
    assert bench.ask(LEAF, GET, SmpAttribute.MULTICAST_FORWARDING_TABLE, 1 << 28)[0] == INVALID  # four ports: one mask
    assert bench.ask(LEAF, GET, SmpAttribute.MULTICAST_FORWARDING_TABLE, 128)[0] == INVALID


def test_a_light_is_switched_on_and_off(bench):
    assert bench.ask(LEAF, SET, SmpAttribute.LED_INFO, 2, LedInfo(led_mask=1).raw)[0] == 0
    assert LedInfo.unpack(bench.ask(LEAF, GET, SmpAttribute.LED_INFO, 2)[1]).led_mask
    assert not LedInfo.unpack(bench.ask(LEAF, GET, SmpAttribute.LED_INFO, 1)[1]).led_mask
    assert bench.ask(LEAF, SET, SmpAttribute.LED_INFO, 2)[0] == 0
    assert not LedInfo.unpack(bench.ask(LEAF, GET, SmpAttribute.LED_INFO, 2)[1]).led_mask
    assert bench.ask(LEAF, SET, SmpAttribute.LED_INFO, 9)[0] == INVALID


def test_vendor_diagnostics_and_error_correction_can_be_read(bench):
    assert bench.ask([], GET, SmpAttribute.VENDOR_DIAG)[0] == 0
    assert bench.ask([], GET, SmpAttribute.VENDOR_DIAG, 1)[0] == INVALID
    assert bench.ask(LEAF, GET, SmpAttribute.PORT_INFO_EXTENDED, 1)[0] == 0
    assert bench.ask(LEAF, GET, SmpAttribute.PORT_INFO_EXTENDED, 9)[0] == INVALID


def test_a_link_of_fdr10_says_so_in_mellanoxs_attribute(make_bench):
    slow = make_bench("star:hosts=2,speed=FDR10")
    info = MlnxExtendedPortInfo.unpack(slow.ask([], GET, SmpAttribute.MLNX_EXTENDED_PORT_INFO)[1])
    assert (info.link_speed_supported, info.link_speed_enabled, info.link_speed_active) == (1, 1, 1)
    assert slow.get([], PortInfo).link_speed_active == 4  # QDR, for managers without the newer fields
    off = info.replace(link_speed_enabled=0)
    assert slow.ask([], SET, SmpAttribute.MLNX_EXTENDED_PORT_INFO, data=off.raw)[0] == 0
    assert slow.set_port([], port_state=1, lid=1, master_sm_lid=1) == 0  # Down: the link trains again
    raw = slow.ask([], GET, SmpAttribute.MLNX_EXTENDED_PORT_INFO)[1]
    assert not MlnxExtendedPortInfo.unpack(raw).link_speed_active
    assert (
        slow.ask([], SET, SmpAttribute.MLNX_EXTENDED_PORT_INFO, data=info.replace(link_speed_enabled=2).raw)[0]
        == INVALID
    )


@pytest.mark.parametrize(
    "attribute",
    [SmpAttribute.RANDOM_FORWARDING_TABLE, SmpAttribute.LINK_SPEED_WIDTH_PAIRS_TABLE, SmpAttribute.NOTICE, 0x7777],
)
def test_attributes_outside_the_capability_mask_are_refused(bench, attribute):
    assert bench.ask(LEAF, GET, attribute)[0] == UNSUPPORTED
    assert bench.ask(LEAF, SET, attribute)[0] == UNSUPPORTED
    mask = bench.get(LEAF, PortInfo).capability_mask
    assert not mask & (Capability.IS_NOTICE_SUPPORTED | Capability.IS_LINK_SPEED_WIDTH_PAIRS_TABLE_SUPPORTED)


def test_node_info_cannot_be_set(bench):
    assert bench.ask(LEAF, SET, SmpAttribute.NODE_INFO)[0] == UNSUPPORTED


def test_a_method_that_an_agent_does_not_know_is_refused(bench):
    assert bench.ask(LEAF, Method.GET_TABLE, SmpAttribute.NODE_INFO)[0] == Status.METHOD_NOT_SUPPORTED


def test_sm_info_is_refused_where_no_subnet_manager_is(bench):
    assert bench.ask(LEAF, GET, SmpAttribute.SM_INFO)[0] == UNSUPPORTED
    assert bench.ask([], GET, SmpAttribute.SM_INFO)[0] == UNSUPPORTED


def test_notices_are_not_polled_even_where_a_subnet_manager_is(running):
    assert running.ask([], GET, SmpAttribute.NOTICE)[0] == UNSUPPORTED


def test_another_version_is_answered_and_counted(bench):
    for version in ({"base_version": 2}, {"class_version": 9}):
        mad = DirectedSmp.pack(method=GET, attribute_id=SmpAttribute.NODE_INFO, hop_count=0, **version)
        answer = ask(bench.carrier, mad)
        assert answer is not None
        assert answer[5] == Status.BAD_VERSION
    assert bench.devices.odd["version"] == 2
