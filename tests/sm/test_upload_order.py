"""No packet loops while some switches have the new tables and some the old ones."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import SimulationBug
from weft.fabric import faults
from weft.fabric.tables import NO_ROUTE
from weft.routing.engine import Options, Subnet
from weft.routing.route import reroute, route
from weft.sm.ucast.upload_order import _idle, plan_upload
from weft.sm.ucast.upload_waits import NO_SWITCH, find_circle, lightest, scratch_for


def writes(plan):
    return sum(len(wave.switch) for wave in plan.waves)


def assert_no_interleaving_loops(far, old, new, plan):
    """Assert, for every possible order of writes, that there is no loop during any wave.

    During a wave each of its switches has either its old or its new entry. Any cycle in the graph with both edges uses
    one edge of each switch, so some interleaving contains it: without a cycle, no interleaving loops.
    """
    state = old.copy()
    for wave in plan.waves:
        writes = {*zip(wave.switch.tolist(), wave.block.tolist(), strict=True)}
        assert 0 < len(writes) == len(wave.switch)
        after = state.copy()
        after.reshape(len(old), -1, 64)[wave.switch, wave.block] = wave.ports
        for lid in np.flatnonzero((old != new).any(axis=0) | (state != after).any(axis=0)).tolist():
            edges = {*edges_of(far, state[:, lid]), *edges_of(far, after[:, lid])}
            assert nx.is_directed_acyclic_graph(nx.DiGraph(sorted(edges))), f"LID {lid} can loop"
        state = after
    assert np.array_equal(state, new)


def edges_of(far, ports):
    present = far[np.arange(len(far)), np.where(ports < far.shape[1], ports, 0)]
    return [(local, int(to)) for local, to in enumerate(present.tolist()) if to >= 0]


def random_net(rng, n):
    """Return far[switch, port] of a random connected graph; port 1 is an adapter, port 0 the switch itself."""
    net = nx.gnm_random_graph(n, int(rng.integers(n - 1, n * (n - 1) // 2 + 1)), seed=int(rng.integers(1 << 31)))
    net.add_edges_from((node, int(rng.integers(node))) for node in range(1, n))
    far = np.full((n, 2 + max(dict(net.degree).values())), -1, np.int32)
    for local in net:
        for port, present in enumerate(net[local], 2):
            far[local, port] = present
    return net, far


def random_tables(rng, net, far, lids, some_missing):
    """Return tables with a random tree for each LID to a random switch, which is the same in all tables."""
    lft = np.full((len(far), lids), NO_ROUTE, np.uint8)
    for lid in range(1, lids):
        target = lid * 7 % len(far)
        lft[target, lid] = 1
        reached, edge = {target}, list(net.edges(target))
        while edge:
            present, local = edge.pop(int(rng.integers(len(edge))))
            if local not in reached:
                reached.add(local)
                edge += net.edges(local)
                lft[local, lid] = int(np.flatnonzero(far[local] == present)[0])
    if some_missing:
        lft[rng.random(lft.shape) < 0.2] = NO_ROUTE
    return lft


@settings(max_examples=40)
@given(n=st.integers(2, 7), blocks=st.integers(1, 2), some_missing=st.booleans(), seed=st.integers(0, 1 << 30))
def test_random_trees_replace_each_other_without_a_loop(n, blocks, some_missing, seed):
    rng = np.random.default_rng(seed)
    net, far = random_net(rng, n)
    old, new = (random_tables(rng, net, far, 64 * blocks, some_missing) for _ in range(2))
    plan = plan_upload(far, old, new, in_use=True)
    assert_no_interleaving_loops(far, old, new, plan)
    assert plan.changed_entries == (old != new).sum()
    differing = (old != new).reshape(n, -1, 64).any(axis=2).sum()
    assert writes(plan) == differing + (len(plan.waves[-1].switch) if plan.dropped_entries else 0)
    assert plan.dropped_entries <= plan.changed_entries / 2


@settings(max_examples=40)
@given(n=st.integers(2, 6), idle=st.integers(1, 3), seed=st.integers(0, 1 << 30))
def test_switches_that_return_are_written_before_any_table_leads_to_them(n, idle, seed):
    rng = np.random.default_rng(seed)
    net, far = random_net(rng, n)
    old, new = (random_tables(rng, net, far, 64, some_missing=False) for _ in range(2))
    returned = np.arange(n) < idle
    leads_there = returned[far[np.arange(n)[:, None], np.where(old < far.shape[1], old, 0)]]
    old[returned[:, None] | (leads_there & (old > 1))] = NO_ROUTE
    plan = plan_upload(far, old, new, in_use=True)
    assert set(plan.waves[0].switch.tolist()) == set(np.flatnonzero(returned).tolist())
    assert_no_interleaving_loops(far, old, new, plan)
    assert plan.changed_entries == (old != new).sum()


def tables_of(fabric):
    """Return far[switch, port] and the forwarding tables in whole blocks."""
    graph = Subnet(fabric=fabric, lid=fabric.tables.lid, lmc=fabric.tables.lmc).graph
    far = np.full((graph.n_switches, int(graph.port.max()) + 1), -1, np.int32)
    far[graph.near, graph.port] = graph.far
    lft = fabric.tables.lft
    return far, np.pad(lft, ((0, 0), (0, -lft.shape[1] % 64)), constant_values=NO_ROUTE)


@pytest.mark.parametrize(
    ("spec", "one", "other"),
    [
        ("torus:8", Options(engine="up-down", root="sw1"), Options(engine="up-down", root="sw5")),
        ("torus:8x8", Options(engine="dfsssp"), Options(engine="up-down")),
        ("dragonfly+:p=2,leaves=2,spines=2,h=2,g=5", Options(engine="dragonfly"), Options(engine="up-down")),
    ],
)
def test_an_engine_or_a_root_replaces_another_without_a_loop(spec, one, other):
    before = route(weft.load(spec), one)
    far, old = tables_of(before.fabric)
    _, new = tables_of(route(before.fabric, other).fabric)
    assert not all(
        nx.is_directed_acyclic_graph(nx.DiGraph(edges_of(far, old[:, lid]) + edges_of(far, new[:, lid])))
        for lid in range(old.shape[1])
    ), "no order would do too: this shows nothing"
    assert_no_interleaving_loops(far, old, new, plan_upload(far, old, new, in_use=True))


def test_shortest_paths_replace_shortest_paths_in_one_wave():
    """With both tables each hop is nearer to the destination, so it is with any mix."""
    before = route(weft.load("torus:4x4"), Options(engine="dfsssp"))
    far, old = tables_of(before.fabric)
    _, new = tables_of(route(before.fabric, Options(engine="dimension-order")).fabric)
    plan = plan_upload(far, old, new, in_use=True)
    assert (len(plan.waves), plan.dropped_entries) == (1, 0)
    assert_no_interleaving_loops(far, old, new, plan)


@pytest.mark.parametrize("fault", ["leaf2/4", "spine4/5", "leaf1/5"])
def test_after_a_fault_only_blocks_that_differ_are_written_and_nothing_is_dropped(fault):
    before = route(weft.load("fat-tree:hosts=54,radix=6"), Options(engine="fat-tree"))
    after = reroute(faults.remove_link(before.fabric, fault), before)
    far, new = tables_of(after.fabric)
    _, old = tables_of(before.fabric)
    plan = plan_upload(far, old, new, in_use=True)
    assert plan.changed_entries == after.changed_entries
    assert writes(plan) == (old != new).reshape(len(old), -1, 64).any(axis=2).sum() < old.size / 64 / 2
    assert plan.dropped_entries == 0
    assert_no_interleaving_loops(far, old, new, plan)


RING = np.array([[-1, -1, 1, 2], [-1, -1, 2, 0], [-1, -1, 0, 1]], np.int32)  # three switches, ports 2 and 3 to others


def ring_tables(*columns):
    lft = np.full((3, 64), NO_ROUTE, np.uint8)
    for lid, column in enumerate(columns, 1):
        lft[:, lid] = column
    return lft


def test_the_switch_next_to_the_destination_turns_first():
    """An adapter is on switch 2: 0 sent over 1, now 1 sends over 0, so 0 must send directly before that."""
    plan = plan_upload(RING, ring_tables([2, 2, 1]), ring_tables([3, 3, 1]), in_use=True)
    assert [wave.switch.tolist() for wave in plan.waves] == [[0], [1]]


def test_of_orders_that_contradict_each_other_the_lighter_one_drops_packets_for_a_moment():
    """Two adapters on switch 2 need 0 before 1, a third, whose path reverses, needs 1 before 0."""
    old, new = ring_tables([2, 2, 1], [2, 2, 1], [3, 3, 1]), ring_tables([3, 3, 1], [3, 3, 1], [2, 2, 1])
    plan = plan_upload(RING, old, new, in_use=True)
    assert plan.dropped_entries == 1
    assert writes(plan) == 3
    assert (plan.waves[-1].ports == new[plan.waves[-1].switch]).all()
    assert_no_interleaving_loops(RING, old, new, plan)


def test_before_there_is_traffic_all_is_written_at_once():
    old, new = ring_tables([2, 2, 1]), ring_tables([3, 3, 1])
    plan = plan_upload(RING, old, new, in_use=False)
    assert [wave.switch.tolist() for wave in plan.waves] == [[0, 1]]
    assert plan_upload(RING, new, new, in_use=True).waves == ()


def test_a_switch_whose_tables_nobody_knows_is_written_whole():
    new = np.pad(ring_tables([3, 3, 1]), ((0, 0), (0, 64)), constant_values=NO_ROUTE)
    plan = plan_upload(RING, new, new, in_use=True, known=np.array([True, False, True]))
    assert [(wave.switch.tolist(), wave.block.tolist()) for wave in plan.waves] == [([1, 1], [0, 1])]
    assert np.array_equal(plan.waves[0].ports.reshape(-1), new[1])


def test_a_switch_is_idle_if_it_drops_everything_and_no_table_leads_to_it():
    """Entries to an adapter lead to no switch."""
    table = ring_tables([1, 3, NO_ROUTE])
    assert _idle(RING, table).tolist() == [False, False, True]
    table[1, 2] = 2
    assert _idle(RING, table).tolist() == [False, False, False]
    assert _idle(RING, ring_tables([NO_ROUTE, NO_ROUTE, NO_ROUTE])).all()


def test_a_circle_of_waits_is_found_from_a_switch_outside_of_it():
    """0 waits for 1, and 1, 2 and 3 wait for each other; the wait of 2 for 3 has the fewest entries."""
    s = scratch_for(4)
    s.waits[:] = NO_SWITCH
    for here, there, entries in ((0, 1, 1), (1, 2, 3), (2, 3, 2), (3, 1, 3)):
        s.waits[here, 5 : 5 + entries] = there
    find, choose = (getattr(kernel, "py_func", kernel) for kernel in (find_circle, lightest))
    assert find(0, 1, s) == 3
    assert s.circle[:4].tolist() == [1, 2, 3, 1]
    assert choose(3, s) == (2, 3)
    assert find(2, 2, s) == 3
    assert s.circle[:4].tolist() == [2, 3, 1, 2]


def test_half_a_block_is_our_mistake():
    with pytest.raises(SimulationBug, match="whole blocks"):
        plan_upload(RING, *(np.full((3, 63), NO_ROUTE, np.uint8),) * 2, in_use=True)
