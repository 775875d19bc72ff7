"""Trees that are not full: some have no static tables by which every shift is free of contention.

A host's packets to d go up from leaf L by the uplink that the table of L has for d, and come down to d's leaf from the
same plane: from that spine, or in three tiers whose cores join one spine of each pod, from the spine of that number.
So a table is a plane for each leaf and destination elsewhere. Two entries need different planes if some shift uses both
at the same time and they share the source's leaf (an uplink) or the destination's (a downlink). Tables without
contention are therefore colourings of that graph with as many colours as planes, and a search decides if one exists.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from tests.colouring import find_colouring

import weft
from weft.fabric.kinds import NodeKind
from weft.routing.engine import Options
from weft.routing.patterns import host_ports
from weft.routing.quality import measure
from weft.routing.route import route

Entry = tuple[int, int]  # leaf, destination


def flows(leaf: list[int], shift: int) -> list[Entry]:
    """Return the entries that a shift uses: host i sends to i + shift."""
    n = len(leaf)
    ends = ((leaf[i], (i + shift) % n) for i in range(n))
    return [(source, d) for source, d in ends if source != leaf[d]]


def conflicts(leaf: list[int]) -> dict[Entry, set[Entry]]:
    """Return the entries that need other planes than each entry."""
    entries = [(source, d) for source in set(leaf) for d in range(len(leaf)) if leaf[d] != source]
    others: dict[Entry, set[Entry]] = {entry: set() for entry in entries}
    for shift in range(1, len(leaf)):
        for a, b in combinations(flows(leaf, shift), 2):
            if a[0] == b[0] or leaf[a[1]] == leaf[b[1]]:
                others[a].add(b)
                others[b].add(a)
    return others


def find_tables(leaf: list[int], planes: int) -> dict[Entry, int] | None:
    """Return a plane for each entry so that no shift has two flows on a link; None if a complete search finds none."""
    return find_colouring(conflicts(leaf), planes)


def worst(leaf: list[int], plane: dict[Entry, int]) -> int:
    """Return the most flows on a link in any shift."""
    most = 0
    for shift in range(1, len(leaf)):
        used = flows(leaf, shift)
        links = [("up", entry[0], plane[entry]) for entry in used]
        links += [("down", leaf[entry[1]], plane[entry]) for entry in used]
        most = max(most, *map(links.count, links))
    return most


def leaves_of(spec: str) -> tuple[list[int], int]:
    """Return the leaf of each host in the order of shifts, and the uplinks of a leaf."""
    fabric = weft.load(spec)
    leaf = fabric.ports.node[fabric.ports.peer[host_ports(route(fabric).fabric)]]
    numbers = np.unique(leaf, return_inverse=True)[1].tolist()
    uplinks = {
        tuple(p.name for p in fabric.node(int(node)).peers if p.kind == NodeKind.SWITCH) for node in leaf.tolist()
    }
    assert all(len(set(spines)) == len(spines) for spines in uplinks), "one cable to each spine"
    (count,) = set(map(len, uplinks))
    return numbers, count


def test_search_agrees_with_all_tables_of_a_tree_of_five_hosts():
    """Leaves of 2, 2 and 1 hosts and two planes: 2**10 tables, of which some are free of contention."""
    leaf = [0, 0, 1, 1, 2]
    entries = list(conflicts(leaf))
    free = [
        choice
        for choice in product(range(2), repeat=len(entries))
        if worst(leaf, dict(zip(entries, choice, strict=True))) == 1
    ]
    assert len(entries) == 10
    assert free
    found = find_tables(leaf, 2)
    assert found is not None
    assert worst(leaf, found) == 1
    assert (find_tables(leaf, 1), worst(leaf, dict.fromkeys(entries, 0))) == (None, 2)


@pytest.mark.parametrize("spec", ["fat-tree:hosts=18,radix=6", "fat-tree:hosts=10,radix=6", "fat-tree:hosts=7,radix=4"])
def test_full_trees_and_some_others_have_tables_free_of_contention(spec):
    leaf, planes = leaves_of(spec)
    found = find_tables(leaf, planes)
    assert found is not None
    assert worst(leaf, found) == 1


@pytest.mark.parametrize(
    "spec", ["fat-tree:hosts=11,radix=6", "fat-tree:hosts=11,radix=6,levels=3", "fat-tree:hosts=14,radix=6"]
)
def test_some_trees_that_are_not_full_have_none_and_weft_reaches_the_next_best(spec):
    """Leaves of 3, 3, 3 and 2 hosts and three planes, in two tiers or three; one such leaf more."""
    leaf, planes = leaves_of(spec)
    assert find_tables(leaf, planes) is None
    assert measure(route(weft.load(spec), Options(engine="fat-tree")).fabric).shifts.worst.max_load == 2


def test_cores_of_the_tree_of_three_tiers_join_one_spine_of_each_pod():
    """So a packet that goes up in a plane comes down in it, as the search assumes."""
    fabric = weft.load("fat-tree:hosts=11,radix=6,levels=3")
    for core in (node for node in fabric.switches if node.name.startswith("core")):
        spines = {spine.name: {leaf.name for leaf in spine.peers} for spine in core.peers}
        below = [leaf for leaves in spines.values() for leaf in leaves if leaf.startswith("leaf")]
        assert sorted(below) == ["leaf1", "leaf2", "leaf3", "leaf4"]
