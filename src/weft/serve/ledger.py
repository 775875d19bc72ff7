"""The ledger: one writer, for whom the database and the fabric change together or not at all.

    ledger.change("ci", "PUT /partitions/0x0101", edit)       # returns when the fabric has it and it is committed

    BEGIN, lock the revision -> run the edits -> write rows -> write the fabric -> COMMIT -> answer

All changes that wait are done at once (group commit): each edit on the draft that the ones before it left, a failing
one refused alone. If the fabric refuses them together, they are done one by one, so that only the guilty one fails;
if it is silent, all are refused, or the last would wait for as many times as there are.
An edit is therefore run more than once, and must do nothing but change its draft.

With a `DriftWatch` the writer also compares the fabric with the database now and then, and repairs what differs.

Killed before COMMIT, the database has the old state and nobody was answered; killed after it, the new. At its start a
ledger makes the fabric be what the database says; a new one takes over what the fabric has.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from weft.errors import ConfigError, Silent, SubnetError, WeftError
from weft.serve.audit import DONE, AuditLine, Refusals, new_line
from weft.serve.desired import DIRECT, Desired, Draft
from weft.serve.drift import DriftWatch
from weft.serve.store import Store, Transaction
from weft.tenants.drivers.driver import Driver, FabricChangedError
from weft.tenants.partitions import Allocation, Inventory
from weft.tenants.recall import recall, remember
from weft.tenants.reconcile import Names, compare, lines

T = TypeVar("T")
_LOOK_S = 0.2  # what another process has written is seen after this
_FRESH_S = 2.0  # an inventory that is older is asked for again
_MOST_AT_ONCE = 200
_TRIES = 3
log = logging.getLogger("weft.serve")


@dataclass(frozen=True, slots=True)
class _Change(Generic[T]):
    actor: str
    what: str
    edit: Callable[[Draft], T]
    answer: Future[T]


class Ledger:
    """`close` it, or use it with `with`."""

    def __init__(self, store: Store, driver: Driver | None, drift: DriftWatch | None = None) -> None:
        """Without a driver it keeps tokens and users, and refuses partitions."""
        self.store, self.driver, self.drift = store, driver, drift
        self._desired = store.load()
        self._seen = self._inventory = Inventory(())  # as the fabric shows it, and with those that are gone
        self._seen_at_s = -_FRESH_S
        self._known = self._saved = store.known_ports()
        self._at_fabric = threading.RLock()  # one at a time speaks with it
        self._is_unsure = False  # whether the fabric is as the database says
        self._was_away = False  # it did not answer a question, and may come back without what it had
        self._taken: frozenset[int] = frozenset()
        self._waiting: queue.SimpleQueue[_Change[Any] | None] = queue.SimpleQueue()
        self._notes: deque[AuditLine] = deque()  # of what the ledger did by itself
        self._refusals = Refusals()
        self._complaint = ""  # the last one
        try:
            if driver is not None:
                self._begin(driver)
        except BaseException:
            store.close()
            raise
        self._writer = threading.Thread(target=self._live, name="ledger", daemon=True)
        self._writer.start()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """What waits is done first."""
        self._waiting.put(None)
        self._writer.join()
        self.store.close()

    # -- reading ------------------------------------------------------------------------------------------------------

    def desired(self) -> Desired:
        return self._desired

    @property
    def is_well(self) -> bool:
        return self._writer.is_alive()

    def inventory(self) -> Inventory:
        """At most a few seconds old. While the fabric is spoken with, others go on with what is known.

        Ports that are gone are in it: who is down keeps its name, and its members.
        """
        if self.driver is None or time.monotonic() - self._seen_at_s < _FRESH_S:
            return self._inventory
        if self._at_fabric.acquire(blocking=not self._inventory.ports):
            try:
                if time.monotonic() - self._seen_at_s >= _FRESH_S:
                    self._see(self._ask(self.driver.inventory))
            finally:
                self._at_fabric.release()
        return self._inventory

    def _see(self, found: Inventory) -> None:
        if found is not self._seen:
            self._inventory = recall(found, self._known)
            known = remember(self._inventory)
            self._seen, self._known = found, self._known if known == self._known else known
        self._seen_at_s = time.monotonic()

    def draft(self) -> Draft:
        """To try an edit on; nothing of it is kept."""
        return Draft(self._desired, self.inventory, self._taken)

    # -- writing ------------------------------------------------------------------------------------------------------

    def change(self, actor: str, what: str, edit: Callable[[Draft], T]) -> T:
        """What `edit` returns, when it is done; what it raises, or SubnetError if the fabric does not take it."""
        return self.submit(actor, what, edit).result()

    def submit(self, actor: str, what: str, edit: Callable[[Draft], T]) -> Future[T]:
        """The same for who does not wait here. Cancelled before the writer takes it, it never happens."""
        change = _Change(actor, what, edit, Future[T]())
        self._waiting.put(change)
        return change.answer

    def refused(self, actor: str, what: str, reason: str, kind: str = "") -> None:
        """Add a refusal to the audit log; it is written with the next batch, those like it as a count."""
        self._refusals.add(actor, what, f"refused: {reason}", self._desired.revision, kind)

    def _note(self, what: str) -> None:
        """Add to the audit log what the ledger does by itself."""
        self._notes.append(new_line("weft", what, DONE, self._desired.revision))

    def _live(self) -> None:
        while True:
            batch, is_last = self._take()
            batch = [one for one in batch if one.answer.set_running_or_notify_cancel()]
            try:
                if batch or self._notes or self._refusals.is_due():
                    self._carry_out(batch)
                elif self._is_unsure or self._was_away:
                    self._settle()
                    self._note("make the fabric what the ledger says, after doubt")
                elif self.drift is not None and self.driver is not None and self.drift.is_due():
                    self._compare(self.driver, self.drift)
                else:
                    self._look()
            except Exception as error:  # whatever it is, those who wait are told, and the next ones are served
                self._complain(error)
                for one in batch:
                    if not one.answer.done():
                        one.answer.set_exception(error)
            if is_last:
                self._finish()
                return

    def _finish(self) -> None:
        """Write what is left for the audit log."""
        if self._notes or self._refusals.is_due(is_last=True):
            try:
                self._commit([], is_last=True)
            except WeftError as error:
                self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Once, however often it is tried."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            log.warning("the fabric and the database may differ until both answer: %s", error)

    def _take(self) -> tuple[list[_Change[Any]], bool]:
        """All that wait, at least one unless nothing comes for a while; whether they are the last."""
        batch: list[_Change[Any]] = []
        try:
            found = self._waiting.get(timeout=_LOOK_S)
            while found is not None:
                batch.append(found)
                if len(batch) == _MOST_AT_ONCE:
                    return batch, False
                found = self._waiting.get_nowait()
        except queue.Empty:
            return batch, False
        return batch, True

    def _look(self) -> None:
        """Has another process written?"""
        if self.store.revision() != self._desired.revision:
            self._desired = self.store.load()
        if self._known is not self._saved:
            with self.store.writing() as transaction:
                self._remember(transaction)

    def _remember(self, transaction: Transaction) -> None:
        """With what is written else on this transaction, which is committed here."""
        known = self._known
        transaction.remember(self._saved, known)
        transaction.commit()
        self._saved = known

    def _carry_out(self, batch: list[_Change[Any]]) -> None:
        try:
            done = self._commit(batch)
        except WeftError as error:
            if len(batch) > 1 and not isinstance(error, Silent):
                for one in batch:
                    self._carry_out([one])
                return
            for one in batch:  # without any they were notes alone, which stay for the next time
                self.refused(one.actor, one.what, str(error))
                one.answer.set_exception(error)
            return
        for one, (result, refusal) in zip(batch, done, strict=True):
            if refusal is not None:
                self.refused(one.actor, one.what, str(refusal))
                one.answer.set_exception(refusal)
            else:
                one.answer.set_result(result)

    def _commit(self, batch: list[_Change[Any]], is_last: bool = False) -> list[tuple[Any, Exception | None]]:
        with self.store.writing() as transaction:
            before = self._desired if transaction.revision == self._desired.revision else transaction.load()
            after, done, forgotten = before, list[tuple[Any, Exception | None]](), set[int]()
            notes, refusals, changes = [*self._notes], self._refusals.take(is_last=is_last), list[AuditLine]()
            try:
                for one in batch:
                    draft = Draft(after, self.inventory, self._taken)
                    after, result, refusal = _run(one, draft)
                    forgotten |= draft.forgotten
                    done.append((result, refusal))
                    if refusal is None:
                        changes.append(new_line(one.actor, one.what, DONE, after.revision))
                self._write(transaction, before, after, [*notes, *refusals, *changes], forgotten)
            except BaseException:
                self._refusals.put_back(refusals)
                raise
        for _ in notes:
            self._notes.popleft()
        self._desired = after
        return done

    def _write(
        self, transaction: Transaction, before: Desired, after: Desired, lines: list[AuditLine], forgotten: set[int]
    ) -> None:
        transaction.save(before, after)
        transaction.audit(lines)
        if after is not before and (self._is_unsure or after.allocation() != before.allocation()):
            self._program(after.allocation())
        self._forget(forgotten)
        sure, self._is_unsure = not self._is_unsure, True  # a commit that fails may yet have happened
        self._remember(transaction)
        self._is_unsure = not sure

    def _forget(self, guids: set[int]) -> None:
        if guids:
            with self._at_fabric:
                self._known = {guid: port for guid, port in self._known.items() if guid not in guids}
                left = tuple(port for port in self._inventory.ports if port.guid not in guids)
                self._inventory = replace(self._inventory, ports=left)

    # -- the fabric ---------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except SubnetError:
            self._was_away = True
            raise

    def _program(self, wanted: Allocation) -> None:
        """The database is right: what others have changed meanwhile is changed back."""
        if self.driver is None:
            raise SubnetError("this ledger has no fabric to write to: start it with weft serve")
        with self._at_fabric:
            for tried in range(1, _TRIES + 1):
                observed = self._ask(self.driver.read)
                self._taken = observed.taken
                self._is_unsure = True  # until it has answered
                try:
                    # Also if there is nothing to change: an order that nobody waited for any more may come only now.
                    self.driver.write(wanted, over=observed)
                    break
                except FabricChangedError:
                    if tried == _TRIES:
                        raise
            self._is_unsure = self._was_away = False

    def _compare(self, driver: Driver, drift: DriftWatch) -> None:
        """Look for differences between the fabric and the database; repair them, unless it is to report only."""
        drift.begin()
        try:
            with self._at_fabric:
                plan = compare(self._ask(driver.read).allocation, self._desired.allocation())
                told = [f"{driver.title}: {line.strip()}" for line in lines(plan, Names(self._inventory))]
                checked = self._ask(lambda: driver.check(repair=False))
                found = [*told, *checked.differences]
                is_changing = self.store.revision() != self._desired.revision  # by another process, with the fabric
                drift.found(drift.differences if is_changing else found, checked.repaired)
                if found and drift.repairs and not is_changing:
                    self._repair(driver, drift, is_told=plan.is_empty)
        except WeftError as error:
            drift.failed(error)
            raise
        finally:
            drift.end()

    def _repair(self, driver: Driver, drift: DriftWatch, *, is_told: bool) -> None:
        """`is_told`: the subnet manager knows what the database says, and its ports do not hold it."""
        if not is_told:
            self._settle()
        driver.check(repair=True)
        checked = driver.check(repair=False)
        if not checked.differences:
            self._note(f"repair {len(drift.differences):,} differences: {drift.differences[0]}")
            drift.found((), checked.repaired)

    def _settle(self) -> None:
        """Make the fabric be what the database says."""
        with self.store.writing() as transaction:  # nobody else writes meanwhile
            self._desired = transaction.load()
            self._program(self._desired.allocation())

    def _begin(self, driver: Driver) -> None:
        title = driver.title
        if self._desired.fabric == title:
            return self._settle()
        if self._desired.fabric:
            raise ConfigError(
                f"the ledger {self.store.title} is of {self._desired.fabric}, and this is {title}: name another with "
                "--database"
            )
        return self._take_over(driver, title)

    def _take_over(self, driver: Driver, title: str) -> None:
        observed = driver.read()
        self._taken, found = observed.taken, observed.allocation
        with self.store.writing() as transaction:
            before = transaction.load()
            self._desired = replace(
                before,
                revision=before.revision + 1,
                fabric=title,
                partitions=dict(found.partitions),
                owners=dict.fromkeys(found.partitions, DIRECT),
                default_is_full=found.default_is_full,
                lanes=found.lanes,
            )
            transaction.save(before, self._desired)
            transaction.audit([new_line("weft", f"take over what {title} has", DONE, self._desired.revision)])
            transaction.commit()


def _run(change: _Change[Any], draft: Draft) -> tuple[Desired, Any, Exception | None]:
    try:
        result = change.edit(draft)
        return draft.sealed(), result, None
    except Exception as refusal:
        return draft.before, None, refusal
