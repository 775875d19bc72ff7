"""Congestion control: OpenSM's options, and the settings written to devices."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sm.desk import Desk

import weft
from weft.mad.carrier import Address, ask
from weft.mad.local import LocalCarrier
from weft.mad.subnet import Subnet
from weft.routing.route import route
from weft.sm.conf.options import Options, parse_options
from weft.sm.discovery.known import carried_over
from weft.sm.qos.congestion import (
    adapter_setting,
    congestion_mads,
    rate_table,
    set_up_congestion_control,
    switch_setting,
)
from weft.sm.sender import Sender
from weft.wire.cc import CACongestionSetting, CcAttribute, CcMad, CongestionControlTable, SwitchCongestionSetting
from weft.wire.mad import MadHeader, Method
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import SwitchInfo

VALUES = {
    "congestion_control": "TRUE",
    "cc_key": "0x0000000000000007",
    "cc_max_outstanding_mads": "50",
    "cc_sw_cong_setting_control_map": "0x1F",
    "cc_sw_cong_setting_victim_mask": "0x" + "00" * 30 + "ABCD",
    "cc_sw_cong_setting_credit_mask": "3",
    "cc_sw_cong_setting_threshold": "0x0E",
    "cc_sw_cong_setting_packet_size": "8",
    "cc_sw_cong_setting_credit_starvation_threshold": "0x05",
    "cc_sw_cong_setting_credit_starvation_return_delay": "1:16",
    "cc_sw_cong_setting_marking_rate": "500",
    "cc_ca_cong_setting_port_control": "0x0001",
    "cc_ca_cong_setting_control_map": "0xFFFF",
    "cc_ca_cong_setting_ccti_timer": "0 150\n3 010",
    "cc_ca_cong_setting_ccti_increase": "0 1",
    "cc_ca_cong_setting_trigger_threshold": "0 2",
    "cc_ca_cong_setting_ccti_min": "15 4",
    "cc_cct": ",".join(f"{n % 4}:{n}" for n in range(100)),
}


def options_of(values: dict[str, str]) -> Options:
    return parse_options("".join(f"{name} {word}\n" for name, value in values.items() for word in value.split("\n")))


def test_every_option_of_opensm_is_where_the_mads_have_it():
    options = options_of(VALUES)
    assert switch_setting(options) == SwitchCongestionSetting(
        control_map=0x1F,
        victim_mask=bytes(30) + b"\xab\xcd",
        credit_mask=bytes(31) + b"\3",
        threshold=14,
        packet_size=8,
        cs_threshold=5,
        cs_return_delay=1 << 14 | 16,
        marking_rate=500,
    )
    adapter, table = adapter_setting(options), rate_table(options)
    assert (adapter.port_control, adapter.control_map) == (1, 0xFFFF)
    assert [entry.ccti_timer for entry in adapter.entry][:5] == [150, 0, 0, 8, 0]  # 010 is octal to OpenSM
    first, last = adapter.entry[0], adapter.entry[15]
    assert (first.ccti_increase, first.trigger_threshold, first.ccti_min, last.ccti_min) == (1, 2, 0, 4)
    assert [block.ccti_limit for block in table] == [99, 99]
    assert (table[1].entry[35].cct_shift, table[1].entry[35].cct_multiplier) == (3, 99)
    assert table[1].entry[36].cct_multiplier == 0


def test_without_a_table_its_first_block_is_sent_all_the_same():
    assert rate_table(Options()) == (CongestionControlTable(),)


# -- to the devices ---------------------------------------------------------------------------------------------------


@pytest.fixture
def subnet() -> Subnet:
    """A subnet whose ports are all Active, with LIDs and routes."""
    result = Subnet(route(weft.load("fat-tree:hosts=8,radix=4")).fabric)
    for info in result.devices.port_info:
        if info is not None and PortInfo.port_state.get(info) != PortState.DOWN:
            PortInfo.port_state.set(info, PortState.ACTIVE)
    for info in result.devices.switch_info.values():
        SwitchInfo.linear_fdb_top.set(info, int(result.devices.tables.lid.max()))
    return result


def send(subnet: Subnet, batch) -> list[bytes | None]:
    carrier = LocalCarrier(subnet, subnet.devices.fabric.find_port("h1/1").slot)
    return [
        ask(carrier, mad.tobytes(), Address(int(lid)), timeout_ms=1, retries=0)
        for mad, lid in zip(batch.mads, batch.lids, strict=True)
    ]


def kept(subnet: Subnet, port: str, attribute: CcAttribute, block: int, form):
    slot = subnet.devices.own_slot(subnet.devices.fabric.find_port(port).slot)
    return form.unpack(bytes(subnet.devices.tables.congestion[slot, int(attribute) << 16 | block]))


def test_every_switch_and_every_adapter_keeps_what_the_options_say(subnet):
    options = options_of(VALUES)
    fabric = subnet.devices.fabric
    batch = congestion_mads(fabric, options, np.zeros(len(fabric.ports), bool))
    assert len(batch.mads) == len(fabric.switches) + 3 * len(fabric.hcas)
    answers = send(subnet, batch)
    assert {answer[5] for answer in answers} == {0}
    for switch in fabric.switches:
        result = kept(subnet, f"{switch.name}/1", CcAttribute.SWITCH_CONGESTION_SETTING, 0, SwitchCongestionSetting)
        assert result == switch_setting(options)
    for host in range(1, 9):
        port = f"h{host}/1"
        assert kept(subnet, port, CcAttribute.CA_CONGESTION_SETTING, 0, CACongestionSetting) == adapter_setting(options)
        for block in (0, 1):
            result = kept(subnet, port, CcAttribute.CONGESTION_CONTROL_TABLE, block, CongestionControlTable)
            assert result == rate_table(options)[block]


def test_mads_are_sets_of_class_0x21_with_the_key_to_the_lids_of_their_nodes(subnet):
    fabric = subnet.devices.fabric
    batch = congestion_mads(fabric, options_of({"cc_key": "0x1234"}), np.zeros(len(fabric.ports), bool))
    mads = [CcMad.unpack(mad.tobytes()) for mad in batch.mads]
    assert {(mad.mgmt_class, mad.class_version, mad.method, mad.cc_key) for mad in mads} == {
        (0x21, 2, Method.SET, 0x1234)
    }
    for node, lid in zip(batch.node.tolist(), batch.lids.tolist(), strict=True):
        first = fabric.first_port[node]
        assert lid in fabric.tables.lid[first : first + fabric.nodes.n_ports[node] + 1]


def test_nodes_that_refuse_congestion_control_or_do_not_answer_are_named():
    desk = Desk("star:hosts=3")
    names, contents = desk.view.fabric.nodes.name, carried_over(None, desk.view)
    statuses = {"h2": 0x000C, "h3": None}

    class Carrier:
        def exchange(self, mads, lids, **_):
            ends = {int(desk.lid(name)): status for name, status in statuses.items()}
            answers = mads.copy()
            for row, lid in enumerate(lids.tolist()):
                MadHeader.status.set(answers[row], ends.get(lid) or 0)
            return answers, np.array([ends.get(lid, 0) is not None for lid in lids.tolist()])

    sender = Sender(Carrier())
    assert set_up_congestion_control(sender, desk.view, contents, Options()) == ["h2", "h3"]
    contents.fresh[names.index("h2")] = False  # it already has its settings, or has refused them
    assert set_up_congestion_control(sender, desk.view, contents, Options()) == ["h3"]


@pytest.mark.parametrize(("entries", "blocks"), [(1, 1), (64, 1), (65, 2), (128, 2)])
def test_a_block_of_rates_has_64_entries(entries, blocks):
    table = rate_table(Options(cc_cct=((0, 1),) * entries))
    assert [(block.ccti_limit, len(table)) for block in table] == [(entries - 1, blocks)] * blocks


def test_ports_that_do_not_know_the_class_are_left_out(subnet):
    fabric = subnet.devices.fabric
    unavailable = np.zeros(len(fabric.ports.node), bool)
    unavailable[fabric.find_port("h3/1").slot] = True
    batch = congestion_mads(fabric, Options(), unavailable)
    assert fabric.find_node("h3").index not in batch.node
    assert len(batch.mads) == len(fabric.switches) + 2 * 7
