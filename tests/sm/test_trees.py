"""Multicast trees: the switches' tables deliver to each member once, and never form a loop."""

from __future__ import annotations

import random
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sm.desk import Desk

from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.mad import faults
from weft.mad.walk import statuses
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sm.discovery.known import carried_over
from weft.sm.mcast.groups import RECEIVES
from weft.sm.mcast.trees import _found_top, _may_differ, _room, _wide, _write_top, fill_trees, upload_multicast
from weft.sm.port_info import activate, arm, wanted_settings
from weft.sm.ucast.lids import choose_lids
from weft.wire.bulk import column, fill
from weft.wire.mad import Method
from weft.wire.port_info import Capability, PortInfo
from weft.wire.sa import MCMemberRecord
from weft.wire.smp import DirectedSmp, Smp, SmpAttribute, SwitchInfo

FIRST = 0xC000


class Loop(AssertionError):
    pass


def mask(mft, row, mlid):
    """Return the ports of an entry."""
    words = mft[row, mlid - FIRST] if mlid - FIRST < mft.shape[1] else []
    return {16 * word + bit for word, value in enumerate(words) for bit in range(16) if int(value) >> bit & 1}


def send(fabric, mft, mlid, source):
    """Return the port slots that receive a copy of a packet from this slot, one for each copy."""
    ports, rows, received = fabric.ports, fabric.tables.switch_row, []
    switch_side = source if rows[ports.node[source]] >= 0 else int(ports.peer[source])
    todo, been = [switch_side], set()
    while todo:
        entry = todo.pop()
        if entry in been:
            raise Loop(f"a packet to {mlid:#x} comes to {fabric.port(entry).name} twice")
        been.add(entry)
        node = int(ports.node[entry])
        for number in mask(mft, rows[node], mlid) - {int(ports.number[entry])}:
            out = int(fabric.first_port[node]) + number
            if number == 0:
                received.append(out)
            elif ports.peer[out] >= 0 and rows[ports.node[ports.peer[out]]] >= 0:
                todo.append(int(ports.peer[out]))
            elif ports.peer[out] >= 0:
                received.append(int(ports.peer[out]))
    return received


def check_delivery(desk, group):
    """Check delivery from every member to every other receiver, by the devices' tables over the real cables."""
    fabric, mft = faults.fabric_now(desk.net.devices), desk.net.devices.tables.mft
    slot_of = dict(zip(fabric.ports.guid.tolist(), range(len(fabric.ports)), strict=True))
    for node in fabric.of_kind(NodeKind.SWITCH).tolist():
        slot_of[int(fabric.ports.guid[fabric.first_port[node]])] = int(fabric.first_port[node])
    receivers = {slot_of[guid] for guid, member in group.members.items() if member.join_state & RECEIVES}
    for guid in group.members:
        received = send(fabric, mft, group.mlid, slot_of[guid])
        assert sorted(received) == sorted(receivers - {slot_of[guid]})


def new_group(desk, *names, state=1):
    group = desk.state.groups.create(
        MCMemberRecord(mgid=0xFF12_0000 << 96 | len(desk.state.groups.by_mgid), p_key=0xFFFF, mtu=4, rate=3)
    )
    for name in names:
        desk.state.groups.join(group, desk.guid(name), state)
    return group


def random_fabric(seed):
    """Return a random fabric of connected switches of several sizes with some parallel cables, and hosts."""
    chance = random.Random(seed)
    builder = FabricBuilder("random")
    sizes = [chance.choice((8, 20, 40)) for _ in range(chance.randint(1, 7))]
    switches = [int(builder.add_nodes(NodeKind.SWITCH, [f"s{i + 1}"], n_ports=size)[0]) for i, size in enumerate(sizes)]
    free = [list(range(1, size + 1)) for size in sizes]
    for ports in free:
        chance.shuffle(ports)
    hosts = 0
    for i in range(1, len(sizes)):
        connect(builder, switches, free, i, chance.randrange(i))
    for _ in range(chance.randint(0, 6)):
        a, b = chance.randrange(len(sizes)), chance.randrange(len(sizes))
        if a != b and len(free[a]) > 2 and len(free[b]) > 2:
            connect(builder, switches, free, a, b)
    for i, ports in enumerate(free):
        for port in ports[: chance.randint(1 if i == 0 else 0, min(3, len(ports)))]:
            hosts += 1
            host = builder.add_nodes(NodeKind.HCA, [f"h{hosts}"], n_ports=1)
            builder.add_links(host, 1, [switches[i]], port, "EDR")
    return builder.build()


