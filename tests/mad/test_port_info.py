"""Set(PortInfo): writable fields, port states from Down to Active, and causes of Down."""

from __future__ import annotations

import pytest

import weft
from weft.fabric.build import FabricBuilder
from weft.fabric.counters import Counter
from weft.fabric.kinds import NodeKind
from weft.mad.subnet import Subnet
from weft.wire.mad import Method, Status
from weft.wire.port_info import Mtu, PortInfo, PortPhysicalState, PortState
from weft.wire.smp import NodeInfo, SmpAttribute, SwitchInfo

LEAF = [1]
INVALID = Status.INVALID_FIELD
SETTABLE = {
    "gid_prefix": 0xFEC0 << 48,
    "lid": 9,
    "master_sm_lid": 3,
    "m_key_lease_period": 7,
    "lmc": 2,
    "master_sm_sl": 3,
    "init_type": 1,
    "subnet_time_out": 9,
    "vl_high_limit": 4,
    "vl_stall_count": 3,
    "hoq_life": 11,
    "local_phy_errors": 3,
    "overrun_errors": 2,
    "neighbor_mtu": Mtu.BYTES_1024,
    "operational_vls": 2,
    "link_width_enabled": 1,
}
FIXED = {
    "capability_mask": 0,
    "diag_code": 1,
    "link_width_supported": 1,
    "link_width_active": 1,
    "link_speed_supported": 1,
    "mtu_cap": 1,
    "vl_cap": 1,
    "guid_cap": 9,
    "resp_time_value": 1,
    "max_credit_hint": 5,
    "link_round_trip_latency": 5,
    "capability_mask2": 0,
}


@pytest.mark.parametrize("name", SETTABLE)
def test_a_subnet_manager_can_set(running, name):
    assert running.set_port([], **{name: SETTABLE[name]}) == 0
    assert getattr(running.get([], PortInfo), name) == SETTABLE[name]


@pytest.mark.parametrize("name", FIXED)
def test_values_of_hardware_are_kept(running, name):
    before = getattr(running.get([], PortInfo), name)
    assert before != FIXED[name]
    assert running.set_port([], **{name: FIXED[name]}) == 0
    assert getattr(running.get([], PortInfo), name) == before


@pytest.mark.parametrize(
    "name", ["partition_enforcement_inbound", "partition_enforcement_outbound", "filter_raw_inbound"]
)
def test_a_switch_enforces_partitions_by_port(running, name):
    assert running.set_port(LEAF, 3, **{name: 1}) == 0
    assert getattr(running.get(LEAF, PortInfo, 3), name) == 1
    assert getattr(running.get(LEAF, PortInfo, 2), name) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"lid": 0},
        {"lid": 0xC000},
        {"master_sm_lid": 0},
        {"master_sm_lid": 0xFFFF},
        {"neighbor_mtu": 6},
        {"operational_vls": 5},
        {"link_width_enabled": 0x40},
        {"link_speed_ext_enabled": 0x10},
        {"link_down_default_state": 5},
    ],
)
def test_a_value_out_of_range_is_refused_and_the_rest_is_set(running, change):
    (name,) = change
    before = getattr(running.get([], PortInfo), name)
    assert running.set_port([], vl_high_limit=9, **change) == INVALID
    after = running.get([], PortInfo)
    assert (getattr(after, name), after.vl_high_limit) == (before, 9)


def test_ports_of_a_switch_have_no_lid_of_their_own(running):
    assert running.set_port(LEAF, 2, lid=99, m_key=5, master_sm_lid=7) == 0
    info = running.get(LEAF, PortInfo, 2)
    assert (info.lid, info.m_key, info.master_sm_lid) == (0, 0, 0)


def test_lids_and_limits_are_in_the_fabrics_tables(running):
    assert running.set_port([], lid=40, lmc=1, vl_high_limit=6) == 0
    tables, slot = running.devices.tables, running.slot
    assert (tables.lid[slot], tables.lmc[slot], tables.vl_high_limit[slot]) == (40, 1, 6)


