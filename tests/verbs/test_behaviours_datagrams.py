"""Required behaviour of an InfiniBand transport, as in test_behaviours.py: datagrams, partitions, addresses, states."""

from __future__ import annotations

import pytest
from tests.verbs.segments import arrive, completions, events, lose, request
from tests.verbs.wires import Wire, connected

from weft.verbs.enums import (
    IBV_WC_GRH,
    ibv_event_type,
    ibv_qp_state,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.hca.carrier import Arrival
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.segment import Op, Segment, Service, psn_after
from weft.verbs.hca.work import SendWork

S = ibv_qp_state
E = ibv_event_type
OK = int(ibv_wc_status.IBV_WC_SUCCESS)
FLUSHED = int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)
INVALID_REQUEST = int(ibv_wc_status.IBV_WC_REM_INV_REQ_ERR)


# -- datagrams and unreliable connections -----------------------------------------------------------------------------


def datagrams(wire: Wire, **settings: int) -> tuple[QueuePair, QueuePair]:
    a, b = connected(wire, Service.UD, q_key=0x11, **settings)
    return a, b


def send_datagram(wire: Wire, a: QueuePair, b: QueuePair, size: int, q_key: int = 0x11) -> None:
    wire.a.send(a, 1, 0, size, ah="b", remote_qp=b.number, q_key=q_key)
    wire.run()


def test_41_a_datagram_lies_behind_forty_bytes_of_route():
    wire = Wire()
    a, b = datagrams(wire)
    wire.b.receive(b, 1, 0, 100)
    wire.a.put(0, b"datagram")
    grh = bytes(range(1, 41))
    segment = Segment(op=Op.SEND, service=Service.UD, dest_qp=b.number, psn=0, q_key=0x11, payload=b"datagram")
    wire.ends["b"].inbox.append(Arrival(segment=segment, source="a", grh=grh))
    wire.run()
    (done,) = completions(wire)
    assert (done.byte_len, done.wc_flags & IBV_WC_GRH, done.src_qp) == (48, IBV_WC_GRH, 0)
    assert wire.b.get(0, 48) == grh + b"datagram"
    assert a.state == S.IBV_QPS_RTS


def test_41_a_datagram_that_was_sent_is_completed_only_if_that_was_asked():
    wire = Wire()
    a, b = datagrams(wire)
    for number, signal_all in enumerate((False, True)):
        a.signal_all = signal_all
        wire.b.receive(b, number, 0, 100)
        work = SendWork(wr_id=number, opcode=ibv_wr_opcode.IBV_WR_SEND, places=(wire.a.place(0, 10),), ah="b")
        work.remote_qp, work.q_key = b.number, 0x11
        a.post_send(work)
        wire.a.adapter.wake(a)
        wire.run()
        assert wire.b.done() == [(number, OK)]
        assert wire.a.done() == [(number, OK)] * signal_all


def test_42_a_datagram_with_another_q_key_is_dropped_and_counted():
    wire = Wire()
    a, b = datagrams(wire)
    for number in range(3):
        wire.b.receive(b, number, 0, 100)
    send_datagram(wire, a, b, 10, q_key=0x12)
    assert (wire.b.done(), wire.b.adapter.counters["qkey_violations"]) == ([], 1)
    send_datagram(wire, a, b, 10, q_key=0x8000_0012)  # the sender's own Q_Key, which matches
    assert wire.b.done() == [(0, OK)]


def test_43_a_datagram_longer_than_a_packet_leaves_nothing_behind():
    wire = Wire()
    a, b = datagrams(wire)
    wire.b.receive(b, 1, 0, 10_000)
    send_datagram(wire, a, b, 4097)
    assert (wire.a.done(), wire.ends["a"].sent) == ([(1, OK)], [])  # not even an error: C10-93.1.1
    assert wire.a.adapter.counters["oversized_datagrams"] == 1
    assert a.state == S.IBV_QPS_RTS
    send_datagram(wire, a, b, 4096)
    assert wire.b.done() == [(1, OK)]


def test_43_a_datagram_without_a_receive_request_is_dropped():
    wire = Wire()
    a, b = datagrams(wire)
    send_datagram(wire, a, b, 10)
    assert (wire.a.done(), wire.ends["b"].sent) == ([(1, OK)], [])
    assert wire.b.adapter.counters["no_receive"] == 1


