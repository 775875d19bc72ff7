"""Bit errors together with all other packet faults: no receiver ever gets wrong bytes."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.verbs.packet_faults import Corruption
from tests.verbs.wires import Wire, connected, taken

from weft.verbs.enums import ibv_qp_state, ibv_wc_status
from weft.verbs.hca.segment import Service
from weft.wire.headers import GRH

OK = int(ibv_wc_status.IBV_WC_SUCCESS)
ENDS = {OK, int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR), int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)}
ROOM, COUNT = 8192, 16
FAULTS = st.builds(
    Corruption, st.integers(0, 1 << 30), st.floats(0, 0.2), st.floats(0, 0.3), st.floats(0, 0.2), st.floats(0, 0.5)
)


def messages(seed: int, least: int, most: int) -> list[bytes]:
    """Return distinct random messages."""
    chance = random.Random(seed)
    return [bytes((number,)) + chance.randbytes(chance.randrange(least, most)) for number in range(COUNT)]


def post(wire: Wire, a, b, sent: list[bytes], **more) -> None:
    for number, data in enumerate(sent):
        wire.b.receive(b, number, number * ROOM, ROOM)
        wire.a.put(number * ROOM, data)
        wire.a.send(a, number, number * ROOM, len(data), **more)
    wire.run(3)


def received(wire: Wire, skipped: int = 0) -> list[bytes]:
    """Return the received messages in the order of their completions."""
    done = taken(wire.b.cq, 100)
    assert {int(item.status) for item in done} <= ENDS
    return [wire.b.get(item.wr_id * ROOM, item.byte_len)[skipped:] for item in done if item.status == OK]


@settings(max_examples=40)
@given(FAULTS, st.integers(0, 1 << 30))
def test_rc_delivers_all_once_in_order_or_ends_in_an_error(faults, seed):
    wire, sent = Wire(faults), messages(seed, 0, 5000)
    a, b = connected(wire, retry_cnt=7, timeout=8)
    post(wire, a, b, sent)
    ends = [status for _, status in wire.a.done()]
    came = received(wire)
    assert came == sent[: len(came)]
    if a.state != ibv_qp_state.IBV_QPS_ERR:
        assert (ends, len(came)) == ([OK] * COUNT, COUNT)
    assert len(ends) == COUNT
    assert set(ends) <= ENDS


@settings(max_examples=40)
@given(FAULTS, st.integers(0, 1 << 30))
def test_uc_delivers_whole_messages_or_none(faults, seed):
    wire, sent = Wire(faults), messages(seed, 0, 5000)
    a, b = connected(wire, Service.UC)
    post(wire, a, b, sent)
    assert set(received(wire)) <= set(sent)


@settings(max_examples=40)
@given(FAULTS, st.integers(0, 1 << 30))
def test_ud_delivers_whole_messages_or_none(faults, seed):
    wire, sent = Wire(faults), messages(seed, 0, 900)
    a, b = connected(wire, Service.UD)
    a.settings.q_key = b.settings.q_key = 5
    post(wire, a, b, sent, ah="b", remote_qp=b.number, q_key=5)
    assert set(received(wire, GRH.size)) <= set(sent)


def test_bits_do_turn_over():
    faults = Corruption(1, 0, 0, 0, 1.0)
    wire, sent = Wire(faults), messages(1, 100, 200)
    a, b = connected(wire, Service.UC)
    post(wire, a, b, sent)
    assert faults.refused == COUNT
    assert received(wire) == []
