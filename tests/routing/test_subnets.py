"""The proof of several subnets together: each by itself, and waits across routers."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.planes import expand
from weft.fabric.subnets import subnets_of, take_subnet
from weft.fabric.tables import NO_ROUTE
from weft.routing import route as routes
from weft.routing import subnets
from weft.routing.engine import Options
from weft.routing.route import route
from weft.routing.subnets import _find_loop, _router_steps, check_subnets


def test_every_subnet_is_proved_and_named():
    verdict = weft.check("subnets:2,of=star:hosts=4")
    assert verdict.ok
    assert (len(verdict.subnets), verdict.routers, verdict.missing, verdict.hops) == (2, 1, 0, {0: 60})
    first, *rest = verdict.explain().splitlines()
    assert first == ("subnets:2,of=star:hosts=4: 2 of 2 subnets proved, joined by 1 router: no credit loop across them")
    assert [line.partition(":")[0] for line in rest] == ["subnet 1", "subnet 2"]


def test_two_routers_at_the_top_of_trees_close_no_cycle():
    assert weft.check("subnets:2,routers=2,of=fat-tree:hosts=12,radix=8").ok


def test_two_routers_on_a_mesh_close_a_cycle_and_one_does_not():
    """Packets from router1 share links with packets to router2, in both subnets."""
    assert weft.check("subnets:2,of=mesh:3x3").ok
    verdict = weft.check("subnets:2,routers=2,of=mesh:3x3")
    assert all(subnet.ok for subnet in verdict.subnets)
    assert not verdict.ok
    assert verdict.router_loop == ("router1/1", "router2/1", "router2/2", "router1/2")
    assert "packets may wait for each other across them" in verdict.explain().splitlines()[0]


def chains(hosts: str, routers: str) -> Fabric:
    """Return two chains of switches, w - x - y - z, with hosts at some, and two routers at others, swapped in one."""
    builder = FabricBuilder("chains")
    joins = builder.add_nodes(NodeKind.ROUTER, ["router1", "router2"], n_ports=2)
    for number in (1, 2):
        switches = builder.add_nodes(NodeKind.SWITCH, [f"s{number}-{name}" for name in "wxyz"], n_ports=4)
        builder.add_links(switches[:-1], 1, switches[1:], 2, "NDR")
        adapters = builder.add_nodes(NodeKind.HCA, [f"s{number}-h{name}" for name in hosts], n_ports=1)
        builder.add_links(adapters, 1, switches[["wxyz".index(name) for name in hosts]], 3, "NDR")
        places = ["wxyz".index(name) for name in routers][:: 1 if number == 1 else -1]
        builder.add_links(joins, number, switches[places], 4, "NDR")
    return builder.build()


@pytest.mark.parametrize(
    ("hosts", "routers", "steps"),
    [
        # Packets of w to z's router hold x - y and wait for y - z; packets of x's router to y wait for x - y.
        ("wy", "xz", {"router1/1": {"router2/1"}, "router2/1": {"router1/1"}}),
        # Packets of w's router to z hold w - x and wait for x - y, which packets of x to y's router hold.
        ("xz", "wy", {"router1/1": {"router2/1"}, "router2/1": {"router1/1"}}),
        # No packet of a router uses a link that leads to a router.
        ("wx", "yz", {"router1/1": set(), "router2/1": set()}),
    ],
)
def test_packets_of_a_router_wait_for_those_of_hosts_to_another(hosts, routers, steps):
    fabric = chains(hosts, routers)
    verdict = check_subnets(fabric)
    assert all(subnet.ok for subnet in verdict.subnets)
    assert verdict.ok == (not any(steps.values()))
    _, own = take_subnet(fabric, subnets_of(fabric)[0])
    assert _router_steps(route(own, Options()).fabric) == steps


def test_tables_of_a_running_fabric_are_proved_as_they_are():
    """One subnet has tables with a hole, as a lab may have; LIDs of both subnets are the same."""
    fabric = weft.load("subnets:2,of=star:hosts=2")
    names, tables = list(fabric.nodes.name), fabric.tables
    for number in (1, 2):
        for lid, name in enumerate((f"s{number}-leaf1", f"s{number}-h1", f"s{number}-h2"), 1):
            tables.lid[fabric.first_port[names.index(name)] + (lid > 1)] = lid
        tables.lid[fabric.first_port[names.index("router1")] + number] = 4
    tables.lft[:] = NO_ROUTE
    tables.lft[:, 1:5] = (0, 1, 2, 3)
    assert check_subnets(fabric).ok
    tables.lft[1, 2] = NO_ROUTE
    verdict = check_subnets(fabric)
    assert [subnet.ok for subnet in verdict.subnets] == [True, False]
    assert "s2-leaf1 has no entry for LID 2" in verdict.explain()


def test_paths_through_intermediate_switches_are_for_one_subnet():
    with pytest.raises(ConfigError, match="--paths ugal works on one subnet"):
        weft.check("subnets:2,of=star:hosts=2", paths="ugal")


@pytest.mark.parametrize(
    ("steps", "loop"),
    [
        ({"r1/1": set(), "r1/2": set()}, ()),
        ({"r1/1": {"r1/1"}, "r1/2": set()}, ()),  # it waits for itself and leaves by port 2, where nothing waits
        ({"r1/1": {"r1/1"}, "r1/2": {"r1/2"}}, ("r1/1", "r1/1", "r1/2", "r1/2")),
        ({"r1/1": {"r2/1"}, "r1/2": set(), "r2/1": set(), "r2/2": set()}, ()),
        (
            {"r1/1": {"r2/1"}, "r1/2": set(), "r2/1": set(), "r2/2": {"r1/2"}},
            ("r1/1", "r2/1", "r2/2", "r1/2"),
        ),
    ],
)
def test_loop_passes_from_router_to_router(steps, loop):
    assert _find_loop(steps) == loop


def test_planes_of_several_subnets_are_routed_and_proved_each():
    spec = "subnets:2,of=fat-tree:hosts=6,radix=8,planes=2"
    one = weft.check(spec)
    assert (len(one.subnets), one.routers, one.ok) == (2, 1, True)
    whole = expand(weft.load(spec))
    broken = whole.without("p2-s1-leaf1/1")
    both = check_subnets(route(broken).fabric)
    assert (len(both.subnets), both.routers, both.ok) == (4, 2, True)


@pytest.mark.parametrize(
    ("spec", "engine", "broken", "routed"),
    [
        ("subnets:3,routers=2,of=fat-tree:hosts=24,radix=8", "fat-tree", "", 1),
        ("subnets:3,routers=2,of=fat-tree:hosts=24,radix=8", "fat-tree", "s2-leaf1/5", 2),
        ("subnets:3,routers=2,of=fat-tree:hosts=24,radix=8", "fat-tree", "router1/3", 2),
        ("subnets:3,routers=2,of=fat-tree:hosts=12,radix=8", "auto", "", 3),  # lanes are assigned to ports of routers
        ("subnets:2,routers=2,of=mesh:3x3", "auto", "", 1),
        ("subnets:2,of=superpod:su=1,server=dgx-b300,servers=70", "updn", "", 1),
    ],
)
def test_equal_subnets_are_routed_and_proved_once_with_the_same_result(spec, engine, broken, routed, monkeypatch):
    fabric, options = weft.load(spec), Options(engine=engine)
    fabric = fabric.without(broken) if broken else fabric
    calls, route_one = [], routes._route
    monkeypatch.setattr(routes, "_route", lambda *arguments: calls.append(1) or route_one(*arguments))
    once = route(fabric, options)
    verdict = check_subnets(once.fabric)
    assert len(calls) == routed
    number = count()
    for module in (routes, subnets):
        monkeypatch.setattr(module, "fingerprint", lambda _: next(number).to_bytes(4))
    each = route(fabric, options)
    for name in ("lft", "port_info", "path_sl", "sl2vl", "lid"):
        assert np.array_equal(getattr(once.tables, name), getattr(each.tables, name)), name
    assert once.notes == each.notes
    assert verdict == check_subnets(each.fabric)


def test_a_hole_in_one_of_equal_tables_is_found():
    fabric = route(weft.load("subnets:3,of=fat-tree:hosts=6,radix=8")).fabric
    row = fabric.tables.switch_row[fabric.node_index["s2-leaf1"]]
    fabric.tables.lft[row, 3] = NO_ROUTE
    assert [subnet.ok for subnet in check_subnets(fabric).subnets] == [True, False, True]


def test_a_root_of_one_subnet_is_unknown_in_an_equal_one():
    with pytest.raises(ConfigError, match="s1-leaf1"):
        route(weft.load("subnets:2,of=star:hosts=2"), Options(engine="up-down", root="s1-leaf1"))