def connect(builder, switches, free, a, b):
    builder.add_links([switches[a]], free[a].pop(), [switches[b]], free[b].pop(), "EDR")


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_every_member_is_reached_once_by_every_member(seed, data):
    """The fabric and the members are random; members may change between two sweeps."""
    desk = Desk(random_fabric(seed))
    names = st.lists(st.sampled_from(desk.net.fabric.nodes.name), unique=True, min_size=1)
    groups = []
    for _ in range(data.draw(st.integers(1, 3))):
        group = new_group(desk, *data.draw(names))
        groups.append(group)
        for name in data.draw(names):
            desk.state.groups.join(group, desk.guid(name), data.draw(st.sampled_from((1, 2, 4, 8))))
    assert desk.sweep() == []
    for group in groups:
        check_delivery(desk, group)
    changing = groups[0]
    for name in data.draw(names):
        if desk.guid(name) in changing.members and len(changing.members) > 1:
            desk.state.groups.leave(changing, desk.guid(name))
        elif changing.members:
            desk.state.groups.join(changing, desk.guid(name), 1)
    assert desk.reprogram() == []
    for group in groups:
        if group.mgid in desk.state.groups.by_mgid:
            check_delivery(desk, group)


@pytest.mark.parametrize(
    ("spec", "engine"),
    [
        ("fat-tree:hosts=24,radix=8,levels=3", "fat-tree"),
        ("fat-tree:hosts=16,radix=8", "up-down"),
        ("torus:5x5", "up-down"),
        ("dragonfly:p=2,a=4,h=2", "up-down"),
    ],
)
def test_packets_to_groups_and_to_ports_cannot_wait_for_each_other_in_a_circle(spec, engine):
    desk = Desk(spec)
    view, chance = desk.view, random.Random(7)
    hosts = [node.name for node in view.fabric.hcas]
    groups = [new_group(desk, *chance.sample(hosts, chance.randint(2, 9))) for _ in range(60)]
    fill_trees_of(desk, groups)
    lft = route(view.fabric, RoutingOptions(engine=engine)).tables.lft
    waits = nx.DiGraph()
    fabric = view.fabric
    rows, ports = fabric.tables.switch_row, fabric.ports
    between = [s for s in view.plugged if rows[ports.node[s]] >= 0 and rows[ports.node[ports.peer[s]]] >= 0]
    for out in between:
        local, present = rows[ports.node[out]], rows[ports.node[ports.peer[out]]]
        nexts = {int(lft[present, lid]) for lid in np.flatnonzero(lft[local] == ports.number[out])}
        for group in groups:
            if int(ports.number[out]) in mask(fabric.tables.mft, local, group.mlid):
                nexts |= mask(fabric.tables.mft, present, group.mlid) - {int(ports.number[ports.peer[out]])}
        first = int(fabric.first_port[ports.node[ports.peer[out]]])
        waits.add_edges_from((int(out), first + number) for number in nexts if number not in (0, 255))
    assert len(waits) > 0
    assert nx.is_directed_acyclic_graph(waits)


def fill_trees_of(desk, groups):
    tables = desk.view.fabric.tables
    tables.mft = np.zeros((len(tables.mft), 64, tables.mft.shape[2]), np.uint16)
    fill_trees(desk.view, groups)


@pytest.mark.parametrize("hosts", [range(1, 33), (25, 29, 32)])
def test_a_tree_between_leaves_goes_over_one_spine_and_groups_take_turns(hosts):
    desk = Desk("fat-tree:hosts=32,radix=8")
    groups = [new_group(desk, *[f"h{number}" for number in hosts]) for _ in range(8)]
    fill_trees_of(desk, groups)
    rows, mft = desk.view.fabric.tables.switch_row, desk.view.fabric.tables.mft
    spines = [name for name in desk.view.fabric.node_index if name.startswith("spine")]
    row_of = {name: rows[desk.view.fabric.node_index[name]] for name in spines}
    used = [[name for name in spines if mask(mft, row_of[name], group.mlid)] for group in groups]
    assert all(len(of_group) == 1 for of_group in used)
    assert {of_group[0] for of_group in used} == set(spines)
    assert len(spines) > 1


