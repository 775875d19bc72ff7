"""Registered memory that its owner unmapped or made read-only: requests for it fail, and no process is signalled."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator

import pytest
from tests.verbs.hosts import Node
from tests.verbs.peers import LOST_BYTES, Peer, connect_to, request, status_of
from tests.verbs.wires import ALL, Wire, connected

from weft.verbs.enums import ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca.work import SendWork
from weft.verbs.pyverbs import mem_alloc
from weft.verbs.shm.memory import Place

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is checked by Linux's madvise")
W, STATUS = ibv_wr_opcode, ibv_wc_status
SEND, WRITE, READ, ADD = W.IBV_WR_SEND, W.IBV_WR_RDMA_WRITE, W.IBV_WR_RDMA_READ, W.IBV_WR_ATOMIC_FETCH_AND_ADD
OK, ACCESS_ERROR, PROTECTION_ERROR = STATUS.IBV_WC_SUCCESS, STATUS.IBV_WC_REM_ACCESS_ERR, STATUS.IBV_WC_LOC_PROT_ERR


@pytest.fixture(scope="module", params=["packets", "shared memory"])
def peer(request) -> Iterator[Peer]:
    with Peer(by_shm=request.param == "shared memory") as result:
        yield result


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node() as result:
        yield result


@pytest.mark.parametrize(
    ("protection", "opcode", "status"),
    [
        (None, WRITE, ACCESS_ERROR),
        (None, READ, ACCESS_ERROR),
        (None, ADD, ACCESS_ERROR),
        (mmap.PROT_READ, WRITE, ACCESS_ERROR),
        (mmap.PROT_READ, READ, OK),
        (mmap.PROT_READ, ADD, ACCESS_ERROR),
    ],
)
def test_a_request_for_lost_memory_fails_and_the_owner_lives(node, peer, protection, opcode, status):
    near, number = connect_to(node, peer)
    address, rkey = peer.tell("lost_memory", protection)
    assert status_of(node, near, request(node, opcode, rkey=rkey, va=address + LOST_BYTES - 8)) == status
    peer.tell("close_qp", number)


def test_a_send_into_lost_memory_fails_and_the_receiver_is_told(node, peer):
    near, number = connect_to(node, peer)
    peer.tell("lost_memory", None)
    peer.tell("receive_into_lost", number)
    assert status_of(node, near, request(node, SEND, 512)) == STATUS.IBV_WC_REM_OP_ERR
    assert peer.tell("statuses") == [PROTECTION_ERROR]


@pytest.mark.parametrize("opcode", [SEND, WRITE, READ])
def test_a_request_whose_own_memory_is_lost_is_a_local_protection_error(opcode):
    wire = Wire()
    a, _ = connected(wire)
    address = mem_alloc.mmap(length=LOST_BYTES)
    key = wire.a.adapter.regions.register(wire.a.pd, address, LOST_BYTES, ALL).key
    mem_alloc.munmap(address, LOST_BYTES)
    a.post_send(
        SendWork(wr_id=1, opcode=opcode, places=(Place(address, 8, key),), va=wire.b.at, rkey=wire.b.region.key)
    )
    wire.a.adapter.wake(a)
    wire.run()
    assert wire.a.done() == [(1, PROTECTION_ERROR)]
