"""A question about a change is answered as the fabric then behaves."""

from __future__ import annotations

import json
import sys

import pytest

import weft
from weft.cli import main
from weft.errors import ConfigError
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.monitor.impact import read_routed
from weft.routing.route import route
from weft.sm.run import SubnetManager
from weft.twin import Change, ask

TREE = "fat-tree:hosts=16,radix=8"
JOBS = ("train=all-to-all@90%", "io=storage:h[1-8]@30%")


@pytest.fixture(scope="module")
def tree():
    return route(weft.load(TREE)).fabric


def sweep(lab):
    carrier = IbsimCarrier("h1", lab.sockname)
    try:
        SubnetManager(carrier).run(once=True)
        return read_routed(carrier)
    finally:
        carrier.close()


def rates(lab):
    return [job["gbit_s"] for job in lab.load_state()["jobs"]]


@pytest.mark.parametrize("fault", ["cut:leaf1/5", "dead:spine1"])
def test_the_answer_equals_the_rates_after_the_cable_is_really_pulled(fault):
    with Lab(weft.load(TREE)) as lab:
        before = sweep(lab)
        lab.load(*JOBS, speed=0)
        answer = ask(before, Change(faults=(fault,)), JOBS)
        assert [job.before_gbit_s for job in answer.jobs] == pytest.approx(rates(lab))
        lab.break_cable(fault.partition(":")[2])
        assert [job.meanwhile_gbit_s for job in answer.jobs] == pytest.approx(rates(lab))
        after = sweep(lab)
        assert [job.after_gbit_s for job in answer.jobs] == pytest.approx(rates(lab))
        same = ask(after, Change(routing_engine="fat-tree"))
        assert (same.changed_entries, same.changed_switches) == (0, 0)
    assert answer.is_safe
    assert answer.changed_entries > 0
    assert 0 < answer.jobs[0].loss < 1 - answer.jobs[0].meanwhile_gbit_s / answer.jobs[0].before_gbit_s


def test_hosts_that_lose_their_only_cable_are_named(tree):
    answer = ask(tree, Change(faults=("cut:h3/1",)))
    assert (answer.cut_off, answer.hosts, answer.is_safe) == (("h3/1",), 16, False)
    answer = ask(tree, Change(faults=("dead:leaf2",)))
    assert answer.cut_off == ("h5/1", "h6/1", "h7/1", "h8/1")
    assert answer.alarms == ("switch down: leaf2",)


def test_a_fabric_in_islands_cannot_be_routed_afterwards(tree):
    answer = ask(tree, Change(faults=("dead:spine1", "dead:spine2")))
    assert "is in 4 islands" in answer.refusal
    assert not answer.is_safe


def test_a_routing_engine_that_can_deadlock_is_not_safe():
    answer = ask(weft.load("torus:5x5"), Change(routing_engine="min-hop"))
    assert not answer.is_safe
    assert answer.proof.credit_loop
    assert ask(weft.load("torus:5x5"), Change(routing_engine="dfsssp")).is_safe


def test_a_slower_cable_is_an_alarm_and_costs_rates_but_no_route(tree):
    answer = ask(tree, Change(faults=("slow:h1/1=1xNDR",)), JOBS)
    assert answer.alarms == ("degraded link: h1/1 - leaf1/1, 1xNDR instead of 4xNDR",)
    assert (answer.changed_entries, answer.is_safe) == (0, True)
    assert answer.jobs[0].loss > 0.05


def test_ports_that_become_busier_are_listed_first(tree):
    answer = ask(tree, Change(faults=("cut:leaf1/5",)), ["train=all-to-all@60%"])
    assert all(link.after >= other.after for link, other in zip(answer.busiest, answer.busiest[1:], strict=False))
    assert answer.busiest[0].after > answer.busiest[0].before


def test_a_job_that_loses_its_hosts_ends_and_others_keep_their_rates(tree):
    answer = ask(tree, Change(faults=("dead:leaf1",)), ["gone=ring:h[1-4]@50%", "stays=ring:h[5-8]@50%"])
    gone, stays = answer.jobs
    assert (gone.after_gbit_s, gone.loss) == (0.0, 1.0)
    assert stays.after_gbit_s == pytest.approx(stays.before_gbit_s)


def test_a_change_must_change_something():
    with pytest.raises(ConfigError, match="nothing changes: give --fault cut:leaf1/5, or --routing-engine"):
        Change()


def test_the_command_prints_json_and_fails_for_an_unsafe_change(capsys, monkeypatch):
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["weft", "whatif", TREE, *words])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code), printed.out, printed.err

    status, out, _ = run("--fault", "cut:leaf1/5", "--jobs", JOBS[0], "--json")
    facts = json.loads(out)
    assert (status, facts["safe"], facts["jobs"][0]["name"]) == (0, True, "train")
    status, out, _ = run("--fault", "cut:h3/1")
    assert (status, "cut off: h3/1" in out) == (1, True)
    status, _, err = run("--fault", "cut:leaf1/5", "--lab", "other")
    assert (status, "leave it out, or --lab" in err) == (2, True)
