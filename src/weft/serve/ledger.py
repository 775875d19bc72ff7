"""The ledger: a single writer that changes the database and the fabric together, or neither.

    ledger.change("ci", "PUT /partitions/0x0101", edit)       # returns when it is applied to the fabric and committed

    BEGIN, lock the revision -> run the edits -> write rows -> write the fabric -> COMMIT -> answer

Waiting changes are applied together (group commit): each edit runs on the draft of the previous ones, and an edit that
fails is refused alone. If the fabric refuses the batch, the changes are applied one by one, so that only the faulty one
fails; if the fabric does not answer, all are refused, to avoid a timeout for each. An edit may therefore run more than
once, and must only change its draft.

With a `DriftWatch` the writer also compares the fabric with the database periodically, and repairs differences.

If the process is killed before COMMIT, the database has the old state and no caller got an answer; after it, the new
state. At its start a ledger applies the database to the fabric; a new one imports the state of the fabric.
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

from weft.errors import ConfigError, NoResponseError, SubnetError, WeftError
from weft.serve.audit import DONE, AuditLine, Refusals, new_line
from weft.serve.desired import DIRECT, Desired, Draft
from weft.serve.drift import DriftWatch
from weft.serve.store import Store, Transaction
from weft.tenants.drivers.driver import Driver, FabricChangedError
from weft.tenants.partitions import Allocation, Inventory
from weft.tenants.recall import recall, remember
from weft.tenants.reconcile import Names, compare, lines

T = TypeVar("T")
_REFRESH_S = 0.2  # delay until changes by other processes are seen
_FRESH_S = 2.0  # an older inventory is read again
_MOST_AT_ONCE = 200
_TRIES = 3
log = logging.getLogger("weft.serve")


@dataclass(frozen=True, slots=True)
class _Change(Generic[T]):
    """A change that waits for the writer."""

    actor: str
    summary: str
    edit: Callable[[Draft], T]
    answer: Future[T]


class Ledger:
    """The single writer of the database and the fabric. Close it, or use it as a context manager."""

    def __init__(self, store: Store, driver: Driver | None, drift: DriftWatch | None = None) -> None:
        """Open a ledger. Without a driver it stores tokens and users, and refuses changes of partitions."""
        self.store, self.driver, self.drift = store, driver, drift
        self._desired = store.load()
        # As read from the fabric; with known ports that are down
        self._fabric_inventory = self._inventory = Inventory(())
        self._read_at_s = -_FRESH_S
        self._known = self._saved = store.known_ports()
        self._fabric_lock = threading.RLock()  # one thread at a time accesses the fabric
        self._may_differ = False  # the fabric may differ from the database
        self._did_not_answer = False  # the fabric did not answer, and may have lost its state
        self._foreign_p_keys: frozenset[int] = frozenset()
        self._waiting: queue.SimpleQueue[_Change[Any] | None] = queue.SimpleQueue()
        self._notes: deque[AuditLine] = deque()  # audit lines of the ledger's own actions
        self._refusals = Refusals()
        self._warning = ""  # the last warning
        try:
            if driver is not None:
                self._connect(driver)
        except BaseException:
            store.close()
            raise
        self._writer = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._writer.start()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Apply the waiting changes, then close the database."""
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
        """Return the ports, at most a few seconds old (older while another thread accesses the fabric).

        Known ports that are down are included, so that they keep their names and memberships.
        """
        if self.driver is None or time.monotonic() - self._read_at_s < _FRESH_S:
            return self._inventory
        if self._fabric_lock.acquire(blocking=not self._inventory.ports):
            try:
                if time.monotonic() - self._read_at_s >= _FRESH_S:
                    self._set_inventory(self._query(self.driver.inventory))
            finally:
                self._fabric_lock.release()
        return self._inventory

    def _set_inventory(self, inventory: Inventory) -> None:
        if inventory is not self._fabric_inventory:
            self._inventory = recall(inventory, self._known)
            ports = remember(self._inventory)
            self._fabric_inventory, self._known = inventory, self._known if ports == self._known else ports
        self._read_at_s = time.monotonic()

    def draft(self) -> Draft:
        """Return a draft for trying an edit; it is not applied."""
        return Draft(self._desired, self.inventory, self._foreign_p_keys)

    # -- writing ------------------------------------------------------------------------------------------------------

    def change(self, actor: str, summary: str, edit: Callable[[Draft], T]) -> T:
        """Apply an edit and return its result. Raise its exception, or SubnetError if the fabric refuses the change."""
        return self.submit(actor, summary, edit).result()

    def submit(self, actor: str, summary: str, edit: Callable[[Draft], T]) -> Future[T]:
        """Submit an edit without waiting. Cancelling the future before the writer starts it withdraws the change."""
        change = _Change(actor, summary, edit, Future[T]())
        self._waiting.put(change)
        return change.answer

    def refused(self, actor: str, summary: str, reason: str, kind: str = "") -> None:
        """Add a refusal to the audit log. It is written with the next batch; equal refusals are counted."""
        self._refusals.add(actor, summary, f"refused: {reason}", self._desired.revision, kind)

    def _note(self, summary: str) -> None:
        """Add an action of the ledger itself to the audit log."""
        self._notes.append(new_line("weft", summary, DONE, self._desired.revision))

    def _run(self) -> None:
        while True:
            batch, is_last = self._take()
            batch = [change for change in batch if change.answer.set_running_or_notify_cancel()]
            try:
                if batch or self._notes or self._refusals.is_due():
                    self._apply(batch)
                elif self._may_differ or self._did_not_answer:
                    self._apply_all()
                    self._note("apply the ledger to the fabric again after an error")
                elif self.drift is not None and self.driver is not None and self.drift.is_due():
                    self._compare(self.driver, self.drift)
                else:
                    self._refresh()
            except Exception as error:  # report it to the waiting callers, and continue
                self._warn(error)
                for change in batch:
                    if not change.answer.done():
                        change.answer.set_exception(error)
            if is_last:
                self._finish()
                return

    def _finish(self) -> None:
        """Write the remaining lines of the audit log."""
        if self._notes or self._refusals.is_due(is_last=True):
            try:
                self._commit([], is_last=True)
            except WeftError as error:
                self._warn(error)

    def _warn(self, error: Exception) -> None:
        """Log a warning, once while the error stays the same."""
        if str(error) != self._warning:
            self._warning = str(error)
            log.warning("the fabric may differ from the database until both answer: %s", error)

    def _take(self) -> tuple[list[_Change[Any]], bool]:
        """Wait for changes; return all waiting ones, and whether the ledger is being closed."""
        batch: list[_Change[Any]] = []
        try:
            change = self._waiting.get(timeout=_REFRESH_S)
            while change is not None:
                batch.append(change)
                if len(batch) == _MOST_AT_ONCE:
                    return batch, False
                change = self._waiting.get_nowait()
        except queue.Empty:
            return batch, False
        return batch, True

    def _refresh(self) -> None:
        """Load changes that another process has written, and store new ports."""
        if self.store.revision() != self._desired.revision:
            self._desired = self.store.load()
        if self._known is not self._saved:
            with self.store.writing() as transaction:
                self._remember(transaction)

    def _remember(self, transaction: Transaction) -> None:
        """Store known ports and commit the transaction."""
        ports = self._known
        transaction.remember(self._saved, ports)
        transaction.commit()
        self._saved = ports

    def _apply(self, batch: list[_Change[Any]]) -> None:
        try:
            done = self._commit(batch)
        except WeftError as error:
            if len(batch) > 1 and not isinstance(error, NoResponseError):
                for change in batch:
                    self._apply([change])
                return
            for change in batch:  # an empty batch had only notes, which stay queued
                self.refused(change.actor, change.summary, str(error))
                change.answer.set_exception(error)
            return
        for change, (result, refusal) in zip(batch, done, strict=True):
            if refusal is not None:
                self.refused(change.actor, change.summary, str(refusal))
                change.answer.set_exception(refusal)
            else:
                change.answer.set_result(result)

    def _commit(self, batch: list[_Change[Any]], is_last: bool = False) -> list[tuple[Any, Exception | None]]:
        with self.store.writing() as transaction:
            before = self._desired if transaction.revision == self._desired.revision else transaction.load()
            after, done, forgotten = before, list[tuple[Any, Exception | None]](), set[int]()
            notes, refusals, changes = [*self._notes], self._refusals.take(is_last=is_last), list[AuditLine]()
            try:
                for change in batch:
                    draft = Draft(after, self.inventory, self._foreign_p_keys)
                    after, result, refusal = _run(change, draft)
                    forgotten |= draft.forgotten
                    done.append((result, refusal))
                    if refusal is None:
                        changes.append(new_line(change.actor, change.summary, DONE, after.revision))
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
        if after is not before and (self._may_differ or after.allocation() != before.allocation()):
            self._program(after.allocation())
        self._forget(forgotten)
        sure, self._may_differ = not self._may_differ, True  # a failed commit may have taken effect
        self._remember(transaction)
        self._may_differ = not sure

    def _forget(self, guids: set[int]) -> None:
        if guids:
            with self._fabric_lock:
                self._known = {guid: port for guid, port in self._known.items() if guid not in guids}
                left = tuple(port for port in self._inventory.ports if port.guid not in guids)
                self._inventory = replace(self._inventory, ports=left)

    # -- the fabric ---------------------------------------------------------------------------------------------------

    def _query(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except SubnetError:
            self._did_not_answer = True
            raise

    def _program(self, desired: Allocation) -> None:
        """Write the desired partitions to the fabric, overwriting changes by others."""
        if self.driver is None:
            raise SubnetError("this ledger has no fabric: start it with weft serve")
        with self._fabric_lock:
            for tried in range(1, _TRIES + 1):
                observed = self._query(self.driver.read)
                self._foreign_p_keys = observed.foreign_p_keys
                self._may_differ = True  # until the fabric has answered
                try:
                    # Write even without differences: an order that timed out earlier may be applied only now.
                    self.driver.write(desired, over=observed)
                    break
                except FabricChangedError:
                    if tried == _TRIES:
                        raise
            self._may_differ = self._did_not_answer = False

    def _compare(self, driver: Driver, drift: DriftWatch) -> None:
        """Compare the fabric with the database, and repair differences unless they are only reported."""
        drift.begin()
        try:
            with self._fabric_lock:
                plan = compare(self._query(driver.read).allocation, self._desired.allocation())
                changes = [f"{driver.title}: {line.strip()}" for line in lines(plan, Names(self._inventory))]
                checked = self._query(lambda: driver.check(repair=False))
                differences = [*changes, *checked.differences]
                # Another process is changing the database and the fabric
                is_changing = self.store.revision() != self._desired.revision
                drift.record(drift.differences if is_changing else differences, checked.repaired)
                if differences and drift.repairs and not is_changing:
                    self._repair(driver, drift, is_configured=plan.is_empty)
        except WeftError as error:
            drift.failed(error)
            raise
        finally:
            drift.end()

    def _repair(self, driver: Driver, drift: DriftWatch, *, is_configured: bool) -> None:
        """Repair differences. `is_configured`: the subnet manager has the right configuration, but its ports differ."""
        if not is_configured:
            self._apply_all()
        driver.check(repair=True)
        checked = driver.check(repair=False)
        if not checked.differences:
            self._note(f"repair {len(drift.differences):,} differences: {drift.differences[0]}")
            drift.record((), checked.repaired)

    def _apply_all(self) -> None:
        """Apply the database to the fabric."""
        with self.store.writing() as transaction:  # locks out other writers
            self._desired = transaction.load()
            self._program(self._desired.allocation())

    def _connect(self, driver: Driver) -> None:
        title = driver.title
        if self._desired.fabric == title:
            return self._apply_all()
        if self._desired.fabric:
            raise ConfigError(
                f"the ledger {self.store.title} belongs to {self._desired.fabric}, but this is {title}: give another "
                "--database"
            )
        return self._import_fabric(driver, title)

    def _import_fabric(self, driver: Driver, title: str) -> None:
        observed = driver.read()
        self._foreign_p_keys, allocation = observed.foreign_p_keys, observed.allocation
        with self.store.writing() as transaction:
            before = transaction.load()
            self._desired = replace(
                before,
                revision=before.revision + 1,
                fabric=title,
                partitions=dict(allocation.partitions),
                owners=dict.fromkeys(allocation.partitions, DIRECT),
                default_is_full=allocation.default_is_full,
                lanes=allocation.lanes,
            )
            transaction.save(before, self._desired)
            transaction.audit([new_line("weft", f"import the partitions of {title}", DONE, self._desired.revision)])
            transaction.commit()


def _run(change: _Change[Any], draft: Draft) -> tuple[Desired, Any, Exception | None]:
    try:
        result = change.edit(draft)
        return draft.sealed(), result, None
    except Exception as refusal:
        return draft.before, None, refusal