def test_port_info_shows_the_fabrics_tables(running):
    tables, slot = running.devices.tables, running.slot
    tables.lid[slot], tables.vl_high_limit[slot] = 48, 7
    PortInfo.m_key_protect_bits.set(running.devices.info(slot), 1)  # in the same byte as the LMC
    tables.set_lmc(slot, 2)
    info = running.get([], PortInfo)
    assert (info.lid, info.lmc, info.vl_high_limit, info.m_key_protect_bits) == (48, 2, 7, 1)
    with pytest.raises(ValueError, match="read-only"):
        tables.lmc[slot] = 3


def test_port_info_shows_values_from_before_the_run(make_bench):
    fabric = weft.load("star:hosts=2")
    slot = fabric.find_port("h1/1").slot
    fabric.tables.lid[slot], fabric.tables.vl_high_limit[slot] = 5, 9
    assert not fabric.tables.runs
    info = make_bench(fabric).get([], PortInfo)
    assert (info.lid, info.vl_high_limit) == (5, 9)
    assert fabric.tables.runs


def test_a_violation_counter_can_only_be_set_to_zero(running):
    PortInfo.p_key_violations.set(running.devices.info(running.slot), 5)
    assert running.set_port([], p_key_violations=3) == 0
    assert running.get([], PortInfo).p_key_violations == 5
    assert running.set_port([], p_key_violations=0) == 0
    assert running.get([], PortInfo).p_key_violations == 0


def test_the_answer_repeats_that_clients_shall_register_again(running):
    info = running.get([], PortInfo)
    expected = info.replace(client_reregister=1, port_state=0, port_physical_state=0)
    status, raw = running.ask([], Method.SET, SmpAttribute.PORT_INFO, data=expected.raw)
    assert (status, PortInfo.unpack(raw).client_reregister) == (0, 1)
    assert running.slot in running.devices.reregister
    assert not running.get([], PortInfo).client_reregister


def test_the_local_port_is_that_by_which_the_question_came(bench):
    assert bench.get(LEAF, PortInfo, 4).local_port_num == 1
    assert bench.get([1, 3, 2], PortInfo, 1).local_port_num == 3


def test_port_255_of_a_switch_is_none(bench):
    assert bench.ask(LEAF, Method.GET, SmpAttribute.PORT_INFO, 255)[0] == INVALID
    assert bench.ask(LEAF, Method.SET, SmpAttribute.PORT_INFO, 255)[0] == INVALID


# -- states -----------------------------------------------------------------------------------------------------------


def test_ports_are_up_before_anybody_manages_them(bench):
    info = bench.get([], PortInfo)
    assert (info.port_state, info.port_physical_state) == (PortState.INITIALIZE, PortPhysicalState.LINK_UP)
    assert bench.get(LEAF, PortInfo, 0).port_state == PortState.ACTIVE


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ([PortState.ACTIVE], True),
        ([PortState.INITIALIZE], True),
        ([PortState.ARMED], False),
        ([PortState.ARMED, PortState.ARMED], False),
        ([PortState.ARMED, PortState.ACTIVE], False),
        ([PortState.ARMED, PortState.INITIALIZE], True),
        ([PortState.ARMED, PortState.ACTIVE, PortState.ACTIVE], False),
        ([PortState.ARMED, PortState.ACTIVE, PortState.ARMED], True),
        ([7], True),
    ],
)
def test_states_come_in_order(bench, told, refused):
    address = {"lid": 1, "master_sm_lid": 1}
    results = [bench.set_port([], port_state=state, **address) for state in told]
    assert results[:-1] == [0] * (len(told) - 1)
    assert results[-1] == (INVALID if refused else 0)


def test_told_down_a_link_trains_again_and_both_ends_count_it(running):
    assert running.set_port(LEAF, 3, port_state=PortState.DOWN) == 0
    for port in ("leaf1/3", "spine1/1"):
        assert running.counter(port, Counter.LINK_DOWNED) == 1
    assert running.get(LEAF, PortInfo, 3).port_state == PortState.INITIALIZE
    assert running.get([1, 3], PortInfo, 1).port_state == PortState.INITIALIZE


