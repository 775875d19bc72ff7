"""The simulation of a policy before it is applied: its effect on latency under load."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.errors import ConfigError, SimulationBug
from weft.sim.under_load import UnderLoad
from weft.sm.conf.qos_options import QosOptions
from weft.tenants.compile import compile_intent
from weft.tenants.intent import parse_intent
from weft.tenants.partitions import Member, Partition
from weft.tenants.simulate import (
    Outcome,
    Quality,
    _contended_ports,
    _Places,
    _run,
    _senders,
    _worst_case,
    planned_inventory,
    simulate_quality,
)

INTENT = {
    "class": {"mpi": {"share": 50, "priority": "high"}, "bulk": {"share": 30}},
    "tenant": {"red": {"hosts": ["h[2,6,10,14,16]"], "class": "mpi"}, "blue": {"hosts": ["h[4,8]"]}},
    "service": {"storage": {"hosts": ["h[1,3,5,7,9,11]"], "tenants": "all", "class": "bulk"}},  # on three leaves
}
RED, DISKS = ({f"h{n}/1" for n in some} for some in ((2, 6, 10, 14, 16), (1, 3, 5, 7, 9, 11)))


def simulated(intent, spec="fat-tree:hosts=16,radix=8", **given):
    fabric = weft.load(spec)
    return simulate_quality(compile_intent(parse_intent(intent), planned_inventory(fabric)), fabric, **given)


@pytest.fixture(scope="module")
def quality():
    return simulated(INTENT, messages=60)


def test_messages_on_a_separate_lane_do_not_wait_for_bulk_traffic(quality):
    alone, before, after = quality.outcomes
    assert before.p50_us > 2 * alone.p50_us
    assert after.p50_us < 1.2 * alone.p50_us
    assert after.load_gbit_s == pytest.approx(before.load_gbit_s, rel=0.02)
    assert (alone.load_gbit_s, alone.name, before.name, after.name) == (
        None,
        "without load",
        "on one lane",
        "on 3 lanes",
    )


def test_the_simulated_case_is_allowed_by_the_partitions(quality):
    """A host reads from storage and takes part in a job of its tenant; the load comes from full members."""
    assert (quality.tenant, quality.load) == ("red", "storage")
    assert quality.case.receiver in ("h14/1", "h16/1")  # the load comes from three other leaves
    assert set(quality.case.ranks) == RED - {quality.case.receiver}
    assert set(quality.case.bulk) == DISKS
    assert "4 ports of red send 64 bytes at a time" in quality.explain()


def test_the_same_seed_gives_the_same_figures(quality):
    assert simulated(INTENT, messages=60).outcomes == quality.outcomes
    assert simulated(INTENT, messages=60, seed=2).outcomes != quality.outcomes


@pytest.mark.parametrize(
    ("intent", "why"),
    [
        ({"tenant": {"red": {"hosts": ["h[1-4]"]}}}, "one lane"),
        ({"class": {"mpi": {"share": 50}}, "tenant": {"red": {"hosts": ["h[1-4]"], "class": "mpi"}}}, "two classes"),
    ],
)
def test_an_intent_without_contention_is_refused(intent, why):
    with pytest.raises(ConfigError, match=why):
        simulated(intent)


def test_bulk_senders_are_few_and_spread_over_leaves():
    """Hosts 1 to 4 are at the first leaf, 5 to 8 at the second; members that send bulk data send no messages."""
    fabric = weft.load("fat-tree:hosts=16,radix=8")
    intent = {
        "class": {"mpi": {"share": 50, "priority": "high"}, "bulk": {"share": 30}},
        "tenant": {"red": {"hosts": ["h[9-10]"], "class": "mpi"}},
        "service": {"storage": {"hosts": ["h[1-8]"], "tenants": "all", "class": "bulk"}},
    }
    tenant, load, case = _worst_case(compile_intent(parse_intent(intent), planned_inventory(fabric)), _Places(fabric))
    assert (tenant.name, load.name, case.receiver, case.ranks) == ("red", "storage", "h9/1", ["h10/1"])
    assert case.bulk == [f"h{number}/1" for number in (1, 5, 2, 6, 3, 7)]
    assert (case.sl, case.bulk_sl) == (1, 2)


def test_high_priority_against_low_is_simulated_before_more_senders_of_equal_priority():
    """Blue has senders on three leaves, and no higher priority than storage; red has it, with two senders."""
    fabric = weft.load("fat-tree:hosts=16,radix=8")
    intent = {
        "class": {"mpi": {"share": 50, "priority": "high"}, "bulk": {"share": 20}, "data": {"share": 20}},
        "tenant": {
            "red": {"hosts": ["h[1-2]"], "class": "mpi"},
            "blue": {"hosts": ["h[5-16]"], "class": "data"},
        },
        "service": {"storage": {"hosts": ["h[3-4]"], "tenants": "all", "class": "bulk"}},
    }
    compiled = compile_intent(parse_intent(intent), planned_inventory(fabric))
    tenant, load, case = _worst_case(compiled, _Places(fabric))
    assert (tenant.name, load.name, case.bulk) == ("red", "storage", ["h3/1", "h4/1"])


def test_a_server_with_several_adapters_has_its_ports():
    result = planned_inventory(weft.load("superpod:su=1"))
    of_one = [port for port in result.ports if port.host == "dgx1"]
    assert len(of_one) > 1
    assert len({port.guid for port in result.ports}) == len(result.ports)


def worst_case(fabric, intent):
    compiled = compile_intent(parse_intent(intent), planned_inventory(fabric))
    return _worst_case(compiled, _Places(fabric))


def test_a_load_from_the_receivers_own_leaf_is_simulated_if_there_is_no_other():
    """All hosts of a star are at one switch, and no class has priority."""
    intent = {
        "class": {"mpi": {"share": 40}, "bulk": {"share": 40}},
        "tenant": {"red": {"hosts": ["h[1-3]"], "class": "mpi"}},
        "service": {"storage": {"hosts": ["h4"], "tenants": "all", "class": "bulk"}},
    }
    tenant, load, case = worst_case(weft.load("star:hosts=4"), intent)
    assert (tenant.name, load.name, case.receiver) == ("storage", "red", "h1/1")
    assert (case.ranks, case.bulk) == (["h4/1"], ["h2/1", "h3/1"])


def test_limited_members_hear_only_full_ones():
    """h1 is a limited member of storage: it hears the disks, and no other tenant's host."""
    fabric = weft.load("star:hosts=6")
    partition = Partition(name="s", p_key=1, members={guid: Member(full=guid == 3) for guid in (1, 2, 3, 4, 9)})
    places = _Places(fabric)
    places.name = {guid: f"h{guid}" for guid in range(1, 6)}
    assert [*_senders(partition, 1, places)] == [3]
    assert [*_senders(partition, 3, places)] == [1, 2, 4]


