"""SuperPODs of several rails: where no static tables keep every shift free of contention, whatever spines and cores do.

In a shift the hosts of a leaf send to as many consecutive servers of another rail, at every place of the circle of
servers. One uplink for each host then means that servers of a rail have uplinks in turn, so that leaves must be full.
The same holds for the uplinks of a spine and the units of the circle, if each core joins one spine of each pod.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from tests.colouring import find_colouring

import weft
from weft.fabric.model import Fabric
from weft.routing.engine import Options
from weft.routing.patterns import host_ports
from weft.routing.quality import measure
from weft.routing.route import route


def routed(spec: str) -> Fabric:
    return route(weft.load(spec), Options(engine="fat-tree")).fabric


def uplinks_needed(servers: int, hosts: int) -> int:
    """Return the uplinks by which a leaf of so many hosts reaches another rail without contention."""
    return -(-servers // (servers // hosts))


def pods_can_be_even(units: int, leaves: int, spines: int) -> bool:
    """Return whether so many leaves, those of a pod, are the sum of at most `spines` divisors of the units."""
    if leaves == 0 or spines == 0:
        return leaves == 0
    return any(
        units % part == 0 and pods_can_be_even(units, leaves - part, spines - 1) for part in range(1, leaves + 1)
    )


def spines_have_tables(units: int, spine: list[tuple[int, ...]]) -> bool:
    """Search tables by which the spines of a pod send all shifts without contention.

    spine: [leaf][residue] -> the spine by which the leaf sends to servers of another rail with that place in their
    unit. A spine has as many uplinks as the pod has leaves.
    """
    flows = {(leaf, residue): (s, residue) for leaf, own in enumerate(spine) for residue, s in enumerate(own)}
    others: dict[tuple[int, int, int], set[tuple[int, int, int]]] = {}
    for shift, (a, (s, residue)) in product(range(units), flows.items()):
        entry = (s, residue, (a[0] + shift) % units)
        for b, (t, other) in flows.items():
            for step in (0, other < residue):  # servers with a lower place may be in the next unit
                if s == t and b != a:
                    peer = (t, other, (b[0] + shift + step) % units)
                    others.setdefault(entry, set()).add(peer)
                    others.setdefault(peer, set()).add(entry)
        others.setdefault(entry, set())
    return find_colouring(others, len(spine)) is not None


@pytest.mark.parametrize("hosts", [2, 3, 4])
def test_uplinks_of_a_leaf_agree_with_a_complete_search(hosts):
    """On a circle of servers any consecutive ones, as many as hosts of a leaf, need different uplinks."""
    for servers in range(hosts, 12):
        apart = [step for step in range(1, hosts) if step % servers]
        circle = {d: {(d + sign * step) % servers for step in apart for sign in (1, -1)} - {d} for d in range(servers)}
        needed = next(n for n in range(1, servers + 1) if find_colouring(circle, n))
        assert needed == uplinks_needed(servers, hosts)


def test_hosts_of_a_leaf_send_to_consecutive_servers_at_every_place():
    fabric = routed("superpod:su=3,server=ovx-l40s,radix=8,servers=11")
    hosts = host_ports(fabric)
    leaf, server = fabric.ports.node[fabric.ports.peer[hosts]], fabric.nodes.server[fabric.ports.node[hosts]]
    mine, n = np.flatnonzero(leaf == leaf[0]), len(hosts)
    assert server[mine].tolist() == [0, 1, 2, 3]
    starts = set()
    for shift in range(1, n, 2):  # to the other rail
        to = server[(mine + shift) % n]
        assert to.tolist() == [(to[0] + step) % 11 for step in range(4)]
        starts.add(int(to[0]))
    assert starts == set(range(11))
    assert uplinks_needed(11, 4) == 6


@pytest.mark.parametrize(
    "spec", ["superpod:su=3,server=ovx-l40s,radix=8,servers=11", "superpod:su=8,server=ovx-l40s,radix=8,servers=31"]
)
def test_a_unit_that_is_not_full_costs_a_second_flow(spec):
    """In two tiers and three."""
    assert measure(routed(spec)).shifts.worst.max_load == 2


@pytest.mark.parametrize("spines", [1, 2])
@pytest.mark.parametrize("units", [3, 4, 5, 6])
def test_even_pods_agree_with_a_complete_search(units, spines):
    """Every choice of spines by the leaves of a pod of two or three; other leaves of the circle are elsewhere."""
    choices = [(0,)] if spines == 1 else [(0, 1), (1, 0)]
    for leaves in (2, 3):
        found = any(spines_have_tables(units, list(own)) for own in product(choices, repeat=leaves))
        assert found == pods_can_be_even(units, leaves, spines)


@pytest.mark.parametrize(
    ("spec", "units", "leaves", "spines"),
    [
        ("superpod:su=3,server=ovx-l40s,radix=4", 3, 2, 1),
        ("superpod:su=5,server=ovx-l40s,radix=8", 5, 3, 2),
        ("superpod:su=7,server=ovx-l40s,radix=8", 7, 4, 2),
    ],
)
def test_units_that_pods_do_not_divide_evenly_cost_a_second_flow(spec, units, leaves, spines):
    """`spines` of each pod plug into a core; the largest pod has so many leaves, and its spines as many uplinks."""
    fabric = routed(spec)
    cores = [node.peers for node in fabric.switches if node.name.startswith("core")]
    pods = [Counter(frozenset(p.name for p in spine.peers if p.name.startswith("leaf")) for spine in c) for c in cores]
    assert {spines_of_pod for pod in pods for spines_of_pod in pod.values()} == {spines}
    assert max(len(leaves_of_pod) for pod in pods for leaves_of_pod in pod) == leaves
    assert not pods_can_be_even(units, leaves, spines)
    assert measure(fabric).shifts.worst.max_load == 2


def test_units_that_pods_divide_evenly_have_one_flow_in_every_shift():
    for spec in ("superpod:su=6,server=ovx-l40s,radix=8", "superpod:su=6,server=ovx-l40s,radix=6"):
        assert measure(routed(spec)).shifts.worst.max_load == 1
