"""Plans of maintenance keep their promises in every step, and are carried out on a lab."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.cli import main
from weft.errors import ConfigError, SubnetError
from weft.fabric import faults
from weft.lab import control, registry
from weft.lab.subnets import Subnet
from weft.monitor.impact import read_routed
from weft.routing.check import check
from weft.routing.engine import Options
from weft.routing.route import route
from weft.twin import runbook
from weft.twin.maintenance import Limits, Unsafe, plan_maintenance
from weft.twin.runbook import read_runbook, write_runbook
from weft.verbs.perftest.exchange import free_port
from weft.verbs.perftest.perftest import WAITING

TREE = "fat-tree:hosts=16,radix=8"
SPINES = ["dead:spine1", "dead:spine2"]


def test_all_tasks_are_done_once_and_as_many_together_as_the_limit_allows():
    fabric = weft.load("fat-tree:hosts=128,radix=16")
    tasks = [f"dead:spine{number}" for number in range(1, 9)]
    few = plan_maintenance(fabric, tasks, Limits(keep=0.5))
    many = plan_maintenance(fabric, tasks, Limits(keep=0.1))
    for plan, keep in ((few, 0.5), (many, 0.1)):
        assert sorted(task for step in plan.steps for task in step.tasks) == tasks
        assert all(step.kept >= keep and not step.cut_off for step in plan.steps)
    assert [len(step.tasks) for step in few.steps] == [4, 4]
    assert len(many.steps[0].tasks) > 4


def test_rates_of_jobs_are_the_limit_where_there_are_jobs():
    idle, busy = ["io=storage:h[1-8]@5%"], ["train=all-to-all@90%", "io=storage:h[1-8]@30%"]
    limits = Limits(keep=0.99)
    plan = plan_maintenance(weft.load(TREE), SPINES, limits, idle)
    assert [step.kept for step in plan.steps] == pytest.approx([1, 1])
    with pytest.raises(
        Unsafe, match=r"dead:spine1: .* of the rate is kept, less than 99.0%\n  Accept it with --keep-rate"
    ):
        plan_maintenance(weft.load(TREE), SPINES, limits, busy)


def test_the_share_that_an_error_names_is_accepted():
    with pytest.raises(Unsafe) as refusal:
        plan_maintenance(weft.load(TREE), SPINES, Limits(keep=1))
    share = float(str(refusal.value).split("--keep-rate ")[1].rstrip("."))
    assert plan_maintenance(weft.load(TREE), SPINES[:1], Limits(keep=share)).steps[0].kept >= share


def test_hosts_of_a_rebooted_leaf_are_refused_named_and_counted():
    with pytest.raises(Unsafe, match="dead:leaf2: 4 host ports lose their connection, h5/1 among them"):
        plan_maintenance(weft.load(TREE), ["dead:leaf2"])
    leaves = [f"dead:leaf{number}" for number in range(1, 5)]
    plan = plan_maintenance(weft.load(TREE), leaves, Limits(keep=0.5, accept_cut_off=True))
    assert [len(step.tasks) for step in plan.steps] == [2, 2]  # half of the hosts may be away
    assert plan.steps[0].cut_off == tuple(f"h{number}/1" for number in range(1, 9))
    strict = plan_maintenance(weft.load(TREE), leaves, Limits(keep=0.9, accept_cut_off=True))
    assert [len(step.tasks) for step in strict.steps] == [1, 1, 1, 1]


def test_reboots_that_leave_islands_are_never_one_step():
    plan = plan_maintenance(weft.load(TREE), SPINES, Limits(keep=0.01))
    assert len(plan.steps) == 2


def test_a_cable_of_a_rebooted_switch_goes_with_it():
    plan = plan_maintenance(weft.load(TREE), ["dead:spine1", "cut:leaf1/5", "cut:spine1/1"], Limits(keep=0.1))
    assert [set(step.tasks) for step in plan.steps] == [{"dead:spine1", "cut:leaf1/5", "cut:spine1/1"}]
    with pytest.raises(ConfigError, match="leaf9"):
        plan_maintenance(weft.load(TREE), ["cut:leaf9/1"])


def test_the_engine_is_changed_by_way_of_another_if_the_mix_can_deadlock():
    ring = weft.load("torus:5x1")
    present = route(ring, Options(engine="up-down", root="sw3")).fabric
    with pytest.raises(Unsafe, match="old and new ones together can deadlock: credit loop"):
        plan_maintenance(present, [], Limits(keep=0.1), to_engine="up-down")
    with pytest.raises(Unsafe, match=r"routing engine min-hop: .*it can deadlock"):
        plan_maintenance(present, [], Limits(keep=0.1), to_engine="min-hop")
    tree = route(weft.load(TREE), Options(engine="min-hop")).fabric
    plan = plan_maintenance(tree, SPINES, Limits(keep=0.1), to_engine="fat-tree")
    assert plan.steps[0].tasks == ("routing engine fat-tree",)
    assert plan.steps[0].during.changed_entries > 0
    assert {step.after.engine for step in plan.steps[1:]} == {"fat-tree"}


def test_a_deadlock_of_mixed_tables_is_refused_or_named():
    ring = route(weft.load("torus:5x1"), Options(engine="up-down", root="sw3")).fabric
    limits = Limits(keep=0.01, accept_mixed=True)
    with pytest.raises(Unsafe, match=r"together can deadlock[\s\S]*--accept-mixed"):
        plan_maintenance(ring, ["cut:sw1/2"], Limits(keep=0.01))
    plan = plan_maintenance(ring, ["cut:sw1/2"], limits)
    assert plan.steps[0].during.mixed_loop or plan.steps[0].after.mixed_loop


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([TREE], "nothing to do: give --reboot SWITCH, --replace PORT or --to-engine ENGINE"),
        ([TREE, "--reboot", "h1"], "--reboot h1: not a switch; use --replace for the cable of a host"),
        ([TREE, "--reboot", "spin1"], "did you mean spine1"),
        (["fat-tree:hosts=15,radix=8", "--replace", "leaf4/4"], "--replace leaf4/4: this port has no cable"),
        ([TREE, "--reboot", "spine1", "--keep-rate", "0"], "--keep-rate must be in (0, 1], got 0"),
        ([TREE, "--reboot", "spine1", "-o", "plan.txt"], "must end in .json, for --run, or .md, a runbook"),
        ([TREE, "--run", "plan.json"], "--run has all from its plan: leave out SPEC"),
        (["--run", "plan.json", "--ibsim", "x"], "--run works on a lab"),
        (["superpod:su=1,planes=2", "--to-engine", "up-down"], "has several planes or subnets"),
    ],
)
def test_bad_input_is_one_error(words, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["weft", "maintain", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_damaged_plan_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    with pytest.raises(ConfigError, match="No such file"):
        read_runbook(path)
    write_runbook(plan_maintenance(weft.load(TREE), SPINES[:1]), path)
    assert read_runbook(path).plan.steps[0].tasks == ("dead:spine1",)
    path.write_text(path.read_text().replace('"steps"', '"stops"'))
    with pytest.raises(ConfigError, match=r"is not a plan that `weft maintain -o FILE.json` wrote: .*steps"):
        read_runbook(path)


def test_the_runbook_has_a_check_and_a_way_back_for_every_step(tmp_path):
    path = tmp_path / "plan.md"
    plan = plan_maintenance(weft.load(TREE), [*SPINES, "cut:leaf1/5"], Limits(keep=0.3), to_engine="up-down")
    write_runbook(plan, path)
    sections = path.read_text().split("## Step ")[1:]
    assert len(sections) == len(plan.steps)
    assert all("Check" in section and "Way back" in section for section in sections)
    assert "- [ ] Reboot spine2." in path.read_text()


def test_a_step_waits_until_what_it_removes_is_gone_and_all_other_hosts_are_connected():
    fabric = weft.load(TREE)
    watch = runbook._Watch(None, plan_maintenance(fabric, SPINES, Limits(keep=0.3)), 0.0)
    routed = route(fabric).fabric
    for name in ("spine1", "leaf1/5"):
        assert watch._difference(routed, [name], []) == f"{name} is still there"
    without = route(faults.remove_link(faults.remove_link(fabric, "leaf1/5"), "h16/1")).fabric
    assert watch._difference(without, ["leaf1/5"], []) == "15 of 16 host ports are connected"
    assert watch._difference(without, ["leaf1/5"], ["h16/1"]) == ""


# -- on a lab ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def lab(warm, tmp_path):
    """A lab with weft's subnet manager, in processes of their own."""
    name = f"maintain{tmp_path.name[-3:]}".replace("-", "")
    subprocess.run([warm, "up", TREE, "--name", name, "--sm", "--daemon"], check=True, capture_output=True)
    yield registry.find(name)
    subprocess.run([warm, "down", name], check=True, capture_output=True)


