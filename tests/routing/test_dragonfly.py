"""Dragonfly: groups are found from the cabling, paths take one global link, or two by detour, on few lanes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import weft
from weft.fabric import faults
from weft.routing.check import check
from weft.routing.engine import CannotRoute, Options, Subnet
from weft.routing.kernels.dragonfly import find_cliques
from weft.routing.lids import assign_lids
from weft.routing.quality import measure
from weft.routing.route import reroute, route

DRAGONFLIES = (
    "dragonfly:p=2,a=4,h=2",
    "dragonfly:p=4,a=8,h=4",
    "dragonfly:p=2,a=4,h=2,g=5",
    "dragonfly:p=1,a=5,h=2,g=7",
    "dragonfly:p=2,a=4,h=3,g=4",
    "dragonfly:p=2,a=6,h=5,g=2",
)
PLUS = (
    "dragonfly+:p=2,leaves=2,spines=2,h=2,g=5",
    "dragonfly+:p=4,leaves=4,spines=4,h=4,g=17",
    "dragonfly+:p=3,leaves=4,spines=2,h=4,g=5",
)


def routed(fabric, **options):
    return route(fabric, Options(engine="dragonfly", **options))


class Paths:
    """The paths of a routed fabric, and the true groups of its switches."""

    def __init__(self, fabric):
        self.tables = tables = fabric.tables
        self.graph = graph = Subnet(fabric=fabric, lid=tables.lid, lmc=tables.lmc).graph
        self.group = fabric.nodes.group[graph.switches]
        ends = zip(graph.near.tolist(), graph.port.tolist(), graph.far.tolist(), strict=True)
        self.leads_to = {(near, port): far for near, port, far in ends}
        self.port_to = {(near, far): port for (near, port), far in self.leads_to.items()}
        self.host_port = dict(zip(graph.at[graph.is_host].tolist(), graph.out[graph.is_host].tolist(), strict=True))
        self.fabric = fabric
        detour = (np.diff(graph.at) == 0) & (np.diff(graph.out) == 0)
        self.is_detour = np.concatenate(([False], detour))

    def walk(self, source, index):
        """Return the switches on the path to a destination."""
        lid, way = int(self.graph.lid[index]), [source]
        while way[-1] != self.graph.at[index]:
            way.append(self.leads_to[way[-1], int(self.tables.lft[way[-1], lid])])
        return way

    def lanes(self, way, sl):
        """Yield the hops between switches, each with its lane, of a path from a host."""
        fabric, graph, came = self.fabric, self.graph, int(self.host_port[way[0]])
        for local, neighbour in itertools.pairwise(way):
            out = self.port_to[local, neighbour]
            node = int(graph.switches[local])
            row = int(self.tables.first_pair[node]) + came * (int(fabric.nodes.n_ports[node]) + 1) + out
            yield local, neighbour, int(self.tables.sl2vl[row, sl])
            came = int(fabric.ports.number[fabric.ports.peer[fabric.first_port[node] + out]])

    def groups(self, way):
        """Return the groups of a path, in order."""
        return [group for group, _ in itertools.groupby(self.group[way].tolist())]


# -- groups -----------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(a=st.integers(3, 9), h=st.integers(1, 4), g=st.integers(2, 30), seed=st.integers(0, 99))
def test_groups_are_found_from_the_cabling(a, h, g, seed):
    """Whatever the order of the switches, where a switch has more local links than global ones."""
    assume(h < a - 1 and g <= a * h + 1)
    fabric = weft.load(f"dragonfly:p=1,a={a},h={h},g={g}")
    lid, lmc = assign_lids(fabric)
    graph = Subnet(fabric=fabric, lid=lid, lmc=lmc).graph
    order = np.random.default_rng(seed).permutation(graph.n_switches)
    net = nx.Graph(zip(order[graph.near].tolist(), order[graph.far].tolist(), strict=True))
    far = [sorted(net[switch]) for switch in range(len(net))]
    first = np.cumsum([0, *map(len, far)]).astype(np.int32)
    result = find_cliques(first, np.concatenate(far).astype(np.int32))
    truth = fabric.nodes.group[graph.switches]
    assert len(set(zip(truth.tolist(), result[order].tolist(), strict=True))) == g == result.max() + 1


@pytest.mark.parametrize(
    "spec", [*DRAGONFLIES, *PLUS, "dragonfly:p=1,a=2,h=1", "dragonfly:p=2,a=4,h=4,g=3", "hyperx:4x4"]
)
@pytest.mark.parametrize("lmc", [0, 1, 2])
def test_all_pairs_arrive_without_deadlock(spec, lmc):
    most = 2 if lmc == 0 else 4 if "+" in spec else 3
    verdict = check(routed(weft.load(spec), lmc=lmc, max_vls=most).fabric)
    assert verdict.ok, verdict.explain()


# -- ways -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*DRAGONFLIES[:1], *DRAGONFLIES[2:]])
def test_a_minimal_path_takes_one_global_link_and_is_as_short_as_that_allows(spec):
    paths = Paths(routed(weft.load(spec)).fabric)
    graph, group = paths.graph, paths.group
    links = list(zip(graph.near.tolist(), graph.far.tolist(), strict=True))
    for index, target in enumerate(graph.at.tolist()):
        allowed = nx.Graph((a, b) for a, b in links if group[a] == group[b] or group[target] in (group[a], group[b]))
        shortest = nx.single_source_shortest_path_length(allowed, target)
        for source in range(graph.n_switches):
            way = paths.walk(source, index)
            assert len(paths.groups(way)) <= 2
            assert len(way) - 1 == shortest[source] <= 3


@pytest.mark.parametrize("spec", PLUS[:2])
def test_between_leaves_of_a_dragonfly_plus_it_is_up_across_and_down(spec):
    paths = Paths(routed(weft.load(spec)).fabric)
    leaf = paths.graph.hosts > 0
    for index in np.flatnonzero(paths.graph.is_host).tolist():
        for source in np.flatnonzero(leaf).tolist():
            way = paths.walk(source, index)
            same = paths.group[source] == paths.group[way[-1]]
            assert len(way) - 1 == (0 if len(way) == 1 else 2 if same else 3)


def test_a_detour_goes_through_one_other_group():
    paths = Paths(routed(weft.load("dragonfly:p=2,a=4,h=2"), lmc=1).fabric)
    through = {}
    for index in np.flatnonzero(paths.is_detour).tolist():
        home = int(paths.group[paths.graph.at[index]])
        middle = {}
        for source in range(paths.graph.n_switches):
            way = paths.walk(source, index)
            groups = paths.groups(way)
            assert len(way) - 1 <= 5
            if paths.group[source] != home:
                middle.setdefault(groups[1] if len(groups) == 3 else groups[0], []).append(source)
        (other,) = (group for group, sources in middle.items() if len(sources) > 4)
        through.setdefault(home, []).append(other)
    assert all(len(set(rest)) == 8 for rest in through.values())  # 8 hosts in a group, 8 other groups


def test_detours_of_three_groups_go_through_the_third():
    paths = Paths(routed(weft.load("dragonfly:p=2,a=4,h=2,g=3"), lmc=1).fabric)
    ways = [
        paths.groups(paths.walk(source, index))
        for index in np.flatnonzero(paths.is_detour).tolist()
        for source in range(paths.graph.n_switches)
    ]
    assert {tuple(way) for way in ways if len(way) == 3} == set(itertools.permutations(range(3)))


def test_detours_take_the_weight_off_the_link_between_two_groups():
    """All of group 1 sends to all of group 2: 64 pairs on one link, or 8 on each link of 8 detours."""
    fabric = routed(weft.load("dragonfly:p=2,a=4,h=2"), lmc=1).fabric
    paths = Paths(fabric)
    graph = paths.graph
    first, second = (np.flatnonzero(paths.group == group) for group in (0, 1))
    most = {}
    for detour in (False, True):
        load = {}
        for index in np.flatnonzero(graph.is_host & (paths.is_detour == detour) & np.isin(graph.at, second)).tolist():
            for source in first.tolist():
                for local, neighbour in itertools.pairwise(paths.walk(source, index)):
                    if paths.group[local] != paths.group[neighbour]:
                        load[local, neighbour] = load.get((local, neighbour), 0) + 2  # two hosts on a switch
        most[detour] = max(load.values())
    assert most == {False: 64, True: 8}


# -- loads ------------------------------------------------------------------------------------------------------------


def loads(fabric):
    """Return the all-to-all load of local and of global links."""
    quality = measure(fabric, bisections=2)
    ports = fabric.ports
    local, neighbour = (fabric.nodes.group[ports.node[end]] for end in (quality.links, ports.peer[quality.links]))
    return quality.load[local == neighbour], quality.load[local != neighbour]


@pytest.mark.parametrize(("p", "a", "h"), [(2, 4, 2), (1, 3, 1), (4, 8, 4), (3, 4, 2)])
def test_the_load_of_a_full_dragonfly(p, a, h):
    """A link between two groups carries all of their pairs. A local link: the hosts at its ends, one end's to the h
    groups beyond the other, and back."""
    local, global_ = loads(routed(weft.load(f"dragonfly:p={p},a={a},h={h}")).fabric)
    assert (global_ == (a * p) ** 2).all()
    assert (local == p**2 * (1 + 2 * a * h)).all()


@pytest.mark.parametrize(("spec", "links"), [("dragonfly:p=2,a=4,h=2,g=5", 2), ("dragonfly:p=4,a=8,h=4,g=17", 2)])
def test_several_links_between_two_groups_share_the_load(spec, links):
    fabric = weft.load(spec)
    hosts = len(fabric.hcas) / len(fabric.groups)
    _, global_ = loads(routed(fabric).fabric)
    assert global_.mean() == hosts**2 / links
    assert global_.max() <= 1.15 * hosts**2 / links


def test_the_load_of_a_dragonfly_plus():
    """Two links between two groups; a leaf's hosts to all others of the group and beyond, over its uplinks."""
    p, leaves, spines, h, g = 8, 8, 8, 8, 9
    spec = f"dragonfly+:p={p},leaves={leaves},spines={spines},h={h},g={g}"
    local, global_ = loads(routed(weft.load(spec)).fabric)
    assert (global_ == (leaves * p) ** 2 / (spines * h / (g - 1))).all()
    assert (local == p * (g * leaves - 1) * p / spines).all()


