"""A standby's copy of what the master knows and no port does, so that a takeover loses nothing.

    multicast groups, services, subscriptions to events      asked of the master's SA every few seconds
    LIDs, forwarding tables, P_Keys                          in the devices: found by the sweep of the new master

Nothing but queries of the standard is used, so the master may be OpenSM. They are trusted ones, which give members and
keys too: both managers need the same sa_key, or the same m_key_file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from weft.mad.carrier import Address
from weft.sm.discovery.view import View
from weft.sm.events import Event
from weft.sm.inform.subscriptions import Subscriptions
from weft.sm.mcast.groups import Groups
from weft.sm.sminfo.sm_info import Action, OtherSm, Question
from weft.sm.state import Services, State
from weft.wire.format import Malformed
from weft.wire.mad import Method
from weft.wire.sa import SA_HEADER_BYTES, InformInfoRecord, MCMemberRecord, SaAttribute, SaMad, SaStatus, ServiceRecord
from weft.wire.sa_query import F, unpack_records

_TIMEOUT_MS, _RETRIES, _INTERVAL_S = 1000, 1, 2.0
_WORTH_SAYING = 3
_COPIED = {  # by their place in a Replica
    SaAttribute.MC_MEMBER_RECORD: "groups",
    SaAttribute.SERVICE_RECORD: "services",
    SaAttribute.INFORM_INFO_RECORD: "subscriptions",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A copy of the tables of the master's SA; None for a table that was never received."""

    groups: tuple[MCMemberRecord, ...] | None = None  # one for each member
    services: tuple[ServiceRecord, ...] | None = None
    services_s: float = 0.0  # when they came: leases run
    subscriptions: tuple[InformInfoRecord, ...] | None = None

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of groups, services and subscriptions."""
        groups = {record.mgid for record in self.groups or ()}
        return len(groups), len(self.services or ()), len(self.subscriptions or ())


class Replication:
    """A replica that is kept up to date while there is a master; like `Election`, it neither sends nor waits."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        say: Callable[[Event, str], None],
        sa_key: Callable[[], int],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.replica = Replica()
        self._clock, self._say, self._sa_key = clock, say, sa_key
        self._changed = changed  # called when there is more or less to show
        self._next_s = -math.inf
        self._failures: Counter[int] = Counter()  # consecutive failures of an attribute

    def due(self, now_s: float, master: OtherSm | None) -> list[Question]:
        """Return the queries to send now; `master` is `Election.master`."""
        if master is None or not master.lid or now_s < self._next_s:
            return []
        self._next_s = now_s + _INTERVAL_S
        return [self._ask(master, attribute) for attribute in _COPIED]

    def take(self) -> Replica:
        """Return the replica for a takeover, and start an empty one for the next master."""
        replica, self.replica = self.replica, Replica()
        return replica

    def next_due_s(self, master: OtherSm | None) -> float:
        return math.inf if master is None or not master.lid else self._next_s

    def _ask(self, master: OtherSm, attribute: SaAttribute) -> Question:
        return Question(
            mad=SaMad.pack(method=Method.GET_TABLE, attribute_id=attribute, sm_key=self._sa_key()),
            to=Address(lid=master.lid),
            timeout_ms=_TIMEOUT_MS,
            retries=_RETRIES,
            heard=partial(self._on_answer, master, attribute),
        )

    def _on_answer(self, master: OtherSm, attribute: SaAttribute, answer: bytes | None) -> Action:
        """Store a table; a missing or malformed answer leaves the copy as it was. A dead master is not logged here."""
        try:
            if answer is not None:
                before = self.replica.counts
                came: dict[str, Any] = {_COPIED[attribute]: records_in(answer, attribute.form)}
                if attribute is SaAttribute.SERVICE_RECORD:
                    came["services_s"] = self._clock()
                self.replica = replace(self.replica, **came)
                self._failures[attribute] = 0
                if self.replica.counts != before:
                    self._changed()
                return Action.NOTHING
            fault = "does not answer: give both the same sa_key"
        except Malformed as error:
            fault = f"answers what cannot be read: {error}"
        self._failures[attribute] += 1
        if self._failures[attribute] == _WORTH_SAYING:
            self._say(Event.OTHER_SM, f"{master}, asked for its {attribute.name}s, {fault}")
        return Action.NOTHING


def records_in(answer: bytes, form: type[F]) -> tuple[F, ...]:
    """Return the records of an answer to GetTable; raise Malformed if it is an error, or no such table."""
    status = SaMad.status.get(answer)
    if status == SaStatus.NO_RECORDS:
        return ()
    if status != SaStatus.OK:
        raise Malformed(f"status {status:#06x}")
    offset = SaMad.attribute_offset.get(answer)
    records = unpack_records(form, answer[SA_HEADER_BYTES:], offset) if offset else []
    return tuple(record for record in records if any(record.raw))  # a MAD that came without its length is padded


def load_replica(state: State, view: View, copy: Replica) -> None:
    """Continue with the previous master's tables; those from our own earlier time as master are outdated."""
    if copy.groups is not None:
        state.groups = Groups()
        state.groups.load_records(copy.groups, view)
    if copy.services is not None:
        state.services = Services()
        state.services.load_records(copy.services, copy.services_s)
        state.services.expire(state.clock())
    if copy.subscriptions is not None:
        state.subscriptions = Subscriptions()
        state.subscriptions.load_records(copy.subscriptions, view)