def attach_to(lab):
    return lambda host: Subnet(lab=lab.name, at=host).attach()


def plan_of(lab, tasks, **limits):
    carrier = attach_to(lab)("h1")
    try:
        present = read_routed(carrier)
    finally:
        carrier.close()
    assert check(present).ok
    return plan_maintenance(present, tasks, Limits(**limits))


def test_switches_are_rebooted_under_traffic_without_losing_a_message(lab, warm, tmp_path):
    path = tmp_path / "plan.json"
    write_runbook(plan_of(lab, [*SPINES, "cut:leaf1/5"], keep=0.2), path)
    port, output = str(free_port()), tmp_path / "output"
    test = ["ib_write_bw", "-s", "4096", "-D", "6", "-p", port]
    command = [warm, "exec", "--lab", lab.name]
    with output.open("w") as printed, subprocess.Popen([*command, "h1", *test], stdout=printed) as server:
        try:
            wait_until(lambda: WAITING in output.read_text(), going=lambda: server.poll() is None)
            with subprocess.Popen([*command, "h16", *test, "h1"], stdout=subprocess.DEVNULL) as client:
                steps = runbook.run(path, lab, attach_to(lab), patience_s=PATIENCE_S)
                assert client.wait(PATIENCE_S) == 0
            assert server.wait(PATIENCE_S) == 0
        finally:
            server.kill()
    assert steps == len(read_runbook(path).plan.steps) == read_runbook(path).done
    assert control.ask(lab, "state")["broken"] == []


