"""A policy is simulated before it is applied: what it does to latency under load."""

from __future__ import annotations

import pytest

import weft
from weft.errors import ConfigError
from weft.tenants.compile import compile_intent
from weft.tenants.intent import parse_intent
from weft.tenants.simulate import _Places, _worst_case, planned_inventory, simulate_quality

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