def test_a_contended_port_is_in_two_partitions_on_different_levels():
    first, second, third = (
        Partition(name=name, p_key=n, sl=sl, members=dict.fromkeys(ports, Member()))
        for n, (name, sl, ports) in enumerate((("a", 1, (5, 3, 1)), ("b", 2, (1, 5, 7)), ("c", 1, (1, 7))), 1)
    )
    assert [(one.name, other.name, guid) for one, other, guid in _contended_ports([first, second, third])] == [
        ("a", "b", 1),
        ("a", "b", 5),
        ("b", "a", 1),
        ("b", "a", 5),
        ("b", "c", 1),
        ("b", "c", 7),
        ("c", "b", 1),
        ("c", "b", 7),
    ]


def test_ports_are_spread_over_leaves_by_guid():
    places = _Places(weft.load("star:hosts=2"))
    places.leaf = {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 2, 7: 2, 8: 2}
    assert places.spread([8, 7, 6, 5, 4, 3, 2, 1]) == [1, 4, 6, 2, 5, 7]
    assert places.spread([3, 2, 1]) == [1, 2, 3]


def test_results_are_explained_in_a_sentence():
    case = UnderLoad(receiver="h1/1", ranks=["h2/1", "h3/1"], bulk=["h4/1"], sl=1, bulk_sl=2, size_bytes=64)
    times = (("without load", 1.0, 2.0, None), ("on one lane", 5.0, 6.5, 390.4), ("on 3 lanes", 1.25, 2.25, 389.6))
    outcomes = tuple(
        Outcome(name=name, p50_us=p50_us, p99_us=p99_us, max_us=9.0, load_gbit_s=load)
        for name, p50_us, p99_us, load in times
    )
    assert Quality(tenant="red", load="storage", case=case, outcomes=outcomes).explain() == (
        "2 ports of red send 64 bytes at a time to h1/1 while 1 of storage fill its cable: median 1.00 µs without that "
        "load, 5.00 before the policy, 1.25 with it (p99 6.50 and 2.25); storage gets 390 Gbit/s before, 390 with it"
    )


def test_a_planned_port_has_the_lanes_of_its_lab():
    fabric = weft.load("star:hosts=2")
    port = planned_inventory(fabric).ports[1]
    slot = fabric["h2/1"].slot
    assert (port.name, port.host, port.number, port.guid) == ("h2/1", "h2", 1, int(fabric.ports.guid[slot]))
    assert (port.node_guid, port.data_vls, port.lid) == (int(fabric.nodes.guid[fabric.ports.node[slot]]), 8, 0)
    assert len(planned_inventory(fabric).ports) == 2


class Engine:
    """A packet engine with a result that a test chose."""

    finish_ps = np.arange(1, 104) * 10_000_000

    def run(self, fabric, traffic, options):
        result = SimpleNamespace(done=bool((self.finish_ps > 0).all()), finish_ps=self.finish_ps, traffic=traffic)
        result.latency_ps = np.arange(103) * 1_000_000
        self.levels, self.seed = set(traffic.sl.tolist()), options.seed
        return result


@pytest.mark.parametrize("lanes", [None, QosOptions(high_limit=1, sl2vl=(0, 1) * 8)])
def test_a_run_has_the_percentiles_of_its_messages(monkeypatch, lanes):
    engine = Engine()
    monkeypatch.setattr("weft.tenants.simulate.PacketEngine", lambda: engine)
    case = UnderLoad(receiver="h1/1", ranks=["h2/1"], bulk=[], messages=101, sl=1, seed=7)
    outcome = _run("a run", weft.load("star:hosts=3"), case, lanes)
    assert (outcome.name, outcome.p50_us, outcome.p99_us, outcome.max_us) == ("a run", 50.0, 99.0, 100.0)
    assert (engine.levels, engine.seed) == ({1}, 7)
    engine.finish_ps = np.where(np.arange(103) < 2, -1, engine.finish_ps)
    with pytest.raises(SimulationBug, match="a run: 2 messages never arrived"):
        _run("a run", weft.load("star:hosts=3"), case, lanes)
