"""A fabric against its plan: exactly the faults are found, and the steps of the walk repair them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan.recabling import cables_of, carry_out, exchange, free_ports, plug, renamed

import weft
from weft.errors import ConfigError
from weft.fabric import faults, files
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.plan.audit.audit import compare
from weft.plan.audit.findings import Do, Kind
from weft.plan.audit.identity import identify
from weft.plan.audit.positions import Planned, read_plan
from weft.plan.floor.cables import cable
from weft.plan.floor.racks import place
from weft.plan.floor.schedule import to_csv, to_ndt

PLUGS = (Do.MOVE, Do.PLUG, Do.PULL)


def audit(found, plan):
    return compare(found, Planned(fabric=plan))


def kinds(done):
    return Counter(finding.kind for finding in done.findings)


@pytest.fixture(scope="module")
def tree():
    """A tree of three leaves with two cables to each of two spines, and free ports."""
    return weft.load("fat-tree:hosts=12,radix=8,levels=2,oversubscription=1")


def test_a_fabric_is_as_its_plan(tree):
    done = audit(tree, tree)
    assert done.ok
    assert done.as_planned == done.cables == len(tree.links)


def test_two_cables_exchanged_on_a_leaf_are_one_finding_on_that_leaf(tree):
    done = audit(exchange(tree, "leaf1/5", "leaf1/7"), tree)
    (item,) = done.findings
    assert item.kind is Kind.SWAPPED
    assert item.text == "leaf1/5 and leaf1/7 are swapped; the same devices are connected, so routing is not affected"
    assert [str(action) for _, action in done.walk()] == [
        "leaf1/5: pull, plug into leaf1/7",
        "leaf1/7: pull, plug into leaf1/5",
    ]


def test_parallel_cables_exchanged_do_no_harm_to_routing(tree):
    (item,) = audit(exchange(tree, "leaf1/5", "leaf1/6"), tree).findings
    assert item.kind is Kind.SWAPPED
    assert item.harmless


def test_uplinks_of_two_leaves_exchanged_between_spines_do_harm(tree):
    done = audit(exchange(tree, "leaf1/5", "leaf2/7"), tree)
    (item,) = done.findings
    assert (item.kind, item.harmless) == (Kind.SWAPPED, False)
    assert {action.do for action in item.actions} == {Do.MOVE}


def test_a_circle_of_three_is_one_finding(tree):
    (item,) = audit(exchange(tree, "leaf1/5", "leaf1/7", "leaf1/8"), tree).findings
    assert item.kind is Kind.SWAPPED
    assert len(item.actions) == 3
    assert len(item.cables) == 3


def test_each_kind_is_named(tree):
    result = exchange(tree, "spine1/1", "spine1/8")  # which is free
    result = faults.remove_link(result, "leaf2/5")
    result = faults.slow(result, "leaf3/6", "1xNDR")
    result = plug(result, "spine1/7", "spine2/8")
    result = faults.kill(result, "h12")
    done = audit(result, tree)
    assert {(finding.kind, finding.text) for finding in done.findings} == {
        (
            Kind.WRONG_PORT,
            "leaf1/5 goes to spine1/8, not to spine1/1; the same devices are connected, so routing is not affected",
        ),
        (Kind.MISSING, "leaf2/5 - spine1/3 is missing"),
        (Kind.SLOWER, "leaf3/6 - spine1/6 runs at 1xNDR, planned 4xNDR"),
        (Kind.EXTRA, "spine1/7 - spine2/8 is not planned"),
        (Kind.DEVICE_MISSING, "h12 is not seen, nor 1 cable of it"),
    }
    assert done.as_planned == done.cables - 4
    assert carry_out(done, result, tree) == cables_of(tree)


def test_a_device_that_is_not_planned_takes_its_cables_along(tree):
    done = audit(tree, faults.kill(tree, "spine2"))
    (item,) = done.findings
    assert item.kind is Kind.DEVICE_EXTRA
    assert len(item.cables) == len(tree.find_node("spine2").peers)


def test_a_server_that_is_gone_is_one_finding():
    plan = weft.load("superpod:su=1,radix=8")
    (item,) = audit(faults.kill(plan, "dgx3"), plan).findings
    assert item.text == "dgx3 is not seen, nor 8 cables of it"
    assert len(item.actions) == 1


def test_faster_link_than_planned_is_no_finding(tree):
    assert audit(tree, faults.slow(tree, "leaf3/6", "1xNDR")).ok


# -- which device is which ----------------------------------------------------------------------------------------


def test_devices_of_other_names_are_known_by_their_guids(tree):
    named = {item: f"x{item}" for item in tree.nodes.name}
    guid = tree.nodes.guid + np.uint64(7)  # not those that weft makes up
    plan = replace(tree, nodes=replace(tree.nodes, guid=guid))
    done = audit(renamed(plan, named), plan)
    assert done.ok
    assert done.notes[0] == "17 devices of 17 have other names than in the plan, and its GUIDs"


def test_guids_that_weft_made_up_identify_nothing(tree):
    with pytest.raises(
        ConfigError, match=r"no device of .*\(h1, h2, h3, \.\.\. against xh1, xh2, xh3, \.\.\.\) or GUID"
    ):
        audit(tree, renamed(tree, {item: f"x{item}" for item in tree.nodes.name}))


def test_a_switch_of_another_name_is_known_by_its_cables(tree):
    result = exchange(renamed(tree, {"leaf2": "rack7", "spine1": "top"}), "rack7/5", "rack7/7")
    done = audit(result, tree)
    assert [finding.kind for finding in done.findings] == [Kind.OTHER_NAME, Kind.SWAPPED, Kind.OTHER_NAME]
    assert done.findings[0].text == "rack7 stands where leaf2 should: another name, or another box"
    assert str(done.findings[1].actions[0]) == "leaf2/5: pull, plug into leaf2/7"


def test_leaves_and_spines_that_all_have_other_names_are_known_from_the_hosts_up(tree):
    result = renamed(tree, {name: f"x{name}" for name in tree.nodes.name if name[0] != "h"})
    assert kinds(audit(result, tree)) == {Kind.OTHER_NAME: 5}


def test_a_stranger_in_one_port_of_many_is_not_the_switch_that_is_missing(tree):
    lone = renamed(tree, {"spine1": "other"})
    rest = [port.name for port in lone["other"].ports if port.peer][1:]
    for port in rest:
        lone = faults.remove_link(lone, port)
    assert kinds(audit(lone, tree)) == {Kind.DEVICE_MISSING: 1, Kind.DEVICE_EXTRA: 1, Kind.WRONG_PORT: 1}


def test_the_only_adapter_that_is_seen_of_a_server_is_known(tmp_path):
    """A dump names it after the server alone, as long as no other of the server is there."""
    plan = weft.load("superpod:su=1,radix=8,servers=1")
    result = plan
    for adapter in plan.find_server("dgx1").hcas:
        if adapter.name != "dgx1/mlx5_4" and adapter.port(1).peer:
            result = faults.kill(result, adapter.name)
    files.write(result, tmp_path / "found.ibnetdiscover")
    dump = weft.load(str(tmp_path / "found.ibnetdiscover"))
    assert "dgx1" in dump.node_index
    assert kinds(audit(dump, plan)) == {Kind.MISSING: 7}


# -- any wrong cabling --------------------------------------------------------------------------------------------

SMALL = {spec: weft.load(spec) for spec in ("fat-tree:hosts=6,radix=8,levels=2", "torus:3x3,hosts=2", "star:hosts=5")}


@st.composite
def miscabled(draw):
    plan = SMALL[draw(st.sampled_from(sorted(SMALL)))]
    ends = np.stack((plan.links.a, plan.links.b), axis=1)
    places = np.r_[ends.ravel(), free_ports(plan)]
    some = draw(st.lists(st.integers(0, len(places) - 1), unique=True, max_size=8))
    shuffled = places.copy()
    shuffled[some] = places[draw(st.permutations(some))]
    ends = shuffled[: ends.size].reshape(ends.shape)
    spare = shuffled[ends.size :].tolist()
    rows = sorted(set(range(len(ends))) - draw(st.sets(st.integers(0, len(ends) - 1), max_size=3)))
    extra = draw(st.integers(0, min(2, len(spare) // 2)))
    links = plan.links.take(np.array(rows + [0] * extra))
    a = np.r_[ends[rows, 0], spare[:extra]].astype(np.int32)
    b = np.r_[ends[rows, 1], spare[extra : 2 * extra]].astype(np.int32)
    width = links.width.copy()
    width[draw(st.lists(st.integers(0, len(rows) - 1), max_size=2))] = 1
    result = plan.with_links(replace(links, a=a, b=b, width=width))
    for name in draw(st.lists(st.sampled_from(plan.nodes.name), unique=True, max_size=1)):
        result = faults.kill(result, name)
    return result, plan


@given(miscabled())
def test_the_walk_makes_the_plan_of_whatever_stands(pair):
    result, plan = pair
    done = audit(result, plan)
    assert carry_out(done, result, plan) == cables_of(plan)
    assert done.ok == (cables_of(result) == cables_of(plan))


@given(miscabled())
def test_no_shorter_walk_makes_the_plan(pair):
    """A cable that shares an end with a planned one saves a plug, if the other fits, and one at most: a matching."""
    result, plan = pair
    done = audit(result, plan)
    present, expected = cables_of(result).keys(), cables_of(plan).keys()
    off, due = present - expected, expected - present
    fits = ((item, other) for item in off for other in due if len({port[0] == "h" for port in item ^ other}) == 1)
    graph = networkx.Graph((("off", item), ("due", other)) for item, other in fits if item & other)
    saved = len(networkx.max_weight_matching(graph, maxcardinality=True))
    installed = sum(len(item.cables) for item in done.findings if item.kind is Kind.DEVICE_MISSING)
    assert sum(action.do in PLUGS for _, action in done.walk()) + installed == len(off) + len(due) - saved


# -- real fabrics -------------------------------------------------------------------------------------------------


def injected(plan, seed):
    """Return the fabric with random faults of every kind, at most one for each switch port, and their numbers."""
    rng = np.random.default_rng(seed)
    of_switch = plan.nodes.kind[plan.ports.node] == NodeKind.SWITCH
    between = of_switch & (plan.ports.peer >= 0) & of_switch[plan.ports.peer]
    slots = rng.permutation(np.flatnonzero(between & (plan.ports.peer > np.arange(len(plan.ports)))))
    names = iter([plan.port(int(slot)).name for slot in slots])
    host = rng.permutation(np.flatnonzero((plan.nodes.kind[plan.ports.node] == NodeKind.HCA) & (plan.ports.peer >= 0)))
    leaf_ports = iter([plan.port(int(plan.ports.peer[slot])).name for slot in host])
    result = plan
    for _ in range(4):
        result = exchange(result, next(names), next(names))
        result = exchange(result, next(leaf_ports), next(leaf_ports))
    result = exchange(result, next(names), next(names), next(names))
    for _ in range(3):
        result = faults.remove_link(result, next(names))
        result = faults.slow(result, next(names), "1xHDR")
    spare = iter(rng.permutation(free_ports(plan)).tolist())
    for _ in range(2):
        result = plug(result, plan.port(next(spare)).name, plan.port(next(spare)).name)
    result = exchange(result, next(names), plan.port(next(spare)).name)
    return result, {Kind.SWAPPED: 9, Kind.MISSING: 3, Kind.SLOWER: 3, Kind.EXTRA: 2, Kind.WRONG_PORT: 1}


def test_selene_with_faults_shows_each_and_nothing_else(selene):
    result, expected = injected(selene, seed=1)
    done = audit(result, selene)
    assert kinds(done) == expected
    assert carry_out(done, result, selene) == cables_of(selene)


def test_a_dump_of_ndr_with_faults_read_back_from_a_file(ndr_dump, tmp_path):
    """The file is as `ibnetdiscover` prints it: names and missing nodes come from the text."""
    plan = weft.load(str(ndr_dump))
    result, expected = injected(plan, seed=4)
    files.write(result, tmp_path / "found.ibnetdiscover")
    assert kinds(audit(weft.load(str(tmp_path / "found.ibnetdiscover")), plan)) == expected
    files.write(plan, tmp_path / "plan.ndt")
    assert kinds(audit(result, weft.load(str(tmp_path / "plan.ndt")))) == expected


# -- where things stand ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["cables.csv", "cables.ndt"])
def test_a_schedule_says_where_both_ends_are(form, tmp_path):
    """The planner writes it for people and for UFM."""
    fabric = weft.load("superpod:su=1,radix=8")
    cabling = cable(place(fabric))
    (tmp_path / form).write_text(to_csv(cabling) if form == "cables.csv" else to_ndt(cabling))
    planned = read_plan(str(tmp_path / form))
    assert compare(fabric, planned).ok
    done = compare(faults.remove_link(fabric, "leaf3/7"), planned)
    racks = cabling.racks
    low, high = (racks.position(racks.boxes.index(box)) for box in ("leaf3", "spine3"))
    assert done.findings[0].labels == (f"{low} leaf3/7 > {high} spine3/3",)
    ((_, action),) = done.walk()
    assert {str(action.position), str(action.to_position)} == {low, high}


def test_devices_of_a_schedule_with_one_port_are_adapters_and_others_switches(tmp_path):
    head = "port_a,rack_a,u_a,port_b,rack_b,u_b,speed"
    rows = ["h1/1,A01,3,leaf1/1,A01,4,4xNDR", "h2/mlx5_0/2,A01,3,leaf1/2,A01,4,4xNDR"]
    (tmp_path / "cables.csv").write_text("\n".join([head, *rows, ""]))
    fabric = read_plan(str(tmp_path / "cables.csv")).fabric
    kinds = dict(zip(fabric.nodes.name, fabric.nodes.kind.tolist(), strict=True))
    assert kinds == {"h1": NodeKind.HCA, "h2/mlx5_0": NodeKind.HCA, "leaf1": NodeKind.SWITCH}


def test_a_folder_without_a_plan_and_a_schedule_that_is_torn_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"neither cables\.csv nor fabric\.yaml"):
        read_plan(str(tmp_path))
    head = "port_a,rack_a,u_a,port_b,rack_b,u_b,speed"
    (tmp_path / "cables.csv").write_text(f"{head}\nh1/1,A01,3,leaf1,A01,4,4xNDR\n")
    with pytest.raises(ConfigError, match=r"cables\.csv:2: 'leaf1' is not valid; expected a port"):
        read_plan(str(tmp_path))
    (tmp_path / "cables.csv").write_text(f"{head}\nh1/1,A01,top,leaf1/1,A01,4,4xNDR\n")
    with pytest.raises(ConfigError, match=r"cables\.csv:2: 'top' is not valid; expected the lowest unit"):
        read_plan(str(tmp_path))
    (tmp_path / "cables.csv").write_text(f"{head}\nh1/1,A01,3\n")
    with pytest.raises(ConfigError, match=r"cables\.csv:2"):
        read_plan(str(tmp_path))
    (tmp_path / "cables.csv").write_text(f"{head}\nh1/1,A01,3,leaf1/1,A01,4,fast\n")
    with pytest.raises(ConfigError, match="fast"):
        read_plan(str(tmp_path))


def test_an_adapter_that_was_known_in_one_round_is_not_taken_for_another_of_its_server_in_the_next():
    """Port 2 of `b` leads to a switch that is only known after `a` is; the adapter found at its end is `a` already."""

    def build(server: str, a: str, c: str, *others: str):
        builder = FabricBuilder("rounds")
        r, m = builder.add_nodes(NodeKind.SWITCH, ["r", c], n_ports=4).tolist()
        names = [f"{server}/{name}" for name in (a, *others)]
        first, *rest = builder.add_nodes(
            NodeKind.HCA, names, n_ports=2, server=builder.add_servers([server])[0]
        ).tolist()
        for near, port, far, other in [
            (r, 1, first, 1),
            (r, 2, m, 2),
            (r, 3, m, 3),
            (m, 1, rest[0] if rest else first, 2),
        ]:
            builder.add_links(near, port, far, other, "EDR")
        return builder.build()

    plan, found = build("s", "a", "c", "b"), build("t", "n", "m")
    identity = identify(found, plan)
    assert [plan.nodes.name[node] for node in identity.planned] == ["r", "c", "s/a"]
    assert len(identity.by_cables) == 2
