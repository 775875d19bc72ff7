"""Groups for adaptive routing: from intended tables by MADs into switches, and their use by the packet engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fabric.running import activate

import weft
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import Tables
from weft.mad.local import LocalCarrier
from weft.mad.subnet import Subnet
from weft.routing.engine import Options
from weft.routing.route import route
from weft.sim.engine import Options as SimOptions
from weft.sim.packet.engine import PacketEngine
from weft.sim.patterns import all_to_all
from weft.sm.sender import Sender
from weft.sm.ucast.adaptive import Groups, ar_writes, plan_groups
from weft.wire.adaptive import AdaptiveRoutingInfo
from weft.wire.bulk import fill
from weft.wire.smp import SmpAttribute

SPEC = "fat-tree:hosts=32,radix=8"
SETS = {
    SmpAttribute.ADAPTIVE_ROUTING_GROUP_TABLE: "groups",
    SmpAttribute.ADAPTIVE_ROUTING_LINEAR_FORWARDING_TABLE: "forwarding",
    SmpAttribute.ADAPTIVE_ROUTING_INFO: "on or off",
}


def paths(fabric: Fabric) -> tuple[np.ndarray, np.ndarray]:
    """Return directed routes from h1 to every node."""
    path, hops = np.zeros((len(fabric.nodes), 64), np.uint8), np.full(len(fabric.nodes), 255, np.uint8)
    start = fabric.find_node("h1").index
    hops[start], todo = 0, [start]
    for node in todo:
        first = fabric.first_port[node]
        for port in range(1, int(fabric.nodes.n_ports[node]) + 1):
            peer = fabric.ports.peer[first + port]
            if peer >= 0 and hops[fabric.ports.node[peer]] == 255:
                far = fabric.ports.node[peer]
                hops[far] = hops[node] + 1
                path[far] = path[node]
                path[far, hops[far]] = port
                todo.append(far)
    return path, hops


class Manager:
    """A subnet manager reduced to these tests, at h1 of an unconfigured fabric."""

    def __init__(self, spec: str = SPEC) -> None:
        self.fabric = weft.load(spec)
        self.subnet = Subnet(self.fabric)
        self.sender = Sender(LocalCarrier(self.subnet, self.fabric.find_port("h1/1").slot))
        self.path, self.hops = paths(self.fabric)
        self.before: Groups | None = None

    def infos(self, tables: Tables) -> np.ndarray:
        output, knows = self.sender.get(self.to(np.arange(len(tables.lft))), SmpAttribute.ADAPTIVE_ROUTING_INFO)
        assert knows.all()
        return output[:, : AdaptiveRoutingInfo.size].copy()

    def to(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return routes to switches, by the rows of their tables."""
        nodes = self.fabric.of_kind(NodeKind.SWITCH)[rows]
        return self.path[nodes], self.hops[nodes]

    def write(self, tables: Tables) -> dict[str, int]:
        """Write the tables; return the number of MADs of each kind, in the order of sending."""
        infos, sent = self.infos(tables), {}
        expected = plan_groups(tables, infos, self.before)
        for write in ar_writes(expected, infos, self.before):
            _, took = self.sender.set(self.to(write.rows), write.attribute, write.blocks, write.data)
            assert took.all()
            if len(took):
                sent[SETS[write.attribute]] = sent.get(SETS[write.attribute], 0) + len(took)
        self.before = expected
        return sent


def routed(spec: str = SPEC, engine: str = "auto") -> Fabric:
    return route(weft.load(spec), Options(adaptive=True, engine=engine)).fabric


def choices(tables: Tables, lids: int) -> list[list[tuple[int, ...]]]:
    """Return the permitted ports by switch and LID."""
    return [
        [
            tuple(np.flatnonzero(tables.ar_ports[group]).tolist()) if group >= 0 else (int(port),)
            for group, port in zip(groups[:lids], ports[:lids], strict=True)
        ]
        for groups, ports in zip(tables.ar_group.tolist(), tables.lft.tolist(), strict=True)
    ]


@pytest.mark.parametrize("engine", ["fat-tree", "min-hop", "dfsssp"])
def test_switches_may_take_what_the_routing_engine_wanted(engine):
    expected, manager = routed(engine=engine).tables, Manager()
    assert list(manager.write(expected)) == ["groups", "forwarding", "on or off"]
    lids = expected.lft.shape[1]
    assert choices(manager.fabric.tables, lids) == choices(expected, lids)


def test_the_packet_engine_runs_on_what_was_programmed_as_on_the_tables_of_the_routing_engine():
    """The times are equal to the picosecond, and differ from those of the forwarding tables alone."""
    expected, manager = routed(), Manager()
    manager.write(expected.tables)
    programmed = manager.fabric
    for name in ("sl2vl", "vl_arbitration"):  # written by other parts of a manager
        setattr(programmed.tables, name, getattr(expected.tables, name))
    programmed.tables.lid[:], programmed.tables.vl_high_limit[:] = expected.tables.lid, expected.tables.vl_high_limit
    activate(manager.subnet.devices)
    runs = {}
    for name, fabric, how in (
        ("wanted", expected, "adaptive"),
        ("programmed", programmed, "adaptive"),
        ("table", programmed, "table"),
    ):
        result = PacketEngine().run(fabric, all_to_all(fabric, size_bytes=20_000), SimOptions(paths=how))
        assert result.done
        runs[name] = result.finish_ps.tolist()
    assert runs["programmed"] == runs["wanted"]
    assert runs["programmed"] != runs["table"]


