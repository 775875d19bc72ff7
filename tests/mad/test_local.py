"""The carrier in this process: tokens, timeouts, retries, and programs that answer each other."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.mad import faults
from weft.mad.carrier import Address, ask
from weft.wire.mad import Mad, Method, MgmtClass
from weft.wire.smp import DirectedSmp, NodeInfo, SMInfo, Smp, SmpAttribute

GET, INFO = Method.GET, SmpAttribute.NODE_INFO
QUESTION = DirectedSmp.pack(method=GET, attribute_id=INFO, hop_count=1, initial_path=b"\0\1")
NOWHERE = DirectedSmp.pack(method=GET, attribute_id=INFO, hop_count=1, initial_path=b"\0\7")


def test_answers_come_by_token_each_once(bench):
    tokens = [bench.carrier.send(QUESTION) for _ in range(100)]
    result = dict(bench.carrier.poll())
    assert sorted(result) == tokens
    assert all(answer is not None and answer[3] == Method.GET_RESP for answer in result.values())
    assert bench.carrier.poll() == []


def test_lost_mad_times_out_after_all_retries(bench):
    token = bench.carrier.send(NOWHERE, timeout_ms=100, retries=2)
    assert bench.carrier.poll(0.29) == []
    assert bench.carrier.poll(1.0) == [(token, None)]
    assert bench.clock.now_s == pytest.approx(0.3, abs=0.01)


def test_a_retry_arrives_when_the_cable_is_back(bench):
    slot = bench.slot_of("h1/1")
    faults.pull_cable(bench.devices, slot)
    token = bench.carrier.send(QUESTION, timeout_ms=100, retries=1)
    assert bench.carrier.poll(0.05) == []
    faults.plug_cable(bench.devices, slot)
    ((result, answer),) = bench.carrier.poll(1.0)
    assert result == token
    assert answer is not None


def test_asking_for_one_keeps_the_others(bench):
    first = bench.carrier.send(QUESTION)
    assert ask(bench.carrier, QUESTION) is not None
    assert [token for token, _ in bench.carrier.poll()] == [first]


def test_ask_gives_up(bench):
    assert ask(bench.carrier, NOWHERE, timeout_ms=10, retries=0) is None


def test_a_mad_has_256_bytes(bench):
    with pytest.raises(ConfigError, match="a MAD has 256 bytes, this one has 3"):
        bench.carrier.send(b"abc")
    with pytest.raises(ConfigError, match="this one has 0"):
        bench.carrier.post(b"")


@pytest.mark.parametrize("by_path", [True, False], ids=["directed", "by LID"])
def test_a_subnet_manager_answers_questions_about_itself(running, by_path):
    other = running.carrier_at(running.slot_of("h3/1"))
    other.register(MgmtClass.SUBN_LID_ROUTED, [GET, Method.SET])
    other.set_is_sm(True)
    if by_path:
        question = DirectedSmp.pack(
            method=GET, attribute_id=SmpAttribute.SM_INFO, hop_count=4, initial_path=bytes([0, 1, 3, 2, 1])
        )
        token = running.carrier.send(question)
    else:
        question = Smp.pack(method=GET, attribute_id=SmpAttribute.SM_INFO)
        token = running.carrier.send(question, Address(running.lid("h3")))
    assert running.carrier.poll() == []
    (arrival,) = other.arrivals()
    reply = bytearray(arrival.mad)
    reply[3], reply[4] = Method.GET_RESP, 0x80 if by_path else 0
    reply[64 : 64 + SMInfo.size] = SMInfo.pack(guid=77)
    other.post(reply, Address() if by_path else arrival.source)
    ((result, answer),) = running.carrier.poll()
    assert result == token
    assert answer is not None
    assert SMInfo.unpack(answer, 64).guid == 77


def test_a_subnet_manager_that_is_gone_answers_no_more(running):
    other = running.carrier_at(running.slot_of("h3/1"))
    other.register(MgmtClass.SUBN_LID_ROUTED, [GET])
    other.set_is_sm(True)
    other.close()
    question = Smp.pack(method=GET, attribute_id=SmpAttribute.SM_INFO)
    assert ask(running.carrier, question, Address(running.lid("h3")), timeout_ms=10, retries=0) is None


def test_other_classes_go_to_who_registered_for_them(running):
    other = running.carrier_at(running.slot_of("h3/1"))
    other.register(MgmtClass.SUBN_ADM, [GET])
    for mgmt_class, method in ((MgmtClass.SUBN_ADM, GET), (MgmtClass.SUBN_ADM, Method.SET), (MgmtClass.COM_MGT, 3)):
        mad = Mad.pack(mgmt_class=mgmt_class, method=method, attribute_id=0x11)
        running.carrier.post(mad, Address(running.lid("h3")))
    (arrival,) = other.arrivals()
    assert (arrival.mad[1], arrival.mad[3], arrival.source.lid) == (MgmtClass.SUBN_ADM, GET, running.lid("h1"))
    assert other.arrivals() == []


def test_two_programs_on_one_port_have_their_own_answers(running):
    twin = running.carrier_at(running.slot)
    other = running.carrier_at(running.slot_of("h3/1"))
    other.register(MgmtClass.SUBN_ADM, [GET])
    mad = Mad.pack(mgmt_class=MgmtClass.SUBN_ADM, method=GET)
    mine, theirs = running.carrier.send(mad, Address(running.lid("h3"))), twin.send(mad, Address(running.lid("h3")))
    for arrival in other.arrivals():
        reply = bytearray(arrival.mad)
        reply[3] |= 0x80
        other.post(reply, arrival.source)
    assert [token for token, _ in running.carrier.poll()] == [mine]
    assert [token for token, _ in twin.poll()] == [theirs]


def test_a_port_of_a_gpu_carries_no_mads(make_bench):
    bench = make_bench("star:hosts=2")
    with pytest.raises(ConfigError, match="h1/0 is not an InfiniBand port"):
        bench.carrier_at(bench.slot_of("h1/0"))


def test_a_program_on_a_switch_asks_from_port_0(running):
    carrier = running.carrier_at(running.slot_of("leaf1/0"))
    answer = ask(carrier, DirectedSmp.pack(method=GET, attribute_id=INFO, hop_count=1, initial_path=b"\0\3"))
    assert answer is not None
    assert NodeInfo.unpack(answer, 64).local_port_num == 1
    answer = ask(carrier, Smp.pack(method=GET, attribute_id=INFO), Address(running.lid("h8")))
    assert answer is not None
