"""Election of the master: each rule of the state machine alone, then several managers with lost MADs and failures."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.mad.carrier import HERE, Address
from weft.mad.local import ManualClock
from weft.sm.conf.options import Options
from weft.sm.events import Event
from weft.sm.sminfo.election import Election
from weft.sm.sminfo.sm_info import Action, Here, OtherSm, Question, is_sm_info, requester, tell_sm
from weft.wire.mad import MAD_BYTES, Method, Status
from weft.wire.notice import LocalChangesDetails, Notice, Trap
from weft.wire.smp import DirectedSmp, SMControl, SMInfo, Smp, SmpAttribute, SMState

INTERVAL_S, RETRIES = 0.5, 4
DISCOVERING, STANDBY, MASTER, NOT_ACTIVE = SMState.DISCOVERING, SMState.STANDBY, SMState.MASTER, SMState.NOT_ACTIVE


class Bench:
    """An election with a stopped clock, and its output."""

    def __init__(
        self,
        state: SMState = DISCOVERING,
        *,
        guid: int = 10,
        mads_sent: Callable[[], int] = lambda: 0,
        **options: Any,
    ) -> None:
        self.clock = ManualClock()
        self.said: list[tuple[Event, str]] = []
        self.election = Election(
            Options(**{"sm_priority": 5, "sm_key": 0} | options),
            guid=guid,
            clock=self.clock,
            say=lambda *said: self.said.append(said),
            mads_sent=mads_sent,
        )
        if state == STANDBY:
            self.election.found_others([other(priority=9, state=MASTER)])
            self.ask()
        elif state == MASTER:
            self.election.found_others([])
        elif state == NOT_ACTIVE:
            self.election.state = NOT_ACTIVE
        assert self.election.state == state

    def ask(self, after_s: float = 0.0) -> list[Question]:
        self.clock.sleep(after_s)
        return self.election.due(self.clock())

    def poll(self, answer: OtherSm | None) -> Action:
        """Poll once and pass the answer."""
        (question,) = [item for item in self.ask(INTERVAL_S) if item.heard is not None]
        assert question.heard is not None
        return question.heard(None if answer is None else says(question.mad, answer))

    def told(self, control: int, by: OtherSm, **fields: int) -> tuple[SMInfo | None, int, Action]:
        info = SMInfo(guid=by.guid, priority=by.priority, sm_state=by.state, sm_key=by.sm_key)
        mad = Smp.pack(
            method=Method.SET,
            attribute_id=SmpAttribute.SM_INFO,
            attribute_modifier=control,
            data=info.raw,
            **fields,
        )
        response, action = self.election.on_sm_info(mad, Address(lid=7, qp=0))
        if response is None:
            return None, 0, action
        return SMInfo.unpack(response, 64), Smp.status.get(response), action


def other(guid: int = 20, priority: int = 5, state: int = STANDBY, **more: object) -> OtherSm:
    return OtherSm(guid=guid, priority=priority, state=state, **({"path": bytes([1, 2]), "lid": 7} | more))  # type: ignore[arg-type]


def says(question: bytes, who: OtherSm, status: int = 0) -> bytes:
    info = SMInfo(guid=who.guid, priority=who.priority, sm_state=who.state, sm_key=who.sm_key)
    answer = bytearray(question)
    Smp.status.set(answer, status)
    answer[64 : 64 + SMInfo.size] = info.raw
    return bytes(answer)


LOWER, HIGHER = {"priority": 4}, {"priority": 6}


# -- the end of a discovery -------------------------------------------------------------------------------------------


def test_alone_it_becomes_master() -> None:
    bench = Bench()
    assert bench.election.found_others([]) == Action.CONFIGURE
    assert bench.election.state == MASTER


@pytest.mark.parametrize("state", [DISCOVERING, STANDBY])
def test_it_stands_by_if_a_higher_one_is_there(state: SMState) -> None:
    bench = Bench()
    assert bench.election.found_others([other(state=state, **HIGHER)]) == Action.STAND_BY
    assert bench.election.state == STANDBY


@pytest.mark.parametrize("state", [DISCOVERING, STANDBY])
def test_it_becomes_master_over_a_lower_one_that_is_not(state: SMState) -> None:
    assert Bench().election.found_others([other(state=state, **LOWER)]) == Action.CONFIGURE


def test_of_equal_priority_the_lower_guid_is_higher() -> None:
    assert Bench(guid=10).election.found_others([other(guid=11)]) == Action.CONFIGURE
    assert Bench(guid=10).election.found_others([other(guid=9)]) == Action.STAND_BY


def test_one_who_is_master_is_not_pushed_aside_by_a_newcomer() -> None:
    bench = Bench()
    assert bench.election.found_others([other(state=MASTER, **LOWER)]) == Action.STAND_BY
    assert bench.election.master is not None
    assert bench.election.master.guid == 20


def test_of_several_it_stands_behind_the_highest() -> None:
    for state in (MASTER, STANDBY):
        bench = Bench()
        bench.election.found_others([other(guid=guid, priority=6, state=state) for guid in (22, 21, 23)])
        assert bench.election.master is not None
        assert bench.election.master.guid == 21


def test_one_that_is_not_active_does_not_count() -> None:
    assert Bench().election.found_others([other(state=NOT_ACTIVE, **HIGHER)]) == Action.CONFIGURE


def test_one_with_another_sm_key_is_ignored_and_named() -> None:
    bench = Bench(sm_key=1)
    assert bench.election.found_others([other(state=MASTER, sm_key=2, **HIGHER)]) == Action.CONFIGURE
    assert [event for event, text in bench.said if "SM_Key" in text] == [Event.OTHER_SM]


def test_ignore_other_sm_ignores_even_a_higher_master() -> None:
    bench = Bench(ignore_other_sm=True)
    assert bench.election.found_others([other(state=MASTER, **HIGHER)]) == Action.CONFIGURE


def test_inactive_it_stays_so_whatever_it_finds() -> None:
    bench = Bench(NOT_ACTIVE, sm_inactive=True)
    assert bench.election.found_others([]) == Action.NOTHING
    assert bench.election.state == NOT_ACTIVE
    assert bench.ask(100.0) == []


# -- a standby --------------------------------------------------------------------------------------------------------


def test_a_standby_asks_its_master_at_every_interval_and_waits_for_each_answer_no_longer() -> None:
    bench = Bench()
    bench.election.found_others([other(state=MASTER, **HIGHER)])
    (question,) = bench.ask()
    assert (question.to.lid, question.timeout_ms, question.retries) == (7, 500, 0)
    assert bench.ask(0.49) == []
    assert bench.election.next_due_s() == pytest.approx(0.5)
    assert len(bench.ask(0.01)) == 1


def test_a_silent_master_is_given_up_when_so_many_intervals_have_passed() -> None:
    """The last answer was at 0 s, polls at 0.5, 1.0 and 1.5 s are lost: at 2.0 s the master counts as dead."""
    bench = Bench(STANDBY)
    assert [bench.poll(None) for _ in range(RETRIES - 1)] == [Action.NOTHING, Action.NOTHING, Action.SWEEP]
    assert bench.election.state == DISCOVERING


def test_one_answer_in_time_is_enough() -> None:
    bench = Bench(STANDBY)
    for _ in range(5):
        assert bench.poll(None) == bench.poll(None) == Action.NOTHING
        assert bench.poll(other(priority=9, state=MASTER)) == Action.NOTHING
    assert bench.election.state == STANDBY


def test_after_a_loss_it_asks_another_way() -> None:
    """A cable of the path may be down, or the forwarding tables incomplete."""
    bench = Bench(STANDBY)
    ways = []
    for _ in range(2):
        (question,) = bench.ask(INTERVAL_S)
        ways.append((question.mad[1], question.to.lid))
        assert question.heard is not None
        question.heard(None)
    assert ways == [(0x01, 7), (0x81, HERE.lid)]


def test_late_answer_of_an_unwatched_manager_is_ignored() -> None:
    bench = Bench(STANDBY)
    questions = [item for _ in range(RETRIES) for item in bench.ask(INTERVAL_S)]
    bench.told(SMControl.HANDOVER, other(state=MASTER))
    for question in questions:
        assert question.heard is not None
        assert question.heard(None) == Action.NOTHING
    assert bench.election.state == MASTER


@pytest.mark.parametrize(
    "answer",
    [
        other(priority=9, state=NOT_ACTIVE),
        other(guid=77, priority=9, state=MASTER),
        other(priority=4, state=DISCOVERING),
    ],
    ids=["it is not active", "another manager is at that LID", "it starts anew and is below us"],
)
def test_an_answer_that_is_no_sign_of_a_master_counts_as_none(answer: OtherSm) -> None:
    bench = Bench(STANDBY)
    assert [bench.poll(answer) for _ in range(RETRIES - 1)][-1] == Action.SWEEP


def test_a_complaint_counts_as_no_answer() -> None:
    bench = Bench(STANDBY)
    for _ in range(RETRIES - 1):
        (question,) = bench.ask(INTERVAL_S)
        assert question.heard is not None
        action = question.heard(says(question.mad, other(priority=9, state=MASTER), status=0x0C))
    assert action == Action.SWEEP


def test_behind_a_higher_one_that_is_not_master_yet_it_waits() -> None:
    bench = Bench()
    bench.election.found_others([other(state=DISCOVERING, **HIGHER)])
    bench.ask()
    for state in (DISCOVERING, STANDBY, STANDBY, STANDBY, STANDBY, MASTER):
        assert bench.poll(other(state=state, **HIGHER)) == Action.NOTHING


def test_it_looks_for_the_new_master_when_the_old_one_became_a_standby() -> None:
    bench = Bench(STANDBY)
    assert bench.poll(other(priority=9, state=STANDBY)) == Action.SWEEP
    assert bench.election.state == DISCOVERING


def test_a_standby_that_met_its_master_before_there_were_lids_reminds_it_when_it_has_one() -> None:
    bench, below = Bench(), other(state=MASTER, lid=0, **LOWER)
    bench.election.found_others([below], Here(lid=0))
    assert bench.election.lacks_lids
    bench.poll(below)
    assert not [item for item in bench.ask() if item.heard is None]
    bench.election.has_lids(7, 3)
    assert not bench.election.lacks_lids
    bench.poll(below)
    (trap,) = [item for item in bench.ask() if item.heard is None]
    assert (trap.to.lid, Notice.unpack(trap.mad, 64).issuer_lid) == (7, 3)


def test_a_standby_above_its_master_reminds_it_by_trap_144_now_and_then() -> None:
    bench = Bench()
    bench.election.found_others([other(state=MASTER, **LOWER)], Here(lid=3, node_type=1, capability_mask=2))
    traps = []
    for _ in range(20):
        for question in bench.ask(INTERVAL_S):
            if question.heard is None:
                traps.append(question)
            else:
                question.heard(says(question.mad, other(state=MASTER, **LOWER)))
    assert len(traps) == 2
    notice = Notice.unpack(traps[0].mad, 64)
    details = LocalChangesDetails.unpack(notice.data_details)
    assert (traps[0].to.lid, notice.trap_number, notice.issuer_lid) == (7, Trap.LOCAL_CHANGES, 3)
    assert (details.sm_priority_change, details.other_local_changes, details.lid_addr) == (1, 1, 3)


# -- a master ---------------------------------------------------------------------------------------------------------


def handing_over() -> tuple[Bench, Question]:
    bench = Bench(MASTER)
    assert bench.election.found_others([other(**HIGHER)]) == Action.NOTHING
    questions = [item for item in bench.ask() if item.heard]
    assert [Smp.attribute_modifier.get(item.mad) for item in questions] == [SMControl.HANDOVER]
    assert requester(questions[0].mad, HERE).state == MASTER
    return bench, questions[0]


def test_a_master_hands_over_to_a_higher_standby_and_stands_by_when_that_answers() -> None:
    """OpenSM answers, but never sends ACKNOWLEDGE."""
    bench, question = handing_over()
    assert bench.election.state == MASTER
    assert question.heard is not None
    assert question.heard(says(question.mad, other(**HIGHER))) == Action.STAND_BY
    assert bench.election.state == STANDBY
    assert bench.election.master is not None
    assert bench.election.master.guid == 20


def test_acknowledge_ends_a_handover_too() -> None:
    bench, question = handing_over()
    _, status, action = bench.told(SMControl.ACKNOWLEDGE, other(**HIGHER))
    assert (status, action, bench.election.state) == (0, Action.STAND_BY, STANDBY)
    assert question.heard is not None
    assert question.heard(None) == Action.NOTHING


@pytest.mark.parametrize("refused", [False, True])
def test_a_master_whose_handover_nobody_takes_stays_master_and_goes_on(refused: bool) -> None:
    bench, question = handing_over()
    assert question.heard is not None
    answer = says(question.mad, other(**HIGHER), status=Status.INVALID_FIELD) if refused else None
    assert question.heard(answer) == Action.SWEEP
    assert bench.election.found_others([other(**HIGHER)]) == Action.CONFIGURE
    bench.clock.sleep(60.0)
    assert bench.election.found_others([other(**HIGHER)]) == Action.NOTHING


def test_a_master_does_not_hand_over_to_one_that_is_still_discovering() -> None:
    bench = Bench(MASTER)
    assert bench.election.found_others([other(state=DISCOVERING, **HIGHER)]) == Action.CONFIGURE


def test_a_master_asks_one_handover_at_a_time() -> None:
    bench, _ = handing_over()
    assert bench.election.found_others([other(**HIGHER)]) == Action.NOTHING
    assert [item for item in bench.ask() if Smp.attribute_modifier.get(item.mad) == SMControl.HANDOVER] == []


def test_a_master_looks_at_the_others_and_sweeps_if_one_is_above_it_by_now() -> None:
    bench = Bench(MASTER)
    bench.election.found_others([other(**LOWER)])
    assert bench.poll(other(**LOWER)) == Action.NOTHING
    bench.clock.sleep(10 * INTERVAL_S)
    assert bench.poll(other(**HIGHER)) == Action.SWEEP


def test_master_asks_a_silent_manager_again_soon_then_seldom_and_sweeps_when_it_answers() -> None:
    bench = Bench(MASTER)
    bench.election.found_others([], silent=[other()])
    times = []
    while len(times) < 6:
        bench.clock.now_s = bench.election.next_due_s()
        for question in bench.ask():
            times.append(bench.clock())
            assert question.heard is not None
            assert question.heard(None) == Action.NOTHING
    assert times == [1, 3, 7, 12, 17, 22]
    bench.election.found_others([], silent=[other()])  # a sweep for another reason
    (question,) = bench.ask(5)
    assert question.heard is not None
    assert question.heard(says(question.mad, other())) == Action.SWEEP
    bench.election.found_others([other(**LOWER)])
    assert bench.election.next_due_s() > bench.clock()


def test_a_master_does_not_sweep_for_one_with_another_sm_key() -> None:
    bench = Bench(MASTER, sm_key=1)
    bench.election.found_others([other(sm_key=1, **LOWER)])
    assert bench.poll(other(sm_key=2, state=MASTER, **HIGHER)) == Action.NOTHING


def test_of_two_masters_the_lower_hands_over() -> None:
    bench = Bench(MASTER)
    assert bench.election.found_others([other(state=MASTER, **HIGHER)]) == Action.NOTHING
    assert SMControl.HANDOVER in [Smp.attribute_modifier.get(item.mad) for item in bench.ask()]


def waiting() -> Bench:
    bench = Bench(MASTER)
    assert bench.election.found_others([other(state=MASTER, **LOWER)], Here(lid=3)) == Action.NOTHING
    assert any(item.heard is None for item in bench.ask()), "no trap to the other"
    return bench


def test_a_master_that_waits_for_another_asks_at_the_lid_of_the_last_discovery() -> None:
    bench = waiting()
    said = len(bench.said)
    again = other(state=MASTER, lid=12, **LOWER)
    assert bench.election.found_others([again], Here(lid=3)) == Action.NOTHING
    assert next(question.to.lid for question in bench.ask(INTERVAL_S) if question.heard) == 12
    assert len(bench.said) == said


def test_of_two_masters_the_higher_waits_and_sweeps_when_the_other_hands_over() -> None:
    bench = waiting()
    _, status, action = bench.told(SMControl.HANDOVER, other(state=MASTER, **LOWER))
    assert (status, action, bench.election.state) == (0, Action.SWEEP, MASTER)
    (question,) = [item for item in bench.ask() if Smp.attribute_modifier.get(item.mad) == SMControl.ACKNOWLEDGE]
    assert SMInfo.unpack(question.mad, 64).sm_state == STANDBY


def test_of_two_masters_the_higher_goes_on_when_the_other_dies() -> None:
    bench = waiting()
    actions = []
    for _ in range(RETRIES - 1):
        (question, *_) = [item for item in bench.ask(INTERVAL_S) if item.heard]
        assert question.heard is not None
        actions.append(question.heard(None))
    assert actions[-1] == Action.SWEEP
    assert bench.election.found_others([]) == Action.CONFIGURE


def test_of_two_masters_the_higher_goes_on_when_the_other_never_lets_go() -> None:
    bench = waiting()
    for _ in range(100):
        actions = [
            item.heard(says(item.mad, other(state=MASTER, **LOWER))) for item in bench.ask(INTERVAL_S) if item.heard
        ]
        if Action.SWEEP in actions:
            break
    assert Action.SWEEP in actions
    assert bench.election.found_others([other(state=MASTER, **LOWER)]) == Action.CONFIGURE
    assert any("does not hand over" in text for _, text in bench.said)


# -- requests of other managers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(SMState))
def test_everybody_is_told_guid_priority_key_activity_and_state(state: SMState) -> None:
    bench = Bench(state, sm_key=0, mads_sent=lambda: 41)
    mad = Smp.pack(method=Method.GET, attribute_id=SmpAttribute.SM_INFO, transaction_id=99)
    response, action = bench.election.on_sm_info(mad, Address(lid=7, qp=0))
    assert response is not None
    assert action == Action.NOTHING
    info = SMInfo.unpack(response, 64)
    assert (info.guid, info.priority, info.sm_state) == (10, 5, state)
    assert info.act_count >= 41
    assert (Smp.method.get(response), Smp.status.get(response), Smp.transaction_id.get(response)) == (0x81, 0, 99)


def test_a_directed_question_is_answered_on_its_way_back() -> None:
    mad = DirectedSmp.pack(method=Method.GET, attribute_id=SmpAttribute.SM_INFO, hop_count=2)
    response, _ = Bench().election.on_sm_info(mad, HERE)
    assert response is not None
    assert (DirectedSmp.d.get(response), DirectedSmp.status.get(response)) == (1, 0)


LEGAL = {
    (DISCOVERING, SMControl.HANDOVER): (Action.SWEEP, DISCOVERING),
    (STANDBY, SMControl.HANDOVER): (Action.SWEEP, MASTER),
    (STANDBY, SMControl.ACKNOWLEDGE): (Action.NOTHING, STANDBY),
    (STANDBY, SMControl.DISABLE): (Action.NOTHING, NOT_ACTIVE),
    (STANDBY, SMControl.DISCOVER): (Action.SWEEP, DISCOVERING),
    (MASTER, SMControl.HANDOVER): (Action.SWEEP, MASTER),
    (NOT_ACTIVE, SMControl.STANDBY): (Action.STAND_BY, STANDBY),
}


@pytest.mark.parametrize("state", list(SMState))
@pytest.mark.parametrize("control", [0, *SMControl, 6])
def test_control_packets_are_obeyed_or_refused_by_state(state: SMState, control: int) -> None:
    bench = Bench(state)
    teller = other(priority=9, state=STANDBY if control == SMControl.ACKNOWLEDGE else MASTER)
    info, status, action = bench.told(control, teller)
    assert info is not None
    assert info.sm_state == state
    expected, becomes = LEGAL.get((state, control), (Action.NOTHING, state))  # type: ignore[call-overload]
    assert (action, bench.election.state) == (expected, becomes)
    assert status == (0 if (state, control) in LEGAL else Status.INVALID_FIELD)


@pytest.mark.parametrize("control", list(SMControl))
@pytest.mark.parametrize("state", [DISCOVERING, STANDBY, NOT_ACTIVE, MASTER])
def test_only_a_master_may_tell_and_only_a_standby_acknowledge(state: SMState, control: SMControl) -> None:
    may = STANDBY if control == SMControl.ACKNOWLEDGE else MASTER
    bench = Bench(STANDBY)
    _, status, _ = bench.told(control, other(state=state))
    refused = state != may or (STANDBY, control) not in LEGAL
    assert status == (Status.INVALID_FIELD if refused else 0)


def test_one_with_another_sm_key_cannot_tell_anything() -> None:
    bench = Bench(sm_key=0)
    bench.election.sm_key = 1
    _, status, action = bench.told(SMControl.HANDOVER, other(state=MASTER, sm_key=2))
    assert (status, action) == (Status.INVALID_FIELD, Action.NOTHING)


def test_a_set_without_the_m_key_is_not_answered_at_all() -> None:
    bench = Bench(STANDBY, m_key=5)
    assert bench.told(SMControl.HANDOVER, other(state=MASTER), m_key=4) == (None, 0, Action.NOTHING)
    assert bench.told(SMControl.HANDOVER, other(state=MASTER), m_key=5)[2] == Action.SWEEP


def test_handover_is_acknowledged_along_the_reversed_path() -> None:
    """OpenSM refuses an ACKNOWLEDGE whose sender does not call itself STANDBY."""
    bench = Bench(STANDBY)
    info = SMInfo(guid=20, priority=1, sm_state=MASTER)
    mad = DirectedSmp.pack(
        method=Method.SET,
        attribute_id=SmpAttribute.SM_INFO,
        attribute_modifier=SMControl.HANDOVER,
        hop_count=3,
        initial_path=bytes([0, 1, 2, 3]),
        return_path=bytes([1, 11, 12, 13]),
        data=info.raw,
    )
    bench.election.on_sm_info(mad, HERE)
    (question, *_) = bench.ask()
    assert DirectedSmp.attribute_modifier.get(question.mad) == SMControl.ACKNOWLEDGE
    assert DirectedSmp.initial_path.get(question.mad)[:4] == bytes([0, 13, 12, 11])
    assert SMInfo.unpack(question.mad, 64).sm_state == STANDBY


def test_told_to_stand_by_it_watches_who_told_it() -> None:
    bench = Bench(NOT_ACTIVE)
    bench.told(SMControl.STANDBY, other(state=MASTER))
    (question,) = bench.ask()
    assert (question.mad[1], question.to.lid) == (0x01, 7)


@given(st.binary(min_size=MAD_BYTES, max_size=MAD_BYTES), st.sampled_from(list(SMState)), st.integers(0, 0xFFFF))
@settings(max_examples=200)
def test_no_mad_makes_it_stumble(noise: bytes, state: SMState, lid: int) -> None:
    mad = bytearray(noise)
    mad[1], mad[3] = (0x01, 0x81)[mad[1] & 1], (1, 2)[mad[3] & 1]
    Smp.attribute_id.set(mad, SmpAttribute.SM_INFO)
    bench = Bench(state)
    assert is_sm_info(bytes(mad))
    response, _ = bench.election.on_sm_info(bytes(mad), Address(lid=lid, qp=0))
    assert response is not None
    for question in bench.ask(100.0):
        if question.heard is not None:
            question.heard(noise)


# -- several managers --------------------------------------------------------------------------------------------------


@dataclass
class Manager:
    """A manager that runs an election: it sends, sweeps, and answers."""

    election: Election
    sweep_s: float
    alive: bool = False
    sweeping: bool = False
    again: bool = False
    masterships: int = 0


@dataclass
class Net:
    """A network of managers; paths and LIDs are numbers of managers. Every MAD takes a millisecond."""

    drops: Callable[[], bool] = lambda: False
    clock: ManualClock = field(default_factory=ManualClock)
    managers: list[Manager] = field(default_factory=list)
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def add(self, priority: int, guid: int, sweep_s: float = 0.05) -> Manager:
        self.managers.append(Manager(self.newborn(priority, guid), sweep_s))
        return self.managers[-1]

    def newborn(self, priority: int, guid: int) -> Election:
        return Election(
            Options(sm_priority=priority, sm_key=0), guid=guid, clock=self.clock, say=lambda event, text: None
        )

    def kill_or_revive(self, one: Manager) -> None:
        one.alive = not one.alive
        if one.alive:
            one.election = self.newborn(one.election.priority, one.election.guid)
            self.start(one)

    def later(self, after_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.clock() + after_s, next(self.numbers), what))

    def run(self, until_s: float) -> None:
        while True:
            for manager in self.managers:
                if manager.alive and manager.election.next_due_s() <= self.clock():
                    for question in manager.election.due(self.clock()):
                        self.send(manager, question, question.retries)
            times = [manager.election.next_due_s() for manager in self.managers if manager.alive]
            next_s = min([until_s, *times, *(self.events[0][:1] if self.events else ())])
            self.clock.now_s = max(self.clock.now_s, next_s)
            if self.events and self.events[0][0] <= self.clock():
                heapq.heappop(self.events)[2]()
            elif self.clock() >= until_s:
                return

    def send(self, one: Manager, question: Question, retries: int) -> None:
        life = one.election
        to = question.mad[129] if question.mad[1] == 0x81 else question.to.lid
        target = self.managers[to - 1]

        def arrive() -> None:
            if not target.alive or self.drops():
                return
            if question.heard is None:
                self.obey(target, Action.SWEEP)
                return
            came = bytearray(question.mad)
            came[192:194] = bytes([0, self.managers.index(one) + 1])  # the return path
            response, action = target.election.on_sm_info(bytes(came), Address(lid=self.managers.index(one) + 1, qp=0))
            self.obey(target, action)
            if response is not None and not self.drops():
                self.later(0.001, lambda: heard(response))

        open_ = [True]

        def heard(answer: bytes | None) -> None:
            if open_[0] and one.alive and one.election is life:
                open_[0] = False
                assert question.heard is not None
                self.obey(one, question.heard(answer))

        def expire() -> None:
            if open_[0] and retries and one.alive and one.election is life:
                open_[0] = False
                self.send(one, question, retries - 1)
            else:
                heard(None)

        self.later(0.001, arrive)
        if question.heard is not None:
            self.later(question.timeout_ms / 1000, expire)

    def obey(self, one: Manager, action: Action) -> None:
        if action != Action.SWEEP or one.election.state in (STANDBY, NOT_ACTIVE):
            return
        if one.sweeping:
            one.again = True
            return
        one.sweeping = True
        self.later(one.sweep_s, lambda: self.swept(one))

    def swept(self, one: Manager) -> None:
        one.sweeping = False
        if not one.alive:
            return
        was = one.election.state
        result = [self.seen(place) for place, them in enumerate(self.managers, 1) if them.alive and them is not one]
        one.election.found_others(result, Here(lid=self.managers.index(one) + 1))
        if one.election.state == MASTER and was != MASTER:
            one.masterships += 1
        if one.again:
            one.again = False
            self.obey(one, Action.SWEEP)

    def seen(self, place: int) -> OtherSm:
        info = self.managers[place - 1].election.sm_info()
        return OtherSm(
            guid=info.guid, priority=info.priority, state=info.sm_state, path=bytes([place]), lid=place, name=str(place)
        )

    def start(self, one: Manager) -> None:
        one.alive = True
        self.obey(one, Action.SWEEP)
        for them in self.managers:  # IsSM changed: trap 144 to the masters
            if them is not one and them.alive and them.election.state == MASTER:
                self.obey(them, Action.SWEEP)

    def masters(self) -> list[Manager]:
        return [manager for manager in self.managers if manager.alive and manager.election.state == MASTER]

    def best(self) -> Manager:
        return max((one for one in self.managers if one.alive), key=lambda one: one.election.rank)


PRIORITIES = st.lists(st.integers(0, 3), min_size=2, max_size=3)
TIMES = st.floats(0.0, 5.0)


def started(priorities: list[int], times: list[float], drops: Callable[[], bool] = lambda: False) -> Net:
    net = Net(drops)
    for number, (priority, when) in enumerate(zip(priorities, times, strict=False)):
        one = net.add(priority, guid=100 - number, sweep_s=0.03 * (number + 1))
        net.later(when, lambda one=one: net.start(one))  # type: ignore[misc]
    return net


@given(PRIORITIES, st.lists(TIMES, min_size=3, max_size=3))
@settings(max_examples=60)
def test_whenever_they_start_the_highest_ends_up_as_the_only_master(priorities: list[int], times: list[float]) -> None:
    net = started(priorities, times)
    net.run(25.0)
    assert net.masters() == [net.best()]


@given(
    PRIORITIES,
    st.lists(TIMES, min_size=3, max_size=3),
    st.lists(st.booleans(), max_size=60),
    st.lists(st.tuples(st.floats(5.0, 15.0), st.integers(0, 1)), max_size=6),
)
@settings(max_examples=60)
def test_highest_manager_becomes_the_only_master_under_any_loss(
    priorities: list[int], times: list[float], losses: list[bool], deaths: list[tuple[float, int]]
) -> None:
    """And the state then stays stable."""
    lost = iter(losses)
    net = started(priorities, times, lambda: next(lost, False))
    for when, who in deaths:
        net.later(when, lambda who=who: net.kill_or_revive(net.managers[who]))  # type: ignore[misc]
    net.run(16.0)
    for manager in net.managers:
        if not manager.alive:
            net.kill_or_revive(manager)
    net.run(70.0)
    assert net.masters() == [net.best()]
    before = [manager.masterships for manager in net.managers]
    net.run(110.0)
    assert [manager.masterships for manager in net.managers] == before, "ping-pong"


@given(PRIORITIES, st.lists(TIMES, min_size=3, max_size=3), st.floats(0.0, 12.0))
@settings(max_examples=100)
def test_whenever_a_master_dies_there_is_another_in_time(
    priorities: list[int], times: list[float], dies_s: float
) -> None:
    """The limit is 3 s: polls, and a sweep."""
    net = started(priorities, times)
    net.run(6.0 + dies_s)  # all have started by then
    (master,) = net.masters() or [net.best()]
    master.alive = False
    net.run(net.clock() + INTERVAL_S * (RETRIES + 2))
    assert net.masters() == [net.best()]


def test_a_newcomer_that_is_higher_gets_the_subnet_once_and_keeps_it() -> None:
    net = Net()
    low, high = net.add(1, 5), net.add(2, 6)
    net.start(low)
    net.run(3.0)
    assert net.masters() == [low]
    net.start(high)
    net.run(60.0)
    assert net.masters() == [high]
    assert low.masterships == 1
    assert low.election.state == STANDBY


@pytest.mark.parametrize("who", [0, 1])
def test_two_masters_that_meet_become_one(who: int) -> None:
    """Two subnets joined by a cable: each becomes master before it can see the other."""
    net = Net()
    low, high = net.add(1, 5), net.add(2, 6)
    for item in (low, high):
        item.alive = True
        item.election.found_others([])
    assert net.masters() == [low, high]
    net.obey(net.managers[who], Action.SWEEP)
    net.run(5.0)
    assert net.masters() == [high]


def test_nothing_is_due_where_nobody_else_is() -> None:
    bench = Bench(MASTER)
    assert bench.election.next_due_s() == math.inf
    assert bench.ask(100.0) == []


def test_handover_goes_along_the_path_since_lids_of_two_subnets_may_clash() -> None:
    mad, to = tell_sm(other(), SMControl.HANDOVER, SMInfo(guid=1), m_key=3)
    assert (mad[1], to) == (0x81, HERE)
    assert DirectedSmp.m_key.get(mad) == 3
    assert DirectedSmp.initial_path.get(mad)[:3] == bytes([0, 1, 2])


@pytest.mark.parametrize(
    ("options", "m_key", "advice"),
    [
        ({"sm_key": 1}, 0, "give both the same sm_key"),
        ({"sm_key": 1, "m_key": 5}, 5, "give both the same sm_key"),
        ({}, 5, "give both the same m_key_file"),
    ],
)
def test_the_advice_for_managers_that_do_not_trust_each_other_names_the_key(options, m_key, advice) -> None:
    bench = Bench(**options)
    bench.election._m_key = lambda: m_key
    bench.election.found_others([other(state=MASTER, sm_key=2, **HIGHER)])
    assert bench.said[0][1].endswith(f"it is ignored; {advice}")
