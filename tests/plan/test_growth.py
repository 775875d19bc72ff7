"""Growth from today's fabric to a larger one: few cables move, no leaf loses its uplinks, and the target is reached."""

from __future__ import annotations

import json
from collections import Counter
from itertools import permutations

import networkx
import numpy as np
import pytest
from tests.plan.recabling import exchange, renamed

import weft
from weft.errors import ConfigError, SubnetError
from weft.fabric import faults, files
from weft.fabric.kinds import NodeKind
from weft.plan.audit.audit import compare
from weft.plan.audit.positions import Planned, Position, read_today
from weft.plan.floor.cables import cable
from weft.plan.floor.racks import place
from weft.plan.floor.schedule import to_csv
from weft.plan.growth import growth as growing
from weft.plan.growth.growth import grow, larger, servers_of, write_steps
from weft.plan.growth.merged import merge
from weft.plan.growth.roles import assign_roles, joins
from weft.plan.growth.steps import _Floor

PAIRS = {
    "superpod, 1 to 2 units": ("superpod:su=1,radix=16", "superpod:su=2,radix=16"),
    "superpod, to three tiers": ("superpod:su=2,radix=16", "superpod:su=4,radix=16"),
    "fat tree": ("fat-tree:hosts=16,radix=8", "fat-tree:hosts=32,radix=8"),
    "fat tree, to three tiers": ("fat-tree:hosts=32,radix=8", "fat-tree:hosts=64,radix=8"),
    "fat tree of three tiers": ("fat-tree:hosts=64,radix=8", "fat-tree:hosts=128,radix=8"),
}


@pytest.fixture(scope="module", params=PAIRS)
def pair(request):
    today, target = map(weft.load, PAIRS[request.param])
    return today, target, grow(today, target)


def shape(fabric):
    """Return a hash that is equal for isomorphic fabrics (Weisfeiler and Leman)."""
    graph = networkx.Graph()
    for item, rest in joins(fabric).items():
        graph.add_node(item, kind=str(fabric.nodes.kind[item]))
        graph.add_edges_from((item, other, {"cables": str(count)}) for other, count in rest.items())
    return networkx.weisfeiler_lehman_graph_hash(graph, edge_attr="cables", node_attr="kind", iterations=6)


def uplinks(fabric, names):
    """Return the cables of today's leaves to switches that hold none of today's hosts."""
    result = Counter()
    for name in names:
        result[name] = sum(port.peer.node.kind is NodeKind.SWITCH for port in fabric[name].ports if port.peer)
    return result


def test_the_last_step_joins_what_the_target_joins(pair):
    """Other ports, perhaps other names: but the same cables between the same places, and no port twice."""
    _, target, growth = pair
    last = growth.steps[-1].fabric
    ends = np.concatenate((last.links.a, last.links.b))
    assert len(np.unique(ends)) == len(ends)
    assert shape(last) == shape(target)


def test_every_leaf_keeps_its_share_at_every_moment(pair):
    """Counted in the fabrics themselves, with each step's cables out."""
    today, _, growth = pair
    leaves = [node.name for node in today.switches if any(p.kind is NodeKind.HCA for p in node.peers)]
    usual = uplinks(today, leaves)
    before = growth.today
    for step in growth.steps:
        present = {frozenset(ends) for ends in zip(before.links.a.tolist(), before.links.b.tolist(), strict=True)}
        after = {frozenset(e) for e in zip(step.fabric.links.a.tolist(), step.fabric.links.b.tolist(), strict=True)}
        left = [frozenset(e) in after for e in zip(before.links.a.tolist(), before.links.b.tolist(), strict=True)]
        assert len(present - after) == len(step.batch.out)
        out = uplinks(before.subset(keep_links=np.array(left)), leaves)
        assert all(out[name] >= 0.75 * usual[name] for name in leaves)
        assert uplinks(step.fabric, leaves) == usual
        before = step.fabric


def test_as_few_cables_move_as_can_be(pair):
    today, target, growth = pair
    assert growth.moved == growth.least_moved
    assert growth.new == target.network_links.sum() - today.network_links.sum()
    assert growth.moved + growth.stay == int(today.network_links.sum())
    assert sum(len(step.batch.out) for step in growth.steps) == growth.moved
    assert not growth.retired


def test_every_moment_is_routed_and_proved(pair):
    today, _, growth = pair
    hosts = sum(today.nodes.kind[node] == NodeKind.HCA for node in joins(today))
    for step in growth.steps:
        for proof in filter(None, (step.during, step.after)):
            assert proof.hosts >= hosts
            assert proof.pairs >= hosts * (hosts - 1)
            assert proof.slowdown >= 1


# -- the fewest, by trying all --------------------------------------------------------------------------------------


