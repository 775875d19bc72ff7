"""The ledger: the database and the fabric change together, in order, once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.patience import wait_until
from tests.serve.memory_fabric import MemoryFabric

from weft.errors import ConfigError, NoResponseError, SubnetError
from weft.serve import ledger as ledger_module
from weft.serve.desired import DIRECT, INTENT, ConflictError, Draft
from weft.serve.ledger import Ledger
from weft.serve.store import Store, StoreError, Transaction
from weft.sm.conf.qos_options import QosOptions
from weft.tenants.intent import parse_intent
from weft.tenants.partitions import Allocation, Member, Partition

MEMBERS = {0x10_0001: Member(), 0x10_0002: Member(full=False, index0=True)}
ACME = Partition(name="acme", p_key=0x0101, members=MEMBERS, ipoib=True, sl=3, mtu_bytes=2048, rate_gbit_s=2.5)


@pytest.fixture
def fabric() -> MemoryFabric:
    return MemoryFabric()


@pytest.fixture
def opened(database) -> Iterator[Callable[[MemoryFabric | None], Ledger]]:
    """Open the ledger of the test's database, once more if need be."""
    result: list[Ledger] = []

    def open_(fabric: MemoryFabric | None) -> Ledger:
        result.append(Ledger(Store(database), fabric))
        return result[-1]

    yield open_
    for item in result:
        item.close()


@pytest.fixture
def ledger(opened, fabric) -> Ledger:
    return opened(fabric)


def put(wanted: Partition) -> Callable[[Draft], None]:
    return lambda draft: draft.put(wanted)


def audit(ledger: Ledger) -> list[tuple[str, str, str]]:
    return [(line.actor, line.what, line.result) for line in reversed(ledger.store.audit_lines(most=2000))]


def test_a_change_is_applied_and_stored_when_it_returns(ledger, fabric, database):
    ledger.change("ci", "make acme", put(ACME))
    assert fabric.observed.allocation.partitions == {0x0101: ACME}
    store = Store(database)
    assert (store.load().partitions, store.load().owners) == ({0x0101: ACME}, {0x0101: DIRECT})
    assert store.load() == ledger.desired()
    store.close()


def test_the_first_partition_makes_default_limited(ledger, fabric):
    assert fabric.observed.allocation.default_is_full
    ledger.change("ci", "make acme", put(ACME))
    assert not fabric.observed.allocation.default_is_full


def test_an_edit_that_raises_changes_nothing_and_is_in_the_audit_log(ledger, fabric):
    def edit(draft: Draft) -> None:
        draft.put(ACME)
        raise ConfigError("over quota")

    with pytest.raises(ConfigError, match="over quota"):
        ledger.change("ci", "make acme", edit)
    assert (ledger.desired().partitions, fabric.writes) == ({}, 0)
    wait_until(lambda: audit(ledger)[-1] == ("ci", "make acme", "refused: over quota"))


def test_a_change_that_the_fabric_refuses_is_not_stored(ledger, fabric):
    fabric.refuses = {0x0101}
    with pytest.raises(SubnetError, match="port h1/1"):
        ledger.change("ci", "make acme", put(ACME))
    assert (ledger.desired().partitions, ledger.store.load().partitions) == ({}, {})
    ledger.change("ci", "make blue", put(replace(ACME, name="blue", p_key=0x0102)))
    assert ("ci", "make acme", "refused: port h1/1 does not take 0x0101") in audit(ledger)


def test_waiting_changes_are_applied_together_and_only_the_faulty_one_fails(ledger, fabric):
    fabric.refuses = {0x0113}
    fabric.gate.clear()
    first = ledger.submit("ci", "first", put(ACME))
    fabric.entered.wait()  # the writer is at work: the next ones wait
    rest = [ledger.submit("ci", f"other {n}", put(replace(ACME, name=f"t{n}", p_key=0x0110 + n))) for n in range(6)]
    bad_edit = ledger.submit("ci", "bad", lambda draft: draft.remove(0x0666))
    fabric.gate.set()
    assert first.result() is None
    failed = [n for n, item in enumerate(rest) if item.exception() is not None]
    assert failed == [3]
    assert isinstance(bad_edit.exception(), ConfigError)
    assert set(fabric.observed.allocation.partitions) == {0x0101, 0x0110, 0x0111, 0x0112, 0x0114, 0x0115}
    assert ledger.store.load().partitions == fabric.observed.allocation.partitions