def test_the_tree_depends_on_who_is_in_the_group_and_not_on_who_came_first():
    desk = Desk("dragonfly:p=2,a=4,h=2")
    names = [node.name for node in desk.view.fabric.hcas][:9]
    group = new_group(desk, *names)
    fill_trees_of(desk, [group])
    before = desk.view.fabric.tables.mft.copy()
    group.members = dict(reversed(group.members.items()))
    fill_trees_of(desk, [group])
    assert np.array_equal(before, desk.view.fabric.tables.mft)


class OneByOne:
    """A carrier that sends MADs one by one, in random order, and checks the tables after each."""

    def __init__(self, desk, seed):
        self.desk, self.net, self.chance = desk, desk.net, random.Random(seed)

    def exchange(self, mads, to=None, **how):
        answers, answered = np.zeros_like(mads), np.zeros(len(mads), bool)
        order = list(range(len(mads)))
        self.chance.shuffle(order)
        for i in order:
            item = slice(i, i + 1)
            answers[item], answered[item] = self.net.exchange(mads[item], None if to is None else to[item], **how)
            if column(mads[item], DirectedSmp.attribute_id)[0] == SmpAttribute.MULTICAST_FORWARDING_TABLE:
                self.look()
        return answers, answered

    def look(self):
        fabric, mft = self.net.fabric, self.net.devices.tables.mft
        for mlid in range(FIRST, FIRST + mft.shape[1]):
            for node in fabric.of_kind(NodeKind.HCA).tolist():
                send(fabric, mft, mlid, int(fabric.first_port[node]) + 1)


@pytest.mark.parametrize("seed", range(10))
def test_no_packet_runs_in_a_circle_while_a_tree_becomes_another(seed):
    """Two groups of the same hosts swap their spines: one MAD at a time, in random order."""
    desk = Desk("fat-tree:hosts=16,radix=8")
    item, other = (new_group(desk, "h1", "h5", "h9", "h13") for _ in range(2))
    desk.sweep()
    mft = desk.view.fabric.tables.mft
    columns = [item.mlid - FIRST, other.mlid - FIRST]
    assert not np.array_equal(mft[:, columns[0]], mft[:, columns[1]])
    mft[:, columns] = mft[:, columns[::-1]]
    desk.state.sender.carrier = OneByOne(desk, seed)
    assert upload_multicast(desk.state.sender, desk.view, desk.state.known) == []
    for group in (item, other):
        check_delivery(desk, group)


def sets(desk, attribute):
    """Return the list to which each later Set of this attribute is added."""
    sent = []

    def note(mads, answers, answered):
        kind = column(mads, DirectedSmp.attribute_id) == attribute
        sent.extend(bytes(mad) for mad in mads[kind & (column(mads, DirectedSmp.method) == Method.SET)])

    desk.net.tampers.append(note)
    return sent


def test_only_what_differs_is_written():
    desk = Desk("fat-tree:hosts=16,radix=8")
    group = new_group(desk, "h1", "h2")
    desk.sweep()
    sent = sets(desk, SmpAttribute.MULTICAST_FORWARDING_TABLE)
    desk.sweep()
    assert sent == []
    desk.state.groups.join(group, desk.guid("h3"), 1)  # on the same leaf
    desk.reprogram()
    assert len(sent) == 1
    desk.reprogram()
    assert len(sent) == 1


@pytest.mark.parametrize("in_use", [False, True])
def test_entries_of_another_manager_are_cleared(in_use):
    """The tables of a subnet in use are read, and only differences are written."""
    desk = Desk("fat-tree:hosts=8,radix=4")
    if in_use:
        activate_all(desk)
    tables = desk.net.devices.tables
    tables.mft = np.zeros((len(tables.mft), 96, tables.mft.shape[2]), np.uint16)
    tables.mft[:, 70] = 2  # in the third block
    desk.state.known = None
    for node in np.flatnonzero(desk.view.is_switch).tolist():
        write_top(desk, node, FIRST + 95)
    sent = sets(desk, SmpAttribute.MULTICAST_FORWARDING_TABLE)
    desk.sweep()
    assert not desk.net.devices.tables.mft.any()
    assert len(sent) == int(desk.view.is_switch.sum()) * (1 if in_use else 3)