# -- lanes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", ["dragonfly+:p=5,leaves=3,spines=9,h=7,g=4", "dragonfly+:p=5,leaves=2,spines=9,h=2,g=3"]
)
def test_every_switch_takes_the_first_path_with_the_least_sum_of_loads(spec):
    """The nine spines above a leaf are compared together, the links between groups one by one."""
    paths = Paths(routed(weft.load(spec)).fabric)
    graph, group, lft = paths.graph, paths.group, paths.tables.lft
    edges = [range(graph.first[switch], graph.first[switch + 1]) for switch in range(graph.n_switches)]
    load = np.zeros(len(graph.far), int)

    def allowed(near, far, home):
        return group[near] == group[far] or (group[near] != home and group[far] == home)

    for index, target in enumerate(graph.at.tolist()):
        if not graph.is_host[index]:
            continue
        home, hops, order = group[target], {target: 0}, [target]
        for switch in order:
            for near in graph.far[edges[switch]].tolist():
                if near not in hops and allowed(near, switch, home):
                    hops[near] = hops[switch] + 1
                    order.append(near)
        sums, carried = {target: 0}, graph.hosts.copy()
        via = {}
        for switch in order[1:]:
            nearer = [
                edge
                for edge in edges[switch]
                if hops[int(graph.far[edge])] < hops[switch] and allowed(switch, graph.far[edge], home)
            ]
            via[switch] = min(nearer, key=lambda edge: sums[int(graph.far[edge])] + load[edge])
            sums[switch] = sums[int(graph.far[via[switch]])] + load[via[switch]]
            assert lft[switch, graph.lid[index]] == graph.port[via[switch]]
        for switch in reversed(order[1:]):
            load[via[switch]] += carried[switch]
            carried[graph.far[via[switch]]] += carried[switch]