def test_a_failed_step_goes_back_and_is_repeated(lab, tmp_path):
    path, said = tmp_path / "plan.json", []
    write_runbook(plan_of(lab, SPINES, keep=0.2), path)
    control.ask(lab, "break", name="h9/1")
    with pytest.raises(SubnetError, match=r"before step 1: 15 of 16 host ports are connected"):
        runbook.run(path, lab, attach_to(lab), patience_s=0.5)
    assert read_runbook(path).done == 0
    control.ask(lab, "fix", name="h9/1")
    control.ask(lab, "break", name="spine1")  # as an interrupted run leaves it
    assert runbook.run(path, lab, attach_to(lab), patience_s=PATIENCE_S, say=said.append) == 2
    assert said == ["step 1 of 2: reboot spine1", "step 2 of 2: reboot spine2"]
    assert json.loads(path.read_text())["done"] == 2
    assert runbook.run(path, lab, attach_to(lab), say=said.append) == 2
    assert len(said) == 2


def test_a_plan_with_another_engine_is_not_run(tmp_path):
    path = tmp_path / "plan.json"
    write_runbook(plan_maintenance(weft.load(TREE), [], to_engine="min-hop"), path)
    with pytest.raises(ConfigError, match="plan without --to-engine"):
        runbook.run(path, None, None)