def test_group_commit_writes_the_fabric_once_for_all_waiting_changes(ledger, fabric):
    fabric.gate.clear()
    first = ledger.submit("ci", "first", put(ACME))
    fabric.entered.wait()
    rest = [ledger.submit("ci", "more", put(replace(ACME, name=f"t{n}", p_key=0x0110 + n))) for n in range(50)]
    fabric.gate.set()
    for item in (first, *rest):
        item.result()
    assert fabric.writes == 2


def test_twenty_writers_lose_and_duplicate_nothing(ledger, fabric):
    """Each writer adds its members to the members that it reads in one partition."""
    ledger.change("ci", "make acme", put(replace(ACME, members={})))

    def add(guid: int) -> Callable[[Draft], None]:
        def edit(draft: Draft) -> None:
            present = draft.partitions[0x0101]
            draft.put(replace(present, members={**present.members, guid: Member()}))

        return edit

    def write(writer: int) -> None:
        for n in range(10):
            ledger.change(f"w{writer}", "add", add(writer * 100 + n))

    writers = [threading.Thread(target=write, args=(n,)) for n in range(20)]
    for item in writers:
        item.start()
    for item in writers:
        item.join()
    expected = {writer * 100 + n for writer in range(20) for n in range(10)}
    assert set(fabric.observed.allocation.partitions[0x0101].members) == expected
    assert len(ledger.store.audit_lines(most=1000)) == 202  # taken over, made, and each added once
    assert ledger.desired().revision == 202


def test_two_services_on_one_database_lose_nothing(opened, fabric):
    ledgers = [opened(fabric), opened(fabric)]

    def write(which: int) -> None:
        for n in range(15):
            name, p_key = f"s{which}-{n}", 0x0100 * (which + 1) + n
            ledgers[which].change("ci", "make", put(replace(ACME, name=name, p_key=p_key)))

    writers = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(fabric.observed.allocation.partitions) == 30
    wait_until(lambda: ledgers[0].desired() == ledgers[1].desired(), "that one sees what the other wrote")
    assert ledgers[0].desired().allocation() == fabric.observed.allocation


def test_a_ledger_applies_the_database_to_the_fabric_at_its_start(opened, fabric):
    opened(fabric).change("ci", "make acme", put(ACME))
    forgetful = MemoryFabric(allocation=Allocation(lanes=QosOptions(high_limit=3)))
    again = opened(forgetful)
    assert forgetful.observed.allocation == again.desired().allocation() == fabric.observed.allocation


def test_a_new_ledger_imports_the_partitions_of_the_fabric(opened):
    lanes = QosOptions(high_limit=3, vlarb_high=((0, 4), (1, 8)), sl2vl=(*range(15), 7))
    fabric = MemoryFabric(allocation=Allocation(partitions={0x0101: ACME}, default_is_full=False, lanes=lanes))
    opened(None).change("root", "a token", lambda draft: draft.documents.update({("token", "a"): "{}"}))
    assert opened(fabric).desired().allocation() == fabric.observed.allocation
    assert fabric.writes == 0
    assert opened(fabric).store.load().allocation() == fabric.observed.allocation


def test_a_ledger_belongs_to_one_fabric(opened, fabric):
    """Otherwise a wrong --lab would write the partitions of another fabric."""
    opened(fabric)
    other = MemoryFabric()
    other.title = "another"
    with pytest.raises(ConfigError, match="belongs to memory, but this is another: give another --database"):
        opened(other)


def test_after_an_uncertain_write_the_database_is_applied_again(ledger, fabric):
    """The subnet manager applies the change, and dies before it answers."""
    write = fabric.write

    def take_and_die(wanted: Allocation, *, over: object) -> None:
        write(wanted, over=over)
        fabric.is_dead = True
        fabric._live()

    fabric.write = take_and_die
    with pytest.raises(SubnetError, match="does not answer"):
        ledger.change("ci", "make acme", put(ACME))
    assert set(fabric.observed.allocation.partitions) == {0x0101}
    fabric.write, fabric.is_dead = write, False
    wait_until(lambda: fabric.observed.allocation == Allocation(), "that the fabric is as the database says")