@pytest.mark.parametrize("spec", [DRAGONFLIES[0], DRAGONFLIES[2], PLUS[0]])
@pytest.mark.parametrize("lmc", [0, 1])
def test_arriving_and_departing_packets_never_share_a_local_lane(spec, lmc):
    """Else the wait for a global link spreads from group to group, all round the machine."""
    paths = Paths(routed(weft.load(spec), lmc=lmc).fabric)
    graph, tables = paths.graph, paths.tables
    leaves, arrives = set(), set()  # (from switch, to switch, lane), by minimal paths
    for index in np.flatnonzero(graph.is_host & ~paths.is_detour).tolist():
        for source in np.flatnonzero(graph.hosts > 0).tolist():
            way = paths.walk(source, index)
            sl = int(tables.path_sl[source, graph.lid[index]]) if "path_sl" in vars(tables) else 0
            crossed = 0
            for local, neighbour, lane in paths.lanes(way, sl):
                if paths.group[local] != paths.group[neighbour]:
                    crossed += 1
                elif paths.group[source] != paths.group[way[-1]]:
                    (arrives if crossed else leaves).add((local, neighbour, lane))
    assert arrives
    assert not leaves & arrives


def test_minimal_paths_share_one_service_level():
    tables = routed(weft.load("dragonfly:p=2,a=4,h=2")).tables
    assert "path_sl" not in vars(tables)
    assert set(np.unique(tables.sl2vl[:, 0])) == {0, 1}