def test_a_block_that_cannot_be_read_is_written_though_it_shall_be_empty():
    desk = Desk("fat-tree:hosts=8,radix=4")
    activate_all(desk)
    tables, switches = desk.net.devices.tables, np.flatnonzero(desk.view.is_switch)
    tables.mft = np.zeros((len(tables.mft), 32, tables.mft.shape[2]), np.uint16)
    tables.mft[:, 5] = 2  # another manager's
    for node in switches.tolist():
        write_top(desk, node, FIRST + 31)
    desk.state.known = None

    def keep_silent(mads, answers, answered):
        kind = column(mads, DirectedSmp.attribute_id) == SmpAttribute.MULTICAST_FORWARDING_TABLE
        answered[kind & (column(mads, DirectedSmp.method) == Method.GET)] = False

    desk.net.tampers.append(keep_silent)
    assert desk.sweep() == []
    assert not tables.mft.any()


@pytest.mark.parametrize("has_top", [False, True])
def test_a_block_that_the_tables_grow_by_is_read_from_switches_without_a_multicast_fdb_top(has_top):
    """A switch with a MulticastFDBTop ignores entries above it, so they need not be read."""
    desk = Desk("fat-tree:hosts=8,radix=4")
    activate_all(desk)
    desk.sweep()
    view, tables = desk.view, desk.net.devices.tables
    tables.mft = np.zeros((len(tables.mft), 96, tables.mft.shape[2]), np.uint16)
    tables.mft[:, 70] = 2  # in the third block, which the subnet manager has not used yet
    view.fabric.tables.mft = np.zeros((len(tables.mft), 96, view.fabric.tables.mft.shape[2]), np.uint16)
    if not has_top:
        infos = view.port_info[view.fabric.first_port]
        masks = column(infos, PortInfo.capability_mask) & ~np.uint64(Capability.IS_MULTICAST_FDB_TOP_SUPPORTED)
        fill(infos, PortInfo.capability_mask, masks)
        view.port_info[view.fabric.first_port] = infos
    assert upload_multicast(desk.state.sender, view, desk.state.known) == []
    assert tables.mft.any() == has_top


def test_ports_from_16_on_are_in_the_second_position_of_the_table():
    desk = Desk("star:hosts=20")
    ports = {name: desk.view.fabric[f"{name}/1"].peer.number for name in ("h2", "h20")}
    assert min(ports.values()) < 16 < max(ports.values())
    group = new_group(desk, *ports)
    assert desk.reprogram() == []
    assert mask(desk.net.devices.tables.mft, 0, group.mlid) == set(ports.values())
    check_delivery(desk, group)


@pytest.mark.parametrize(("top", "found"), [(0xBFFF, 0xBFFF), (0xC000, 0xC000), (0xFFFE, 0xFFFE), (0xFFFF, 0xBFFF)])
def test_a_top_that_is_no_multicast_lid_is_that_of_an_empty_table(top, found):
    view = Desk("star:hosts=2").view
    fill(view.switch_info, SwitchInfo.multicast_fdb_top, top)
    assert _found_top(view)[view.is_switch].tolist() == [found]


def test_tables_that_were_never_read_are_written_where_they_have_entries_or_had_some():
    view = Desk("star:hosts=2").view
    switches, new = np.flatnonzero(view.is_switch), np.zeros((1, 3, 1, 32), np.uint16)
    new[0, 2, 0, 5] = 1
    for top, blocks in ((0xBFFF, [False, False, True]), (0xC000, [True, False, True]), (0xC020, [True, True, True])):
        fill(view.switch_info, SwitchInfo.multicast_fdb_top, top)
        assert _may_differ(view, switches, new)[0, :, 0].tolist() == blocks
    for cap, blocks in ((0, [False] * 3), (32, [True, False, False]), (33, [True, True, False])):
        fill(view.switch_info, SwitchInfo.multicast_fdb_cap, cap)
        assert _room(view, switches, 3)[0, :, 0].tolist() == blocks


def activate_all(desk):
    view = desk.view
    lids, nothing = choose_lids(view, {}), np.zeros(len(view.port_info), np.uint8)
    expected = wanted_settings(view, lids, desk.state.options, key=desk.state.port_key, enforced=nothing)
    armed = arm(desk.state.sender, view, carried_over(None, view), expected)
    activate(desk.state.sender, view, expected, armed.refused)


def write_top(desk, node, top):
    info = desk.view.switch_info[node : node + 1].copy()
    fill(info, SwitchInfo.multicast_fdb_top, top)
    _, took = desk.state.sender.set(desk.view.to_nodes(np.array([node])), SmpAttribute.SWITCH_INFO, 0, info)
    assert took.all()


