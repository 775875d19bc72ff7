"""The shared-memory path has the same effects as packets, to the last byte, status and PSN."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.patience import wait_until
from tests.verbs.hosts import CAP, REMOTE, Node, connect, poll
from tests.verbs.peers import Peer, connect_to

from weft.verbs import enums as e
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca import execute
from weft.verbs.hca.packets import encode
from weft.verbs.hca.segment import Segment
from weft.verbs.hca.work import SendWork
from weft.verbs.pyverbs.cq import CQ, CompChannel
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.qp import QP
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR
from weft.verbs.shm import native, requests
from weft.verbs.shm.atomic import acquire, view
from weft.verbs.shm.layout import MeterRecord
from weft.verbs.shm.meter import count
from weft.verbs.shm.queue_memory import QueueMemory, break_lock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes share memory on Linux only")
OK = e.IBV_WC_SUCCESS
view_meter = view(MeterRecord)
MIDDLE = 2048  # offset in a node's memory: sources below, destinations above


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as result:
        yield result


# -- the same as packets ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    opcode: int
    sizes: tuple[int, ...]  # bytes of each element
    offset: int = 0  # there
    flags: int = 0
    immediate: int = 0
    compare: int = 0
    swap: int = 0
    key: str = "right"
    receive: tuple[int, ...] | None = (600,)  # bytes of each element of a receive request posted before


_SIZES = st.lists(st.sampled_from((0, 1, 3, 8, 64, 200)), min_size=1, max_size=3).map(tuple)
_NUMBERS = st.integers(0, (1 << 64) - 1)
REQUESTS = st.builds(
    Request,
    opcode=st.sampled_from(
        (
            e.IBV_WR_SEND,
            e.IBV_WR_SEND_WITH_IMM,
            e.IBV_WR_RDMA_WRITE,
            e.IBV_WR_RDMA_WRITE_WITH_IMM,
            e.IBV_WR_RDMA_READ,
            e.IBV_WR_ATOMIC_CMP_AND_SWP,
            e.IBV_WR_ATOMIC_FETCH_AND_ADD,
        )
    ),
    sizes=st.one_of(_SIZES, st.just((8,))),
    offset=st.sampled_from((0, 0, 8, 100, 2048, 4000)),
    flags=st.sampled_from((0, e.IBV_SEND_SIGNALED, e.IBV_SEND_SIGNALED | e.IBV_SEND_SOLICITED)),
    immediate=st.integers(0, 0xFFFF_FFFF),
    compare=st.one_of(st.just(0), _NUMBERS),
    swap=_NUMBERS,
    key=st.sampled_from(("right",) * 9 + ("wrong", "stranger's")),
    receive=st.one_of(st.just((600,)), _SIZES, st.none()),
)


class World:
    """A pair of queue pairs in one process, with or without a shared-memory path."""

    def __init__(self, *, short: bool, kind: int = e.IBV_QPT_RC, completions: int = 100) -> None:
        self.node = Node()
        self.told = CQ(self.node.ctx, completions)
        self.a, self.b = self.node.qp(kind), self.node.qp(kind, cq=self.told)
        for mine, other in ((self.a, self.b), (self.b, self.a)):
            attr = self.node.connected_attr(other.qp_num)
            attr.rnr_retry, attr.path_mtu = 0, e.IBV_MTU_256
            mine.to_rts(attr)
        self.node.mr.write(bytes(range(256)) * 8, MIDDLE)
        self.stranger = MR(self.node.other_pd(), 4096, e.IBV_ACCESS_LOCAL_WRITE | REMOTE)
        if short:
            assert self.a.core.find_shm_path(at_once=True) is not None

    def end(self) -> None:
        self.stranger.close()
        self.node.ctx.close()

    def elements(self, sizes: tuple[int, ...], at: int) -> list[SGE]:
        result = []
        for size in sizes:
            result.append(self.node.sge(at, size))
            at += size
        return result

    def do(self, request: Request) -> list[tuple[int, ...]]:
        """Execute a request and return its completions at both ends."""
        if request.receive is not None:
            elements = self.elements(request.receive, 3000)
            self.b.post_recv(RecvWR(wr_id=7, num_sge=len(elements), sg=elements))
        key = {"right": self.node.mr.rkey, "wrong": self.node.mr.rkey + 1, "stranger's": self.stranger.rkey}
        elements = self.elements(request.sizes, 0)
        work = SendWR(9, request.opcode, len(elements), request.immediate, elements, request.flags)
        va = self.node.mr.buf + MIDDLE + request.offset
        if request.opcode in (e.IBV_WR_ATOMIC_CMP_AND_SWP, e.IBV_WR_ATOMIC_FETCH_AND_ADD):
            work.set_wr_atomic(key[request.key], va, request.compare, request.swap)
        else:
            work.set_wr_rdma(key[request.key], va)
        try:
            self.a.post_send(work)
        except PyverbsRDMAError as error:  # not supported by this type of queue pair
            return [(error.error_code,)]
        while self.a.core.sends:
            self.a.core.adapter.progress()
        return [self.seen(wc, self.a) for wc in self.node.cq.poll(50)[1]] + [
            self.seen(wc, self.b) for wc in self.told.poll(50)[1]
        ]

    def seen(self, wc: Any, qp: QP) -> tuple[int, ...]:
        assert wc.qp_num == qp.qp_num
        own = wc.wr_id, wc.status
        if wc.status != OK:
            return own
        from_a = int(wc.src_qp == self.a.qp_num)
        return (*own, wc.opcode, wc.byte_len, wc.wc_flags, wc.imm_data if wc.wc_flags else 0, wc.pkey_index, from_a)

    def state(self) -> tuple[Any, ...]:
        a, b = self.a.core, self.b.core
        memory = self.node.mr.read(4096, 0)
        return a.state, b.state, a.record.next_psn, b.record.expected_psn, b.record.msn, len(b.receives), memory


@given(requests=st.lists(REQUESTS, max_size=6), kind=st.sampled_from((e.IBV_QPT_RC, e.IBV_QPT_UC)))
@settings(max_examples=90)
def test_a_lane_does_what_packets_do(requests, kind):
    worlds = World(short=False, kind=kind), World(short=True, kind=kind)
    try:
        packets, path = worlds
        for request in requests:
            if packets.a.core.state != e.IBV_QPS_RTS:
                break
            assert path.do(request) == packets.do(request)
            assert path.state() == packets.state()
        assert packets.a.core.shm_path is None
    finally:
        for world in worlds:
            world.end()


@pytest.mark.parametrize("more", [0, 1])
def test_a_lane_fills_a_completion_queue_and_overflows_it_as_packets_do(more):
    outcomes = []
    for short in (False, True):
        world = World(short=short, completions=4)
        capacity = world.told.core.record.capacity
        elements = world.elements((8,), 0)
        for number in range(capacity + more):
            world.b.post_recv(RecvWR(wr_id=number, num_sge=1, sg=world.elements((8,), 3000)))
            world.a.post_send(SendWR(9, e.IBV_WR_SEND, 1, 0, elements, 0))
            for _ in range(20):
                world.a.core.adapter.progress()
        record = world.told.core.record
        outcomes.append((record.head - record.tail, record.is_broken, world.b.core.state))
        assert record.head - record.tail == capacity
        world.end()
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1] == more


@given(
    size=st.integers(0, 1000),
    opcode=st.sampled_from((0, 1, 2, 3, 4, 5, 6)),
    kind=st.sampled_from((e.IBV_QPT_RC, e.IBV_QPT_UC)),
)
@settings(max_examples=40)
def test_a_meter_counts_the_packets_that_were_not_sent(size, opcode, kind):
    if kind == e.IBV_QPT_UC:
        opcode %= 4  # the operations without a response
    if opcode in (e.IBV_WR_ATOMIC_CMP_AND_SWP, e.IBV_WR_ATOMIC_FETCH_AND_ADD):
        size = 8
    request = Request(opcode=opcode, sizes=(size,), receive=(1000,))
    packets, path = World(short=False, kind=kind), World(short=True, kind=kind)
    try:
        sent: list[tuple[int, int]] = []
        carrier = packets.a.core.adapter.carrier

        def count(segment: Segment, to: object, mtu_bytes: int) -> None:
            response = segment.dest_qp == packets.a.qp_num
            for headers, payload in encode(segment, mtu_bytes):
                padded = -(-len(payload) // 4) * 4
                sent.append((response, sum(len(header.raw) for header in headers) + padded + 4))
            type(carrier).send(carrier, segment, to, mtu_bytes)

        carrier.send = count
        try:
            packets.do(request)
        finally:
            del carrier.send
        meter = path.a.core.shm_path._peer.meter
        meter.requests = meter.request_bytes = meter.responses = meter.response_bytes = 0  # all paths share it
        assert path.do(request)
        present, back = ([size for choice, size in sent if choice == response] for response in (False, True))
        assert (meter.requests, meter.request_bytes) == (len(present), sum(present))
        assert (meter.responses, meter.response_bytes) == (len(back), sum(back))
    finally:
        packets.end()
        path.end()


@numba.njit(nogil=True)
def send_many(address: int, times: int) -> None:
    meter = view_meter(address)
    while acquire(meter, "is_open") == 0:
        pass
    for _ in range(times):
        if acquire(meter, "is_open") != 0:
            count(meter, requests.SEND, 100, 1, 0, True)


def test_threads_that_share_a_meter_lose_no_counts():
    meter, times = MeterRecord(is_open=1), 3_000_000
    address = ctypes.addressof(meter)
    send_many(address, 0)
    meter.is_open = 0
    with ThreadPoolExecutor(2) as threads:
        senders = [threads.submit(send_many, address, times) for _ in range(2)]
        wait_until(lambda: all(sender.running() for sender in senders))
        meter.is_open = 1
    assert (meter.requests, meter.responses) == (2 * times, 2 * times)


def test_shared_memory_is_for_connections_that_are_used_much(node):
    a, b = connect(node, e.IBV_QPT_RC)
    work = SendWR(1, e.IBV_WR_RDMA_WRITE, 1, 0, [node.sge(0, 8)], e.IBV_SEND_SIGNALED)
    work.set_wr_rdma(node.mr.rkey, node.mr.buf + MIDDLE)
    for _ in range(20):
        a.post_send(work)
        poll(node.cq, 1)
    assert (a.core.shm_path is not None, b.core.shm_path) == (True, None)


def test_a_queue_pair_that_is_reset_has_no_lane_and_gets_another(node):
    a, b = connect(node, e.IBV_QPT_RC)
    assert a.core.find_shm_path(at_once=True) is not None
    a.core.enter(e.IBV_QPS_RESET)
    assert a.core.shm_path is None
    for mine, other in ((a, b), (b, a)):
        mine.core.enter(e.IBV_QPS_RESET)
        mine.to_rts(node.connected_attr(other.qp_num))
    assert a.core.find_shm_path(at_once=True) is not None


def test_earlier_packets_precede_the_shared_memory_path(node):
    """A receive request is missing: all requests wait behind the one that needs it."""
    a, b = connect(node, e.IBV_QPT_RC)
    a.core.find_shm_path(at_once=True)
    send = SendWR(1, e.IBV_WR_SEND, 1, 0, [node.sge(0, 8)], e.IBV_SEND_SIGNALED)
    write = SendWR(2, e.IBV_WR_RDMA_WRITE, 1, 0, [node.sge(0, 8)], e.IBV_SEND_SIGNALED)
    write.set_wr_rdma(node.mr.rkey, node.mr.buf + MIDDLE)
    a.post_send(send)
    a.post_send(write)
    assert len(a.core.sends) == 2
    b.post_recv(RecvWR(3, 1, [node.sge(MIDDLE, 8)]))
    assert [wc.wr_id for wc in poll(node.cq, 3) if wc.opcode < e.IBV_WC_RECV] == [1, 2]
    a.post_send(write)
    assert not a.core.sends
    assert poll(node.cq, 1)[0].status == OK


# -- two processes ----------------------------------------------------------------------------------------------------


def to(peer: Peer, address: int, size: int, lkey: int, opcode: int = e.IBV_WR_RDMA_WRITE) -> SendWR:
    work = SendWR(1, opcode, 1, 0, [SGE(address, size, lkey)], e.IBV_SEND_SIGNALED)
    work.set_wr_rdma(peer.rkey, peer.address)
    return work


@pytest.mark.parametrize("kind", ["its own", "the program's"])
def test_memory_of_another_process_is_written_and_read(node, kind):
    size = 3 << 20
    with Peer() as peer:
        near, _ = connect_to(node, peer)
        program = bytearray(os.urandom(size))
        mine = (
            MR(node.pd, size, e.IBV_ACCESS_LOCAL_WRITE)
            if kind == "its own"
            else MR(node.pd, size, e.IBV_ACCESS_LOCAL_WRITE, address=program)
        )
        ctypes.memmove(mine.buf, bytes(program), size)
        assert near.core.find_shm_path(at_once=True) is not None
        near.post_send(to(peer, mine.buf, size, mine.lkey))
        assert not near.core.sends
        assert poll(node.cq, 1)[0].status == OK
        before = mine.read(size, 0)
        ctypes.memset(mine.buf, 0, size)
        near.post_send(to(peer, mine.buf, size, mine.lkey, e.IBV_WR_RDMA_READ))
        assert not near.core.sends
        assert poll(node.cq, 1)[0].status == OK
        assert mine.read(size, 0) == before
        mine.close()


def test_waiting_requests_use_a_lane_when_it_opens(node):
    """A program that always has outstanding requests switches to it too."""
    with Peer() as peer:
        near, _ = connect_to(node, peer)
        carried = []
        for number in range(200):
            work = to(peer, node.mr.buf, 64, node.mr.lkey)
            work.wr_id = number
            near.post_send(work)
            carried.append(near.core.shm_path is not None and not near.core.sends)
            if number >= 4:
                assert [(wc.wr_id, wc.status) for wc in poll(node.cq, 1)] == [(number - 4, OK)]
        assert carried[-1]
        assert [wc.wr_id for wc in poll(node.cq, 4)] == [196, 197, 198, 199]


def test_no_path_overtakes_a_completion_that_the_other_end_does_not_have_yet(node):
    """A SEND from b to a does not use the path while a request of a is complete at b but not at a."""
    a, b = connect(node, e.IBV_QPT_RC)
    path = b.core.find_shm_path(at_once=True)
    for name, code in (("telling", requests.BUSY), ("unacked", requests.SLOW)):
        a.post_recv(RecvWR(num_sge=1, sg=[node.sge(MIDDLE, 8)]))
        request = SendWR(num_sge=1, sg=[node.sge(0, 8)], opcode=e.IBV_WR_SEND, send_flags=e.IBV_SEND_SIGNALED)
        setattr(a.core.record, name, 1)
        assert execute.post(path.words, request.raw) == code
        setattr(a.core.record, name, 0)
        assert execute.post(path.words, request.raw) == requests.DONE
        assert [wc.opcode for wc in poll(node.cq, 2)] == [e.IBV_WC_RECV, e.IBV_WC_SEND]


@pytest.mark.parametrize("kind", [e.IBV_QPT_RC, e.IBV_QPT_UC])
def test_the_first_request_takes_the_path_to_a_queue_pair_that_never_sends(node, kind):
    """It stays in RTR, as the server of `ib_write_bw` does, and gets IBV_EVENT_COMM_EST once."""
    a, b = node.qp(kind), node.qp(kind)
    a.to_rts(node.connected_attr(b.qp_num))
    b.to_rtr(node.connected_attr(a.qp_num))
    heard: list[int] = []
    b.core.on_event = heard.append
    path = a.core.find_shm_path(at_once=True)
    request = SendWR(num_sge=1, sg=[node.sge(0, 8)], opcode=e.IBV_WR_RDMA_WRITE, send_flags=e.IBV_SEND_SIGNALED)
    request.set_wr_rdma(node.mr.rkey, node.mr.buf + MIDDLE)
    assert path.post(request.raw)
    assert path.post(request.raw)
    assert [wc.status for wc in poll(node.cq, 2)] == [OK, OK]
    assert heard == [e.IBV_EVENT_COMM_EST]


def test_a_path_completes_a_send_at_once_though_a_thread_waits_for_it(node):
    """The thread is woken afterwards: the answer could arrive before that."""
    channel = CompChannel(node.ctx)
    messages = CQ(node.ctx, 8, None, channel)
    a, b = node.qp(e.IBV_QPT_RC, cq=messages), node.qp(e.IBV_QPT_RC)
    for mine, other in ((a, b), (b, a)):
        mine.to_rts(node.connected_attr(other.qp_num))
    path = a.core.find_shm_path(at_once=True)
    b.post_recv(RecvWR(num_sge=1, sg=[node.sge(MIDDLE, 8)]))
    messages.req_notify()
    request = SendWR(num_sge=1, sg=[node.sge(0, 8)], opcode=e.IBV_WR_SEND, send_flags=e.IBV_SEND_SIGNALED)
    code = execute.post(path.words, request.raw)
    assert (code, a.core.record.telling, len(messages.core)) == (requests.WAKE, 0, 1)
    assert path.finish(code)
    channel.get_cq_event(messages)


@pytest.mark.parametrize("kind", [e.IBV_QPT_RC, e.IBV_QPT_UC])
def test_packets_under_way_are_marked_until_they_are_acknowledged(node, kind):
    a, b = connect(node, kind)
    b.post_recv(RecvWR(num_sge=1, sg=[node.sge(MIDDLE, 8)]))
    with node.ctx.adapter.lock:
        a.core.post_send(SendWork(wr_id=1, opcode=e.ibv_wr_opcode.IBV_WR_SEND, places=(), flags=e.IBV_SEND_SIGNALED))
        a.core.requester.run()
        assert a.core.record.unacked == (kind == e.IBV_QPT_RC)
        node.ctx.adapter.progress()
    poll(node.cq, 2)
    assert a.core.record.unacked == 0


def test_lane_wakes_a_waiting_thread(node):
    channel = CompChannel(node.ctx)
    messages = CQ(node.ctx, 10, channel=channel)
    a, b = node.qp(e.IBV_QPT_RC), node.qp(e.IBV_QPT_RC, cq=messages)
    for mine, other in ((a, b), (b, a)):
        mine.to_rts(node.connected_attr(other.qp_num))
    b.post_recv(RecvWR(3, 1, [node.sge(MIDDLE, 8)]))
    messages.req_notify()
    assert a.core.find_shm_path(at_once=True) is not None
    a.post_send(SendWR(1, e.IBV_WR_SEND, 1, 0, [node.sge(0, 8)], e.IBV_SEND_SIGNALED))
    assert not a.core.sends
    channel.get_cq_event(messages)
    assert poll(messages, 1)[0].status == OK


# -- memory and lock --------------------------------------------------------------------------------------------------


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(("take", "give")), st.integers(1, 40_000), st.integers(0, 30)), max_size=60
    )
)
@settings(max_examples=50)
def test_blocks_never_overlap_and_come_empty(steps):
    memory, blocks = QueueMemory(can_be_shared=True), []
    for kind, size, choice in steps:
        if kind == "take":
            at = memory.allocate(size)
            ends = at, at + size - 1
            assert not any(memory.bytes[end] for end in ends)
            assert all(at + size <= other or other + other_size <= at for other, other_size in blocks)
            for end in ends:
                memory.bytes[end] = 1
            blocks.append((at, size))
        elif blocks:
            memory.give_back(*blocks.pop(choice % len(blocks)))


def test_the_lock_of_a_process_that_is_gone_is_free():
    memory = QueueMemory(can_be_shared=True)
    child = os.fork()
    if not child:
        native.lock(memory.address, os.getpid())
        os._exit(0)
    os.waitpid(child, 0)
    assert not native.lock(memory.address, os.getpid())
    break_lock(memory.address)
    assert native.lock(memory.address, os.getpid())
    break_lock(memory.address)
    assert native.load(memory.address) == os.getpid()


def test_links_that_take_time_delay_what_is_done(node):
    a, _ = connect(node, e.IBV_QPT_RC, cap=CAP)
    path = a.core.find_shm_path(at_once=True)
    assert path is not None
    meter = path._peer.meter
    meter.latency_ns, meter.byte_ps = 2_000_000, 1_000_000  # 2 ms, and 1 µs for a byte
    try:
        work = SendWR(1, e.IBV_WR_RDMA_WRITE, 1, 0, [node.sge(0, 1000)], e.IBV_SEND_SIGNALED)
        work.set_wr_rdma(node.mr.rkey, node.mr.buf + MIDDLE)
        began_ns = time.monotonic_ns()
        a.post_send(work)
        assert time.monotonic_ns() - began_ns >= 3_000_000
    finally:
        meter.latency_ns = meter.byte_ps = 0  # all paths of this process share it, those of later tests too
