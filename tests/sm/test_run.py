"""The subnet manager's reactions: to traps, to others' states, to refusals, and to its end."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from tests.sm.conftest import Net

from weft.mad.carrier import Address
from weft.sm.conf.options import Options
from weft.sm.events import Event, Log
from weft.sm.run import SubnetManager
from weft.sm.sminfo.sm_info import Action
from weft.sm.sweep import Interrupted
from weft.wire.notice import Trap
from weft.wire.sa import InformInfo
from weft.wire.smp import SMState


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
    """Return when a sweep and a check are due."""
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