def test_a_switch_that_refuses_is_named_and_tried_again():
    desk = Desk("fat-tree:hosts=8,radix=4")
    stubborn = desk.view.fabric.nodes.name[int(np.flatnonzero(desk.view.is_switch)[0])]
    new_group(desk, *[node.name for node in desk.view.fabric.hcas])
    refuse = []

    def no(mads, answers, answered):
        if not refuse:
            return
        hit = column(mads, DirectedSmp.attribute_id) == SmpAttribute.MULTICAST_FORWARDING_TABLE
        hit &= column(mads, DirectedSmp.method) == Method.SET
        fill(answers, Smp.status, np.where(hit, 0x001C, statuses(answers).astype(np.int64)))

    desk.net.tampers.append(no)
    refuse.append(1)
    assert stubborn in desk.sweep()
    refuse.clear()
    assert desk.sweep() == []
    check_delivery(desk, next(iter(reversed(desk.state.groups.by_mlid.values()))))


def test_switches_without_a_multicast_table_are_left_out_of_trees():
    desk = Desk("fat-tree:hosts=16,radix=8")
    spine = desk.view.fabric.node_index["spine1"]
    fill(desk.view.switch_info[spine : spine + 1], SwitchInfo.multicast_fdb_cap, 0)
    groups = [new_group(desk, *[node.name for node in desk.view.fabric.hcas]) for _ in range(4)]
    fill_trees_of(desk, groups)
    row = desk.view.fabric.tables.switch_row[spine]
    assert not desk.view.fabric.tables.mft[row].any()
    assert all(desk.view.fabric.tables.mft[:, group.mlid - FIRST].any() for group in groups)


def test_a_table_that_grows_by_words_keeps_its_columns():
    table = np.arange(2 * 64, dtype=np.uint16).reshape(2, 64, 1)
    grown = _wide(table, 32, 2)
    assert grown.shape == (2, 64, 2)
    assert (grown[:, :, :1] == table).all()
    assert not grown[:, :, 1].any()
    assert _wide(table, 64, 1) is table


@pytest.mark.parametrize(
    ("columns", "cap", "top", "routes_top", "takes", "written"),
    [
        (32, 4096, 0xBFFF, 63, True, 0xC01F),
        (64, 40, 0xBFFF, 63, True, 0xC027),
        (32, 4096, 0xC01F, 63, True, None),  # already set
        (32, 0, 0xBFFF, 63, True, None),
        (32, 4096, 0xBFFF, -1, True, None),  # the switch did not take its SwitchInfo
        (32, 4096, 0xBFFF, 0, True, 0xC01F),
        (32, 4096, 0xBFFF, 63, False, 0xC01F),
    ],
)
def test_the_top_of_a_multicast_table_is_written_without_clearing_a_change_of_ports(
    columns, cap, top, routes_top, takes, written
):
    view = Desk("star:hosts=2").view
    contents, sent, refused = carried_over(None, view), [], set()
    switch = int(np.flatnonzero(view.is_switch)[0])
    fill(view.port_info, PortInfo.capability_mask, int(Capability.IS_MULTICAST_FDB_TOP_SUPPORTED))
    for field, value in (
        (SwitchInfo.multicast_fdb_cap, cap),
        (SwitchInfo.multicast_fdb_top, top),
        (SwitchInfo.port_state_change, 1),
    ):
        fill(view.switch_info, field, value)
    contents.top[:] = routes_top

    def put(route, attribute, modifier, data):
        sent.extend((attribute, modifier, SwitchInfo.unpack(row.tobytes())) for row in data)
        return data, np.full(len(data), takes)

    _write_top(SimpleNamespace(set=put), view, contents, columns, refused)
    assert [(attribute, modifier) for attribute, modifier, _ in sent] == [(SmpAttribute.SWITCH_INFO, 0)] * (
        written is not None
    )
    for *_, info in sent:
        assert (info.multicast_fdb_top, info.linear_fdb_top, info.port_state_change) == (written, routes_top, 0)
    assert refused == (set() if takes else {switch})
    left = SwitchInfo.unpack(view.switch_info[switch].tobytes())
    assert left.multicast_fdb_top == (written if written and takes else top)
    assert left.port_state_change == 1
