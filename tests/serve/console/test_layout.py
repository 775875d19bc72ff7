"""Positions of nodes in the drawing."""

from __future__ import annotations

import itertools

import pytest

import weft
from weft.fabric.files import ibnetdiscover
from weft.serve.console.layout import draw


def test_tiers_are_drawn_above_each_other_and_hosts_below_their_leaf():
    output = draw(weft.load("fat-tree:hosts=64,radix=16"))
    nodes, links = output.nodes, output.links
    by_tier = {tier: [y for y, at in zip(nodes.y, nodes.tier, strict=True) if at == tier] for tier in (0, 1, 2)}
    assert max(by_tier[0]) < min(by_tier[1]) <= max(by_tier[1]) < min(by_tier[2])
    leaves, spines = ([x for x, at in zip(nodes.x, nodes.tier, strict=True) if at == tier] for tier in (1, 2))
    assert sum(spines) / len(spines) == pytest.approx(sum(leaves) / len(leaves))
    for a, b in zip(links.a, links.b, strict=True):
        host, leaf = sorted((a, b), key=lambda node: nodes.tier[node])
        if nodes.tier[host] == 0:
            rest = [n for n in range(len(nodes.name)) if nodes.tier[n] == 1]
            nearest = min(rest, key=lambda other: abs(nodes.x[other] - nodes.x[host]))
            assert nodes.name[nearest] == nodes.name[leaf]


@pytest.mark.parametrize(
    "spec", ["fat-tree:hosts=64,radix=16", "torus:4x4", "dragonfly:p=2,a=4,h=2", "star:hosts=5", "superpod:su=2"]
)
def test_no_two_nodes_have_the_same_position(spec):
    output = draw(weft.load(spec))
    places = list(zip(output.nodes.x, output.nodes.y, strict=True))
    assert len(set(places)) == len(places) > 1


def test_adapters_of_a_server_are_drawn_side_by_side_below_their_leaves():
    output = draw(weft.load("superpod:su=2"))
    nodes, links = output.nodes, output.links
    cabled = {end for ends in (links.a, links.b) for end in ends}
    servers: dict[str, list[int]] = {}
    for node in sorted(cabled):
        if nodes.kind[node] == "hca":
            servers.setdefault(nodes.server[node], []).append(node)
    assert {name: len(some) for name, some in servers.items()} == {f"dgx{n}": 8 for n in range(1, 65)}
    for some in servers.values():
        first = some[0]
        assert [(nodes.x[n] - nodes.x[first], nodes.y[n]) for n in some] == [(i, nodes.y[first]) for i in range(8)]
    halves = {name: {nodes.x[n] for n in some} for name, some in servers.items()}
    assert max(halves["dgx1"]) < min(halves["dgx64"])  # each unit is below its own leaves


def test_the_server_of_an_adapter_is_known_from_its_name_alone(tmp_path):
    """A discovered fabric has node descriptions and no servers."""
    (tmp_path / "net").write_text(ibnetdiscover.to_text(weft.load("superpod:su=1")))
    walked = draw(ibnetdiscover.read(tmp_path / "net"))
    assert {item for item in walked.nodes.server if item} == {f"dgx{n}" for n in range(1, 33)}


def test_links_between_switches_of_one_tier_do_not_overlap():
    output = draw(weft.load("torus:6"))
    switches = [n for n, tier in enumerate(output.nodes.tier) if tier == 1]
    for item, two, three in itertools.combinations(switches, 3):
        (ax, ay), (bx, by), (cx, cy) = ((output.nodes.x[n], output.nodes.y[n]) for n in (item, two, three))
        assert abs((bx - ax) * (cy - ay) - (by - ay) * (cx - ax)) > 0.1, "three in a row"


def test_the_revision_changes_with_the_cabling():
    from weft.fabric import faults

    fabric = weft.load("fat-tree:hosts=16,radix=8")
    assert draw(fabric).revision == draw(weft.load("fat-tree:hosts=16,radix=8")).revision
    assert draw(fabric).revision != draw(faults.remove_link(fabric, "leaf1/5")).revision


def test_the_drawing_is_wider_than_high_even_with_five_thousand_nodes():
    output = draw(weft.load("fat-tree:hosts=4500,switch=QM9700"))
    width = max(output.nodes.x) - min(output.nodes.x)
    height = max(output.nodes.y) - min(output.nodes.y)
    assert 1 < width / height < 4
