"""Fabrics of several subnets that routers join."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.planes import expand
from weft.fabric.subnets import subnets_of


def test_spec_joins_copies_of_a_fabric_by_routers():
    fabric = weft.load("subnets:3,routers=2,of=fat-tree:hosts=12,radix=8")
    one = weft.load("fat-tree:hosts=12,radix=8")
    assert fabric.spec == "subnets:3,routers=2,of=fat-tree:hosts=12,radix=8"
    assert len(fabric.nodes) == 3 * len(one.nodes) + 2
    assert len(fabric.links) == 3 * len(one.links) + 6
    assert len(set(fabric.nodes.guid.tolist())) == len(fabric.nodes)
    ends = fabric.ports.guid[(fabric.ports.number > 0) & (fabric.nodes.kind != NodeKind.SWITCH)[fabric.ports.node]]
    assert len(set(ends.tolist())) == len(ends)
    parts = subnets_of(fabric)
    assert [hex(part.prefix) for part in parts] == [f"0xfec000000000000{number}" for number in (1, 2, 3)]
    for part in parts:
        names = [fabric.nodes.name[node] for node in part.nodes]
        assert names == [f"s{part.number}-{name}" for name in one.nodes.name]
        ends = {fabric.port(slot).name: fabric.port(slot).peer.name for slot in part.router_ports}
        assert ends == {f"router{n}/{part.number}": f"s{part.number}-spine{n}/7" for n in (1, 2)}


def test_servers_and_models_of_each_subnet_are_its_own():
    fabric = weft.load("subnets:2,of=superpod:su=1,servers=2")
    assert fabric.servers == ("s1-dgx1", "s1-dgx2", "s2-dgx1", "s2-dgx2")
    assert {node.name for node in fabric.find_server("s2-dgx1").nodes} >= {"s2-dgx1/mlx5_0"}
    assert weft.load(fabric.spec).spec == fabric.spec


def test_fabric_without_routers_is_one_subnet():
    (part,) = subnets_of(weft.load("star:hosts=2"))
    assert (part.number, hex(part.prefix), len(part.nodes)) == (1, "0xfe80000000000000", 3)


def test_router_does_not_change_the_tiers():
    """A router on a spine would make it a leaf if it counted as a host."""
    fabric = weft.load("subnets:2,of=fat-tree:hosts=12,radix=8")
    level, names = levels(fabric), np.array(fabric.nodes.name)
    assert level[names == "s1-spine1"] == 2
    assert (level[fabric.nodes.kind == NodeKind.ROUTER] == 0).all()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("subnets:7,of=star:hosts=2", "a router joins 2 to 6 subnets"),
        ("subnets:1,of=star:hosts=2", "a router joins 2 to 6 subnets"),
        ("subnets:0,of=star:hosts=2", "a router joins 2 to 6 subnets"),
        ("subnets:2", "needs a number of subnets and of=SPEC"),
        ("subnets:of=star:hosts=2", "needs a number of subnets"),
        ("subnets:2,routers=0,of=star:hosts=2", "routers=0: give at least one router"),
        ("subnets:2,rooters=1,of=star:hosts=2", "'rooters=1' is not a parameter"),
        ("subnets:2,of=star:hosts=2,speed=400GbE", "is not InfiniBand"),
        ("subnets:2,of=star:hosts=64", "has 0 free switch ports"),
        ("subnets:2,of=subnets:2,of=star:hosts=2", "has routers already"),
        ("subnets:2,of=nosuch:hosts=2", "no topology 'nosuch'"),
    ],
)
def test_wrong_spec_is_refused_with_the_rule(spec, said):
    with pytest.raises(ConfigError, match=said):
        weft.load(spec)


@pytest.mark.parametrize("name", ["two.yaml", "two.ibnetdiscover"])
def test_files_keep_routers_and_subnets(tmp_path, name):
    fabric = weft.load("subnets:2,routers=2,of=star:hosts=2")
    weft.export(fabric, tmp_path / name)
    parts = subnets_of(weft.load(tmp_path / name))
    assert [len(part.router_ports) for part in parts] == [2, 2]
    assert [len(part.nodes) for part in parts] == [len(part.nodes) for part in subnets_of(fabric)]


def test_every_plane_of_several_subnets_has_routers_of_its_own() -> None:
    fabric = weft.load("subnets:2,of=star:hosts=2,planes=2")
    assert (fabric.planes, fabric.multiplicity) == (2, 2)
    whole = expand(fabric)
    peers = {name: {peer.name for peer in whole.find_node(name).peers} for name in ("p1-router1", "p2-router1")}
    assert peers == {f"p{plane}-router1": {f"p{plane}-s1-leaf1", f"p{plane}-s2-leaf1"} for plane in (1, 2)}
    assert len(set(whole.nodes.guid.tolist())) == len(whole.nodes)
