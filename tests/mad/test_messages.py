"""Messages longer than a MAD between carriers in this process."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from weft.errors import ConfigError
from weft.mad import faults
from weft.mad.carrier import Address
from weft.mad.devices import MAD_BITS
from weft.mad.transfers import is_rmpp
from weft.wire.mad import Mad, Method
from weft.wire.sa import SaMad
from weft.wire.smp import PERMISSIVE_LID

_SPEC = importlib.util.spec_from_file_location(
    "conformance_messages", Path(__file__).parents[1] / "conformance" / "messages.py"
)
suite = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(suite)


@pytest.fixture
def sa(running):
    """A carrier at h3 that is registered for requests to the SA."""
    carrier = running.carrier_at(running.slot_of("h3/1"))
    suite.listen(carrier)
    return carrier


def test_tables_go_and_come_whole(running, sa):
    suite.check_messages(running.carrier, sa, running.lid("h3"))


def test_a_table_comes_whole_over_a_cable_that_loses_a_tenth(running, sa):
    faults.degrade(running.devices, running.slot_of("h3/1"), 0.1 / MAD_BITS)
    suite.check_messages(running.carrier, sa, running.lid("h3"))


def test_a_program_asks_the_sa_of_its_own_port(running):
    suite.listen(running.carrier)
    suite.check_messages(running.carrier, running.carrier, running.lid("h1"))


@pytest.fixture
def lose(running, monkeypatch):
    """A function that drops MADs sent by h1 if a predicate of MAD and time is true."""
    pass_on = running.subnet.send

    def when(is_lost):
        def send(slot, mad, dlid=PERMISSIVE_LID, pkey_index=0):
            lost = slot == running.slot and is_rmpp(mad) and is_lost(mad, running.clock())
            return None if lost else pass_on(slot, mad, dlid, pkey_index)

        monkeypatch.setattr(running.subnet, "send", send)

    return when


def test_a_question_is_not_asked_again_while_its_answer_comes(running, sa, lose):
    began_s = running.clock()
    lose(lambda mad, now_s: now_s < began_s + 0.5)
    token = running.carrier.send(suite.question(9), Address(running.lid("h3")), timeout_ms=150)
    assert suite.answer(sa) == 1
    result, again = [], 0
    while not result:
        running.clock.sleep(0.05)
        sa.poll()
        again += len(sa.arrivals())
        result = running.carrier.poll()
    assert [item for item, message in result if message] == [token]
    assert running.clock() > began_s + 0.5
    assert again == 0


def test_a_segment_that_comes_again_is_acknowledged_but_is_no_second_message(running, sa, lose):
    acks = []
    lose(lambda mad, now_s: acks.append(mad) or len(acks) == 1)
    suite.ask_table(running.carrier, running.lid("h3"), 1, lambda: suite.answer(sa))
    assert len(acks) == 1
    sa.poll(0.15)
    assert len(acks) == 2
    sa.poll(1.0)
    assert len(acks) == 2
    assert running.carrier.poll() == []


@pytest.mark.parametrize("bytes_long", [57, 255, 300])
def test_only_classes_with_rmpp_have_messages_of_other_lengths(running, bytes_long):
    mad = Mad.pack(mgmt_class=4, method=Method.GET).ljust(bytes_long, b"\0")[:bytes_long]
    with pytest.raises(ConfigError, match=f"this one has {bytes_long}"):
        running.carrier.post(mad, Address(running.lid("h3")))


def test_a_short_message_of_the_sa_must_say_that_it_is_one(running):
    with pytest.raises(ConfigError, match="this one has 56"):
        running.carrier.post(SaMad.pack(method=Method.GET_TABLE_RESP)[:56], Address(running.lid("h3")))