def most_by_trying(today, target):
    """Return the most cables that can stay, by trying all places for today's switches other than leaves of hosts."""
    mine, theirs = joins(today), joins(target)
    fixed = {i: target.node_index[n] for n, i in today.node_index.items() if n[0] == "h" or n.startswith("leaf")}
    free = [s.index for s in today.switches if s.index not in fixed]
    places = [s.index for s in target.switches if s.index not in fixed.values()]
    best = 0
    for chosen in permutations(places, len(free)):
        role = fixed | dict(zip(free, chosen, strict=True))
        best = max(best, sum(min(c, theirs[role[u]][role[v]]) for u in mine for v, c in mine[u].items()) // 2)
    return best


@pytest.mark.parametrize(
    ("today", "target"),
    [
        ("fat-tree:hosts=8,radix=4", "fat-tree:hosts=12,radix=4"),
        ("fat-tree:hosts=16,radix=8", "fat-tree:hosts=32,radix=8"),
        ("fat-tree:hosts=6,radix=4,levels=3", "fat-tree:hosts=8,radix=4,levels=3"),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_choice_of_places_keeps_more(today, target, seed):
    """The spines of these fabrics were cabled at random."""
    rng = np.random.default_rng(seed)
    stands, expected = weft.load(today), weft.load(target)
    ends = [link.b.name for link in stands.all_links() if link.a.node.kind is NodeKind.SWITCH]
    stands = exchange(stands, *rng.permutation(ends)[:5].tolist())
    stands = faults.remove_link(stands, str(rng.choice(ends)))
    upper = [name for name in stands.nodes.name if name.startswith(("spine", "core"))]
    stands = renamed(stands, dict(zip(upper, rng.permutation(upper).tolist(), strict=True)))
    roles = assign_roles(stands, expected)
    assert roles.kept == roles.most == most_by_trying(stands, expected)


def test_names_do_not_mislead():
    """Spines and cores of three tiers, all under the name of another."""
    today, target = weft.load("fat-tree:hosts=64,radix=8"), weft.load("fat-tree:hosts=128,radix=8")
    upper = [name for name in today.nodes.name if name.startswith(("spine", "core"))]
    today = renamed(today, dict(zip(upper, np.roll(upper, 7).tolist(), strict=True)))
    roles = assign_roles(today, target)
    assert roles.kept == roles.most == 160


def test_switches_keep_their_names_where_cables_leave_a_choice():
    """Both spines of today join all leaves by as many cables, in either order of their names."""
    today, target = weft.load("fat-tree:hosts=16,radix=8"), weft.load("fat-tree:hosts=32,radix=8")
    for names in ({}, {"spine1": "spine2", "spine2": "spine1"}):
        stands = renamed(today, names)
        role = assign_roles(stands, target).role
        kept = {stands.nodes.name[u]: target.nodes.name[place] for u, place in role.items()}
        assert [kept["spine1"], kept["spine2"]] == ["spine1", "spine2"]


def test_where_there_is_too_much_to_try_the_tiers_are_assigned_all_the_same():
    today = weft.load("superpod:su=4,radix=32")
    today = renamed(today, {name: f"x{name}" for name in today.nodes.name if name.startswith("spine")})
    roles = assign_roles(today, weft.load("superpod:su=8,radix=32"))
    assert roles.kept == roles.most == 576


# -- what is odd, and what is refused --------------------------------------------------------------------------------


def test_a_cable_that_is_missing_today_is_plugged_in_first():
    today = faults.remove_link(weft.load("fat-tree:hosts=16,radix=8"), "leaf2/5")
    growth = grow(today, weft.load("fat-tree:hosts=32,radix=8"))
    assert growth.before.worst_leaf == 1.0  # relative to today's links
    assert growth.steps[-1].after.slowdown == 1.0
    assert growth.steps[-1].fabric.links.a.size == weft.load("fat-tree:hosts=32,radix=8").links.a.size


def test_the_cables_of_steps_are_written_and_audited(tmp_path):
    growth = grow(weft.load("fat-tree:hosts=16,radix=8"), weft.load("fat-tree:hosts=32,radix=8"))
    paths = write_steps(growth, tmp_path / "grow", {"spine1": Position("A01", 40)})
    assert [path.name for path in paths[:2]] == ["step-1.csv", "step-1.yaml"]
    lines = (tmp_path / "grow" / "step-2.csv").read_text().splitlines()
    assert lines[1] == 'move,spine1/2,A01,40,spine3/1,,,leaf1/6 > spine3/1,"A01-U40 spine1/2: pull, plug into spine3/1"'
    assert len(lines) == 1 + len(growth.steps[1].batch.into)
    after = weft.load(str(tmp_path / "grow" / "step-3.yaml"))
    assert compare(after, Planned(fabric=growth.steps[-1].fabric)).ok


def test_names_of_today_are_kept_and_new_ones_are_free():
    """Two spines of today stand where the target has others: new ones take the names that are left."""
    today = exchange(weft.load("fat-tree:hosts=16,radix=8"), "leaf1/5", "leaf2/7")
    last = grow(today, weft.load("fat-tree:hosts=32,radix=8")).steps[-1].fabric
    assert {f"spine{i}" for i in range(1, 5)} <= set(last.nodes.name)


def test_a_share_that_cannot_be_kept_is_refused_with_one_that_can():
    pair = weft.load("fat-tree:hosts=8,radix=4"), weft.load("fat-tree:hosts=16,radix=4")
    with pytest.raises(ConfigError, match=r"keeps 75% of its uplinks\n  50% can be kept: --keep 0\.5"):
        grow(*pair)
    thirds = weft.load("fat-tree:hosts=12,radix=6"), weft.load("fat-tree:hosts=27,radix=6")
    with pytest.raises(ConfigError, match=r"keeps 75% of its uplinks\n  66% can be kept: --keep 0\.66$"):
        grow(*thirds)
    assert min(step.during.worst_leaf for step in grow(*pair, keep=0.5).steps if step.during) == 0.5
    with pytest.raises(ConfigError, match=r"--keep must be in \(0, 1\], got 0"):
        grow(*pair, keep=0)


def test_hosts_that_would_be_cut_off_are_named():
    with pytest.raises(
        ConfigError, match="h5 is on leaf1, and in fat-tree:hosts=16,radix=8 it would be on another leaf"
    ):
        grow(weft.load("fat-tree:hosts=8,radix=8"), weft.load("fat-tree:hosts=16,radix=8"))
    with pytest.raises(ConfigError, match="give a larger target"):
        grow(weft.load("fat-tree:hosts=32,radix=8"), weft.load("fat-tree:hosts=16,radix=8"))


def test_tables_that_can_deadlock_end_the_growth(monkeypatch):
    """No cable is to be pulled where the proof fails."""
    from weft.routing.engine import Options
    from weft.routing.route import route

    monkeypatch.setattr(growing, "route", lambda fabric, options: route(fabric, Options(engine="min-hop")))
    with pytest.raises(SubnetError, match=r"(?s)today: .*can deadlock"):
        grow(weft.load("torus:5x5"), weft.load("torus:5x5"))


def test_the_same_topology_for_more():
    today = weft.load("superpod:su=1,radix=16,server=dgx-a100")
    assert larger(today, servers_of(today, 100)) == "superpod:su=2,server=dgx-a100,servers=13,radix=16"
    assert larger(weft.load("fat-tree:hosts=16,radix=8,levels=2"), 64) == "fat-tree:hosts=64,radix=8"
    with pytest.raises(ConfigError, match="give more than that"):
        larger(today, 8)
    with pytest.raises(ConfigError, match="torus cannot be grown automatically"):
        larger(weft.load("torus:3x3"), 20)
    with pytest.raises(ConfigError, match="has no GPUs"):
        servers_of(weft.load("torus:3x3"), 20)


def test_a_plan_that_was_built_grows_from_its_folder(tmp_path):
    """Its spec says what is larger, and its schedule where things stand."""
    fabric = weft.load("superpod:su=1,radix=8")
    files.write(fabric, tmp_path / "fabric.yaml")
    (tmp_path / "plan.json").write_text(json.dumps({"spec": fabric.spec}))
    (tmp_path / "cables.csv").write_text(to_csv(cable(place(fabric))))
    today = read_today(str(tmp_path))
    assert larger(today.fabric, 8) == "superpod:su=2,radix=8"
    assert "spine1" in today.positions
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"plan\.json: .*spec.*; expected a file that `weft plan` wrote"):
        read_today(str(tmp_path))


def test_no_cable_waits_after_a_growth():
    today, target = map(weft.load, PAIRS["fat tree, to three tiers"])
    floor = _Floor(merge(today, target, assign_roles(today, target)), 0.5)
    floor.add()
    assert floor.waiting == Counter(device for wire in floor.come for device, _ in (wire.low, wire.high))
    while floor.come:
        floor.move()
    while floor.go:
        floor.pull_rest()
    assert set(floor.waiting.values()) == set(floor.parallel.values()) == {0}
    assert not any(floor.going.values())


def test_rails_as_subnets_are_proved_like_the_whole(monkeypatch):
    """Routes along rails reach every pair of a rail: 16 adapters, their leaf and four spines; eight rails are equal."""
    small, large = (weft.load(f"superpod:su=1,servers={n}") for n in (8, 16))
    whole = grow(small, large).steps[-1].after
    monkeypatch.setattr(growing, "needs_subnets", lambda fabric: True)
    rails = grow(small, large).steps[-1].after
    ends = 16 + 1 + 4
    assert rails.pairs == 8 * ends * (ends - 1)
    assert (rails.hosts, rails.worst_leaf) == (whole.hosts, whole.worst_leaf)
