"""Elect the master among subnet managers: the state machine of each manager.

    DISCOVERING   a sweep is under way; at its end     a master is there, or a higher one -> STANDBY; else MASTER
    STANDBY       asks the master again and again      it is silent -> DISCOVERING; it hands over -> MASTER
    MASTER        sets up the subnet                   a higher one is there: hands over -> STANDBY
                                                       a lower master is there: waits for it to hand over
    NOT_ACTIVE    only answers                         a master says STANDBY -> STANDBY

A manager is higher if its priority is greater or, at equal priority, its GUID lower. (InfiniBand Architecture volume 1,
"Subnet Manager state machine"; where it leaves a choice this follows OpenSM, osm_sm_state_mgr.c, osm_sminfo_rcv.c.)

There is no thread and no socket here: `due` says what to ask now, `Question.heard` takes the answer, `on_sm_info` what
others ask, and each says by an `Action` what to do next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

from weft.mad.carrier import Address
from weft.sm.conf.options import Options
from weft.sm.events import Event
from weft.sm.protection import sm_key_of
from weft.sm.sminfo.sm_info import (
    Action,
    Here,
    OtherSm,
    Question,
    ask_sm,
    described,
    priority_trap,
    requester,
    respond,
    sm_info_in,
    tell_sm,
)
from weft.wire.mad import Method, Status
from weft.wire.smp import SMControl, SMInfo, Smp, SMState

_LOOK_ROUND = 10  # poll intervals between two looks of a master at the others
_ASK_SILENT_S = 1.0  # until a manager that did not answer is asked again; doubled up to a look round
_REMIND_S = 5.0  # between two traps to a master that should hand over
_TIMEOUT_S = 30.0  # with a lower master that does not; and how long one that refused is left alone
_HANDOVER_RETRIES = 2
_rank = attrgetter("rank")

_ACTIVE = (SMState.DISCOVERING, SMState.STANDBY, SMState.MASTER)


@dataclass(slots=True)
class _Watch:
    """The one that is asked at every interval: a standby's master, or the master for whose handover a master waits."""

    other: OtherSm
    since_s: float
    next_s: float
    by_path: bool
    misses: int = 0