def test_43_a_group_is_all_queue_pairs_that_joined_it():
    wire = Wire()
    members = [wire.b.queue_pair(Service.UD) for _ in range(3)]
    for number, qp in enumerate(members):
        qp.settings.q_key = 0x11
        for state in (S.IBV_QPS_INIT, S.IBV_QPS_RTR):
            qp.enter(state)
        wire.b.receive(qp, number, 100 * number, 100)
    for qp in members[:2]:
        wire.b.adapter.join(qp, "group")
        wire.b.adapter.join(qp, "group")
    segment = Segment(op=Op.SEND, service=Service.UD, dest_qp=0xFF_FFFF, psn=0, q_key=0x11, payload=b"to all")
    wire.ends["b"].inbox.append(Arrival(segment=segment, source="a", group="group"))
    wire.run()
    assert wire.b.done() == [(0, OK), (1, OK)]
    assert wire.b.adapter.leave(members[0], "group")
    assert not wire.b.adapter.leave(members[0], "group")


def test_44_uc_answers_nothing_and_completes_what_is_sent():
    wire = Wire(lose(1))
    a, b = connected(wire, Service.UC)
    for number in range(2):
        wire.b.receive(b, number, 0, 3000)
        wire.a.send(a, number, 0, 3000)
    wire.run()
    assert wire.a.done() == [(0, OK), (1, OK)]
    assert wire.b.done() == [(0, OK)]  # the first message is lost as a whole; its buffer is used by the second
    assert wire.ends["b"].sent == []


def test_44_a_gap_between_messages_is_none_of_uc():
    wire = Wire()
    _, b = connected(wire, Service.UC)
    for number in range(2):
        wire.b.receive(b, number, 0, 3000)
    arrive(wire, request(b, Op.SEND, 500, b"whole"))
    arrive(wire, request(b, Op.SEND, 503, bytes(1024), last=False))
    arrive(wire, request(b, Op.SEND, 505, b"end", first=False))  # 504 was lost
    assert wire.b.done() == [(0, OK)]
    assert (b.state, wire.ends["b"].sent) == (S.IBV_QPS_RTS, [])


# -- partitions and addresses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sender", "receiver", "arrives"),
    [
        (0x8001, 0x8001, True),
        (0x8001, 0x0001, True),
        (0x0001, 0x8001, True),
        (0x0001, 0x0001, False),
        (0x8001, 0x8002, False),
        (0x8000, 0x8000, False),
    ],
)
def test_45_partitions_must_be_the_same_and_one_of_the_two_a_full_member(sender, receiver, arrives):
    wire = Wire()
    a, b = connected(wire, timeout=0)
    wire.a.adapter.p_keys, wire.b.adapter.p_keys = (sender,), (receiver,)
    wire.b.receive(b, 1, 0, 10)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    assert (wire.b.done() == [(1, OK)]) is arrives
    assert wire.b.adapter.counters["pkey_violations"] == (not arrives)


def test_45_an_answer_is_of_the_same_partition_as_its_question():
    wire = Wire()
    a, b = connected(wire, pkey_index=1)
    wire.a.adapter.p_keys, wire.b.adapter.p_keys = (0xFFFF, 0x8005), (0x7FFF, 0x0005)
    wire.b.receive(b, 1, 0, 10)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    assert wire.a.done() == [(1, OK)]
    assert [item.p_key for item in wire.ends["a"].sent + wire.ends["b"].sent] == [0x8005, 0x0005]


def test_45_a_partition_that_the_port_left_is_none():
    wire = Wire()
    a, b = connected(wire, pkey_index=1, timeout=0)
    wire.a.adapter.p_keys = (0xFFFF, 0x8005)
    wire.b.receive(b, 1, 0, 10)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    assert (wire.b.done(), wire.b.adapter.counters["pkey_violations"]) == ([], 1)


def test_46_a_connection_takes_nothing_from_strangers():
    wire = Wire()
    _, b = connected(wire)
    wire.b.receive(b, 1, 0, 10)
    arrive(wire, request(b, Op.SEND, 0, b"x"), source="stranger")
    assert (wire.b.done(), wire.ends["b"].sent, wire.b.adapter.counters["strangers"]) == ([], [], 1)


def test_46_nobody_has_queue_pair_0():
    wire = Wire()
    connected(wire)
    arrive(wire, Segment(op=Op.SEND, service=Service.RC, dest_qp=0, psn=0))
    assert wire.b.adapter.counters["no_queue_pair"] == 1


