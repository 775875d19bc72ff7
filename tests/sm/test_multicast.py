"""Groups: permissions to create, join, leave and query them. osmtest expects the same statuses of OpenSM."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sm.desk import SA_KEY, Desk

from weft.ids import Gid
from weft.mad import faults
from weft.sm.mcast.groups import BLOCK, Groups, _as_record
from weft.sm.pkey.partitions import NO_FILE, Group, Partition, Partitions
from weft.sm.pkey.partitions_conf import parse_partitions
from weft.sm.sa.groups import _check_order, _Refused
from weft.wire.bulk import fill
from weft.wire.mad import Method
from weft.wire.notice import GmpNotice, Trap
from weft.wire.port_info import PortInfo
from weft.wire.sa import InformInfo, MCMemberRecord, Rate, SaAttribute, SaMad, SaStatus, Selector
from weft.wire.smp import SwitchInfo

BROADCAST = int(Gid.parse("ff12:401b:ffff::ffff:ffff"))
GOOD = int(Gid.parse("ff12:a01c:fe80::1234:5678"))
JOIN = "mgid port_gid join_state"
CREATE = JOIN + " q_key p_key sl flow_label t_class"
INVALID, INSUFFICIENT = SaStatus.REQUEST_INVALID, SaStatus.INSUFFICIENT_COMPONENTS


@pytest.fixture
def desk():
    return Desk("fat-tree:hosts=8,radix=4,speed=EDR")


def member(desk, name="h1", **fields):
    return MCMemberRecord(**{"port_gid": desk.gid(name), "p_key": 0xFFFF, "scope": 2, "join_state": 1} | fields)


def join(desk, names=CREATE, who="h1", port="", **fields):
    record = member(desk, port or who, **fields)
    return desk.ask(who, Method.SET, SaAttribute.MC_MEMBER_RECORD, record, names)


def leave(desk, who="h1", port="", **fields):
    record = member(desk, port or who, **fields)
    return desk.ask(who, Method.DELETE, SaAttribute.MC_MEMBER_RECORD, record, JOIN)


def table(desk, who="h1", names="", sm_key=0, **fields):
    record = MCMemberRecord(**fields)
    return desk.ask(who, Method.GET_TABLE, SaAttribute.MC_MEMBER_RECORD, record, names, sm_key=sm_key)[1]


# -- create -----------------------------------------------------------------------------------------------------------


def test_the_broadcast_group_of_ip_is_there_before_anybody_joins(desk):
    (group,) = table(desk)
    assert (group.mgid, group.mlid, group.q_key, group.p_key) == (BROADCAST, 0xC000, 0x0B1B, 0xFFFF)
    assert (group.mtu, group.rate, group.mtu_selector, group.scope) == (4, Rate.GBIT_10, Selector.EXACTLY, 2)


@pytest.mark.parametrize("missing", ["q_key", "p_key", "sl", "flow_label", "t_class"])
def test_to_make_a_group_these_components_are_needed(desk, missing):
    names = " ".join(name for name in CREATE.split() if name != missing)
    assert join(desk, names)[0] == INSUFFICIENT
    assert len(desk.state.groups.by_mgid) == 1


@pytest.mark.parametrize("missing", JOIN.split())
def test_to_join_and_leave_these_components_are_needed(desk, missing):
    names = " ".join(name for name in CREATE.split() if name != missing)
    assert join(desk, names, mgid=GOOD)[0] == INSUFFICIENT
    record = member(desk, mgid=BROADCAST)
    assert desk.ask("h1", Method.DELETE, SaAttribute.MC_MEMBER_RECORD, record, names)[0] == INSUFFICIENT


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"rate": Rate.GBIT_600, "rate_selector": Selector.GREATER_THAN}, "rate rate_selector"),
        ({"rate": Rate.GBIT_300, "rate_selector": Selector.GREATER_THAN}, "rate rate_selector"),
        ({"rate": Rate.GBIT_2_5, "rate_selector": Selector.LESS_THAN}, "rate rate_selector"),
        ({"rate": Rate.GBIT_200, "rate_selector": Selector.EXACTLY}, "rate rate_selector"),
        ({"rate": 1, "rate_selector": Selector.EXACTLY}, "rate rate_selector"),
        ({"mtu": 5, "mtu_selector": Selector.GREATER_THAN}, "mtu mtu_selector"),
        ({"mtu": 1, "mtu_selector": Selector.LESS_THAN}, "mtu mtu_selector"),
        ({"mtu": 6, "mtu_selector": Selector.GREATER_THAN}, "mtu mtu_selector"),
        ({"mtu": 0, "mtu_selector": Selector.EXACTLY}, "mtu mtu_selector"),
        ({"p_key": 0x8000}, ""),
        ({"p_key": 0x8123}, ""),
        ({"join_state": 0}, ""),
        ({"join_state": 2}, ""),
        ({"join_state": 4}, ""),
    ],
)
def test_a_group_that_the_port_cannot_be_in_is_not_made(desk, fields, names):
    assert join(desk, f"{CREATE} {names}", **fields)[0] == INVALID
    assert len(desk.state.groups.by_mgid) == 1


@pytest.mark.parametrize(
    ("fields", "mtu", "rate"),
    [
        ({}, 5, Rate.GBIT_100),
        ({"mtu": 1, "mtu_selector": Selector.GREATER_THAN}, 5, Rate.GBIT_100),
        ({"mtu": 5, "mtu_selector": Selector.LESS_THAN}, 4, Rate.GBIT_100),
        ({"mtu": 3, "mtu_selector": Selector.EXACTLY}, 3, Rate.GBIT_100),
        ({"mtu": 1, "mtu_selector": Selector.BEST}, 5, Rate.GBIT_100),
        ({"rate": Rate.GBIT_10, "rate_selector": Selector.GREATER_THAN}, 5, Rate.GBIT_100),
        ({"rate": Rate.GBIT_60, "rate_selector": Selector.LESS_THAN}, 5, Rate.GBIT_56),
        ({"rate": Rate.GBIT_200, "rate_selector": Selector.LESS_THAN}, 5, Rate.GBIT_100),
        ({"rate": Rate.GBIT_10, "rate_selector": Selector.EXACTLY}, 5, Rate.GBIT_10),
    ],
)
def test_mtu_and_rate_are_as_asked_for_or_as_much_as_the_port_has(desk, fields, mtu, rate):
    names = " ".join((CREATE, *fields))
    status, (result,) = join(desk, names, **fields)
    assert (status, result.mtu, result.rate) == (0, mtu, rate)
    assert (result.mtu_selector, result.rate_selector) == (Selector.EXACTLY, Selector.EXACTLY)


def test_an_mgid_that_is_not_given_is_made_here(desk):
    result = [join(desk)[1][0] for _ in range(3)]
    assert len({item.mgid for item in result}) == 3
    assert all(item.mgid >> 96 == 0xFF12_A01B for item in result)
    assert [item.mlid for item in result] == [0xC001, 0xC002, 0xC003]
    assert join(desk, CREATE + " scope", scope=5)[1][0].mgid >> 96 == 0xFF15_A01B


@pytest.mark.parametrize(
    ("mgid", "status"),
    [
        ("ff12:a01c:fe80::1234:5678", 0),
        ("fa12:a01c:fe80::1234:5678", INVALID),
        ("ef12:a01c:fe80::1234:5678", INVALID),
        ("ff12:a01b:fe80::1234:5678", INVALID),  # reserved for the SA's own groups
        ("ff15:a01b:fe80::1234:5678", 0),
        ("ff1f:a01c:fe80::1234:5678", 0),
        ("ff22:a01c:fe80::1234:5678", INVALID),
        ("ff02::1", 0),
        ("ff12:401b:ffff::1", INVALID),  # without the Q_Key of the broadcast group
        ("ff12:401b:8001::1", INVALID),  # a P_Key without a broadcast group
    ],
)
def test_an_mgid_must_be_one_and_groups_of_ip_fit_their_broadcast_group(desk, mgid, status):
    assert join(desk, mgid=int(Gid.parse(mgid)))[0] == status


def test_a_group_of_ip_like_the_broadcast_group_is_made(desk):
    assert join(desk, mgid=int(Gid.parse("ff12:601b:ffff::1")), q_key=0x0B1B)[0] == 0


def test_groups_end_where_the_tables_of_switches_do(desk):
    desk.state.groups.last_mlid = 0xC003
    assert [join(desk)[0] for _ in range(5)] == [0, 0, 0, SaStatus.NO_RESOURCES, SaStatus.NO_RESOURCES]


# -- join -------------------------------------------------------------------------------------------------------------


def test_join_answer_has_the_groups_attributes(desk):
    """The sequence of a driver that joins with three components, and again with the returned record."""
    _, (messages,) = join(desk, JOIN, mgid=BROADCAST)
    assert (messages.mlid, messages.q_key, messages.mtu, messages.rate, messages.join_state) == (
        0xC000,
        0x0B1B,
        4,
        Rate.GBIT_10,
        1,
    )
    assert messages.port_gid == desk.gid("h1")
    again = {"mtu": messages.mtu, "mtu_selector": 2, "rate": messages.rate, "rate_selector": 2}
    assert join(desk, f"{JOIN} {' '.join(again)}", mgid=BROADCAST, **again)[0] == 0


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"q_key": 5}, "q_key"),
        ({"p_key": 0x8001}, "p_key"),
        ({"sl": 1}, "sl"),
        ({"flow_label": 1}, "flow_label"),
        ({"t_class": 1}, "t_class"),
        ({"hop_limit": 1}, "hop_limit"),
        ({"mtu": 5, "mtu_selector": Selector.GREATER_THAN}, "mtu mtu_selector"),
        ({"mtu": 3, "mtu_selector": Selector.EXACTLY}, "mtu mtu_selector"),
        ({"rate": Rate.GBIT_2_5, "rate_selector": Selector.LESS_THAN}, "rate rate_selector"),
        ({"rate": Rate.GBIT_5, "rate_selector": Selector.EXACTLY}, "rate rate_selector"),
        ({"join_state": 0}, ""),
        ({"port_gid": int(Gid.of(0x1234))}, ""),
    ],
)
def test_a_join_that_does_not_fit_the_group_is_refused(desk, fields, names):
    assert join(desk, f"{JOIN} {names}", mgid=BROADCAST, **fields)[0] == INVALID
    assert not desk.state.groups.by_mgid[BROADCAST].members


def test_a_gid_of_another_subnet_is_refused_and_the_default_prefix_is_ours(desk):
    assert join(desk, JOIN, mgid=BROADCAST, port_gid=int(Gid.of(desk.guid("h1"), 5 << 60)))[0] == SaStatus.INVALID_GID


def test_join_states_add_up_and_are_taken_away_bit_by_bit(desk):
    """Compliance statements o15.0.1.11 and o15.0.1.14, as in osmtest."""
    assert join(desk, mgid=GOOD, join_state=3)[1][0].join_state == 3
    assert leave(desk, mgid=GOOD, join_state=6)[0] == INVALID  # a bit that is not set
    assert leave(desk, mgid=GOOD, join_state=0)[0] == INVALID
    assert leave(desk, mgid=GOOD, join_state=2)[1][0].join_state == 1
    assert join(desk, JOIN, mgid=GOOD, join_state=4)[1][0].join_state == 5
    assert join(desk, JOIN, mgid=GOOD, join_state=1)[1][0].join_state == 5
    assert join(desk, JOIN, mgid=GOOD, join_state=2)[1][0].join_state == 7
    assert leave(desk, mgid=GOOD, join_state=2)[1][0].join_state == 5
    status, (last,) = leave(desk, mgid=GOOD, join_state=5)
    assert (status, last.join_state, last.scope) == (0, 0, 2)
    assert GOOD not in desk.state.groups.by_mgid
    assert join(desk, mgid=GOOD, join_state=2)[0] == INVALID


def test_a_group_goes_with_its_last_full_member_whoever_else_is_in_it(desk):
    join(desk, mgid=GOOD)
    join(desk, JOIN, "h2", mgid=GOOD, join_state=8)  # a full member that only sends
    join(desk, JOIN, "h3", mgid=GOOD, join_state=2)
    leave(desk, mgid=GOOD)
    assert set(desk.state.groups.by_mgid[GOOD].members) == {desk.guid("h2"), desk.guid("h3")}
    leave(desk, "h2", mgid=GOOD, join_state=8)
    assert GOOD not in desk.state.groups.by_mgid


def test_a_full_member_that_stays_as_something_else_keeps_the_group_only_if_another_does(desk):
    join(desk, mgid=GOOD, join_state=3)
    assert leave(desk, mgid=GOOD, join_state=1)[1][0].join_state == 0
    assert GOOD not in desk.state.groups.by_mgid
    join(desk, mgid=GOOD, join_state=3)
    join(desk, JOIN, "h2", mgid=GOOD)
    assert leave(desk, mgid=GOOD, join_state=1)[1][0].join_state == 2


def test_a_group_of_the_partitions_stays_when_all_have_left(desk):
    join(desk, JOIN, mgid=BROADCAST)
    assert leave(desk, mgid=BROADCAST)[0] == 0
    assert not desk.state.groups.by_mgid[BROADCAST].members
    assert leave(desk, mgid=BROADCAST)[0] == INVALID


def test_a_port_that_joined_by_itself_is_nobody_elses_and_one_that_was_joined_is_its_partitions(desk):
    join(desk, mgid=GOOD)
    assert leave(desk, "h2", "h1", mgid=GOOD)[0] == INVALID
    assert join(desk, JOIN, "h2", "h1", mgid=GOOD, join_state=2)[0] == INVALID
    assert join(desk, JOIN, "h2", "h3", mgid=GOOD)[0] == 0  # h2 for h3
    assert leave(desk, "h4", "h3", mgid=GOOD)[0] == 0


def test_partitions_divide_members(desk):
    desk.put_into_partition("h1", 0x8001)
    desk.put_into_partition("h2", 0x0001)
    desk.put_into_partition("h3", 0x8002)
    assert join(desk, mgid=GOOD, p_key=0x8001)[0] == 0
    assert join(desk, JOIN, "h2", mgid=GOOD)[0] == 0
    assert join(desk, JOIN, "h3", mgid=GOOD)[0] == INVALID
    assert join(desk, JOIN, "h1", "h3", mgid=GOOD)[0] == INVALID
    assert join(desk, mgid=GOOD + 1, who="h3", p_key=0x8001)[0] == INVALID
    assert [len(table(desk, owner)) for owner in ("h1", "h2", "h3")] == [1, 1, 0]


def test_a_port_with_a_small_mtu_or_a_slow_cable_cannot_join(desk):
    join(desk, mgid=GOOD)
    for name in ("h2", "h3"):
        slot = desk.slot(name)
        fill(desk.view.port_info[slot : slot + 1], PortInfo.mtu_cap, 4)
    assert join(desk, JOIN, "h2", mgid=GOOD)[0] == INVALID
    assert join(desk, JOIN, "h3", mgid=BROADCAST)[0] == 0
    faults.slow(desk.net.devices, desk.net.fabric.find_port("h4/1").slot, "1xEDR")
    desk.sweep()
    join(desk, mgid=GOOD + 1)
    assert join(desk, JOIN, "h4", mgid=GOOD + 1)[0] == INVALID


# -- queries ----------------------------------------------------------------------------------------------------------


def test_strangers_see_groups_and_trusted_ones_see_members(desk):
    join(desk, mgid=GOOD)
    join(desk, JOIN, "h2", "h3", mgid=GOOD, join_state=2)
    observed = [item for item in table(desk) if item.mgid == GOOD]
    assert [(item.port_gid, item.join_state, item.proxy_join) for item in observed] == [(0, 0, 0)]
    members = table(desk, sm_key=SA_KEY)
    assert {(item.port_gid, item.join_state, item.proxy_join) for item in members} == {
        (desk.gid("h1"), 1, 0),
        (desk.gid("h3"), 2, 1),
    }
    (mine,) = table(desk, names="port_gid", sm_key=SA_KEY, port_gid=desk.gid("h3"))
    assert mine.join_state == 2
    for proxy_join, name in ((0, "h1"), (1, "h3")):
        (found,) = table(desk, names="proxy_join", sm_key=SA_KEY, proxy_join=proxy_join)
        assert found.port_gid == desk.gid(name)
    for name in ("h1", "h3"):
        (hidden,) = table(desk, names="port_gid", port_gid=desk.gid(name))
        assert (hidden.mgid, hidden.scope) == (GOOD, 2)
        assert (hidden.port_gid, hidden.join_state, hidden.proxy_join, hidden.raw[49]) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("names", "fields", "found"),
    [
        ("mgid", {"mgid": GOOD}, 1),
        ("mlid", {"mlid": 0xC000}, 1),
        ("mlid", {"mlid": 0}, 0),
        ("q_key", {"q_key": 0}, 1),
        ("p_key", {"p_key": 0x7FFF}, 2),
        ("scope", {"scope": 2}, 2),
        ("scope", {"scope": 5}, 0),
        ("mtu_selector mtu", {"mtu_selector": 0, "mtu": 4}, 1),
        ("rate_selector rate", {"rate_selector": 1, "rate": Rate.GBIT_20}, 1),
        ("port_gid", {"port_gid": 0}, 0),
    ],
)
def test_groups_are_found_by_their_components(desk, names, fields, found):
    join(desk, mgid=GOOD)
    assert len(table(desk, names=names, **fields)) == found


def test_get_wants_exactly_one(desk):
    record = MCMemberRecord(mlid=0)
    assert desk.ask("h1", Method.GET, SaAttribute.MC_MEMBER_RECORD, record, "mlid")[0] == SaStatus.NO_RECORDS


# -- sweeps, traps, copies ---------------------------------------------------------------------------------------------


def test_members_that_are_gone_are_out_after_the_next_sweep(desk):
    join(desk, mgid=GOOD)
    join(desk, JOIN, "h2", mgid=BROADCAST)
    join(desk, JOIN, "h3", mgid=BROADCAST)
    for name in ("h2", "h1"):
        faults.pull_cable(desk.net.devices, desk.net.fabric.find_port(f"{name}/1").slot)
    desk.net.carrier = desk.net.at("h5/1")
    desk.sweep()
    assert GOOD not in desk.state.groups.by_mgid
    assert set(desk.state.groups.by_mgid[BROADCAST].members) == {desk.guid("h3")}


def test_a_sweep_that_nobody_answers_ends_all_members_and_not_the_manager(desk):
    join(desk, mgid=GOOD)
    desk.view.fabric.tables.pkey[desk.view.end_ports] = 0
    (ended,) = desk.state.groups.settle(desk.view, NO_FILE, life_time=18)
    assert (ended.mgid, desk.state.groups.by_mgid) == (GOOD, {})


def test_groups_follow_the_partition_file(desk):
    mgid, nobodys = Gid.parse("ff12:401b:ffff::16"), Gid.parse("ff12:401b:8001::ffff:ffff")
    more = Partition(name="D", p_key=0x7FFF, members=(), groups=(Group(mgid=mgid, q_key=7, mtu=5, rate=7, sl=3),))
    empty = Partition(name="one", p_key=1, members=(), groups=(Group(mgid=nobodys),))
    desk.state.partitions = Partitions(partitions=(*NO_FILE.partitions, more, empty))
    desk.sweep()
    result = desk.state.groups.by_mgid[int(mgid)]
    result = result.record
    assert (result.p_key, result.q_key, result.mtu, result.rate, result.sl, result.hop_limit) == (0xFFFF, 7, 5, 7, 3, 0)
    assert int(nobodys) not in desk.state.groups.by_mgid
    desk.state.partitions = NO_FILE
    desk.sweep()
    assert int(mgid) not in desk.state.groups.by_mgid


def test_a_group_is_announced_when_it_comes_and_when_it_goes(desk):
    wish = InformInfo(
        lid_range_begin=0xFFFF, is_generic=1, subscribe=1, type=0xFFFF, trap_number=0xFFFF, producer_type=0xFFFFFF
    )
    desk.ask("h5", Method.SET, SaAttribute.INFORM_INFO, wish)
    heard = []
    join(desk, mgid=GOOD)
    join(desk, JOIN, "h2", mgid=GOOD)
    heard += desk.state.subscriptions.take()
    leave(desk, mgid=GOOD)
    leave(desk, "h2", mgid=GOOD)
    heard += desk.state.subscriptions.take()
    notices = [GmpNotice.unpack(SaMad.data.get(mad)) for mad, _ in heard]
    assert [notice.trap_number for notice in notices] == [Trap.MGID_CREATED, Trap.MGID_DESTROYED]
    assert [notice.data_details[6:22] for notice in notices] == [GOOD.to_bytes(16, "big")] * 2
    assert {address.lid for _, address in heard} == {desk.lid("h5")}


def records(groups):
    """Return the records of groups and members that the SA sends to another subnet manager."""
    rows = [
        (group.record.raw, *map(bytes, group.member_rows(Gid.LINK_LOCAL_PREFIX))) for group in groups.by_mgid.values()
    ]
    return [MCMemberRecord.unpack(row) for group in rows for row in group]


def test_a_copy_has_the_same_groups_members_and_mlids(desk):
    join(desk, mgid=GOOD)
    join(desk, JOIN, "h2", "h3", mgid=GOOD, join_state=2)
    join(desk, mgid=GOOD + 1)
    leave(desk, mgid=GOOD + 1)
    join(desk, mgid=GOOD + 2)
    copy = Groups()
    copy.load_records(records(desk.state.groups), desk.view)
    assert records(copy) == records(desk.state.groups)
    fresh = copy.create(MCMemberRecord(mgid=1))
    assert fresh is not None
    assert fresh.mlid not in desk.state.groups.by_mlid


@given(wishes=st.lists(st.integers(0, 80), max_size=200))
def test_mlids_are_never_given_twice_and_blocks_are_filled_first(wishes):
    """Each number creates a group, or ends the group with that number."""
    groups = Groups(last_mlid=0xC000 + 40)
    for number in wishes:
        group = groups.by_mgid.get(number)
        if group is not None:
            groups.leave(group, 1)
            continue
        free = 41 - len(groups.by_mlid)
        result = groups.create(MCMemberRecord(mgid=number))
        assert (result is not None) == (free > 0)
        if result is not None:
            groups.join(result, 1, 1)
            assert result.mlid <= groups.last_mlid
    assert all(groups.by_mlid[group.mlid] is group for group in groups.by_mgid.values())
    if len(set(wishes)) <= BLOCK:
        assert max(groups.by_mlid, default=0) < 0xC000 + BLOCK


def test_a_group_gets_the_mlid_that_it_asks_for_if_that_is_free():
    groups = Groups(last_mlid=0xC005)
    freed = [groups.create(MCMemberRecord(mgid=number)) for number in range(3)]
    for group in freed:
        groups.join(group, 1, 1)
        groups.leave(group, 1)
    assert groups.create(MCMemberRecord(mgid=10, mlid=0xC001)).mlid == 0xC001
    groups.last_mlid = 0xC001
    assert groups.create(MCMemberRecord(mgid=11, mlid=0xC002)).mlid == 0xC000, "the table has no room for it"
    assert groups.create(MCMemberRecord(mgid=12)) is None


@pytest.mark.parametrize(("room", "count"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_groups_of_partitions_that_find_no_mlid_are_listed(desk, room, count):
    """The last MLID of the smallest table is used; freed MLIDs are reused when no new one is left."""
    partitions = parse_partitions("Default=0x7fff,ipoib:\n mgid=ff12::7\n ALL=full;")
    fill(desk.view.switch_info, SwitchInfo.multicast_fdb_cap, room)
    groups = Groups(_fresh=0xC000 + (room == 0) * 0x4000)
    groups.settle(desk.view, partitions, life_time=18)
    assert (len(groups.by_mgid), len(groups.without_mlid)) == (count, 2 - count)
    assert {group.mlid - 0xC000 for group in groups.by_mgid.values()} == set(range(count))
    if room == 1:
        fill(desk.view.switch_info, SwitchInfo.multicast_fdb_cap, 2)
        groups._fresh, groups._freed = 0xC002, deque([0xC001])
        groups.settle(desk.view, partitions, life_time=18)
        assert groups.without_mlid == []
        assert all(group.well_known for group in groups.by_mgid.values())


def test_hop_limits_of_groups_end_at_the_subnet_only_for_link_local_ones():
    groups = parse_partitions("Default=0x7fff,ipoib:\n mgid=ff15::7,scope=5\n ALL=full;").partitions[0].groups
    records = [_as_record(group, 0x7FFF, 18) for group in groups]
    assert [(record.scope, record.hop_limit, record.p_key) for record in records] == [(2, 0, 0xFFFF), (5, 255, 0xFFFF)]


def test_freed_mlids_wait_longest():
    groups = Groups()
    result = [groups.create(MCMemberRecord(mgid=number)) for number in range(3)]
    for group in result[:2]:
        groups.join(group, 1, 1)
        groups.leave(group, 1)
    following = [groups.create(MCMemberRecord(mgid=number + 10)).mlid - 0xC000 for number in range(BLOCK)]
    assert following == [*range(3, BLOCK), 0, 1, BLOCK]


# -- rules one by one -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        (Selector.GREATER_THAN, [True, False, False]),
        (Selector.LESS_THAN, [False, False, True]),
        (Selector.EXACTLY, [False, True, False]),
        (Selector.BEST, [True, True, True]),
    ],
)
def test_a_group_is_compared_with_the_value_that_a_query_asks_for(selector, fits):
    for requested, is_good in zip((3, 4, 5), fits, strict=True):
        with nullcontext() if is_good else pytest.raises(_Refused, match="the group's MTU is not what was asked for"):
            _check_order("MTU", selector, 4, requested)


def test_an_own_prefix_and_the_default_one_name_ports_of_the_subnet(desk):
    own = 0xFEC0_0000_0000_0007
    desk.state.options = replace(desk.state.options, subnet_prefix=own)
    for prefix, status in ((own, 0), (Gid.LINK_LOCAL_PREFIX, 0), (own + 1, SaStatus.INVALID_GID)):
        gid = int(Gid.of(desk.guid("h1"), prefix))
        assert join(desk, JOIN, mgid=BROADCAST, port_gid=gid)[0] == status
    (mine,) = table(desk, names="mgid", sm_key=SA_KEY, mgid=BROADCAST)
    assert mine.port_gid == int(Gid.of(desk.guid("h1"), own))


def test_members_are_found_by_their_state(desk):
    join(desk, mgid=GOOD, join_state=1)
    join(desk, JOIN, "h2", mgid=GOOD, join_state=2)
    join(desk, JOIN, "h3", mgid=GOOD, join_state=3)
    for state, host in ((1, "h1"), (2, "h2"), (3, "h3")):
        (found,) = table(desk, names="mgid join_state", sm_key=SA_KEY, mgid=GOOD, join_state=state)
        assert (found.port_gid, found.join_state, found.scope) == (desk.gid(host), state, 2)
    assert table(desk, names="mgid join_state", sm_key=SA_KEY, mgid=GOOD, join_state=4) == []


def test_a_made_mgid_is_one_that_no_group_has():
    groups = Groups(_serial=0xFFFF_FFFF)
    prefix = 0xFE80 << 48
    first = groups.new_mgid(2, prefix)
    assert first == 0xFF12_A01B << 96 | prefix << 32 | 0xFFFF_FFFF
    groups.create(MCMemberRecord(mgid=0xFF12_A01B << 96 | prefix << 32))
    assert groups.new_mgid(2, prefix) == 0xFF12_A01B << 96 | prefix << 32 | 1
    assert groups.new_mgid(5, prefix) == 0xFF15_A01B << 96 | prefix << 32 | 2


def test_all_members_that_left_a_partition_are_removed_and_groups_that_end_are_returned():
    groups = Groups()
    ending, going_on = (groups.create(MCMemberRecord(mgid=number, p_key=0x8001)) for number in (1, 2))
    for guid in (11, 12, 13):
        groups.join(ending, guid, 1)
        groups.join(going_on, guid, 1)
    groups.join(going_on, 20, 2)
    groups.join(going_on, 21, 8)
    assert groups._drop_strangers({1: {20, 21}}) == [ending]
    assert [*groups.by_mgid.values()] == [going_on]
    assert [*going_on.members] == [20, 21]
    assert groups._drop_strangers({}) == [going_on]
    assert groups.by_mgid == {}


@pytest.mark.parametrize(
    ("states", "is_alive"), [([], False), ([1], True), ([8], True), ([2], False), ([4, 2], False), ([2, 1], True)]
)
def test_a_group_lives_while_it_has_a_full_member(states, is_alive):
    group = Groups().create(MCMemberRecord(mgid=1))
    for guid, state in enumerate(states, 1):
        Groups().join(group, guid, state)
    assert group.is_alive is is_alive


def test_a_member_that_was_joined_is_removed_only_by_a_port_of_its_partition(desk):
    for name, key in (("h1", 0x8001), ("h2", 0x8001), ("h3", 0x8001), ("h4", 0x8002)):
        desk.put_into_partition(name, key, 0xFFFF)
    assert join(desk, mgid=GOOD, p_key=0x8001)[0] == 0
    assert join(desk, JOIN, "h2", "h3", mgid=GOOD)[0] == 0
    assert leave(desk, "h4", "h3", mgid=GOOD)[0] == INVALID
    assert leave(desk, "h1", "h3", mgid=GOOD)[0] == 0


def test_a_member_that_leaves_between_two_sweeps_is_cleared_from_the_tables(desk):
    """The second group is in another column of the tables than the first."""
    host = desk.net.fabric.find_port("h2/1")
    for mgid in (GOOD, GOOD + 1):
        join(desk, mgid=mgid)
        join(desk, JOIN, "h2", mgid=mgid)
    assert desk.reprogram() == []
    tables = desk.net.fabric.tables
    row, port = tables.switch_row[host.peer.node.index], host.peer.number

    def has(mgid: int) -> bool:
        mlid = desk.state.groups.by_mgid[mgid].mlid
        return bool(tables.mft[row, mlid - 0xC000, port // 16] >> port % 16 & 1)

    assert [has(mgid) for mgid in (GOOD, GOOD + 1)] == [True, True]
    leave(desk, "h2", mgid=GOOD + 1)
    assert desk.reprogram() == []
    assert [has(mgid) for mgid in (GOOD, GOOD + 1)] == [True, False]
