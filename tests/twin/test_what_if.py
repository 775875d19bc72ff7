"""A question about a change is answered as the fabric then behaves."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

import weft
from weft.cli import main
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.tables import NO_ROUTE
from weft.lab.lab import Lab
from weft.lab.load import read_job
from weft.mad.ibsim_client import IbsimCarrier
from weft.monitor.impact import read_routed
from weft.routing.engine import Options
from weft.routing.route import Routing, reroute, route
from weft.sm.run import SubnetManager
from weft.training.failures import break_permanently
from weft.twin import Change, ask
from weft.twin.what_if import JobRates

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
    with pytest.raises(ConfigError, match="nothing changes: give --fault cut:leaf1/5, --routing-engine"):
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
    assert (status, "use SPEC or a running subnet (--lab" in err) == (2, True)


@pytest.mark.parametrize(
    ("before", "after", "loss"), [(100, 90, 0.1), (100, 99.91, 0.0), (100, 99.89, 0.0011), (100, 110, -0.1), (0, 0, 0)]
)
def test_the_loss_of_a_job_is_a_share_and_less_than_a_thousandth_is_none(before, after, loss):
    rates = JobRates(name="a", before_gbit_s=before, meanwhile_gbit_s=0, after_gbit_s=after)
    assert rates.loss == pytest.approx(loss)


def test_a_cut_between_switches_is_an_alarm_and_changes_only_the_switches_that_used_it(tree):
    answer = ask(tree, Change(faults=("cut:leaf1/5",)))
    assert answer.alarms == ("link down: leaf1/5 - spine1/1",)
    assert (answer.cut_off, answer.refusal, answer.is_safe) == ((), "", True)
    assert (answer.jobs, answer.busiest, answer.spec) == ((), (), TREE)
    assert answer.entries == int((tree.tables.lft != NO_ROUTE).sum())
    broken = break_permanently(tree, ("cut:leaf1/5",))
    after = reroute(broken, Routing(fabric=tree, engine="auto", options=Options(), notes=())).fabric
    changed = (tree.tables.lft != after.tables.lft).any(axis=1)
    assert answer.changed_switches == changed.sum() > 0
    assert answer.changed_switches < len(tree.of_kind(NodeKind.SWITCH))


def test_an_answer_that_is_not_routed_proves_nothing(tree):
    answer = ask(tree, Change(faults=("dead:spine1", "dead:spine2")), JOBS)
    assert (answer.proof, answer.engine, answer.jobs, answer.changed_entries) == (None, "", (), 0)
    assert not replace(answer, refusal="", cut_off=()).is_safe


def test_the_five_ports_that_send_most_are_listed_and_idle_ones_are_not(tree):
    answer = ask(tree, Change(faults=("cut:leaf1/5",)), ["train=all-to-all@60%"])
    assert len(answer.busiest) == 5
    pair = ask(tree, Change(faults=("cut:leaf4/5",)), ["pair=ring:h[1-2]@60%"])
    assert {link.port for link in pair.busiest} == {"h1/1", "h2/1", "leaf1/1", "leaf1/2"}
    assert all(link.before == pytest.approx(link.after) for link in pair.busiest)


def test_jobs_may_be_given_as_objects_and_lose_hosts_that_are_gone(tree):
    spec = "train=all-to-all:h[1-5]@60%"
    jobs = [read_job(tree, spec, 1, 1)]
    as_object, as_text = (ask(tree, Change(faults=("dead:leaf1",)), given) for given in (jobs, [spec]))
    assert as_object.jobs == as_text.jobs
    assert (as_object.jobs[0].after_gbit_s, as_object.cut_off) == (0.0, ("h1/1", "h2/1", "h3/1", "h4/1"))  # h5 alone
    two = ask(tree, Change(faults=("dead:leaf1",)), ["train=all-to-all:h[1-6]@60%"])
    assert two.jobs[0].after_gbit_s > 0