def test_47_ends_that_disagree_on_the_mtu_do_not_understand_each_other():
    wire = Wire(lambda packet: [packet])
    a, b = connected(wire)
    b.settings.mtu_bytes = 512
    wire.b.receive(b, 1, 0, 4096)
    wire.a.send(a, 1, 0, 4096)
    wire.run()
    assert wire.a.done() == [(1, INVALID_REQUEST)]
    assert b.state == S.IBV_QPS_ERR


# -- states -----------------------------------------------------------------------------------------------------------


def test_49_reset_empties_all_and_begins_anew():
    wire = Wire(lambda packet: [])
    a, _ = connected(wire)
    wire.a.receive(a, 9, 0, 10)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    a.enter(S.IBV_QPS_RESET)
    assert (len(a.sends), len(a.receives), a.requester.next_s()) == (0, 0, None)
    wire.run(0.1)
    assert wire.a.done() == []


def test_49_what_was_answered_before_a_reset_is_forgotten():
    wire = Wire()
    a, b = connected(wire)
    wire.a.send(a, 1, 0, 8, ibv_wr_opcode.IBV_WR_RDMA_READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    settings, again = b.settings, request(b, Op.READ, 0, va=wire.b.at, rkey=wire.b.region.key, length=8)
    wire.ends["b"].sent.clear()
    b.enter(S.IBV_QPS_RESET)
    arrive(wire, again)
    assert wire.ends["b"].sent == []
    b.settings = settings
    b.settings.rq_psn = 100
    for state in (S.IBV_QPS_INIT, S.IBV_QPS_RTR):
        b.enter(state)
    assert (b.record.msn, b.record.expected_psn) == (0, 100)
    arrive(wire, again)
    assert wire.ends["b"].sent == []


def test_50_error_flushes_both_queues():
    wire = Wire(lambda packet: [])
    a, _ = connected(wire)
    wire.a.receive(a, 9, 0, 10)
    wire.a.send(a, 1, 0, 10)
    a.enter(S.IBV_QPS_ERR)
    assert wire.a.done() == [(1, FLUSHED), (9, FLUSHED)]
    wire.a.send(a, 2, 0, 10)
    wire.a.receive(a, 3, 0, 10)
    assert wire.a.done() == [(2, FLUSHED), (3, FLUSHED)]


def test_50_error_flushes_a_message_that_has_begun():
    wire = Wire()
    _, b = connected(wire)
    for number in (7, 8):
        wire.b.receive(b, number, 0, 4096)
    arrive(wire, request(b, Op.SEND, 0, bytes(b.settings.mtu_bytes), last=False))
    b.enter(S.IBV_QPS_ERR)
    assert wire.b.done() == [(7, FLUSHED), (8, FLUSHED)]


def test_50_a_drained_queue_has_finished_what_it_began_and_tells():
    held: list[Segment] = []
    wire = Wire(lambda packet: held.append(packet) or [])
    a, b = connected(wire, timeout=0)
    observed = events(a)
    wire.b.receive(b, 1, 0, 10)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    a.wants_drained = True
    a.enter(S.IBV_QPS_SQD)
    wire.a.send(a, 2, 0, 10)
    wire.run()
    assert observed == []
    wire.fate = None
    arrive(wire, held[0])
    assert (wire.a.done(), observed) == ([(1, OK)], [E.IBV_EVENT_SQ_DRAINED])
    assert len(wire.ends["a"].sent) == 1
    a.enter(S.IBV_QPS_RTS)
    wire.b.receive(b, 2, 0, 10)
    wire.run()
    assert wire.a.done() == [(2, OK)]


def test_50_the_first_packet_before_rts_is_told():
    wire = Wire()
    a, b = connected(wire)
    b.state, observed = S.IBV_QPS_RTR, events(b)
    for number in range(2):
        wire.b.receive(b, number, 0, 10)
        wire.a.send(a, number, 0, 10)
    wire.run()
    assert observed == [E.IBV_EVENT_COMM_EST]
    assert b.record.expected_psn == psn_after(0, 2)


def test_51_a_refused_request_is_an_event_of_the_responder():
    wire = Wire()
    a, b = connected(wire)
    observed = events(b)
    wire.b.receive(b, 1, 0, 10)
    wire.a.send(a, 1, 0, 11)
    wire.run()
    assert observed == [E.IBV_EVENT_QP_REQ_ERR]
