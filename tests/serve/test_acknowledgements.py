"""Acknowledgements in the ledger: kept over restarts, ended after their days, and independent of the order of ends."""

from __future__ import annotations

import time

import pytest
from tests.serve.service import Service

from weft.errors import ConfigError
from weft.serve.acknowledgements import AcknowledgementIn, acknowledge, acknowledged, alarm_id
from weft.serve.store import Store

ALARM = alarm_id("bad cable", ("spine1/5", "leaf3/5"))
REQUEST = AcknowledgementIn(name=" Ann ", reason="tonight", days=1)


def test_the_id_of_an_alarm_does_not_depend_on_the_order_of_its_ends():
    assert alarm_id("bad cable", ("leaf3/5", "spine1/5")) == ALARM == "bad cable: leaf3/5 - spine1/5"


def test_an_acknowledgement_is_kept_over_a_restart(database):
    first = Service(database)
    stored = first.ledger.change("ops", "test", lambda draft: acknowledge(draft, ALARM, REQUEST, "ops"))
    first.server.close()
    first.ledger.close()
    store = Store(database)
    found = acknowledged(store.load().documents, time.time())
    store.close()
    assert found == {ALARM: stored}
    assert (stored.name, stored.reason, stored.caller) == ("Ann", "tonight", "ops")


def test_an_acknowledgement_ends_and_is_removed_with_the_next(database):
    service = Service(database)
    ledger = service.ledger
    old = ledger.change("ops", "test", lambda draft: acknowledge(draft, ALARM, REQUEST, "ops"))
    assert acknowledged(ledger.desired().documents, old.until_s - 1) == {ALARM: old}
    assert acknowledged(ledger.desired().documents, old.until_s) == {}
    short = AcknowledgementIn(name="Ann", reason="now", days=1e-9)
    ledger.change("ops", "test", lambda draft: acknowledge(draft, "short", short, "ops"))
    ledger.change("ops", "test", lambda draft: acknowledge(draft, "next", REQUEST, "ops"))
    assert set(ledger.desired().named("acknowledgement")) == {ALARM, "next"}
    service.close()


@pytest.mark.parametrize(
    ("alarm", "request_", "word"),
    [
        (ALARM, AcknowledgementIn(name=" ", reason="r"), "not blank"),
        (ALARM, AcknowledgementIn(name="Ann", reason=" "), "not blank"),
        ("x" * 256, REQUEST, "255 characters"),
    ],
)
def test_unusable_acknowledgements_are_refused(database, alarm, request_, word):
    service = Service(database)
    with pytest.raises(ConfigError, match=word):
        service.ledger.change("ops", "test", lambda draft: acknowledge(draft, alarm, request_, "ops"))
    service.close()
