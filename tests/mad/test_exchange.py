"""Many requests as arrays: over the carrier in this process, their bookkeeping, and their datagrams."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.mad import faults
from weft.mad.bulk import Bulk
from weft.mad.carrier import HERE, Address, Arrived, Polled, exchange_singly
from weft.mad.datagrams import BATCH, Datagrams
from weft.mad.ibsim_packets import HEAD_BYTES, heads_of, packet
from weft.wire.mad import Mad, Method, MgmtClass
from weft.wire.smp import PERMISSIVE_LID, DirectedSmp, NodeInfo, Smp, SmpAttribute

GET, INFO = Method.GET, SmpAttribute.NODE_INFO


def rows(*mads: bytes) -> np.ndarray:
    return np.frombuffer(b"".join(mads), np.uint8).reshape(-1, 256)


def to_port(*path: int) -> bytes:
    return DirectedSmp.pack(method=GET, attribute_id=INFO, hop_count=len(path), initial_path=bytes([0, *path]))


# -- in this process --


def test_rows_come_back_in_their_order_and_zeros_where_none_came(bench):
    requests = rows(to_port(), to_port(1), to_port(7), to_port(1, 3))
    answers, came = bench.carrier.exchange(requests, timeout_ms=100, retries=2)
    assert came.tolist() == [True, True, False, True]
    assert not answers[2].any()
    types = [NodeInfo.unpack(answers[row].tobytes(), 64).node_type for row in (0, 1, 3)]
    assert types == [1, 2, 2]
    assert bench.clock.now_s == pytest.approx(0.3, abs=0.01)  # all tries of the request without a destination


def test_a_later_try_is_enough(bench):
    slot = bench.slot_of("h1/1")
    faults.pull_cable(bench.devices, slot)
    sleep = bench.carrier._sleep

    def mend(seconds):
        sleep(seconds)
        if bench.clock() > 0.15:
            faults.plug_cable(bench.devices, slot)

    bench.carrier._sleep = mend
    _, came = bench.carrier.exchange(rows(*[to_port(1)] * 5), timeout_ms=100, retries=3)
    assert came.all()
    assert bench.clock() == pytest.approx(0.2, abs=0.01)


def test_by_lid_each_to_its_own(running):
    lids = [running.lid(name) for name in ("h2", "leaf1", "h8")]
    question = Smp.pack(method=GET, attribute_id=INFO)
    answers, came = running.carrier.exchange(rows(*[question] * 3), np.array(lids))
    assert came.all()
    guids = [NodeInfo.unpack(answer.tobytes(), 64).node_guid for answer in answers]
    assert guids == [running.devices.fabric.nodes.guid[running.node(name)] for name in ("h2", "leaf1", "h8")]


@pytest.mark.parametrize("singly", [False, True])
def test_other_mads_are_kept_for_poll_and_arrivals(running, singly):
    other = running.carrier_at(running.slot_of("h3/1"))
    running.carrier.register(MgmtClass.SUBN_ADM, [GET])
    before = running.carrier.send(to_port(1))
    other.post(Mad.pack(mgmt_class=MgmtClass.SUBN_ADM, method=GET), Address(running.lid("h1")))
    if singly:
        lids = np.full(2, PERMISSIVE_LID)
        _, came = exchange_singly(running.carrier, rows(to_port(), to_port(1)), lids, timeout_ms=100, retries=0)
    else:
        _, came = running.carrier.exchange(rows(to_port(), to_port(1)))
    assert came.all()
    assert [token for token, answer in running.carrier.poll() if answer] == [before]
    assert [arrival.source.lid for arrival in running.carrier.arrivals()] == [running.lid("h3")]


def test_no_request_takes_no_time(bench):
    answers, came = bench.carrier.exchange(rows())
    assert answers.shape == (0, 256)
    assert came.shape == (0,)


def test_the_shape_must_be_right(bench):
    with pytest.raises(ConfigError, match=r"uint8\[n, 256\], not \(3, 64\)"):
        bench.carrier.exchange(np.zeros((3, 64), np.uint8))
    with pytest.raises(ConfigError, match="3 MADs, but 2 LIDs"):
        bench.carrier.exchange(np.zeros((3, 256), np.uint8), np.array([1, 2]))


def test_a_poll_waits_until_a_message_has_arrived():
    waits = []

    class Later(Polled):
        def _go_on(self, wait_s: float) -> None:
            waits.append(wait_s > 0)
            if len(waits) == 3:
                self._arrived.append(Arrived(b"", HERE))

    assert Later().poll(60.0) == []
    assert waits == [False, True, True]


# -- the bookkeeping --

TIMEOUT_S = 1.0
LOST, BOUNCED, ANSWERED, TWICE, AGAIN, LATE = "lost", "bounced", "answered", "twice", "again", "late"
FATES = st.lists(st.sampled_from([LOST, BOUNCED, ANSWERED, TWICE, AGAIN, LATE]), min_size=4, max_size=4)


@given(fates=st.lists(FATES), retries=st.integers(0, 3), at_once=st.integers(1, 7), takes=st.integers(1, 7))
@settings(max_examples=200)
def test_every_row_ends_as_its_tries_did(fates, retries, at_once, takes):
    """`fates`: the outcome of each try of each row. A late answer arrives after its try has timed out."""
    bulk, now_s = Bulk(len(fates), TIMEOUT_S, retries), 0.0
    tries, late = np.zeros(len(fates), int), []
    while not bulk.is_over or late:
        requests = bulk.to_send(at_once - bulk.under_way)
        sent = requests[:takes]
        bulk.put_back(requests[takes:])
        bulk.on_sent(sent, now_s)
        assert bulk.under_way <= at_once
        happened = [(row, fates[row][tries[row]]) for row in sent.tolist()]
        tries[sent] += 1
        result = [row for row, fate in happened if fate in (ANSWERED, TWICE, AGAIN)]
        result += [row for row, fate in happened if fate == TWICE] + [row for row, when_s in late if when_s <= now_s]
        late = [(row, when_s) for row, when_s in late if when_s > now_s]
        late += [(row, now_s + TIMEOUT_S) for row, fate in happened if fate in (LATE, AGAIN)]
        bulk.on_answers(
            np.array(result, int), np.array([[row % 251] * 256 for row in result], np.uint8).reshape(-1, 256)
        )
        bulk.on_bounced(np.array([row for row, fate in happened if fate == BOUNCED], int))
        now_s += 0 if len(sent) else TIMEOUT_S / 4
        bulk.on_timer(now_s)
        assert now_s < (retries + 2) * (len(fates) + 2) * TIMEOUT_S, "it never ends"
    assert bulk.under_way == 0
    for row, mine in enumerate(fates):
        assert tries[row] <= retries + 1
        met = mine[: tries[row]]
        if bulk.came[row]:
            assert {ANSWERED, TWICE, AGAIN, LATE} & set(met)
            assert not {ANSWERED, TWICE, AGAIN} & set(met[:-1]), "an answer is the end"
            assert (bulk.answers[row] == row % 251).all()
        else:
            assert len(met) == retries + 1
            assert not {ANSWERED, TWICE, AGAIN} & set(met)
            assert not bulk.answers[row].any()


# -- datagrams --

KIND = np.dtype([("number", ">u4"), ("rest", np.uint8, 60)])


@pytest.fixture
def pair():
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in ends:
        end.setblocking(False)
    yield ends
    for end in ends:
        end.close()


def test_datagrams_come_as_they_were_sent(pair):
    ours, theirs = (Datagrams(end, KIND) for end in pair)
    assert len(theirs.receive()) == 0
    ours.outbox["number"] = np.arange(BATCH)
    ours.outbox["rest"] = np.arange(BATCH, dtype=np.uint8)[:, None]
    assert ours.send(5) == 5
    inbox = theirs.receive()
    assert inbox["number"].tolist() == [0, 1, 2, 3, 4]
    assert (inbox["rest"][3] == 3).all()


def test_mads_of_another_size_are_left_out(pair):
    line = Datagrams(pair[0], KIND)
    for size in (63, 64, 65, 300, 64):
        pair[1].send(bytes(size))
    assert len(line.receive()) == 2


def test_a_full_socket_takes_a_part(pair):
    ours, theirs = (Datagrams(end, KIND) for end in pair)
    ours.outbox["number"] = np.arange(BATCH)
    sent = []
    while not sent or sent[-1] == BATCH:
        sent.append(ours.send(BATCH))
    assert ours.send(1) == 0
    numbers = []
    while len(inbox := theirs.receive()):
        numbers += inbox["number"].tolist()
    assert numbers == [n for count in sent for n in range(count)]
    assert ours.send(3) == 3


def test_an_end_that_is_gone_is_an_error(pair):
    line = Datagrams(pair[0], KIND)
    pair[1].close()
    with pytest.raises(OSError):  # noqa: PT011 - which one is the kernel's choice
        line.send(1)


@given(st.lists(st.tuples(st.sampled_from([1, 0x81, 3, 4, 0x21]), st.integers(1, 0xFFFF)), min_size=1))
def test_many_heads_are_those_of_single_packets(asked):
    classes, lids = (np.array(column) for column in zip(*asked, strict=True))
    heads = heads_of(classes.astype(np.uint8), lids)
    for row, (mgmt_class, lid) in enumerate(asked):
        single = packet(Mad.pack(mgmt_class=mgmt_class), HERE if lid == HERE.lid else Address(lid))
        assert heads[row].tobytes() == single[:HEAD_BYTES]
