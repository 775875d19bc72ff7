"""The jobs and tenants that a bad link affects, and their loss."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from tests.monitor.watched import Watched

import weft
from weft.fabric.forwarding import ANY, walk
from weft.fabric.tables import NO_ROUTE
from weft.ids import PKey
from weft.monitor.impact import add_impact, crosses, read_jobs, read_routed
from weft.monitor.suspects import Diagnosis, Impact, Suspect
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.wire.port_info import LinkSpeed

TENANT = 0x12


@pytest.fixture(scope="module")
def fabric():
    return route(weft.load("fat-tree:hosts=16,radix=8")).fabric


def slots(fabric, port):
    """Return the slots of both ends."""
    slot = fabric.find_port(port).slot
    return np.array([slot, fabric.ports.peer[slot]])


def ring(fabric, *hosts):
    messages = {"name": "train", "pattern": "ring", "hosts": hosts, "wanted_gbit_s": 0.0}
    (job,) = read_jobs(fabric, [messages | {"wanted_gbit_s": 1e9}])
    return job


def impact(fabric, port, jobs=(), **words) -> Impact:
    ends = port, str(fabric.find_port(port).peer)
    suspect = Suspect(**({"kind": "bad cable"} | words), ends=ends, confidence=1.0, evidence=(), action="")
    diagnosis = Diagnosis(
        suspects=(suspect,), notes=(), seconds=1, stamp_s=0, ports=0, links=0, tests=0, symbol_ber=0.0
    )
    result = add_impact(diagnosis, fabric, jobs).suspects[0].impact
    assert result is not None
    return result


def test_paths_are_those_of_the_forwarding_plane():
    watched = Watched()
    fabric, plane = watched.fabric, watched.devices
    hosts = host_ports(fabric).tolist()
    pairs = np.array([*permutations(hosts, 2)])
    for port in ("leaf1/3", "leaf2/1", "spine1/1"):
        by = slots(fabric, port)
        ways = (walk(plane, a, dlid=int(fabric.tables.lid[b]), sl=0, p_key=ANY, size_bytes=256).out for a, b in pairs)
        assert crosses(fabric, pairs, by).tolist() == [bool(set(by.tolist()) & set(way)) for way in ways]


def test_paths_end_at_a_switch_without_a_route():
    fabric = route(weft.load("fat-tree:hosts=16,radix=8")).fabric
    near, far = (fabric.find_port(f"{host}/1").slot for host in ("h2", "h16"))
    start = fabric.find_port("h1/1").slot
    pairs, by = np.array([[start, far], [start, near]]), np.array([fabric.ports.peer[near]])
    assert crosses(fabric, pairs, by).tolist() == [False, True]
    leaf = fabric.tables.switch_row[fabric.find_node("leaf1").index]
    fabric.tables.lft[leaf, fabric.tables.lid[far]] = NO_ROUTE
    assert crosses(fabric, pairs, by).tolist() == [False, True]
    assert crosses(fabric, pairs[:1], np.array([start])).tolist() == [True]


def test_a_job_pays_for_a_link_that_it_sends_by_and_no_other_does(fabric):
    inside, across = ring(fabric, "h1", "h2"), ring(fabric, "h1", "h16")
    ways = across.hosts[np.array([[0, 1]])]
    up = next(f"leaf1/{number}" for number in range(5, 9) if crosses(fabric, ways, slots(fabric, f"leaf1/{number}"))[0])
    cost = impact(fabric, up, [inside, across], symbol_ber=(1e-6, 1e-6)).jobs
    assert len(cost) == 1
    assert cost[0].gbit_s < 0.95 * cost[0].without_gbit_s
    assert not impact(fabric, up, [inside]).jobs


def test_a_narrow_link_costs_what_its_lanes_carried(fabric):
    slow = weft.fabric.faults.slow(fabric, "leaf1/1", "1xNDR")
    (cost,) = impact(slow, "leaf1/1", [ring(slow, "h1", "h2")], could_run=(4, int(LinkSpeed.NDR))).jobs
    assert cost.without_slowest == pytest.approx(1)
    assert cost.slowest == pytest.approx(0.25, rel=0.05)


def test_while_a_link_is_down_its_pairs_get_nothing(fabric):
    (cost,) = impact(fabric, "leaf1/1", [ring(fabric, "h1", "h2")], kind="flapping").jobs
    assert (cost.slowest, cost.without_slowest) == (0, pytest.approx(1))


def test_a_slow_receiver_costs_who_sends_to_it(fabric):
    ends = {"kind": "overloaded receiver", "takes": 0.2}
    (cost,) = impact(fabric, "h1/1", [ring(fabric, "h1", "h2")], **ends).jobs
    assert cost.slowest == pytest.approx(0.2, rel=0.05)


def test_tenants_are_those_whose_packets_can_come_by(fabric):
    slots = [fabric.find_port(f"{host}/1").slot for host in ("h1", "h2")]
    fabric.tables.pkey[slots, 1] = PKey.FULL_MEMBER | TENANT
    assert impact(fabric, "leaf1/1").tenants == (str(PKey(TENANT)),)
    assert not any(impact(fabric, f"leaf1/{up}").tenants for up in range(5, 9))  # both are below leaf1


def test_tables_are_read_by_mads():
    """The names are those of the diagnosis."""
    watched = Watched()
    routed = read_routed(watched.carrier.carrier)
    true = watched.fabric
    for switch in true.switches:
        mine = routed.find_node(switch.name)
        for port in host_ports(true).tolist():
            rows = (fabric.tables.switch_row[node.index] for fabric, node in ((true, switch), (routed, mine)))
            lft = [
                fabric.tables.lft[row, true.tables.lid[port]] for fabric, row in zip((true, routed), rows, strict=True)
            ]
            assert lft[0] == lft[1]
    slots = [fabric.find_port("h3/1").slot for fabric in (true, routed)]
    assert true.tables.pkey[slots[0]].tolist() == routed.tables.pkey[slots[1]].tolist()
