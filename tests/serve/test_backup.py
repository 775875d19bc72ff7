"""Backups: of one moment, whole or refused, into a database that is empty."""

from __future__ import annotations

import os
import threading
from contextlib import closing

import pytest
from tests.serve.memory_fabric import MemoryFabric

from weft.errors import ConfigError
from weft.serve.access import Role, add_token
from weft.serve.backup import back_up, restore
from weft.serve.ledger import Ledger
from weft.serve.store import Store
from weft.tenants.partitions import Member, Partition


def put(number: int):
    return lambda draft: draft.put(Partition(name=f"t{number}", p_key=0x0100 + number, members={0x10_0001: Member()}))


@pytest.fixture
def written(database, tmp_path):
    """A backup, and the ledger's content at that time."""
    with Ledger(Store(database), MemoryFabric()) as ledger:
        ledger.change("ci", "a token", lambda draft: add_token(draft, "me", Role.ADMIN))
        for number in range(3):
            ledger.change("ci", f"partition {number}", put(number))
        ledger.refused("eve", "GET /", "no")
        ledger.inventory()
        ledger.change("ci", "nothing", lambda draft: None)
        back_up(ledger.store, tmp_path / "backup")
        yield tmp_path / "backup", ledger


def test_a_restored_service_has_the_whole_state(written, other_database):
    backup, ledger = written
    with closing(Store(other_database)) as store:
        restore(store, backup, "root")
        assert store.load() == ledger.store.load()
        assert store.known_ports() == ledger.store.known_ports()
        assert store.audit_lines(most=100)[1:] == ledger.store.audit_lines(most=100)
        assert store.check_audit()["changes"].what == "weft serve restore backup"
    fabric = MemoryFabric()
    with Ledger(Store(other_database), fabric) as again:
        assert fabric.observed.allocation == ledger.desired().allocation()
        again.change("ci", "more", put(9))
        assert again.store.check_audit()["changes"].what == "more"


def test_a_backup_is_readable_only_by_its_owner(written):
    assert os.stat(written[0]).st_mode & 0o077 == 0


def test_a_backup_is_consistent_while_a_service_writes(written, tmp_path, other_database):
    _, ledger = written
    is_over = threading.Event()

    def write() -> None:
        for number in range(10, 200):
            if is_over.is_set():
                return
            ledger.change("ci", f"partition {number}", put(number))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for n in range(5):
            back_up(ledger.store, tmp_path / f"backup{n}")
    finally:
        is_over.set()
        writer.join()
    with closing(Store(other_database)) as store:
        restore(store, tmp_path / "backup4", "root")
        store.check_audit()
        revisions = [line.revision for line in store.audit_lines(most=1)]
        assert revisions == [store.load().revision]


def test_restore_refuses_a_database_that_is_not_empty(written):
    backup, ledger = written
    before = ledger.store.audit_lines(most=100)
    with pytest.raises(ConfigError, match="is not empty: give a new --database"):
        restore(ledger.store, backup, "root")
    assert ledger.store.audit_lines(most=100) == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[: len(content) // 2], "truncated"),
        (lambda content: content.replace(b'"t1', b'"t9'), "is damaged"),
        (lambda content: content.replace(b'"layout":2', b'"layout":9', 1), "is damaged"),
        (lambda content: b"".join(content.splitlines(keepends=True)[1:]), "truncated"),
        (lambda content: b"", "truncated"),
        (lambda content: b"[]\n[]\n", "truncated"),
    ],
)
def test_a_damaged_backup_is_refused(written, other_database, damage, message):
    backup, _ = written
    backup.write_bytes(damage(backup.read_bytes()))
    with closing(Store(other_database)) as store:
        with pytest.raises(ConfigError, match=message):
            restore(store, backup, "root")
        assert store.load().revision == 0


def test_a_backup_that_cannot_be_written_is_named(written, tmp_path):
    _, ledger = written
    with pytest.raises(ConfigError, match=r"cannot write .*nowhere"):
        back_up(ledger.store, tmp_path / "nowhere" / "backup")