def test_hosts_of_a_dragonfly_plus_stay_on_lane_zero():
    """Up, across and down is an order by itself; VL 1 is for paths that start or end at a spine."""
    fabric = routed(weft.load(PLUS[1])).fabric
    verdict = check(fabric, hosts_only=True)
    assert verdict.ok
    assert verdict.vls == 1
    assert check(fabric).vls == 2


# -- what it refuses, and what it survives ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "port", "message"),
    [
        ("dragonfly:p=4,a=8,h=4", "g1s1/5", "g1s2 and g1s1, in the same group, have no link between them"),
        ("dragonfly:p=4,a=8,h=4", "g2s2/12", "the groups of g2s1 and g7s1 have no link between them"),
        (
            "dragonfly+:p=4,leaves=4,spines=4,h=4,g=17",
            "g3leaf2/5",
            "g3leaf2 and g3spine1, in the same group, have no link",
        ),
        ("dragonfly+:p=4,leaves=4,spines=4,h=4,g=17", "g1spine1/5", "the groups of g1leaf1 and g2leaf1 have no link"),
    ],
)
def test_a_lost_link_is_named(spec, port, message):
    with pytest.raises(CannotRoute, match=rf"{message}(.|\n)*dfsssp"):
        routed(faults.remove_link(weft.load(spec), port))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("torus:5x5", "only 28 of 78 pairs of them have a link"),
        ("hyperx:5", "needs several groups, and hyperx:5 has one"),
        ("star:hosts=4", "has one"),
        ("fat-tree:hosts=64,radix=16", "has one"),
        ("fat-tree:hosts=120,radix=8", "cannot use core1"),
    ],
)
def test_other_topologies_than_dragonflies_are_refused(spec, message):
    with pytest.raises(CannotRoute, match=rf"{message}(.|\n)*Route with engine"):
        routed(weft.load(spec))


@pytest.mark.parametrize(
    ("spec", "lmc", "needed"), [(DRAGONFLIES[0], 0, 2), (DRAGONFLIES[0], 1, 3), (PLUS[0], 0, 2), (PLUS[0], 1, 4)]
)
def test_too_few_lanes_are_refused_with_the_number_needed(spec, lmc, needed):
    with pytest.raises(CannotRoute, match=f"needs {needed} virtual lanes, the ports have {needed - 1}"):
        routed(weft.load(spec), lmc=lmc, max_vls=needed - 1)


def test_one_of_several_links_between_groups_may_go():
    before = routed(weft.load("dragonfly:p=4,a=8,h=4,g=9"))
    after = reroute(faults.remove_link(before.fabric, "g2s2/12"), before)
    assert check(after.fabric).ok
    assert after.changed_entries is not None
    assert 0 < after.changed_entries < before.tables.lft.size / 50


@pytest.mark.parametrize("name", ["g2s2", "g2spine2", "g2leaf2"])
def test_a_dead_switch_leaves_a_smaller_group(name):
    spec = "dragonfly:p=2,a=4,h=3,g=4" if name == "g2s2" else "dragonfly+:p=2,leaves=3,spines=3,h=3,g=4"
    fabric = weft.load(spec)
    victim = fabric[name]
    for host in [peer.name for peer in victim.peers if peer.kind.name == "HCA"]:
        fabric = faults.kill(fabric, host)
    assert check(routed(faults.kill(fabric, name), lmc=1).fabric).ok


def test_groups_are_not_read_off_the_names():
    """The same cabling without the groups that the generator noted."""
    fabric = weft.load("dragonfly:p=2,a=4,h=2")
    bare = replace(fabric, nodes=replace(fabric.nodes, group=np.full(len(fabric.nodes), -1, np.int32)), groups=())
    assert (routed(bare).tables.lft == routed(fabric).tables.lft).all()