@pytest.mark.parametrize("happens", [False, True])
def test_after_a_failed_commit_the_fabric_follows_the_database(ledger, fabric, monkeypatch, happens):
    commit = Transaction.commit

    def fail(page: Transaction) -> None:
        monkeypatch.setattr(Transaction, "commit", commit)
        if happens:
            commit(page)
        raise StoreError("the connection is lost")

    monkeypatch.setattr(Transaction, "commit", fail)
    with pytest.raises(StoreError, match="connection is lost"):
        ledger.change("ci", "make acme", put(ACME))
    expected = {0x0101} if happens else set()
    wait_until(lambda: set(fabric.observed.allocation.partitions) == expected, "that the fabric follows the database")
    wait_until(lambda: set(ledger.desired().partitions) == expected, "that the ledger follows the database")


def test_partitions_of_the_intent_cannot_be_changed_directly(ledger):
    ledger.change("ci", "intent", lambda draft: draft.put(ACME, INTENT))
    with pytest.raises(ConflictError, match=r"acme=0x0101 belongs to intent, not to direct: change the intent"):
        ledger.change("ci", "members", put(replace(ACME, members={})))
    with pytest.raises(ConflictError, match="change the intent"):
        ledger.change("ci", "remove", lambda draft: draft.remove(0x0101))


def test_foreign_p_keys_and_existing_names_are_refused(ledger, fabric):
    fabric.observed = replace(fabric.observed, foreign_p_keys=frozenset({0x0200}))
    ledger.change("ci", "make acme", put(ACME))
    with pytest.raises(ConflictError, match="0x0200 is taken"):
        ledger.change("ci", "make", put(replace(ACME, name="x", p_key=0x0200)))
    with pytest.raises(ConflictError, match="name acme is taken: partition 0x0101"):
        ledger.change("ci", "make", put(replace(ACME, p_key=0x0102)))


def test_a_cancelled_change_never_happens(ledger, fabric):
    fabric.gate.clear()
    first = ledger.submit("ci", "first", put(ACME))
    fabric.entered.wait()
    second = ledger.submit("ci", "second", put(replace(ACME, name="blue", p_key=0x0102)))
    assert second.cancel()
    fabric.gate.set()
    first.result()
    ledger.change("ci", "third", lambda draft: None)
    assert set(ledger.desired().partitions) == {0x0101}


# -- ports that are gone ----------------------------------------------------------------------------------------------

TWO = {"a": {"hosts": ["h[1-2]"]}, "b": {"hosts": ["h3"]}}


def want(tenants: dict[str, Any]) -> Callable[[Draft], Any]:
    return lambda draft: draft.set_intent(parse_intent({"tenant": tenants}))


def members(fabric: MemoryFabric) -> dict[str, list[int]]:
    return {
        partition.name: [guid & 0xFFFF for guid in partition.members]
        for partition in fabric.observed.allocation.partitions.values()
    }


def test_a_host_that_is_down_keeps_its_membership_after_a_restart(opened, fabric):
    fabric.ports = tuple(replace(port, guid=port.guid | 1 << 63) for port in fabric.ports)  # more than a signed one
    opened(fabric).change("ci", "intent", want(TWO))
    present = fabric.ports
    fabric.ports = tuple(port for port in present if port.host != "h2")
    again = opened(fabric)
    compiled = again.change("ci", "intent", want(TWO | {"b": {"hosts": ["h4"]}}))
    assert members(fabric) == {"a": [1, 2], "b": [4]}
    assert compiled.notes == ("tenant a: h2/1 is not in the fabric now; it gets its P_Keys when it comes up",)
    with pytest.raises(ConfigError, match="no host 'h22'"):
        again.change("ci", "typo", want(TWO | {"b": {"hosts": ["h22"]}}))
    fabric.ports = tuple(replace(port, guid=0x10_0099) if port.host == "h2" else port for port in present)
    last = opened(fabric)
    last.change("ci", "its card was replaced", want(TWO))
    assert members(fabric) == {"a": [1, 0x99], "b": [3]}
    recorded = last.store.known_ports()
    assert sorted(port.name for port in recorded.values()) == [f"h{n}/1" for n in range(1, 9)]


