"""The audit log: its size is bounded, it has every change, and it shows tampering."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import delete, insert, select, update
from tests.patience import PATIENCE_S
from tests.serve.memory_fabric import MemoryFabric
from tests.serve.service import Service
from tests.serve.ufm.conftest import Client

from weft.serve import audit
from weft.serve.audit import OTHERS, AuditLine, Refusals
from weft.serve.embedded import Ufm
from weft.serve.ledger import Ledger
from weft.serve.schema import AUDIT
from weft.serve.store import Store, StoreError, TamperedError, Transaction


@pytest.fixture
def ledger(database) -> Iterator[Ledger]:
    with Ledger(Store(database), MemoryFabric()) as result:
        yield result


def nothing(ledger: Ledger, what: str = "nothing") -> None:
    ledger.change("ci", what, lambda draft: None)


def stored(ledger: Ledger) -> list[AuditLine]:
    return ledger.store.audit_lines(most=10_000)[::-1]


def test_requests_without_a_token_store_one_short_line_a_minute(database, monkeypatch):
    monkeypatch.setattr(audit, "_WINDOW_S", 10 * PATIENCE_S)  # a busy machine may take longer than a minute for 50
    service = Service(database)
    before = len(service.stored())
    for n in range(50):
        assert service.client.get(f"/{n}{'A' * 50_000}").status_code in (401, 429)
    lines = [line for line in service.stored()[: -before or None] if line.actor == "127.0.0.1"]
    service.close()
    assert len(lines) <= 2  # 401, and 429
    assert sum(len(line.what) + len(line.result) for line in lines) < 1000
    assert "(50,00" in lines[0].what  # the length of the text


def test_equal_refusals_are_one_line_and_then_a_count(ledger, database):
    for _ in range(5000):
        ledger.refused("nobody", "GET /", "no token")
    ledger.close()
    store = Store(database)
    lines = [line for line in store.audit_lines(most=100) if line.actor == "nobody"]
    store.close()
    assert len(lines) <= 2
    assert sum(line.times for line in lines) == 5000


def test_a_count_is_written_when_its_minute_is_over(ledger, monkeypatch):
    for _ in range(3):
        ledger.refused("nobody", "GET /", "no token")
    nothing(ledger)
    assert [line.times for line in stored(ledger) if line.actor == "nobody"] == [1]
    monkeypatch.setattr(audit, "_WINDOW_S", 0.0)
    nothing(ledger)
    assert [line.times for line in stored(ledger) if line.actor == "nobody"] == [1, 2]


def test_refusals_of_very_many_kinds_are_counted_together():
    refusals = Refusals()
    for n in range(3 * audit._KINDS_EACH):
        refusals.add("eve", f"GET /{n}", "refused", 0)
    lines = [*refusals.take(), *refusals.take(is_last=True)]
    assert len(lines) == audit._KINDS_EACH + 2
    assert sum(line.times for line in lines) == 3 * audit._KINDS_EACH
    for n in range(2 * audit._KINDS):
        refusals.add(f"eve{n}", "GET /", "refused", 0)
    lines = [*refusals.take(), *refusals.take(is_last=True)]
    assert len(lines) == audit._KINDS + 2
    assert sum(line.times for line in lines if line.actor == OTHERS) == audit._KINDS
    assert not refusals._each


def test_refusals_that_could_not_be_written_wait_and_are_bounded():
    refusals = Refusals()
    refusals.add("eve", "GET /", "refused", 0)
    lines = refusals.take()
    refusals.put_back(lines)
    assert refusals.take() == lines
    refusals.put_back(lines * 10_000)
    assert len(refusals.take()) == audit._WAITING


def test_a_line_of_a_change_is_bounded_too(ledger):
    ledger.change("a" * 1000, "b" * 100_000, lambda draft: None)
    assert sum(len(part) for part in stored(ledger)[-1][1:4]) < 3000


# -- every change -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_actions_outside_the_ledger_are_in_the_audit_log():
    with Ufm("star:hosts=2") as ufm:
        client = Client(ufm)
        with client.http:
            fault = {"path": "/nothing", "status": 503}
            number = client.call("POST", "faults", fault, base="/api/v1").json()["id"]
            client.call("DELETE", f"faults/{number}", base="/api/v1")
            event = client.done("POST", "app/events/external_event", {"event_id": 1, "description": "smoke"})["id"]
            client.done("DELETE", f"app/events/{event}")
            client.call("POST", "intent/plan", {}, base="/api/v1")
            lines = client.call("GET", "audit", base="/api/v1").json()
    changes = [line["what"] for line in lines if line["result"] == "done" and line["actor"] == "embedded"]
    assert changes == [
        f"DELETE /ufmRestV3/app/events/{event}",
        'POST /ufmRestV3/app/events/external_event {"event_id":1,"description":"smoke"}',
        f"DELETE /api/v1/faults/{number}",
        'POST /api/v1/faults {"path":"/nothing","status":503}',
    ]


def test_a_change_that_cannot_be_logged_is_not_answered_as_done(database, monkeypatch):
    service = Service(database)
    headers = {"Authorization": f"Bearer {service.tokens['root']}"}
    event = {"event_id": 1, "description": "smoke"}
    with monkeypatch.context() as broken:
        broken.setattr(Transaction, "audit", refuse)
        answer = service.client.post("/ufmRest/app/events/external_event", json=event, headers=headers)
    service.close()
    assert answer.status_code == 503
    assert (
        answer.json()["detail"] == "the request was executed, but could not be added to the audit log: the disk is full"
    )


def refuse(page: Transaction, lines: object) -> None:
    raise StoreError("the disk is full")


# -- the hash chain ---------------------------------------------------------------------------------------------------


def of_id(number: int):
    return AUDIT.c.id == number


ATTACKS = {
    "a line is changed": lambda ids: update(AUDIT).where(of_id(ids[2])).values(actor="somebody else"),
    "its time is changed": lambda ids: update(AUDIT).where(of_id(ids[2])).values(at_s=1.5),
    "a count is changed": lambda ids: update(AUDIT).where(AUDIT.c.result != "done").values(times=1_000),
    "a refusal becomes a change": lambda ids: update(AUDIT).where(AUDIT.c.result != "done").values(result="done"),
    "a line is removed": lambda ids: delete(AUDIT).where(of_id(ids[2])),
    "the first line is removed": lambda ids: delete(AUDIT).where(of_id(ids[0])),
    "the last line is removed": lambda ids: delete(AUDIT).where(of_id(ids[-1])),
    "all lines are removed": lambda ids: delete(AUDIT),
    "a line is added": lambda ids: insert(AUDIT).values(
        id=ids[-1] + 1, at_s=1.0, actor="a", what="b", result="done", revision=1, times=1, hash="0" * 64
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_tampering_with_the_audit_log_is_detected(ledger, attack):
    ledger.refused("eve", "GET /", "no")
    for n in range(4):
        nothing(ledger, f"change {n}")
    ids = [line.id for line in stored(ledger) if line.result == "done"]
    newest = ledger.store.check_audit()
    assert newest["changes"].id == ids[-1]
    assert newest["refusals"].actor == "eve"
    with ledger.store._engine.begin() as connection:
        connection.execute(ATTACKS[attack](ids))
    with pytest.raises(TamperedError):
        ledger.store.check_audit()


def test_a_pruned_audit_log_is_unbroken(ledger, monkeypatch):
    monkeypatch.setattr("weft.serve.store._PRUNED_EACH", 1)
    monkeypatch.setattr("weft.serve.store.AUDIT_REFUSALS", 3)
    for n in range(6):
        ledger.refused("eve", f"GET /{n}", "no")
        nothing(ledger, f"change {n}")
        ledger.store.check_audit()
    monkeypatch.setattr("weft.serve.store.AUDIT_KEPT_S", 0.0)
    nothing(ledger, "the last")
    assert [line.what for line in stored(ledger)] == ["the last"]
    assert ledger.store.check_audit()["changes"].what == "the last"
    with ledger.store._engine.connect() as connection:
        assert len(connection.execute(select(AUDIT)).all()) == 1


def test_two_services_write_one_chain(ledger, database):
    with Ledger(Store(database), None) as other:
        for _ in range(3):
            nothing(ledger)
            nothing(other)
        assert ledger.store.check_audit() == other.store.check_audit()