class Election:
    """The election state of a subnet manager among others."""

    def __init__(
        self,
        options: Options,
        *,
        guid: int,
        clock: Callable[[], float],
        say: Callable[[Event, str], None],
        mads_sent: Callable[[], int] = lambda: 0,
        m_key: Callable[[], int] | None = None,
    ) -> None:
        """Set up the election; `m_key` returns the current key, which may be made later, else that of the options."""
        self.options, self.poll_interval_s = options, options.sminfo_polling_timeout_ms / 1000
        self.guid, self.priority, self.sm_key = guid, options.sm_priority, options.sm_key
        self._m_key = m_key or (lambda: options.m_key)
        self.state = SMState.NOT_ACTIVE if options.sm_inactive else SMState.DISCOVERING
        self.others: tuple[OtherSm, ...] = ()  # from the last discovery, updated since
        self._clock, self._say, self._mads_sent = clock, say, mads_sent
        self._here = Here()
        self._questions = 0  # that were sent
        self._waiting: list[Question] = []  # to be sent
        self._watch: _Watch | None = None
        self._handing: OtherSm | None = None  # handover sent, no response yet
        self._shunned: dict[int, float] = {}  # GUIDs that did not do as they should, and until when they are no one
        self._look_round_s = self._remind_s = -math.inf
        self._silent: tuple[OtherSm, ...] = ()  # ports with the IsSM bit whose manager did not answer the last sweep
        self._ask_silent_s, self._silent_wait_s = math.inf, 0.0

    @property
    def state_word(self) -> str:
        """The state as status files and clients read it: master, standby, not-active."""
        return self.state.name.lower().replace("_", "-")

    @property
    def m_key(self) -> int:
        return self._m_key()

    def _sm_key_of(self, guid: int, priority: int) -> int:
        """Return the SM_Key of a trusted manager; 0 accepts any. An M_Key that weft made proves more."""
        m_key = self.m_key
        return sm_key_of(m_key, guid, priority) if m_key and not self.options.m_key else self.sm_key

    def _trusts(self, other: OtherSm) -> bool:
        key = self._sm_key_of(other.guid, other.priority)
        return not key or other.sm_key == key

    @property
    def rank(self) -> tuple[int, int]:
        return self.priority, -self.guid

    @property
    def master(self) -> OtherSm | None:
        """The manager that we are standby to, usually the master; None if there is none."""
        return self._watch.other if self._watch is not None and self.state == SMState.STANDBY else None

    @property
    def lacks_lids(self) -> bool:
        """The property that the master was discovered before it assigned LIDs: without them it cannot be queried."""
        return self.master is not None and not (self.master.lid and self._here.lid)

    def has_lids(self, master_lid: int, own_lid: int) -> None:
        """Record the LIDs that our own port now has."""
        self._here = replace(self._here, lid=own_lid)
        if self._watch is not None and not self._watch.other.lid:
            self._watch.other = replace(self._watch.other, lid=master_lid)

    def sm_info(self, state: SMState | None = None) -> SMInfo:
        return SMInfo(
            guid=self.guid,
            sm_key=self._sm_key_of(self.guid, self.priority),
            act_count=(self._mads_sent() + self._questions) & 0xFFFF_FFFF,  # grows as long as we do something
            priority=self.priority,
            sm_state=self.state if state is None else state,
        )

    # -- after a discovery ------------------------------------------------------------------------------------------

    def found_others(
        self, others: Sequence[OtherSm], here: Here | None = None, silent: Sequence[OtherSm] = ()
    ) -> Action:
        """CONFIGURE if the subnet is ours to set up; anything else: leave it as it is.

        `silent` managers may have been as busy as we were, and be masters too: each is asked again, soon at first.
        """
        self._here = here or self._here
        self._set_silent(tuple(silent))
        if self.state not in (SMState.DISCOVERING, SMState.MASTER):
            return Action.NOTHING
        self.others = () if self.options.ignore_other_sm else tuple(other for other in others if self._admits(other))
        masters = [other for other in self.others if other.state == SMState.MASTER]
        if self.state == SMState.MASTER:
            return self._found_as_master(masters)
        above = masters or [other for other in self.others if other.state in _ACTIVE and other.rank > self.rank]
        if above:
            return self._stand_behind(max(above, key=_rank))
        self._enter(SMState.MASTER, "there is no other master and no manager of higher priority")
        return Action.CONFIGURE

    def _set_silent(self, silent: tuple[OtherSm, ...]) -> None:
        if {manager.guid for manager in silent} - {manager.guid for manager in self._silent}:
            self._silent_wait_s = _ASK_SILENT_S
            self._ask_silent_s = self._clock() + _ASK_SILENT_S
        self._silent = silent

    def _found_as_master(self, masters: list[OtherSm]) -> Action:
        if self._handing is not None:
            return Action.NOTHING
        above = [other for other in self.others if self._should_take_over(other)]
        if above:
            return self._hand_over(max(above, key=_rank))
        below = [other for other in masters if not self._shuns(other)]
        if below:
            return self._wait_for(max(below, key=_rank))
        self._watch = None
        return Action.CONFIGURE

    def _admits(self, other: OtherSm) -> bool:
        if other.guid == self.guid:
            return False
        if not self._trusts(other):
            both = "sm_key" if self.options.m_key or not self.m_key else "m_key_file"
            self._say(Event.OTHER_SM, f"{other} has another SM_Key than ours: it is ignored; give both the same {both}")
            return False
        return True

    def _should_take_over(self, other: OtherSm) -> bool:
        """Return whether another manager should be master. One that is DISCOVERING will find us and become STANDBY."""
        ready = other.state in (SMState.STANDBY, SMState.MASTER)
        return ready and other.rank > self.rank and not self._shuns(other)

    def _shuns(self, other: OtherSm) -> bool:
        return self._shunned.get(other.guid, -math.inf) > self._clock()

    # -- from state to state ----------------------------------------------------------------------------------------

    def _enter(self, state: SMState, why: str) -> None:
        self.state, self._watch, self._handing = state, None, None
        if state == SMState.MASTER:
            self._look_round_s = self._clock() + self.poll_interval_s
        self._say(Event.SM_STATE, f"{state.name.replace('_', '-')}: {why}")

    def _stand_behind(self, other: OtherSm) -> Action:
        self._enter(SMState.STANDBY, f"{other} is {'master' if other.state == SMState.MASTER else 'above us'}")
        self._watch = self._new_watch(other)
        return Action.STAND_BY

    def _discover(self, why: str) -> Action:
        self._enter(SMState.DISCOVERING, why)
        return Action.SWEEP

    def _hand_over(self, other: OtherSm) -> Action:
        self._say(Event.HANDOVER, f"to {other}, which is above us")
        self._handing, self._watch = other, None
        mad, to = tell_sm(other, SMControl.HANDOVER, self.sm_info(), m_key=self.m_key)
        self._ask(mad, to, partial(self._on_handover_answer, other), retries=_HANDOVER_RETRIES)
        return Action.NOTHING

    def _wait_for(self, other: OtherSm) -> Action:
        """Wait for a lower master after two subnets were joined: it must release its part first."""
        if self._watch is not None and self._watch.other.guid == other.guid:
            self._watch.other = other
        else:
            self._say(Event.OTHER_SM, f"{other} is master too: waiting for it to hand over")
            self._watch = self._new_watch(other)
            self._remind(other)
        return Action.NOTHING

    def _new_watch(self, other: OtherSm) -> _Watch:
        now_s = self._clock()
        return _Watch(other, since_s=now_s, next_s=now_s, by_path=not other.lid)

    def _shun(self, other: OtherSm, why: str) -> Action:
        self._say(Event.OTHER_SM, f"{other} {why}: we stay master, and leave it alone for {_TIMEOUT_S:.0f} s")
        self._shunned[other.guid] = self._clock() + _TIMEOUT_S
        self._watch = self._handing = None
        return Action.SWEEP

    def _remind(self, other: OtherSm) -> None:
        now_s = self._clock()
        if other.lid and self._here.lid and now_s >= self._remind_s:
            self._remind_s = now_s + _REMIND_S
            self._waiting.append(priority_trap(other, self._here, self._questions + 1))

    # -- what we ask ------------------------------------------------------------------------------------------------

    def due(self, now_s: float) -> list[Question]:
        """Return the queries to send now."""
        watch = self._watch
        if watch is not None and now_s >= watch.next_s:
            watch.next_s = now_s + self.poll_interval_s
            mad, to = ask_sm(watch.other, by_path=watch.by_path)
            self._ask(mad, to, partial(self._on_watched, watch))
        if self.state == SMState.MASTER and now_s >= self._look_round_s:
            self._look_round_s = now_s + _LOOK_ROUND * self.poll_interval_s
            for other in self.others:
                mad, to = ask_sm(other, by_path=other.path is not None)
                self._ask(mad, to, partial(self._on_look_round, other))
        if self.state == SMState.MASTER and self._silent and now_s >= self._ask_silent_s:
            self._silent_wait_s = min(2 * self._silent_wait_s, _LOOK_ROUND * self.poll_interval_s)
            self._ask_silent_s = now_s + self._silent_wait_s
            for other in self._silent:
                mad, to = ask_sm(other, by_path=True)
                self._ask(mad, to, self._on_silent)
        questions, self._waiting = self._waiting, []
        self._questions += len(questions)
        return questions

    def next_due_s(self) -> float:
        """Return when `due` has queries again; `math.inf` if it waits for an answer or an arrival."""
        watched_s = self._watch.next_s if self._watch is not None else math.inf
        looks_s = self._look_round_s if self.state == SMState.MASTER and self.others else math.inf
        silent_s = self._ask_silent_s if self.state == SMState.MASTER and self._silent else math.inf
        return -math.inf if self._waiting else min(watched_s, looks_s, silent_s)

    def _ask(self, mad: bytes, to: Address, heard: Callable[[bytes | None], Action], retries: int = 0) -> None:
        timeout_ms = round(1000 * self.poll_interval_s)
        self._waiting.append(Question(mad=mad, to=to, timeout_ms=timeout_ms, retries=retries, heard=heard))

    def _on_handover_answer(self, other: OtherSm, answer: bytes | None) -> Action:
        """Take any answer as ACKNOWLEDGE, which OpenSM never sends."""
        if self._handing is not other:
            return Action.NOTHING
        if sm_info_in(answer, other.guid) is None:
            return self._shun(other, "did not take over" if answer is None else "refused to take over")
        return self._stand_behind(replace(other, state=SMState.MASTER))

    def _on_look_round(self, other: OtherSm, answer: bytes | None) -> Action:
        """Check whether another manager is master too, or has a higher rank now."""
        info = sm_info_in(answer, other.guid)
        if info is None or self.state != SMState.MASTER or self._watch is not None or self._handing is not None:
            return Action.NOTHING
        now = described(info, path=other.path, lid=other.lid, name=other.name)
        self.others = tuple(now if manager.guid == now.guid else manager for manager in self.others)
        if not self._trusts(now):
            return Action.NOTHING
        two_masters = now.state == SMState.MASTER and not self._shuns(now)
        return Action.SWEEP if two_masters or self._should_take_over(now) else Action.NOTHING

    def _on_silent(self, answer: bytes | None) -> Action:
        """Sweep if a manager that did not answer the last sweep answers now: it may be a master too."""
        return Action.NOTHING if answer is None else Action.SWEEP

    def _on_watched(self, watch: _Watch, answer: bytes | None) -> Action:
        if watch is not self._watch:
            return Action.NOTHING
        before, info = watch.other, sm_info_in(answer, watch.other.guid)
        if info is not None:
            watch.other = described(info, path=before.path, lid=before.lid, name=before.name)
        if self.state == SMState.MASTER:
            return self._on_other_master(watch, info)
        is_above, state = watch.other.rank > self.rank, None if info is None else info.sm_state
        if state == SMState.STANDBY and before.state == SMState.MASTER:
            return self._discover(f"{before} is not master any more")
        if state == SMState.MASTER or (state in _ACTIVE and is_above):
            watch.misses = 0
            if not is_above:
                self._remind(watch.other)
            return Action.NOTHING
        return self._discover(f"{before} is gone") if self._missed(watch) else Action.NOTHING

    def _on_other_master(self, watch: _Watch, info: SMInfo | None) -> Action:
        """Check the manager that is to hand over to us."""
        if info is None:
            return self._stop_waiting() if self._missed(watch) else Action.NOTHING
        watch.misses = 0
        if info.sm_state != SMState.MASTER or watch.other.rank > self.rank:
            return self._stop_waiting()
        if self._clock() - watch.since_s >= _TIMEOUT_S:
            return self._shun(watch.other, "is master too, and does not hand over")
        self._remind(watch.other)
        return Action.NOTHING

    def _stop_waiting(self) -> Action:
        self._watch = None
        return Action.SWEEP

    def _missed(self, watch: _Watch) -> bool:
        """Count a missing or wrong answer. The interval before the first one was silent too."""
        watch.misses += 1
        if watch.other.path is not None and watch.other.lid:
            watch.by_path = not watch.by_path
        return 1 + watch.misses >= self.options.polling_retry_number

    # -- what others ask --------------------------------------------------------------------------------------------

    def on_sm_info(self, mad: bytes, source: Address) -> tuple[bytes | None, Action]:
        """Return the response to post, None for none, and the action."""
        method, own = Smp.method.get(mad), self.sm_info()
        if method == Method.GET:
            return respond(mad, own), Action.NOTHING
        if method != Method.SET or (self.m_key and Smp.m_key.get(mad) != self.m_key):
            return None, Action.NOTHING
        action = self._obey(Smp.attribute_modifier.get(mad), requester(mad, source))
        if action is None:
            return respond(mad, own, Status.INVALID_FIELD), Action.NOTHING
        return respond(mad, own), action

    def _obey(self, control: int, other: OtherSm) -> Action | None:
        """Execute a control; return None if its sender may not send it, or it has no meaning in this state."""
        may = SMState.STANDBY if control == SMControl.ACKNOWLEDGE else SMState.MASTER
        if other.state != may or not self._trusts(other):
            return None
        match self.state, control:
            case SMState.DISCOVERING, SMControl.HANDOVER:
                return Action.SWEEP  # again: this time it is not master
            case SMState.STANDBY, SMControl.HANDOVER:
                return self._take_over(other)
            case SMState.MASTER, SMControl.HANDOVER:
                self._acknowledge(other)
                return self._stop_waiting()
            case SMState.STANDBY, SMControl.ACKNOWLEDGE:
                return Action.NOTHING
            case SMState.MASTER, SMControl.ACKNOWLEDGE if self._handing and self._handing.guid == other.guid:
                return self._stand_behind(replace(self._handing, state=SMState.MASTER))
            case SMState.STANDBY, SMControl.DISABLE:
                self._enter(SMState.NOT_ACTIVE, f"at the request of {other}")
                return Action.NOTHING
            case SMState.STANDBY, SMControl.DISCOVER:
                return self._discover(f"at the request of {other}")
            case SMState.NOT_ACTIVE, SMControl.STANDBY:
                return self._stand_behind(other)
        return None

    def _take_over(self, other: OtherSm) -> Action:
        self._say(Event.HANDOVER, f"from {other}")
        self._acknowledge(other)
        self._enter(SMState.MASTER, f"{other} handed over")
        return Action.SWEEP

    def _acknowledge(self, other: OtherSm) -> None:
        """Send ACKNOWLEDGE, which must come from a standby."""
        mad, to = tell_sm(other, SMControl.ACKNOWLEDGE, self.sm_info(SMState.STANDBY), m_key=self.m_key)
        self._ask(mad, to, lambda answer: Action.NOTHING)