def test_present_groups_are_not_written_again():
    manager, tables = Manager(), routed().tables
    first = manager.write(tables)
    assert first["on or off"] == len(tables.lft)
    assert manager.write(tables) == {}


def test_after_a_change_only_blocks_that_differ_are_written_and_groups_keep_their_numbers():
    manager, tables = Manager(), routed().tables
    manager.write(tables)
    before = manager.before
    leaf = int(tables.switch_row[manager.fabric.find_node("leaf1").index])
    lid = int(np.flatnonzero(tables.ar_group[leaf] >= 0)[0])
    tables.ar_ports = np.concatenate((tables.ar_ports, tables.ar_ports[tables.ar_group[leaf, lid]][None]))
    tables.ar_ports[-1, tables.lft[leaf, lid] == np.arange(256)] = False
    tables.ar_group[leaf, lid] = len(tables.ar_ports) - 1
    assert manager.write(tables) == {"groups": 1, "forwarding": 1, "on or off": 1}
    same = np.ones(before.group.shape, bool)
    same[leaf, lid] = False
    assert (manager.before.group[same] == before.group[same]).all()
    assert choices(manager.fabric.tables, lid + 1) == choices(tables, lid + 1)


def test_a_switch_that_was_told_the_plain_table_is_written_anew():
    """That disables adaptive routing, and the next sweep reads it as disabled."""
    manager, tables = Manager(), routed().tables
    whole = manager.write(tables)
    n_switches = len(tables.lft)
    plain = tables.lft[:1, :64].copy()
    manager.sender.set(manager.to(np.array([0])), SmpAttribute.LINEAR_FORWARDING_TABLE, 0, plain)
    assert (manager.fabric.tables.ar_group[0] == -1).all()
    again = manager.write(tables)
    assert again["forwarding"] == whole["forwarding"] // n_switches
    assert again["on or off"] == 1
    assert choices(manager.fabric.tables, tables.lft.shape[1]) == choices(tables, tables.lft.shape[1])


def test_without_groups_it_is_turned_off():
    manager, tables = Manager(), routed().tables
    manager.write(tables)
    plain = route(weft.load(SPEC)).fabric.tables
    assert manager.write(plain) == {"on or off": len(tables.lft)}
    assert (manager.fabric.tables.ar_group == -1).all()
    manager.write(tables)
    assert choices(manager.fabric.tables, tables.lft.shape[1]) == choices(tables, tables.lft.shape[1])


def test_switches_that_take_no_groups_are_left_alone():
    manager, tables = Manager(), routed().tables
    infos = manager.infos(tables)
    infos[1:] = 0  # as for switches that do not support the attribute
    expected = plan_groups(tables, infos)
    assert {row for write in ar_writes(expected, infos) for row in write.rows.tolist()} == {0}
    h2 = [manager.fabric.find_node("h2").index]
    _, knows = manager.sender.get((manager.path[h2], manager.hops[h2]), SmpAttribute.ADAPTIVE_ROUTING_INFO)
    assert not knows.any()


def test_groups_that_a_switch_has_no_room_for_stay_static():
    tables = routed().tables
    most = max(len(set(row[row >= 0].tolist())) for row in tables.ar_group)
    infos = np.zeros((len(tables.lft), AdaptiveRoutingInfo.size), np.uint8)
    fill(infos, AdaptiveRoutingInfo.group_cap, most - 1)
    expected = plan_groups(tables, infos)
    assert expected.top.max() == most - 2
    short = [row for row in range(len(tables.lft)) if len(set(tables.ar_group[row].tolist()) - {-1}) == most]
    assert all(((tables.ar_group[row] >= 0) & (expected.group[row] < 0)).any() for row in short)


def test_a_plan_follows_switches_that_come_and_go():
    tables = routed().tables
    infos = np.zeros((len(tables.lft), AdaptiveRoutingInfo.size), np.uint8)
    fill(infos, AdaptiveRoutingInfo.group_cap, 64)
    plan = plan_groups(tables, infos)
    moved = plan.take(np.array([2, -1, 0]))
    assert moved.known.tolist() == [True, False, True]
    assert (moved.group[2] == plan.group[0]).all()
    assert plan.forget(np.array([1])).known.tolist()[:3] == [True, False, True]


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 6), min_size=5, max_size=5), min_size=2, max_size=2), min_size=1, max_size=5
    )
)
def test_any_series_of_plans_gives_every_lid_its_ports_and_changes_no_group_in_use(series):
    """Port masks 1 to 6 by LID on two switches, 0 for none; all old and new groups fit."""
    infos = np.zeros((2, AdaptiveRoutingInfo.size), np.uint8)
    fill(infos, AdaptiveRoutingInfo.group_cap, 12)
    fabric = weft.load("fat-tree:hosts=4,radix=4,levels=2")
    before = None
    for plan in series:
        tables = fabric.tables.like()
        tables.lft = np.zeros((2, 5), np.uint8)
        tables.ar_ports = np.eye(7, 256, dtype=bool)
        tables.ar_group = np.array(plan, np.int32) - 1
        expected = plan_groups(tables, infos, before)
        for row in range(2):
            for lid in range(5):
                number, group = expected.group[row, lid], tables.ar_group[row, lid]
                assert (number < 0) == (group < 0)
                assert number < 0 or expected.mask[row, number, 0] == 1 << group
                old = before.group[row, lid] if before is not None and before.known[row] else -1
                if old >= 0:
                    assert (expected.mask[row, old] == before.mask[row, old]).all()
        before = replace(expected)