def test_a_disabled_port_stays_down_until_it_is_told_to_poll(running):
    assert running.set_port(LEAF, 3, port_physical_state=PortPhysicalState.DISABLED) == 0
    info = running.get(LEAF, PortInfo, 3)
    assert (info.port_state, info.port_physical_state) == (PortState.DOWN, PortPhysicalState.DISABLED)
    far = running.get([1, 4, 2, 3], PortInfo, 1)  # spine1 over the other leaf
    assert (far.port_state, far.port_physical_state) == (PortState.DOWN, PortPhysicalState.POLLING)
    assert running.set_port([1, 4, 2, 3], 1, port_physical_state=PortPhysicalState.POLLING) == 0
    assert running.get(LEAF, PortInfo, 3).port_state == PortState.DOWN
    assert running.set_port(LEAF, 3, port_physical_state=PortPhysicalState.POLLING) == 0
    assert running.get(LEAF, PortInfo, 3).port_state == PortState.INITIALIZE


def test_a_sleeping_port_wakes_when_its_neighbour_polls(running):
    assert running.set_port(LEAF, 3, port_physical_state=PortPhysicalState.SLEEP) == 0
    assert running.get(LEAF, PortInfo, 3).port_state == PortState.DOWN
    assert running.set_port([1, 4, 2, 3], 1, port_physical_state=PortPhysicalState.POLLING) == 0
    assert running.get(LEAF, PortInfo, 3).port_state == PortState.INITIALIZE


def test_the_answer_is_lost_when_its_own_way_is_disabled(running):
    """As in hardware: the port is down before the answer is sent."""
    info = running.get([1, 3], PortInfo, 1)
    expected = info.replace(port_state=0, port_physical_state=PortPhysicalState.DISABLED)
    assert running.ask([1, 3], Method.SET, SmpAttribute.PORT_INFO, 1, expected.raw)[0] is None
    assert running.get(LEAF, PortInfo, 3).port_state == PortState.DOWN


def test_a_physical_state_goes_with_down_only(running):
    change = {"port_state": PortState.ACTIVE, "port_physical_state": PortPhysicalState.POLLING}
    assert running.set_port([], **change) == INVALID
    assert running.set_port([], port_physical_state=PortPhysicalState.PHY_TEST) == INVALID
    assert running.get([], PortInfo).port_state == PortState.ACTIVE


def test_port_0_is_the_kind_that_the_fabric_says(tmp_path):
    text = 'Switch 2 "S-{0:016x}"\t\t# "s{0}" {1} port 0 lid 0 lmc 0\n[1]\t"S-{2:016x}"[1]\n\n'
    (tmp_path / "net").write_text(text.format(1, "base", 2) + text.format(2, "enhanced", 1))
    devices = Subnet(weft.load(str(tmp_path / "net"))).devices
    assert [SwitchInfo.enhanced_port_0.get(devices.switch_info[node]) for node in devices.nodes] == [0, 1]


def test_port_0_has_neither_state_nor_lmc_unless_it_is_enhanced(running):
    SwitchInfo.enhanced_port_0.set(running.devices.switch_info[running.node("leaf1")], 0)
    assert running.set_port(LEAF, 0, port_state=PortState.DOWN) == 0
    assert running.get(LEAF, PortInfo, 0).port_state == PortState.ACTIVE
    assert running.set_port(LEAF, 0, lmc=1) == INVALID
    SwitchInfo.enhanced_port_0.set(running.devices.switch_info[running.node("leaf1")], 1)
    assert running.set_port(LEAF, 0, lmc=1) == 0
    assert running.set_port(LEAF, 0, port_state=PortState.DOWN) == 0
    assert running.get(LEAF, PortInfo, 0).port_state == PortState.INITIALIZE


