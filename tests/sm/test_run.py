"""The subnet manager's reactions: to traps, to others' states, to refusals, and to its end."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from tests.sm.conftest import Net

from weft.errors import ConfigError, SubnetError
from weft.mad.carrier import Address
from weft.sm import run
from weft.sm.conf.options import Options
from weft.sm.events import Event, Log
from weft.sm.run import SubnetManager
from weft.sm.sminfo.sm_info import Action
from weft.sm.sweep import Interrupted
from weft.wire.notice import Trap
from weft.wire.port_info import PortInfo
from weft.wire.sa import InformInfo
from weft.wire.smp import DirectedSmp, SMState


def started(**options: object) -> SubnetManager:
    """Return a manager that has swept a star of three hosts; its clock stands still between calls."""
    net = Net("star:hosts=3")
    manager = SubnetManager(net.carrier, Options(**options), log=Log(io.StringIO()), clock=net.clock)
    manager.open()
    manager.step()
    assert manager.sweeps == 1
    return manager


@pytest.fixture
def manager() -> SubnetManager:
    return started(sweep_interval_s=0)


def due_in_s(manager: SubnetManager) -> tuple[float, float]:
    """Return the times until the next sweep and the next check."""
    return manager._sweep_s - manager.state.clock(), manager._check_s - manager.state.clock()


@pytest.mark.parametrize(
    ("trap", "lid", "asks", "due"),
    [
        (Trap.LINK_STATE_CHANGED, 9, False, (math.inf, 0.02)),
        (Trap.LOCAL_CHANGES, 9, False, (0.02, math.inf)),
        (Trap.LOCAL_CHANGES, "own", False, (math.inf, math.inf)),
        (Trap.LOCAL_CHANGES, "own", True, (0.02, math.inf)),
        (Trap.BAD_P_KEY, 9, False, (math.inf, math.inf)),
        (None, 9, False, (math.inf, math.inf)),
    ],
)
def test_a_trap_makes_a_check_or_a_sweep_due(manager, trap, lid, asks, due):
    manager._on_trap(trap, manager.state.sm_lid if lid == "own" else lid, asks)
    assert due_in_s(manager) == pytest.approx(due)
    assert manager._suspects == ({9} if trap == Trap.LINK_STATE_CHANGED else set())


def test_a_link_that_changes_in_the_middle_of_a_sweep_makes_another_one_due(manager):
    manager._is_sweeping = True
    manager._on_trap(Trap.LINK_STATE_CHANGED, 9, False)
    assert due_in_s(manager) == pytest.approx((0.02, math.inf))
    manager._sweep_s = manager.state.clock() + 0.01
    manager._on_trap(Trap.LINK_STATE_CHANGED, 9, False)
    assert due_in_s(manager)[0] == pytest.approx(0.01), "one that is due earlier stays"


@pytest.mark.parametrize("why", ["option", "standby"])
def test_traps_make_nothing_due_for_a_standby_or_without_the_option(manager, why):
    if why == "option":
        manager.options = replace(manager.options, sweep_on_trap=False)
    else:
        manager.election.state = SMState.STANDBY
    for trap in (Trap.LINK_STATE_CHANGED, Trap.LOCAL_CHANGES):
        manager._on_trap(trap, 9, False)
    assert due_in_s(manager) == (math.inf, math.inf)


def test_a_trap_of_an_unknown_switch_causes_a_sweep_and_that_of_an_unchanged_one_none(manager):
    switch = int(manager.state.view.fabric.tables.lid[manager.state.view.fabric["leaf1/0"].slot])
    manager._suspects = {switch}
    manager._check()
    assert due_in_s(manager) == (math.inf, math.inf)
    manager._suspects = {switch, 999}
    manager._check()
    assert (manager._sweep_s, manager._check_s, manager._suspects) == (-math.inf, math.inf, set())
    assert manager.state.log.recent[-1].endswith("SWEEP_STARTED an unknown node sent a trap")


def test_actions_of_the_election_are_obeyed(manager):
    assert manager._obey(Action.NOTHING) is Action.NOTHING
    assert manager.administrator.is_master
    assert manager.report is not None
    manager._obey(Action.SWEEP)
    assert manager._sweep_s == -math.inf
    manager._obey(Action.STAND_BY)
    assert not manager.administrator.is_master
    assert (manager.report, manager.state.known, manager._taking_over) == (None, None, True)


def test_a_sweep_ends_when_another_manager_is_master_or_at_the_end(manager):
    manager._stop_if_not_master()
    manager._configuring = True
    manager._stop_if_not_master()
    manager.stop()
    with pytest.raises(Interrupted, match="told to end"):
        manager._stop_if_not_master()
    manager.election.state = SMState.STANDBY
    with pytest.raises(Interrupted, match="another subnet manager became master"):
        manager._stop_if_not_master()
    manager._configuring = False
    manager._stop_if_not_master()


def test_a_sweep_on_order_returns_its_report_and_none_if_it_fails(manager, monkeypatch):
    first = manager.report
    assert manager._sweep_now() not in (None, first)
    assert manager._configuring
    monkeypatch.setattr(manager, "_sweep", lambda: None)
    assert manager._sweep_now() is None


@pytest.mark.parametrize(("interval_s", "wait_s"), [(0, 1.0), (10, 10.0)])
@pytest.mark.parametrize(
    ("refused", "oddity", "again"),
    [((), "", False), (("h2/1",), "", True), ((), "silent: x", True), ((), "changed: x", True), ((), "loop: x", False)],
)
def test_a_refusal_or_a_silent_node_makes_another_sweep_due(interval_s, wait_s, refused, oddity, again):
    manager = started(sweep_interval_s=interval_s)
    report = replace(manager.report, refused=refused, oddities=(oddity,) if oddity else ())
    manager._swept(report, [], 0.1, 7)
    assert due_in_s(manager)[0] == (pytest.approx(wait_s) if again else math.inf)
    assert (manager.sweeps, manager.seconds, manager.mads) == (2, 0.1, 7)
    assert manager._light_s == (manager.state.clock() + interval_s if interval_s else math.inf)


@pytest.mark.parametrize(("due_s", "flaps_s", "sweep_s"), [(math.inf, 5.0, 5.0), (3.0, 5.0, 3.0), (7.0, 5.0, 5.0)])
def test_a_sweep_is_due_when_a_link_that_flapped_may_be_used_again(manager, monkeypatch, due_s, flaps_s, sweep_s):
    monkeypatch.setattr(type(manager.state.flaps), "next_due_s", lambda _: flaps_s)
    manager._sweep_s = due_s
    manager._swept(manager.report, [], 0.1, 7)
    assert manager._sweep_s == sweep_s


def test_a_subscriber_that_does_not_answer_a_report_is_removed(manager):
    address = Address(7)
    manager.state.subscriptions.subscribe(1, InformInfo(), address)
    manager._on_report_response(address, b"answer")
    assert len(manager.state.subscriptions.all) == 1
    manager._on_report_response(address, None)
    assert not manager.state.subscriptions.all


def test_a_manager_shows_itself_as_one_until_it_ends(tmp_path, monkeypatch):
    net, shown, called = Net("star:hosts=2"), [], []
    monkeypatch.setattr(net.carrier, "set_is_sm", shown.append)
    options = Options(sweep_interval_s=0)
    manager = SubnetManager(net.carrier, options, log=Log(io.StringIO()), clock=net.clock, dump=tmp_path)
    assert (manager.seconds, manager.run(once=True)) == (0.0, True)
    assert shown == [True, False]
    assert [*tmp_path.iterdir()], "its tables are dumped"
    again = SubnetManager(net.carrier, options, log=Log(io.StringIO()), clock=net.clock)
    assert again.run(then=lambda: called.append(again.sweeps) or again.stop())
    assert called == [1]
    assert again.state.log.counts[Event.STOPPED] == 1


# -- one round --------------------------------------------------------------------------------------------------------


class Steps:
    """A record of the calls of one iteration of a manager, at time 0 of its clock."""

    def __init__(self, manager: SubnetManager, monkeypatch: pytest.MonkeyPatch) -> None:
        self.manager, self.made, self.waits_s = manager, [], []
        manager.state.clock = lambda: 0.0
        manager._sweep_s = manager._check_s = manager._light_s = math.inf
        for name in ("_sweep", "_check", "_look", "_carry_out", "_ask_own_port", "_read_files"):
            monkeypatch.setattr(manager, name, lambda name=name: self.made.append(name))
        monkeypatch.setattr(manager, "_serve", self.waits_s.append)
        monkeypatch.setattr(run, "reprogram", lambda *_: self.made.append("reprogram"))
        monkeypatch.setattr(manager._control_server, "is_called", lambda: False)
        monkeypatch.setattr(manager.election, "next_due_s", lambda: math.inf)
        monkeypatch.setattr(manager.replication, "next_due_s", lambda master: math.inf)

    def step(self) -> list[str]:
        self.made.clear()
        self.waits_s.clear()
        self.manager.step()
        return self.made


@pytest.fixture
def steps(manager, monkeypatch) -> Steps:
    return Steps(manager, monkeypatch)


@pytest.mark.parametrize(
    ("state", "sweep_s", "check_s", "light_s", "made"),
    [
        (SMState.MASTER, 0.0, 0.0, 0.0, ["_sweep", "reprogram"]),
        (SMState.MASTER, 0.1, 0.0, 0.0, ["_check", "reprogram"]),
        (SMState.MASTER, 0.1, 0.1, 0.0, ["_look", "reprogram"]),
        (SMState.MASTER, 0.1, 0.1, 0.1, ["reprogram"]),
        (SMState.DISCOVERING, 0.0, 0.0, 0.0, ["_sweep"]),
        (SMState.DISCOVERING, 0.1, 0.0, 0.0, []),
        (SMState.STANDBY, 0.0, 0.0, 0.0, []),
        (SMState.NOT_ACTIVE, 0.0, 0.0, 0.0, []),
    ],
)
def test_a_round_sweeps_checks_or_looks_by_what_is_due_and_by_its_state(steps, state, sweep_s, check_s, light_s, made):
    manager = steps.manager
    manager.election.state = state
    manager._sweep_s, manager._check_s, manager._light_s = sweep_s, check_s, light_s
    assert steps.step() == made


@pytest.mark.parametrize(("view", "known"), [(None, True), (True, None)])
def test_groups_are_written_only_after_a_sweep(steps, view, known):
    if view is None:
        steps.manager.state.view = None
    if known is None:
        steps.manager.state.known = None
    assert steps.step() == []


@pytest.mark.parametrize(
    ("due_s", "wait_s"),
    [
        ({}, 0.25),
        ({"_sweep_s": 0.1}, 0.1),
        ({"_check_s": 0.1}, 0.1),
        ({"_light_s": 0.1}, 0.1),
        ({"election": 0.1}, 0.1),
        ({"replication": 0.1}, 0.1),
        ({"_sweep_s": 0.2, "_check_s": 0.1, "replication": 0.15}, 0.1),
        ({"_sweep_s": 0.3}, 0.25),
        ({"election": -1.0}, 0.0),
    ],
)
def test_a_round_waits_until_the_next_is_due_and_a_quarter_of_a_second_at_most(steps, due_s, wait_s):
    manager = steps.manager
    for name, at_s in due_s.items():
        if name.startswith("_"):
            setattr(manager, name, at_s)
        else:
            getattr(manager, name).next_due_s = lambda *_, at_s=at_s: at_s
    steps.step()
    assert steps.waits_s == [wait_s]


@pytest.mark.parametrize(
    ("state", "is_called", "carried_out"),
    [
        (SMState.MASTER, True, True),
        (SMState.STANDBY, True, True),
        (SMState.DISCOVERING, True, False),
        (SMState.MASTER, False, False),
    ],
)
def test_requests_of_clients_wait_for_the_end_of_a_discovery(steps, state, is_called, carried_out):
    steps.manager.election.state = state
    steps.manager._control_server.is_called = lambda: is_called
    assert ("_carry_out" in steps.step()) is carried_out


def test_files_are_read_again_once(steps):
    steps.manager.reload()
    assert (steps.manager._reload, steps.manager._sweep_s) == (True, -math.inf)
    assert steps.step() == ["_read_files", "_sweep", "reprogram"]


def test_a_standby_knows_only_the_m_key_of_its_own_options(steps):
    state = steps.manager.state
    for sm_state, m_key in ((SMState.MASTER, 7), (SMState.STANDBY, 0)):
        state.sender.m_key, steps.manager.election.state = 7, sm_state
        steps.step()
        assert state.sender.m_key == m_key


@pytest.mark.parametrize(("state", "configuring"), [(SMState.MASTER, True), (SMState.STANDBY, False)])
def test_only_a_master_configures_while_it_executes_requests(manager, monkeypatch, state, configuring):
    seen = []

    def carry_out() -> None:
        seen.append(manager._configuring)
        raise ConfigError("no")

    monkeypatch.setattr(manager._control_server, "carry_out", carry_out)
    manager.election.state = state
    with pytest.raises(ConfigError):
        manager._carry_out()
    assert (seen, manager._configuring) == ([configuring], False)


@pytest.mark.parametrize(
    ("once", "reports", "state", "rounds"),
    [(True, 2, SMState.MASTER, 2), (True, 99, SMState.STANDBY, 1), (False, 2, SMState.STANDBY, 5)],
)
def test_a_run_ends_when_it_is_stopped_or_once_the_subnet_is_up(manager, monkeypatch, once, reports, state, rounds):
    count = []
    report, manager.report = manager.report, None

    def step() -> None:
        count.append(1)
        manager.report = report if len(count) >= reports else None
        if len(count) == 5:
            manager.stop()

    for name, call in (("open", lambda: None), ("close", lambda: count.append("closed")), ("step", step)):
        monkeypatch.setattr(manager, name, call)
    manager.election.state = state
    assert manager.run(once=once) is (reports <= rounds)
    assert count == [1] * rounds + ["closed"]


@pytest.mark.parametrize(
    ("sweep_s", "check_s", "called"), [(0.3, 9.0, 1), (9.0, 0.3, 1), (0.2, 9.0, 0), (9.0, 0.25, 0)]
)
def test_a_callback_is_called_once_when_nothing_else_is_due_soon(manager, monkeypatch, sweep_s, check_s, called):
    rounds, calls = [], []
    manager.state.clock = lambda: 0.0

    def step() -> None:
        rounds.append(1)
        manager._sweep_s, manager._check_s = sweep_s, check_s
        if len(rounds) == 3:
            manager.stop()

    for name, call in (("open", lambda: None), ("close", lambda: None), ("step", step)):
        monkeypatch.setattr(manager, name, call)
    manager.run(then=lambda: calls.append(1))
    assert len(calls) == called


def test_a_sweep_that_fails_is_tried_again_after_a_second(manager, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        assert (manager._is_sweeping, manager._sweep_s) == (True, math.inf)
        raise SubnetError("no")

    monkeypatch.setattr(run, "discover", fail)
    report = manager.report
    manager._sweep()
    assert due_in_s(manager)[0] == pytest.approx(1.0)
    assert (manager._configuring, manager._is_sweeping, manager.sweeps) == (False, False, 1)
    assert (manager.report, manager.state.log.recent[-1].split()[-2:]) == (report, ["SWEEP_FAILED", "no"])


@pytest.mark.parametrize(
    ("before", "taking_over", "takes"),
    [(SMState.MASTER, False, False), (SMState.MASTER, True, True), (SMState.DISCOVERING, False, True)],
)
def test_tables_of_the_previous_master_are_loaded_at_a_takeover(manager, monkeypatch, before, taking_over, takes):
    taken, configured = [], []
    report = manager.report

    def configure(state: object, view: object, *, taking_over: bool) -> object:
        configured.append((taking_over, manager._configuring))
        return report

    monkeypatch.setattr(manager, "_take_over", taken.append)
    monkeypatch.setattr(run, "configure", configure)
    manager.election.state, manager._taking_over = before, taking_over
    manager._sweep()
    assert (bool(taken), configured) == (takes, [(taking_over, True)])
    assert (manager.sweeps, manager._taking_over, manager._configuring) == (2, False, False)


@pytest.mark.parametrize(
    ("taking_over", "was_given", "adopts"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_partitions_of_ports_are_adopted_by_a_new_master_that_was_given_none(
    manager, monkeypatch, taking_over, was_given, adopts
):
    monkeypatch.setattr(run, "was_given_partitions", lambda _: was_given)
    manager._taking_over = taking_over
    manager._take_over(manager.state.view)
    assert manager.state.adopts_partitions is adopts


@pytest.mark.parametrize(
    ("heavy", "change", "drift", "reason"),
    [
        (False, "", "", None),
        (False, "a", "b", "a"),
        (False, "", "b", "b"),
        (True, "", "", "every sweep is a heavy one"),
    ],
)
def test_a_light_sweep_makes_a_heavy_one_due_if_something_changed(manager, monkeypatch, heavy, change, drift, reason):
    manager.options = replace(manager.options, force_heavy_sweep=heavy, sweep_interval_s=7)
    monkeypatch.setattr(run, "changes", lambda *_: change)
    monkeypatch.setattr(manager._drift_checks, "reason_to_sweep", lambda: drift)
    manager._look()
    assert manager._sweep_s == (math.inf if reason is None else -math.inf)
    assert manager._light_s == manager.state.clock() + 7
    if reason is not None:
        assert manager.state.log.recent[-1].endswith(f"SWEEP_STARTED {reason}")


def test_requests_of_hosts_are_answered_for_a_slice_of_time(manager, monkeypatch):
    """Between two requests the manager reads other MADs."""
    now_s, heard, answered = [0.0], [], []

    class Waiting:
        left = 9

        def __bool__(self) -> bool:
            return self.left > 0

        def answer_next(self, answer: object, sender: object) -> bool:
            self.left -= 1
            now_s[0] += 0.02
            answered.append(self.left)
            return self.left != 7

    manager.state.clock = lambda: now_s[0]
    monkeypatch.setattr(manager, "_hear", heard.append)
    manager._serve(0.25)
    assert (heard, answered) == ([0.25], [])
    heard.clear()
    manager._requests = Waiting()
    manager._serve(0.25)
    assert (heard, answered) == ([0.01, 0.0], [8, 7])  # the second was not answered yet
    heard.clear()
    manager._serve(0.005)
    assert (heard, answered) == ([0.005, 0.0, 0.0, 0.0], [8, 7, 6, 5, 4])


@pytest.mark.parametrize(
    ("answer", "lids"),
    [(None, []), (PortInfo(lid=5, master_sm_lid=0), []), (PortInfo(lid=5, master_sm_lid=9), [(9, 5)])],
)
def test_the_lids_of_the_master_and_of_the_own_port_are_read_when_both_are_there(manager, monkeypatch, answer, lids):
    told = []
    monkeypatch.setattr(manager.election, "has_lids", lambda *pair: told.append(pair))
    mad = None if answer is None else DirectedSmp.pack(data=answer.raw)
    assert manager._on_own_port(mad) is Action.NOTHING
    assert told == lids