def test_ports_that_were_only_read_are_remembered(opened, fabric):
    ledger = opened(fabric)
    ledger.inventory()
    wait_until(lambda: len(ledger.store.known_ports()) == 8)


def test_changes_waiting_for_a_silent_fabric_are_refused_together(ledger, fabric, monkeypatch):
    """Refusing them one by one would take a timeout for each."""
    tries = []

    def is_silent(wanted: Allocation, *, over: object) -> None:
        tries.append(wanted)
        raise NoResponseError("nobody answers")

    fabric.answers.clear()
    first = ledger.submit("ci", "the first", put(ACME))
    wait_until(first.running)
    monkeypatch.setattr(fabric, "write", is_silent)
    waiting = [ledger.submit("ci", "more", put(replace(ACME, p_key=key, members={}))) for key in (0x0102, 0x0103)]
    fabric.answers.set()
    for item in (first, *waiting):
        with pytest.raises(NoResponseError, match="nobody answers"):
            item.result()
    assert len(tries) == 2
    ledger.change("ci", "notes are written", lambda draft: None)
    refused = [kind for _, kind, result in audit(ledger) if result == "refused: nobody answers"]
    assert refused == ["the first", "more"]  # the second is equal, and counted


def test_the_audit_log_is_pruned_by_age_and_by_count_of_refusals(ledger, monkeypatch):
    monkeypatch.setattr("weft.serve.store._PRUNED_EACH", 1)
    monkeypatch.setattr("weft.serve.store.AUDIT_REFUSALS", 3)
    ledger.change("ci", "a change", put(ACME))
    for number in range(5):
        ledger.refused("eve", f"try {number}", "no")
        ledger.change("ci", "later", lambda draft: None)
    output = [kind for _, kind, _ in audit(ledger)]
    assert [kind for kind in output if kind.startswith("try")] == ["try 4"]
    assert output[:2] == ["import the partitions of memory", "a change"]
    monkeypatch.setattr("weft.serve.store.AUDIT_KEPT_S", 0.0)
    ledger.change("ci", "the last", lambda draft: None)
    assert [kind for _, kind, _ in audit(ledger)] == ["the last"]


class BusyError(MemoryFabric):
    """A manager in a long sweep: it answers questions meanwhile, and carries out orders in the end, one by one."""

    late: Allocation | None = None

    def write(self, wanted: Allocation, *, over: object) -> None:
        late, self.late = self.late, None
        if late is not None:
            super().write(late, over=self.observed)
        super().write(wanted, over=over)


def test_an_order_applied_after_its_timeout_is_reverted(opened, monkeypatch):
    """Meanwhile the subnet manager reported the old state."""
    fabric = BusyError()
    ledger = opened(fabric)

    def is_silent(wanted: Allocation, *, over: object) -> None:
        fabric.late = wanted
        monkeypatch.undo()
        raise NoResponseError("nobody answers")

    monkeypatch.setattr(fabric, "write", is_silent)
    with pytest.raises(NoResponseError):
        ledger.change("ci", "make acme", put(ACME))
    settled = ("weft", "apply the ledger to the fabric again after an error", "done")
    wait_until(lambda: settled in audit(ledger))
    assert fabric.late is None
    assert fabric.observed.allocation == ledger.desired().allocation() == Allocation()


def test_the_database_is_applied_after_a_failed_read_of_the_fabric(ledger, fabric, monkeypatch):
    """The fabric may have been restored from a backup while there were no writes."""
    ledger.change("ci", "make acme", put(ACME))
    monkeypatch.setattr(ledger_module, "_FRESH_S", 0.0)
    fabric.is_dead = True
    with pytest.raises(SubnetError, match="does not answer"):
        ledger.inventory()
    fabric.observed = replace(fabric.observed, allocation=Allocation(), revision="restored")
    fabric.is_dead = False
    wait_until(lambda: fabric.observed.allocation.partitions == {0x0101: ACME})
