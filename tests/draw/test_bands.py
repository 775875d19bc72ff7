"""Grouping: pods, racks and rails, from the groups of a fabric or from its cabling alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import weft
from weft.draw.layout.bands import Stack, stack
from weft.draw.parts import Parts, find_parts
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric


def without_groups(fabric: Fabric) -> Fabric:
    """Return the fabric without its groups, as read from a file that has none."""
    nodes = replace(fabric.nodes, group=np.full(len(fabric.nodes), -1, np.int32))
    return replace(fabric, nodes=nodes, groups=(), spec="a file")


def clusters(parts: Parts, found: Stack, band: int) -> list[set[str]]:
    """Return the names of the switches in each cluster of a band."""
    levels = found.bands[band].levels
    return [{parts.names[s] for level in levels for s in c.switches(level)} for c in found.bands[band].clusters]


def test_pods_are_found_with_and_without_groups() -> None:
    fabric = weft.load("fat-tree:hosts=100,radix=8")
    arguments, result = (find_parts(f) for f in (fabric, without_groups(fabric)))
    assert clusters(arguments, stack(arguments), 0) == clusters(result, stack(result), 0)
    assert [band.levels for band in stack(result).bands] == [(1, 2), (3,)]


def test_a_host_without_a_group_is_in_the_pod_of_its_leaf() -> None:
    """Of the first and of the last pod, as after a server was added by hand."""
    fabric = weft.load("fat-tree:hosts=100,radix=8")
    group = fabric.nodes.group.copy()
    hosts = np.flatnonzero((fabric.nodes.kind == NodeKind.HCA) & (group >= 0))[[0, -1]]
    group[hosts] = -1
    result = stack(find_parts(replace(fabric, nodes=replace(fabric.nodes, group=group)))).bands[0]
    whole = stack(find_parts(fabric)).bands[0]
    assert fabric.nodes.group[hosts].tolist() == [0, len(fabric.groups) - 1]
    assert [cluster.name for cluster in result.clusters] == [cluster.name for cluster in whole.clusters]
    assert [cluster.racks for cluster in result.clusters] == [cluster.racks for cluster in whole.clusters]


def test_pods_of_a_fabric_stay_apart_though_a_cable_joins_their_leaves() -> None:
    builder = FabricBuilder("two pods")
    builder.add_groups(["pod1", "pod2"])
    hosts = builder.add_nodes(NodeKind.HCA, [f"h{i}" for i in range(8)], n_ports=1, group=np.arange(8) // 4)
    leaves = builder.add_nodes(NodeKind.SWITCH, [f"leaf{i}" for i in range(4)], n_ports=8, group=np.arange(4) // 2)
    spines = builder.add_nodes(NodeKind.SWITCH, ["spine0", "spine1"], n_ports=8)
    builder.add_links(hosts, 1, leaves[np.arange(8) // 2], 1 + np.arange(8) % 2, "NDR")
    builder.add_links(leaves[:, None], 3 + np.arange(2), spines, 1 + np.arange(4)[:, None], "NDR")
    builder.add_links(leaves[1], 8, leaves[2], 8, "NDR")
    parts = find_parts(builder.build())
    result = stack(parts)
    assert [cluster.name for cluster in result.bands[0].clusters] == ["pod1", "pod2"]
    assert clusters(parts, result, 0) == [{"leaf0", "leaf1"}, {"leaf2", "leaf3"}]


def two_trees(*, cores: int) -> FabricBuilder:
    """Return two pods of two leaves and two spines, under cores or without a cable between them."""
    builder = FabricBuilder("two trees")
    builder.add_groups(["pod1"])
    pods = []
    for pod in range(2):
        group = -1 if pod else 0
        hosts = builder.add_nodes(NodeKind.HCA, [f"h{4 * pod + i}" for i in range(4)], n_ports=1, group=group)
        leaves = builder.add_nodes(NodeKind.SWITCH, [f"leaf{2 * pod + i}" for i in range(2)], n_ports=8, group=group)
        spines = builder.add_nodes(NodeKind.SWITCH, [f"spine{2 * pod + i}" for i in range(2)], n_ports=8, group=group)
        builder.add_links(hosts, 1, leaves[np.arange(4) // 2], 1 + np.arange(4) % 2, "NDR")
        builder.add_links(leaves[:, None], 3 + np.arange(2), spines, 1 + np.arange(2)[:, None], "NDR")
        pods.append(spines)
    if cores:
        tops = builder.add_nodes(NodeKind.SWITCH, [f"core{i}" for i in range(cores)], n_ports=8)
        builder.add_links(np.concatenate(pods)[:, None], 5 + np.arange(cores), tops, 1 + np.arange(4)[:, None], "NDR")
    return builder


def test_spines_of_the_only_group_are_in_its_pod() -> None:
    parts = find_parts(two_trees(cores=2).build())
    result = stack(parts)
    assert [band.levels for band in result.bands] == [(1, 2), (3,)]
    assert clusters(parts, result, 0) == [
        {f"{kind}{i}" for kind in ("leaf", "spine") for i in pod} for pod in ((0, 1), (2, 3))
    ]


def test_trees_without_a_cable_between_them_have_one_row_of_spines() -> None:
    parts = find_parts(without_groups(two_trees(cores=0).build()))
    assert [band.levels for band in stack(parts).bands] == [(1,), (2,)]


def test_every_leaf_of_two_tiers_is_a_rack_with_its_hosts() -> None:
    parts = find_parts(weft.load("fat-tree:hosts=32,radix=16"))
    bottom, top = stack(parts).bands
    assert [len(rack.hosts) for c in bottom.clusters for rack in c.racks] == [8, 8, 8, 8]
    assert top.levels == (2,)


def test_rails_join_scalable_units_below_and_planes_of_spines_above() -> None:
    """Nine units: leaves of one unit share servers; spines join the same rail of all units."""
    for fabric in (weft.load("superpod:su=9"), without_groups(weft.load("superpod:su=9"))):
        parts = find_parts(fabric)
        result = stack(parts)
        assert [band.levels for band in result.bands] == [(1,), (2,), (3,)]
        assert [len(c.racks[0].leaves) for c in result.bands[0].clusters] == [8] * 9
        assert [len(c.racks[0].hosts) for c in result.bands[0].clusters] == [32] * 9
        assert len(result.bands[1].clusters) == 8


def test_dead_ends_above_the_top_tier_are_apart_in_a_mirrored_row() -> None:
    """spine1 joins four leaves; x1 is connected to it and x2 to x1: a spine and a leaf without hosts."""
    builder = FabricBuilder("appendix")
    hosts = builder.add_nodes(NodeKind.HCA, [f"h{i}" for i in range(4)], n_ports=1)
    leaves = builder.add_nodes(NodeKind.SWITCH, [f"leaf{i}" for i in range(4)], n_ports=8)
    spines = builder.add_nodes(NodeKind.SWITCH, [f"spine{i}" for i in range(4)], n_ports=8)
    x1, x2 = builder.add_nodes(NodeKind.SWITCH, ["x1", "x2"], n_ports=8)
    builder.add_links(hosts, 1, leaves, 1, "HDR")
    builder.add_links(leaves[:, None], 2 + np.arange(4), spines, 1 + np.arange(4)[:, None], "HDR")
    builder.add_links(spines[0], 8, x1, 1, "HDR")
    builder.add_links(x1, 2, x2, 1, "HDR")
    parts = find_parts(builder.build())
    result = stack(parts)
    assert result.top == 2
    assert {level: [parts.names[s] for s in row] for level, row in result.apart.items()} == {1: ["x1", "x2"]}


def test_the_tiers_of_selene_are_leaves_spines_and_cores(selene: Fabric) -> None:
    parts = find_parts(selene)
    result = stack(parts)
    assert result.top == 3
    assert {level: [parts.names[s] for s in row] for level, row in result.apart.items()} == {
        2: ["MSPINE4-01"],
        1: ["MLG01-05"],
    }
    assert not result.cut_off
