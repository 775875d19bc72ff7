"""Errors of programs: the status or errno of the standard, without effect on other programs.

The other end is in this process or in another one, which takes a different path through the adapter.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.patience import wait_until
from tests.verbs.hosts import CAP, REMOTE, Node, connect, poll
from tests.verbs.peers import MEMORY_BYTES, Peer, connect_to, request, status_of, take_shm_path, works

from weft.verbs.carriers.loopback import Loopback
from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_ZERO_BASED,
    IBV_QPT_RC,
    IBV_QPT_UD,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.hca.adapter import Adapter
from weft.verbs.pyverbs.addr import AH, AHAttr, GlobalRoute
from weft.verbs.pyverbs.buffers import span
from weft.verbs.pyverbs.cq import CQ
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.qp import QPAttr, QPCap
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

S, W, M = ibv_qp_state, ibv_wr_opcode, ibv_qp_attr_mask
STATUS = ibv_wc_status
OK = STATUS.IBV_WC_SUCCESS
SEND, WRITE, READ, ADD = W.IBV_WR_SEND, W.IBV_WR_RDMA_WRITE, W.IBV_WR_RDMA_READ, W.IBV_WR_ATOMIC_FETCH_AND_ADD

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="processes share an adapter on Linux only")


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as result:
        yield result


def refused(code: int, call: Any, *arguments: Any) -> str:
    with pytest.raises(PyverbsRDMAError) as raised:
        call(*arguments)
    assert raised.value.error_code == code
    return str(raised.value)


# -- the other end, in this process or another -------------------------------------------------------------------------


class Here:
    """An end in this process, with the interface of `Peer`."""

    def __init__(self, node: Node, *, by_shm: bool = False) -> None:
        self.by_shm = by_shm
        self.node, self.mr = node, MR(node.pd, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE | REMOTE)
        self.address, self.rkey = self.mr.buf, self.mr.rkey
        self.qps: dict[int, Any] = {}

    def tell(self, what: str, *arguments: Any) -> Any:
        return getattr(self, what)(*arguments)

    def new_qp(self, kind: int) -> int:
        qp = self.node.qp(kind, cq=CQ(self.node.ctx, 20))
        self.qps[qp.qp_num] = qp
        return int(qp.qp_num)

    def connect(self, number: int, dest_qp_num: int) -> None:
        self.qps[number].to_rts(self.node.connected_attr(dest_qp_num))

    def close_qp(self, number: int) -> None:
        self.qps[number].close()

    def close_memory(self) -> None:
        self.mr.close()

    def state(self, number: int) -> int:
        return int(self.qps[number].qp_state)

    def receive(self, number: int, length: int) -> None:
        self.qps[number].post_recv(RecvWR(num_sge=1, sg=[SGE(self.mr.buf, length, self.mr.lkey)]))

    def read(self, length: int, offset: int) -> bytes:
        return self.mr.read(length, offset)

    def statuses(self) -> list[int]:
        return [int(wc.status) for qp in self.qps.values() for wc in qp.rcq.poll(100)[1]]


@pytest.fixture(scope="module")
def neighbour() -> Iterator[Peer]:
    """A process that many tests share."""
    with Peer() as result:
        yield result


@pytest.fixture(
    params=["here", *(pytest.param(way, marks=linux_only) for way in ("here by shm", "elsewhere", "by shm"))]
)
def far(request: pytest.FixtureRequest, node: Node) -> Any:
    by_shm = request.param.endswith("by shm")
    if request.param.startswith("here"):
        return Here(node, by_shm=by_shm)
    peer = request.getfixturevalue("neighbour")
    peer.by_shm = by_shm
    return peer


# -- keys and ranges --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", [WRITE, READ, ADD])
@pytest.mark.parametrize(
    ("rkey", "va"),
    [
        (1, 0),  # added to the right values
        (1 << 31, 0),
        (None, 0),
        (0, MEMORY_BYTES),
        (0, MEMORY_BYTES - 4),  # ends outside
        (0, -8),
        (0, None),  # ends past the last address
    ],
)
def test_a_wrong_remote_key_or_range_ends_this_connection_only(node, far, opcode, rkey, va):
    near, number = connect_to(node, far)
    other, _ = connect_to(node, far)
    key = 0 if rkey is None else far.rkey + rkey & 0xFFFF_FFFF
    at = (1 << 64) - 8 if va is None else far.address + va
    length = 8 if opcode == ADD else 16
    at = at if opcode != ADD or at % 8 == 0 else at + 4  # an unaligned atomic is a different error
    node.mr.write(b"untouched untouc", 16)
    assert status_of(node, near, request(node, opcode, length, rkey=key, va=at)) == STATUS.IBV_WC_REM_ACCESS_ERR
    assert near.qp_state == far.tell("state", number) == S.IBV_QPS_ERR
    assert node.mr.read(16, 0) == b"untouched untouc"
    assert far.tell("read", 16, MEMORY_BYTES - 16) == bytes(16)
    assert status_of(node, other, request(node, WRITE, rkey=far.rkey, va=far.address)) == OK


@pytest.mark.parametrize("opcode", [SEND, WRITE, READ])
@pytest.mark.parametrize("wrong", ["key", "no key", "closed", "begin", "end", "wrap", "other domain", "read-only"])
def test_a_wrong_local_key_or_range_ends_it_before_anything_is_sent(node, far, opcode, wrong):
    near, number = connect_to(node, far)
    far.tell("receive", number, 8)
    pd = node.other_pd() if wrong == "other domain" else node.pd
    mr = MR(pd, 64, 0 if wrong == "read-only" else IBV_ACCESS_LOCAL_WRITE)
    address, lkey = mr.buf, mr.lkey
    if wrong == "closed":
        mr.close()
    address += {"begin": -1, "end": 57}.get(wrong, 0)
    if wrong == "wrap":
        address = (1 << 64) - 4
    lkey = {"key": lkey + 1, "no key": 0}.get(wrong, lkey)
    wr = SendWR(num_sge=1, sg=[SGE(address, 8, lkey)], opcode=opcode)
    if opcode != SEND:
        wr.set_wr_rdma(far.rkey, far.address)
    fine = wrong == "read-only" and opcode != READ  # only a READ writes to local memory
    assert status_of(node, near, wr) == (OK if fine else STATUS.IBV_WC_LOC_PROT_ERR)
    assert near.qp_state == (S.IBV_QPS_RTS if fine else S.IBV_QPS_ERR)
    assert far.tell("state", number) == S.IBV_QPS_RTS
    assert far.tell("statuses") == ([OK] if fine and opcode == SEND else [])
    far.tell("close_qp", number)


def test_memory_that_its_owner_closed_is_closed_to_others(node):
    far = Here(node)
    near, number = connect_to(node, far)
    far.tell("receive", number, 8)
    far.tell("close_memory")
    assert status_of(node, near, request(node, SEND)) == STATUS.IBV_WC_REM_OP_ERR
    assert far.tell("statuses") == [STATUS.IBV_WC_LOC_PROT_ERR]
    near, number = connect_to(node, far)
    assert status_of(node, near, request(node, READ, rkey=far.rkey, va=far.address)) == STATUS.IBV_WC_REM_ACCESS_ERR
    assert far.tell("state", number) == S.IBV_QPS_ERR


@linux_only
@pytest.mark.parametrize("by_shm", [False, True])
def test_memory_that_another_process_closed_is_closed(node, by_shm):
    with Peer(by_shm=by_shm) as peer:
        near, number = connect_to(node, peer)
        assert status_of(node, near, request(node, WRITE, rkey=peer.rkey, va=peer.address)) == OK
        peer.tell("close_memory")
        wr = request(node, WRITE, rkey=peer.rkey, va=peer.address)
        assert status_of(node, near, wr) == STATUS.IBV_WC_REM_ACCESS_ERR
        assert peer.tell("state", number) == S.IBV_QPS_ERR


@linux_only
@pytest.mark.parametrize("by_shm", [False, True])
def test_memory_is_the_programs_own_when_its_region_is_closed(node, by_shm):
    """A write in progress changes no further byte."""
    memory = bytearray(1 << 20)
    mr = MR(node.pd, 0, IBV_ACCESS_LOCAL_WRITE | REMOTE, memory)
    with Peer() as peer:
        peer.tell("fill", b"written!")
        near, number = connect_to(node, peer)
        if by_shm:
            peer.tell("take_shm_path", number)
        peer.begin("flood", number, WRITE, len(memory), mr.buf, mr.rkey)
        wait_until(lambda: memory[:8] == b"written!")
        mr.close()
        memory[:] = b"m" * len(memory)
        wait_until(lambda: near.qp_state == S.IBV_QPS_ERR)  # after the next write
        assert memory == b"m" * len(memory)


@pytest.mark.parametrize("by_shm", [False, pytest.param(True, marks=linux_only)])
@pytest.mark.parametrize("va", [-8, (1 << 63) - 8, (1 << 63) - 16, (1 << 64) - 8, 57])
def test_sums_of_addresses_do_not_turn_over(node, va, by_shm):
    """A zero-based region lies in the middle of another, whose bytes must not change."""
    whole = bytes(range(256)) * 16
    node.mr.write(whole, 4096)
    zero = MR(node.pd, 64, IBV_ACCESS_LOCAL_WRITE | REMOTE | IBV_ACCESS_ZERO_BASED, node.mr.buf + 1024)
    address = va & (1 << 64) - 1
    (a, _), (c, _) = connect(node, IBV_QPT_RC), connect(node, IBV_QPT_RC)
    if by_shm:
        take_shm_path(a)
        take_shm_path(c)
    assert status_of(node, a, request(node, WRITE, 16, rkey=zero.rkey, va=address)) == STATUS.IBV_WC_REM_ACCESS_ERR
    read = SendWR(num_sge=1, sg=[SGE(address, 16, zero.lkey)], opcode=READ)
    read.set_wr_rdma(node.mr.rkey, node.mr.buf)
    assert status_of(node, c, read) == STATUS.IBV_WC_LOC_PROT_ERR
    assert node.mr.read(4096, 0) == whole


@linux_only
@pytest.mark.parametrize("by_shm", [False, True])
@pytest.mark.parametrize("kind", ["not mapped", "read-only"])
def test_on_demand_memory_that_does_not_come_is_an_error_and_no_crash(node, kind, by_shm):
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ)  # a read-only page
    at = span(page).address if kind == "read-only" else mmap.PAGESIZE
    everything = IBV_ACCESS_LOCAL_WRITE | REMOTE | IBV_ACCESS_ON_DEMAND
    for mr in (MR(node.pd, 0, everything, implicit=True), MR(node.pd, 64, everything, at)):
        (a, _), (c, _) = connect(node, IBV_QPT_RC), connect(node, IBV_QPT_RC)
        if by_shm:
            take_shm_path(a)
            take_shm_path(c)
        assert status_of(node, a, request(node, WRITE, 16, rkey=mr.rkey, va=at)) == STATUS.IBV_WC_REM_ACCESS_ERR
        read = SendWR(num_sge=1, sg=[SGE(at, 16, mr.lkey)], opcode=READ)
        read.set_wr_rdma(node.mr.rkey, node.mr.buf)
        assert status_of(node, c, read) == STATUS.IBV_WC_LOC_PROT_ERR
        if kind == "read-only":
            b, _ = connect(node, IBV_QPT_RC)
            assert status_of(node, b, request(node, READ, 16, rkey=mr.rkey, va=at)) == OK


def test_a_key_is_not_given_to_the_next_region(node):
    """A program with an old key has no access to memory registered later."""
    old = MR(node.pd, 64, IBV_ACCESS_LOCAL_WRITE | REMOTE)
    key, address = old.rkey, old.buf
    old.close()
    new = [MR(node.pd, 64, IBV_ACCESS_LOCAL_WRITE | REMOTE) for _ in range(10)]
    assert key not in [mr.rkey for mr in new]
    a, _ = connect(node, IBV_QPT_RC)
    assert status_of(node, a, request(node, WRITE, rkey=key, va=address)) == STATUS.IBV_WC_REM_ACCESS_ERR


def test_keys_come_round_and_pass_over_those_that_are_in_use(node, monkeypatch):
    regions = node.ctx.adapter.regions
    monkeypatch.setattr(regions, "_indices", itertools.count((1 << 24) + (node.mr.rkey >> 8) - 1))
    before, after = MR(node.pd, 8, 0), MR(node.pd, 8, 0)
    assert len({node.mr.rkey, before.rkey, after.rkey}) == 3
    assert regions.find(node.mr.rkey) is node.mr.region
    monkeypatch.setattr(regions, "_indices", itertools.count(1 << 24))
    assert MR(node.pd, 8, 0).rkey >> 8 != 0  # 0 is the value that programs forget to set


# -- sizes and states -------------------------------------------------------------------------------------------------


def test_a_send_that_is_too_long_ends_both_ends(node, far):
    near, number = connect_to(node, far)
    far.tell("receive", number, 7)
    assert status_of(node, near, request(node, SEND)) == STATUS.IBV_WC_REM_INV_REQ_ERR
    assert (near.qp_state, far.tell("state", number)) == (S.IBV_QPS_ERR, S.IBV_QPS_ERR)
    assert far.tell("statuses") == [STATUS.IBV_WC_LOC_LEN_ERR]


def test_an_atomic_that_is_not_aligned_ends_both_ends(node, far):
    near, number = connect_to(node, far)
    wr = request(node, ADD, rkey=far.rkey, va=far.address + 4)
    assert status_of(node, near, wr) == STATUS.IBV_WC_REM_INV_REQ_ERR
    assert far.tell("state", number) == S.IBV_QPS_ERR


def test_send_without_receiver_ends(node, far):
    near, number = connect_to(node, far, rnr_retry=1)
    assert status_of(node, near, request(node, SEND)) == STATUS.IBV_WC_RNR_RETRY_EXC_ERR
    assert (near.qp_state, far.tell("state", number)) == (S.IBV_QPS_ERR, S.IBV_QPS_RTS)


def test_invalid_objects_are_refused_with_the_reason(node):
    assert "cqe" in refused(errno.EINVAL, CQ, node.ctx, 1 << 30)
    with pytest.raises(OverflowError):
        SGE(-1, 8, 0)
    with pytest.raises(OverflowError):
        SGE(0, 1 << 32, 0)
    assert "max_send_wr" in refused(errno.EINVAL, lambda: node.qp(IBV_QPT_RC, cap=QPCap(max_send_wr=1 << 20)))
    assert "mapped" in refused(errno.EFAULT, MR, node.pd, 4096, IBV_ACCESS_LOCAL_WRITE, 4096)
    with pytest.raises(PyverbsUserError, match="num_sge"):
        SendWR(num_sge=2, sg=[node.sge(0, 1)])


@linux_only
@pytest.mark.parametrize("by_shm", [False, True])
def test_a_message_has_at_most_two_gigabytes(node, by_shm):
    a, _ = connect(node, IBV_QPT_RC)
    large = MR(node.pd, 3 << 30, IBV_ACCESS_LOCAL_WRITE | REMOTE)  # only addresses: no byte is touched
    if by_shm:
        take_shm_path(a)
    wr = SendWR(num_sge=1, sg=[SGE(large.buf, large.length, large.lkey)], opcode=WRITE)
    wr.set_wr_rdma(large.rkey, large.buf)
    assert "2147483648" in refused(errno.EINVAL, a.post_send, wr)
    assert a.qp_state == S.IBV_QPS_RTS


def test_more_queue_pairs_than_there_are_numbers_are_refused(node, monkeypatch):
    monkeypatch.setattr(node.ctx.adapter, "_numbers", range(2, 2))
    assert "queue pairs already" in refused(errno.ENOMEM, node.qp, IBV_QPT_RC)


def test_reported_maximum_of_queue_pairs_equals_the_numbers_available(node):
    limits, numbers = node.ctx.query_device(), node.ctx.adapter._numbers
    assert limits.max_qp == len(numbers) == 65_534
    assert limits.max_res_rd_atom == limits.max_qp * limits.max_qp_rd_atom
    assert limits.max_ee <= limits.max_qp
    assert limits.max_qp == len(Adapter(Loopback((1,)))._numbers)  # the default of carriers without a limit
    before = len(node.ctx.adapter.queue_pairs)
    used = dict.fromkeys(numbers)
    node.ctx.adapter.queue_pairs |= used  # pretend that all are in use
    try:
        assert "65534 queue pairs already" in refused(errno.ENOMEM, node.qp, IBV_QPT_RC)
        del node.ctx.adapter.queue_pairs[numbers[100]]
        qp = node.qp(IBV_QPT_RC)  # the last one
        assert qp.qp_num == numbers[100]
    finally:
        for number in used:
            if node.ctx.adapter.queue_pairs.get(number) is None:
                node.ctx.adapter.queue_pairs.pop(number, None)
    qp.close()
    assert len(node.ctx.adapter.queue_pairs) == before


def test_an_empty_entry_of_the_gid_table_is_no_address(node):
    empty = next(index for index, gid in enumerate(node.ctx.hardware.gids()) if not any(gid))
    route = GlobalRoute(dgid=node.ctx.query_gid(1, 1), sgid_index=empty)
    attr = AHAttr(gr=route, is_global=1, port_num=1)
    assert f"sgid_index {empty}" in refused(errno.EINVAL, lambda: AH(node.pd, attr=attr))


def test_closed_objects_do_nothing(node):
    a, b = connect(node, IBV_QPT_RC)
    mr = MR(node.pd, 64, IBV_ACCESS_LOCAL_WRITE)
    for closed in (a, mr):
        closed.close()
        closed.close()  # closing twice is allowed
    refused(errno.EINVAL, a.post_send, request(node, SEND))
    refused(errno.EINVAL, a.post_recv, RecvWR())
    for use in (lambda: mr.read(1, 0), lambda: mr.write(b"x", 1)):
        with pytest.raises(PyverbsUserError, match="isn't allocated"):
            use()
    assert b.qp_state == S.IBV_QPS_RTS


def test_a_completion_queue_that_overflows_hurts_only_those_who_use_it(node):
    small = CQ(node.ctx, 1)
    a, _ = connect(node, IBV_QPT_RC, cq=small)
    other = connect(node, IBV_QPT_RC)
    wr = request(node, WRITE, rkey=node.mr.rkey, va=node.mr.buf + 1024)
    for _ in range(3):
        a.post_send(wr)
    while a.qp_state != S.IBV_QPS_ERR:
        node.ctx.adapter.progress()
    assert works(node, *other)


def test_an_error_is_left_by_way_of_reset_only(node):
    a, b = connect(node, IBV_QPT_RC)
    wr = request(node, WRITE, rkey=node.mr.rkey + 1, va=node.mr.buf)
    assert status_of(node, a, wr) == STATUS.IBV_WC_REM_ACCESS_ERR
    refused(errno.EINVAL, a.modify, QPAttr(qp_state=S.IBV_QPS_RTS), M.IBV_QP_STATE)
    for mine, other in ((a, b), (b, a)):
        mine.modify(QPAttr(qp_state=S.IBV_QPS_RESET), M.IBV_QP_STATE)
        mine.to_rts(node.connected_attr(other.qp_num))
    assert works(node, a, b)


def test_a_datagram_into_a_buffer_that_is_too_short_hurts_the_buffer_only(node):
    a, b = connect(node, IBV_QPT_UD, cap=CAP)
    statuses = []
    for length in (40 + 7, 40 + 8):
        b.post_recv(RecvWR(num_sge=1, sg=[node.sge(512, length)]))
        wr = SendWR(num_sge=1, sg=[node.sge(0, 8)])
        wr.set_wr_ud(AH(node.pd, attr=node.address()), b.qp_num, 0x11)
        a.post_send(wr)
        statuses += [wc.status for wc in poll(node.cq, 2) if wc.qp_num == b.qp_num]
    assert statuses == [STATUS.IBV_WC_LOC_LEN_ERR, OK]
