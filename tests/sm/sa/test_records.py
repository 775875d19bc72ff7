"""Records of nodes, ports, links and tables, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.sm.conf.options import Options
from weft.sm.sa.administrator import Administrator
from weft.sm.sa.record_tables import matching
from weft.wire.bulk import fill
from weft.wire.mad import ClassPortInfo, Method, RmppFlag, RmppMad, Status
from weft.wire.port_info import Capability, PortInfo
from weft.wire.sa import (
    SA_HEADER_BYTES,
    GuidInfoRecord,
    LinearForwardingTableRecord,
    LinkRecord,
    MCMemberRecord,
    MulticastForwardingTableRecord,
    NodeRecord,
    PathRecord,
    PKeyTableRecord,
    PortInfoRecord,
    SaAttribute,
    SaMad,
    SaStatus,
    SLtoVLMappingTableRecord,
    SMInfoRecord,
    SwitchInfoRecord,
    VLArbitrationTableRecord,
)
from weft.wire.sa_query import component_mask, components, matches
from weft.wire.smp import NodeInfo, SMInfo, SMState, SwitchInfo

FORMS = (NodeRecord, PortInfoRecord, LinkRecord, PathRecord, MCMemberRecord, MulticastForwardingTableRecord)
TRUSTED = {"sm_key": 1}


# -- matching ----------------------------------------------------------------------------------------------------------


@given(st.data())
def test_records_are_matched_as_one_by_one(data):
    """The vectorized match on bytes equals `wire.sa_query.matches` on each record."""
    form = data.draw(st.sampled_from(FORMS))
    few = st.binary(min_size=form.size, max_size=form.size).map(lambda raw: bytes(byte & 0x11 for byte in raw))
    query, records = data.draw(few), data.draw(st.lists(few, max_size=6))
    chosen = data.draw(st.sets(st.integers(0, len(components(form)) - 1), max_size=4))
    mask = sum(1 << bit for bit in chosen)
    records.append(query)
    rows = np.frombuffer(b"".join(records), np.uint8).reshape(-1, form.size)
    expected = [n for n, raw in enumerate(records) if matches(form.unpack(raw), form.unpack(query), mask)]
    assert matching(form, rows, query, mask).tolist() == expected


# -- statuses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ({"attribute_id": 0x0039}, Status.METHOD_ATTRIBUTE_NOT_SUPPORTED),
        ({"attribute_id": 0x1234}, Status.METHOD_ATTRIBUTE_NOT_SUPPORTED),
        ({"attribute_id": SaAttribute.SM_INFO_RECORD, "method": Method.SET}, Status.METHOD_ATTRIBUTE_NOT_SUPPORTED),
        ({"attribute_id": SaAttribute.NODE_RECORD, "method": 0x44}, Status.METHOD_NOT_SUPPORTED),
        ({"attribute_id": SaAttribute.NODE_RECORD, "class_version": 1}, Status.BAD_VERSION),
        ({"attribute_id": SaAttribute.NODE_RECORD, "method": Method.GET}, SaStatus.TOO_MANY_RECORDS),
        ({"attribute_id": SaAttribute.P_KEY_TABLE_RECORD}, SaStatus.REQUEST_INVALID),
    ],
)
def test_a_request_that_cannot_be_served_says_why(tree, header, status):
    header = {"method": Method.GET_TABLE} | header
    answer = tree.send(header.pop("attribute_id"), **header)
    assert SaMad.status.get(answer) == status
    assert len(answer) == SaMad.size
    assert not RmppMad.rmpp_flags.get(answer)


def test_a_get_without_a_record_has_a_status_and_a_table_without_one_is_empty(tree):
    """As in OpenSM: the table is an RMPP message without data; osmtest queries LID 0xFFFF and expects success."""
    expected = {"mask": component_mask(NodeRecord, "lid"), "record": NodeRecord(lid=0xFFFF)}
    assert SaMad.status.get(tree.send(SaAttribute.NODE_RECORD, method=Method.GET, **expected)) == SaStatus.NO_RECORDS
    answer = tree.send(SaAttribute.NODE_RECORD, **expected)
    assert len(answer) == SA_HEADER_BYTES
    assert (SaMad.status.get(answer + bytes(200)), RmppMad.rmpp_flags.get(answer)) == (0, RmppFlag.ACTIVE)
    assert SaMad.attribute_offset.get(answer) == 0


@pytest.mark.parametrize(
    "header",
    [
        {"sm_key": 9999},
        {"method": Method.GET_RESP},
        {"method": Method.REPORT_RESP},
        {"by": 0xBEEF},
    ],
)
def test_wrong_keys_answers_and_strangers_get_no_answer(tree, header):
    assert tree.send(SaAttribute.NODE_RECORD, **header) is None


def test_it_is_busy_until_there_is_a_subnet_to_speak_of(make_subnet):
    requests = make_subnet("star:hosts=3")
    requests.administrator.is_master = False
    assert requests.ask(SaAttribute.NODE_RECORD, NodeRecord)[0] == Status.BUSY
    fresh = Administrator(requests.state)
    fresh.is_master, requests.state.view, requests.administrator = True, None, fresh
    assert SaMad.status.get(requests.send(SaAttribute.NODE_RECORD, by=1)) == Status.BUSY


def test_the_header_of_an_answer(tree):
    answer = tree.send(SaAttribute.LINK_RECORD, transaction_id=0x1122, sm_key=1)
    header = SaMad.unpack(answer)
    assert (header.method, header.transaction_id, header.class_version) == (Method.GET_TABLE_RESP, 0x1122, 2)
    assert (header.sm_key, header.attribute_offset, header.rmpp_version) == (0, 1, 1)
    assert (len(answer) - SA_HEADER_BYTES) % LinkRecord.size == 0


# -- records -----------------------------------------------------------------------------------------------------------


def test_node_records_name_every_port_that_has_a_lid(tree):
    _, records = tree.ask(SaAttribute.NODE_RECORD, NodeRecord)
    fabric = tree.view.fabric
    slots = tree.view.end_ports
    assert [record.lid for record in records] == fabric.tables.lid[slots].tolist()
    assert [record.node_info.port_guid for record in records] == fabric.ports.guid[slots].tolist()
    names = [record.node_description.node_string.rstrip(b"\0").decode() for record in records]
    assert names == [fabric.nodes.description[node] for node in fabric.ports.node[slots]]


def test_port_info_records_are_what_the_ports_say(tree):
    _, records = tree.ask(SaAttribute.PORT_INFO_RECORD, PortInfoRecord, header={"sm_key": 1}, options=0x80)
    leaf = [record for record in records if record.endport_lid == tree.lid("leaf1")]
    first = tree.slot("leaf1")
    assert [record.port_num for record in leaf] == list(range(9))
    assert [record.port_info.raw for record in leaf] == [
        row.tobytes() for row in tree.view.port_info[first : first + 9]
    ]


@pytest.mark.parametrize("given", [0x1234, 0])
def test_an_m_key_of_the_options_is_told_to_the_trusted_only_and_one_that_weft_made_to_nobody(make_subnet, given):
    """The default SA_Key, which makes a request trusted, is public."""
    requests = make_subnet("star:hosts=3")
    requests.state.options = replace(requests.state.options, m_key=given)
    fill(requests.view.port_info, PortInfo.m_key, 0x1234)
    for header, m_key in ((None, 0), (TRUSTED, given)):
        _, records = requests.ask(SaAttribute.PORT_INFO_RECORD, PortInfoRecord, header=header)
        assert {record.port_info.m_key for record in records} == {m_key}


def test_capabilities_are_matched_bit_by_bit_where_the_modifier_says_so(make_subnet):
    """`saquery -s` finds subnet managers in this way."""
    requests = make_subnet("star:hosts=3")
    slot = requests.slot("h2")
    had = PortInfo.capability_mask.get(requests.view.port_info[slot].tobytes())
    rows = requests.view.port_info[slot : slot + 1]
    fill(rows, PortInfo.capability_mask, had | Capability.IS_SM)
    query = PortInfoRecord(port_info=PortInfo(capability_mask=Capability.IS_SM))
    mask = component_mask(PortInfoRecord, "port_info.capability_mask")
    result = {}
    for modifier in (0, 1 << 31):
        answer = requests.send(SaAttribute.PORT_INFO_RECORD, query, mask=mask, attribute_modifier=modifier)
        result[modifier] = (len(answer) - SA_HEADER_BYTES) // PortInfoRecord.size
    assert result == {0: 0, 1 << 31: 1}


def test_old_programs_see_qdr_where_a_port_is_faster(tree):
    ask = {"endport_lid": tree.lid("h1"), "port_num": 1}
    full = tree.ask(SaAttribute.PORT_INFO_RECORD, PortInfoRecord, Method.GET, options=0x80, **ask)[1][0].port_info
    output = tree.ask(SaAttribute.PORT_INFO_RECORD, PortInfoRecord, Method.GET, **ask)[1][0].port_info
    assert full.link_speed_ext_active
    speeds = (output.link_speed_active, output.link_speed_enabled, output.link_speed_supported)
    assert all(speed & 4 for speed in speeds)
    assert output.port_state == full.port_state


def test_links_are_there_from_both_ends(tree):
    _, records = tree.ask(SaAttribute.LINK_RECORD, LinkRecord)
    ends = {((record.from_lid, record.from_port), (record.to_lid, record.to_port)) for record in records}
    assert len(ends) == len(records) == 2 * len(tree.view.fabric.links)
    assert {(b, a) for a, b in ends} == ends
    _, of_host = tree.ask(SaAttribute.LINK_RECORD, LinkRecord, from_lid=tree.lid("h5"))
    assert [(record.from_lid, record.from_port) for record in of_host] == [(tree.lid("h5"), 1)]


def test_ports_without_a_lid_have_no_records(make_subnet):
    requests = make_subnet("star:hosts=3")
    requests.view.fabric.tables.lid[requests.slot("h3")] = 0
    requests.resweep()
    _, links = requests.ask(SaAttribute.LINK_RECORD, LinkRecord)
    assert len(links) == 2 * (len(requests.view.fabric.links) - 1)
    assert all(record.from_lid and record.to_lid for record in links)
    for attribute, form, lid in (
        (SaAttribute.NODE_RECORD, NodeRecord, "lid"),
        (SaAttribute.PORT_INFO_RECORD, PortInfoRecord, "endport_lid"),
        (SaAttribute.GUID_INFO_RECORD, GuidInfoRecord, "lid"),
    ):
        assert all(getattr(record, lid) for record in requests.ask(attribute, form)[1])


def test_every_lid_of_a_port_means_that_port(make_subnet):
    requests = make_subnet("star:hosts=3", lmc=2)
    for offset in range(4):
        _, records = requests.ask(SaAttribute.NODE_RECORD, NodeRecord, Method.GET, lid=requests.lid("h2") + offset)
        assert records[0].lid == requests.lid("h2")
        assert requests.send(SaAttribute.NODE_RECORD, by=requests.lid("h2") + offset) is not None


def test_forwarding_records_are_the_tables_cut_into_blocks(make_subnet):
    requests = make_subnet("fat-tree:hosts=16,radix=8", lmc=3)
    tables = requests.view.fabric.tables
    _, records = requests.ask(
        SaAttribute.LINEAR_FORWARDING_TABLE_RECORD, LinearForwardingTableRecord, lid=requests.lid("leaf2")
    )
    row = tables.switch_row[requests.view.fabric.find_node("leaf2").index]
    assert [record.block_num for record in records] == list(range(len(records)))
    whole = b"".join(record.table.raw for record in records)
    assert whole[: tables.lft.shape[1]] == tables.lft[row].tobytes()
    assert set(whole[tables.lft.shape[1] :]) <= {255}


def test_multicast_records_have_a_block_for_32_groups_and_16_ports(make_subnet):
    requests = make_subnet("fat-tree:hosts=16,radix=36")
    tables = requests.view.fabric.tables
    tables.mft = np.random.default_rng(5).integers(0, 1 << 16, (len(tables.lft), 40, 3)).astype(np.uint16)
    switch = requests.view.fabric.nodes.name[int(np.flatnonzero(requests.view.is_switch)[0])]
    _, records = requests.ask(
        SaAttribute.MULTICAST_FORWARDING_TABLE_RECORD, MulticastForwardingTableRecord, lid=requests.lid(switch)
    )
    assert len(records) == 2 * 3
    row = tables.switch_row[requests.view.fabric.find_node(switch).index]
    for record in records:
        for n, mask in enumerate(record.table.port_mask):
            group = 32 * record.block_num + n
            assert mask == (tables.mft[row, group, record.position] if group < 40 else 0)


def test_lane_and_key_records_are_the_tables(make_subnet):
    requests = make_subnet("star:hosts=3")
    fabric, random = requests.view.fabric, np.random.default_rng(6)
    tables = fabric.tables
    tables.sl2vl[:] = random.integers(0, 16, tables.sl2vl.shape)
    tables.vl_arbitration[:] = random.integers(0, 15, tables.vl_arbitration.shape)
    tables.pkey[:, 1:40] = random.integers(0, 1 << 16, (len(tables.lid), 39))
    switch = int(np.flatnonzero(requests.view.is_switch)[0])
    lid = int(tables.lid[fabric.first_port[switch]])
    ports = int(fabric.nodes.n_ports[switch]) + 1
    _, lanes = requests.ask(SaAttribute.SL_TO_VL_MAPPING_TABLE_RECORD, SLtoVLMappingTableRecord, lid=lid)
    assert len(lanes) == ports**2
    for record in lanes:
        pair = record.input_port_num * ports + record.output_port_num
        assert record.table.vl == tuple(tables.sl2vl[tables.first_pair[switch] + pair])
    _, host = requests.ask(SaAttribute.SL_TO_VL_MAPPING_TABLE_RECORD, SLtoVLMappingTableRecord, lid=requests.lid("h2"))
    h2 = fabric.find_node("h2").index
    assert [record.table.vl for record in host] == [tuple(tables.sl2vl[tables.first_pair[h2] + 1])]
    _, weights = requests.ask(SaAttribute.VL_ARBITRATION_TABLE_RECORD, VLArbitrationTableRecord, lid=requests.lid("h2"))
    assert [(record.output_port_num, record.block_num) for record in weights] == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert b"".join(record.table.raw for record in weights) == tables.vl_arbitration[requests.slot("h2")].tobytes()
    _, keys = requests.ask(SaAttribute.P_KEY_TABLE_RECORD, PKeyTableRecord, header=TRUSTED, lid=requests.lid("h1"))
    held = [key for record in keys for key in record.table.p_key]
    assert held == tables.pkey[requests.slot("h1")].tolist()


def test_key_records_of_a_switch_have_its_own_capacity_at_port_0_and_that_of_enforcement_at_the_others(make_subnet):
    requests = make_subnet("star:hosts=3")
    view = requests.view
    fill(view.node_info, NodeInfo.partition_cap, 33)
    fill(view.switch_info, SwitchInfo.partition_enforcement_cap, 65)
    switch = int(np.flatnonzero(view.is_switch)[0])
    lid = int(view.fabric.tables.lid[view.fabric.first_port[switch]])
    _, keys = requests.ask(SaAttribute.P_KEY_TABLE_RECORD, PKeyTableRecord, header=TRUSTED, lid=lid)
    ports = range(1, int(view.fabric.nodes.n_ports[switch]) + 1)
    expected = [(0, 0), (0, 1), *((port, block) for port in ports for block in range(3))]
    assert [(record.port_num, record.block_num) for record in keys] == expected


def test_an_adapters_port_is_the_one_that_has_the_lid_whatever_number_is_asked_for(tree):
    """As in OpenSM; osmtest queries port 0 of adapters."""
    arbitration = SaAttribute.VL_ARBITRATION_TABLE_RECORD, VLArbitrationTableRecord
    _, of_host = tree.ask(*arbitration, lid=tree.lid("h1"), output_port_num=0, block_num=3)
    assert [(record.output_port_num, record.block_num) for record in of_host] == [(1, 3)]
    _, of_switch = tree.ask(*arbitration, lid=tree.lid("leaf1"), output_port_num=2)
    assert [(record.output_port_num, record.block_num) for record in of_switch] == [(2, n) for n in (1, 2, 3, 4)]


def test_switch_and_guid_records(tree):
    _, switches = tree.ask(SaAttribute.SWITCH_INFO_RECORD, SwitchInfoRecord)
    assert len(switches) == tree.view.is_switch.sum()
    assert tree.ask(SaAttribute.SWITCH_INFO_RECORD, SwitchInfoRecord, lid=tree.lid("h1")) == (0, [])
    _, guids = tree.ask(SaAttribute.GUID_INFO_RECORD, GuidInfoRecord, lid=tree.lid("h4"), block_num=0)
    assert guids[0].guid_info.guid == (tree.gid("h4") & (1 << 64) - 1, *[0] * 7)


def test_sm_info_records_are_ours_and_the_others(make_subnet):
    requests = make_subnet("star:hosts=3", options=Options(sm_priority=5))
    other = SMInfoRecord(lid=requests.lid("h3"), sm_info=SMInfo(guid=7, priority=1, sm_state=SMState.STANDBY))
    requests.administrator.other_managers = (other,)
    _, records = requests.ask(SaAttribute.SM_INFO_RECORD, SMInfoRecord)
    assert [(record.lid, record.sm_info.priority, record.sm_info.sm_state) for record in records] == [
        (requests.lid("h1"), 5, SMState.MASTER),
        (requests.lid("h3"), 1, SMState.STANDBY),
    ]
    query = SMInfoRecord(sm_info=SMInfo(priority=4))
    mask = component_mask(SMInfoRecord, "sm_info.priority")
    assert len(requests.send(SaAttribute.SM_INFO_RECORD, query, mask=mask)) == SA_HEADER_BYTES


def test_class_port_info_says_what_is_served(tree):
    answer = tree.send(SaAttribute.CLASS_PORT_INFO, method=Method.GET)
    info = ClassPortInfo.unpack(answer, SA_HEADER_BYTES)
    assert (info.class_version, info.redirect_qp, info.resp_time_value) == (2, 1, 16)
    assert info.capability_mask == 1 << 9 | 1 << 10 | 1 << 13


def test_tenants_see_nothing_of_each_other(make_subnet):
    requests = make_subnet("star:hosts=4")
    keys = requests.view.fabric.tables.pkey
    keys[:, 0] = 0x7FFF  # all are limited members of the default partition
    keys[requests.slot("h1"), 0] = 0xFFFF  # except the subnet manager's port
    keys[requests.slot("h2"), 1] = keys[requests.slot("h3"), 1] = 0x8001
    keys[requests.slot("h4"), 1] = 0x8002
    observed = {}
    for name in ("h1", "h2", "h4"):
        _, records = requests.ask(SaAttribute.NODE_RECORD, NodeRecord, by=name)
        observed[name] = {record.lid for record in records}
    everybody = set(requests.view.fabric.tables.lid[requests.view.end_ports].tolist())
    assert observed["h1"] == everybody
    assert observed["h2"] == {requests.lid("h1"), requests.lid("h2"), requests.lid("h3")}
    assert observed["h4"] == {requests.lid("h1"), requests.lid("h4")}


def test_records_are_of_the_last_sweep(make_subnet):
    requests = make_subnet("star:hosts=3")
    assert requests.ask(SaAttribute.NODE_RECORD, NodeRecord, lid=1)[1]
    infos = requests.view.node_info.copy()
    infos[:, 3] = 99
    requests.resweep(node_info=infos)
    assert {record.node_info.num_ports for record in requests.ask(SaAttribute.NODE_RECORD, NodeRecord)[1]} == {99}


@pytest.mark.parametrize(
    ("attribute", "form", "table"),
    [
        (SaAttribute.LINEAR_FORWARDING_TABLE_RECORD, LinearForwardingTableRecord, "lft"),
        (SaAttribute.MULTICAST_FORWARDING_TABLE_RECORD, MulticastForwardingTableRecord, "mft"),
        (SaAttribute.P_KEY_TABLE_RECORD, PKeyTableRecord, "pkey"),
        (SaAttribute.VL_ARBITRATION_TABLE_RECORD, VLArbitrationTableRecord, "vl_arbitration"),
        (SaAttribute.SL_TO_VL_MAPPING_TABLE_RECORD, SLtoVLMappingTableRecord, "sl2vl"),
    ],
)
def test_tables_that_are_written_between_sweeps_are_in_the_records_at_once(make_subnet, attribute, form, table):
    requests = make_subnet("star:hosts=3")
    tables = requests.view.fabric.tables
    tables.mft = np.zeros((len(tables.lft), 32, 1), np.uint16)
    _, before = requests.ask(attribute, form, header=TRUSTED)
    getattr(tables, table)[:] = 3
    _, after = requests.ask(attribute, form, header=TRUSTED)
    assert len(before) == len(after) > 0
    assert {record.table.raw for record in before} != {record.table.raw for record in after}


def test_the_activity_of_the_subnet_manager_is_counted_between_sweeps(make_subnet):
    requests = make_subnet("star:hosts=3")
    _, before = requests.ask(SaAttribute.SM_INFO_RECORD, SMInfoRecord, header=TRUSTED)
    requests.state.sender.mads += 5
    _, after = requests.ask(SaAttribute.SM_INFO_RECORD, SMInfoRecord, header=TRUSTED)
    assert after[0].sm_info.act_count - before[0].sm_info.act_count == 5