def test_a_width_and_a_speed_come_into_force_when_the_link_trains(running):
    assert running.set_port(LEAF, 3, link_width_enabled=1, link_speed_ext_enabled=2) == 0
    before = running.get(LEAF, PortInfo, 3)
    assert (before.link_width_active, before.link_speed_ext_active) == (2, 8)
    assert running.set_port(LEAF, 3, port_state=PortState.DOWN) == 0
    for path, port in ((LEAF, 3), ([1, 3], 1)):
        info = running.get(path, PortInfo, port)
        assert (info.link_width_active, info.link_speed_ext_active) == (1, 2)


def test_codes_stand_for_all_speeds_and_for_none_of_the_extended(running):
    assert running.set_port(LEAF, 3, link_speed_ext_enabled=30) == 0
    assert running.get(LEAF, PortInfo, 3).link_speed_ext_enabled == 0
    assert running.set_port(LEAF, 3, port_state=PortState.DOWN) == 0
    info = running.get(LEAF, PortInfo, 3)
    assert (info.link_speed_ext_active, info.link_speed_active) == (0, 4)
    assert running.set_port(LEAF, 3, link_speed_ext_enabled=31, link_width_enabled=255, link_speed_enabled=15) == 0
    info = running.get(LEAF, PortInfo, 3)
    assert info.link_speed_ext_enabled == info.link_speed_ext_supported == 15
    assert info.link_width_enabled == info.link_width_supported


def test_ends_that_have_no_speed_in_common_do_not_come_up(running):
    assert running.set_port(LEAF, 3, link_speed_ext_enabled=30, link_speed_enabled=1) == 0
    assert running.set_port([1, 3], 1, link_speed_ext_enabled=30, link_speed_enabled=2) == 0
    assert running.set_port(LEAF, 3, port_state=PortState.DOWN) == 0
    assert running.get(LEAF, PortInfo, 3).port_state == PortState.DOWN


# -- adapters with two ports ------------------------------------------------------------------------------------------


@pytest.fixture
def two_ports(make_bench):
    """A bench with two separate switches, where h1 has a port on each."""
    builder = FabricBuilder("two rails")
    switches = builder.add_nodes(NodeKind.SWITCH, ["rail1", "rail2"], n_ports=4)
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=2)
    for port in (1, 2):
        builder.add_links(hosts, port, switches[[port - 1] * 2], [1, 2], "NDR")
    return make_bench(builder.build())


def test_each_port_of_an_adapter_has_its_own_guid_state_and_lid(two_ports):
    near, far = two_ports.get([1, 2], NodeInfo), two_ports.get([2, 2], NodeInfo)
    assert (near.local_port_num, far.local_port_num, near.num_ports) == (1, 2, 2)
    assert near.node_guid == far.node_guid
    assert near.port_guid != far.port_guid
    for path, lid in (([1, 2], 5), ([2, 2], 9)):
        assert two_ports.set_port(path, lid=lid, master_sm_lid=1, port_state=PortState.ARMED) == 0
    assert [two_ports.get([1, 2], PortInfo, port).lid for port in (0, 1, 2)] == [5, 5, 9]


def test_the_other_port_of_an_adapter_is_read_but_not_set(two_ports):
    info = two_ports.get([1, 2], PortInfo, 2)
    expected = info.replace(lid=7, master_sm_lid=1, port_state=0, port_physical_state=0)
    assert two_ports.ask([1, 2], Method.SET, SmpAttribute.PORT_INFO, 2, expected.raw)[0] == INVALID
    assert two_ports.get([2, 2], PortInfo).lid == 0


def test_the_key_of_the_other_port_is_not_shown(two_ports):
    key = {"m_key": 77, "m_key_protect_bits": 2, "lid": 9, "master_sm_lid": 1}
    assert two_ports.set_port([2, 2], **key) == 0
    assert two_ports.get([1, 2], PortInfo, 2).m_key == 0
    assert two_ports.get([1, 2], PortInfo, 2, m_key=77).m_key == 77
    assert two_ports.ask([2, 2], Method.GET, SmpAttribute.NODE_INFO)[0] is None


def test_an_adapter_passes_nothing_from_port_to_port(two_ports):
    assert two_ports.ask([1, 2, 2], Method.GET, SmpAttribute.NODE_INFO)[0] is None
