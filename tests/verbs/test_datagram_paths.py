"""Datagrams through shared memory have the same effects as packets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.patience import wait_until
from tests.verbs.hosts import Q_KEY, Node
from tests.verbs.peers import Peer

from weft.verbs import enums as e
from weft.verbs.c.datagrams import DatagramPaths
from weft.verbs.hca.carrier import TO_GROUP
from weft.verbs.hca.segment import OWN_Q_KEY
from weft.verbs.pyverbs.addr import AH
from weft.verbs.pyverbs.cq import CQ
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR
from weft.wire.headers import GRH

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes share memory on Linux only")
PLACE = 5
MTU_BYTES = 4096
THERE = 2048  # offset in a node's memory where received data begin
SEEN = ("wr_id", "status", "opcode", "byte_len", "wc_flags", "imm_data", "slid", "sl", "pkey_index", "dlid_path_bits")


@dataclass(frozen=True)
class Datagram:
    sizes: tuple[int, ...]  # bytes of each element
    opcode: int = e.IBV_WR_SEND
    flags: int = e.IBV_SEND_SIGNALED
    q_key: int = Q_KEY
    to: str = "b"
    key: str = "right"
    receive: tuple[int, ...] | None = (600,)  # bytes of each element of a receive request posted before


_SIZES = st.lists(st.sampled_from((0, 1, 3, 24, 40, 64, 200)), min_size=1, max_size=3).map(tuple)
DATAGRAMS = st.builds(
    Datagram,
    sizes=st.one_of(_SIZES, st.just((MTU_BYTES + 1,))),
    opcode=st.sampled_from((e.IBV_WR_SEND, e.IBV_WR_SEND_WITH_IMM)),
    flags=st.sampled_from((0, e.IBV_SEND_SIGNALED, e.IBV_SEND_SIGNALED | e.IBV_SEND_SOLICITED)),
    q_key=st.sampled_from((Q_KEY, Q_KEY, OWN_Q_KEY, Q_KEY + 1)),
    to=st.sampled_from(("b",) * 5 + ("nobody", "a connection")),
    key=st.sampled_from(("right",) * 9 + ("wrong",)),
    receive=st.one_of(st.just((600,)), _SIZES, st.none()),
)


class World:
    """A pair of queue pairs in one process, which send packets or use shared-memory paths."""

    def __init__(self, *, short: bool) -> None:
        self.node, self.short = Node(), short
        self.told = CQ(self.node.ctx, 100)
        self.a = self.node.qp(e.IBV_QPT_UD)
        self.b = self.node.qp(e.IBV_QPT_UD, cq=self.told)
        self.connection = self.node.qp(e.IBV_QPT_RC)
        for item in (self.a, self.b):
            item.to_rts(self.node.datagram_attr())
        self.ah = AH(self.node.pd, attr=self.node.address())
        self.paths = DatagramPaths(self.a.core)
        self.adapter = self.a.core.adapter
        self.before = self.adapter.counters.copy()

    def end(self) -> None:
        self.node.ctx.close()

    def path_to(self, number: int, ah: int = 1) -> Any:
        return self.paths.find(PLACE, ah, number, lambda: self.a.ctx.hardware.address_vector(self.ah.attr))

    def elements(self, sizes: tuple[int, ...], at: int, lkey: int = 0) -> list[SGE]:
        result = []
        for size in sizes:
            result.append(SGE(self.node.mr.buf + at, size, lkey or self.node.mr.lkey))
            at += size if size < THERE else 0
        return result

    def do(self, one: Datagram) -> list[tuple[int, ...]]:
        """Send a datagram and return its completions at both ends."""
        if one.receive is not None:
            elements = self.elements(one.receive, THERE)
            self.b.post_recv(RecvWR(wr_id=7, num_sge=len(elements), sg=elements))
        wrong = self.node.mr.lkey + 1 if one.key == "wrong" else 0
        elements = self.elements(one.sizes, 0, wrong)
        number = {"b": self.b.qp_num, "nobody": self.b.qp_num + 100, "a connection": self.connection.qp_num}[one.to]
        work = SendWR(9, one.opcode, len(elements), 0x11223344, elements, one.flags)
        work.remote_rkey = one.q_key  # as the C library writes it
        work.set_wr_ud(self.ah, number, one.q_key)
        if self.a.core.state != e.IBV_QPS_RTS:
            return []
        path = self.path_to(number) if self.short else None
        if path is None or not path.post(work.raw):
            self.a.post_send(work)
        self.adapter.progress()
        done = [wc for cq in (self.node.cq, self.told) for wc in cq.poll(50)[1]]
        return [self.seen(wc) for wc in done]

    def seen(self, wc: Any) -> tuple[int, ...]:
        if wc.status != e.IBV_WC_SUCCESS:
            return wc.wr_id, wc.status
        if wc.wr_id == 9:  # only these fields of a send completion are valid
            return wc.wr_id, wc.status, wc.opcode
        return *(getattr(wc, name) for name in SEEN), wc.src_qp == self.a.qp_num

    def state(self) -> tuple[Any, ...]:
        a, b = self.a.core, self.b.core
        counted = self.adapter.counters - self.before
        numbers = a.record.next_psn, a.record.posted, len(b.receives)
        return a.state, b.state, numbers, counted, self.node.mr.read(4096, 0)


@pytest.fixture
def world() -> Iterator[World]:
    result = World(short=True)
    yield result
    result.end()


@given(datagrams=st.lists(DATAGRAMS, max_size=6))
@settings(max_examples=60)
def test_a_datagram_by_a_path_is_what_a_packet_would_have_been(datagrams):
    """Equal are completions, bytes, the header before them, counters and PSNs. The worlds take turns on one adapter."""
    ends = []
    for short in (False, True):
        world = World(short=short)
        try:
            world.node.mr.write(bytes(range(256)) * 8, 0)
            ends.append([(world.do(datagram), world.state()) for datagram in datagrams])
        finally:
            world.end()
    assert ends[0] == ends[1]


def test_a_path_carries_what_fits_and_leaves_the_rest(world):
    good = Datagram(sizes=(30,))
    assert world.path_to(world.b.qp_num).post(raw(world, good)) is False, "nobody receives"
    world.b.post_recv(RecvWR(wr_id=7, num_sge=1, sg=world.elements((600,), THERE)))
    assert world.path_to(world.b.qp_num).post(raw(world, good)) is True
    assert world.path_to(world.b.qp_num).post(raw(world, Datagram(sizes=(MTU_BYTES + 1,)))) is False
    assert [wc.byte_len for wc in world.told.poll(5)[1]] == [GRH.size + 30]


def raw(world: World, one: Datagram) -> bytes:
    elements = world.elements(one.sizes, 0)
    work = SendWR(9, one.opcode, len(elements), 0, elements, one.flags)
    work.remote_rkey = one.q_key
    return bytes(work.raw)


def test_a_queue_pair_that_is_gone_takes_nothing(world):
    path = world.path_to(world.b.qp_num)
    world.b.post_recv(RecvWR(wr_id=7, num_sge=1, sg=world.elements((600,), THERE)))
    world.b.close()
    assert path.post(raw(world, Datagram(sizes=(8,)))) is False


def test_groups_and_management_have_no_path(world):
    assert [world.path_to(number) for number in (TO_GROUP, 0, 1)] == [None] * 3


def test_a_place_has_one_path_which_another_address_replaces(world):
    first = world.path_to(world.b.qp_num)
    assert world.path_to(world.b.qp_num) is first is world.paths.at(PLACE)
    assert world.path_to(world.b.qp_num, ah=2) is not first
    world.paths.clear()
    assert world.paths.at(PLACE) is None


def test_no_datagram_overtakes_packets(world):
    carrier = world.adapter.carrier
    assert world.path_to(world.b.qp_num) is not None
    work = SendWR(9, e.IBV_WR_SEND, 1, 0, world.elements((8,), 0), 0)
    work.set_wr_ud(world.ah, world.b.qp_num, Q_KEY)
    with world.adapter.lock:  # so that no poll takes it
        world.a._post_one(work)
        world.a.core.datagrams.run()
        assert carrier.is_behind(world.b.qp_num)
        assert world.path_to(world.b.qp_num) is None
    world.adapter.progress()
    assert world.path_to(world.b.qp_num) is not None


def test_a_process_that_dies_closes_the_paths_to_it(world):
    with Peer() as peer:
        number = peer.tell("new_qp")
        path = world.path_to(number)
        assert path.post(raw(world, Datagram(sizes=(8,)))) is False  # no queue pair for datagrams
        assert not path.is_closed
        peer.kill()
    wait_until(lambda: path.post(raw(world, Datagram(sizes=(8,)))) or path.is_closed)
    assert world.path_to(number) is None
