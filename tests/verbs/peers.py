"""A second process with its own adapter, memory and queue pairs, which calls methods on request.

with Peer() as peer:
    number = peer.tell("new_qp")
    peer.tell("connect", number, near.qp_num)
"""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from numba.core import types
from tests.patience import PATIENCE_S
from tests.verbs.hosts import REMOTE, Node, poll

from weft.verbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_QPT_RC, IBV_SEND_SIGNALED, ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca import execute
from weft.verbs.pyverbs import mem_alloc
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR
from weft.verbs.shm import atomic

MEMORY_BYTES, LOST_BYTES = 8 << 20, 1 << 16

W, OK = ibv_wr_opcode, ibv_wc_status.IBV_WC_SUCCESS
for compiled, takes in (
    (execute.post, (types.int64[::1], types.Bytes(types.uint8, 1, "C"))),
    (atomic.lock, (types.int64,) * 2),
):
    compiled.compile(takes)  # or loaded: once for all processes that are forked from this one
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.verbs.peers"])


class Peer:
    def __init__(self, *, by_shm: bool = False) -> None:
        self.by_shm = by_shm  # how `connect_to` reaches it
        self._pipe, far = _processes.Pipe()
        self._process = _processes.Process(target=_live, args=(far,), daemon=True)
        self._process.start()
        far.close()
        self.address, self.rkey = self.tell("memory")

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def tell(self, what: str, *arguments: Any) -> Any:
        """Call a method of `_Life` in the process and return its result."""
        self.begin(what, *arguments)
        assert self._pipe.poll(PATIENCE_S), f"the other process did not answer to {what}"
        return self._pipe.recv()

    def begin(self, what: str, *arguments: Any) -> None:
        """Call a method of `_Life` without waiting for its result."""
        self._pipe.send((what, *arguments))

    def kill(self) -> None:
        """Kill the process without closing connections."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.join(PATIENCE_S)
        assert self._process.exitcode == -signal.SIGKILL

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join(PATIENCE_S)
        self._pipe.close()


def _live(pipe: Connection) -> None:
    life = _Life()
    while True:
        try:
            kind, *arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(life, kind)(*arguments))


class _Life:
    def __init__(self) -> None:
        self.node = Node()
        self.mr = MR(self.node.pd, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE | REMOTE)
        self.qps: dict[int, Any] = {}

    def memory(self) -> tuple[int, int]:
        return self.mr.buf, self.mr.rkey

    def close_memory(self) -> None:
        self.mr.close()

    def fill(self, data: bytes) -> None:
        self.mr.write(data, len(data))

    def read(self, length: int, offset: int) -> bytes:
        return self.mr.read(length, offset)

    def new_qp(self, kind: int = IBV_QPT_RC) -> int:
        qp = self.node.qp(kind)
        self.qps[qp.qp_num] = qp
        return int(qp.qp_num)

    def connect(self, number: int, dest_qp_num: int) -> None:
        self.qps[number].to_rts(self.node.connected_attr(dest_qp_num))

    def take_shm_path(self, number: int) -> None:
        take_shm_path(self.qps[number])

    def close_qp(self, number: int) -> None:
        self.qps.pop(number).close()

    def state(self, number: int) -> int:
        return int(self.qps[number].qp_state)

    def receive(self, number: int, length: int) -> None:
        self.qps[number].post_recv(RecvWR(num_sge=1, sg=[SGE(self.mr.buf, length, self.mr.lkey)]))

    def lost_memory(self, protection: int | None) -> tuple[int, int]:
        """Register memory and change the protection of its pages, or unmap them (None); return address and rkey."""
        self.lost = MR(self.node.pd, LOST_BYTES, IBV_ACCESS_LOCAL_WRITE | REMOTE, mem_alloc.mmap(length=LOST_BYTES))
        if protection is None:
            mem_alloc.munmap(self.lost.buf, LOST_BYTES)
        else:
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(self.lost.buf), LOST_BYTES, protection) == 0
        return self.lost.buf, self.lost.rkey

    def receive_into_lost(self, number: int) -> None:
        self.qps[number].post_recv(RecvWR(num_sge=1, sg=[SGE(self.lost.buf, LOST_BYTES, self.lost.lkey)]))

    def statuses(self) -> list[int]:
        return [int(wc.status) for wc in self.node.cq.poll(100)[1]]

    def flood(self, number: int, opcode: int, length: int, va: int, rkey: int) -> None:
        """Send for ever."""
        qp, under_way = self.qps[number], 0
        for wr_id in itertools.count():
            wr = SendWR(
                wr_id=wr_id,
                num_sge=1,
                sg=[SGE(self.mr.buf, length, self.mr.lkey)],
                opcode=opcode,
                send_flags=IBV_SEND_SIGNALED,
                imm_data=wr_id & 0xFFFF,
            )
            wr.set_wr_rdma(rkey, va)
            while under_way >= 4:
                under_way -= self.node.cq.poll(4)[0]
            qp.post_send(wr)
            under_way += 1


# -- the test's own end ------------------------------------------------------------------------------------------------


def connect_to(node: Node, far: Any, kind: int = IBV_QPT_RC, **more: int) -> tuple[Any, int]:
    """Return a queue pair of this node and the number of the queue pair of the process, connected to each other."""
    near, number = node.qp(kind), far.tell("new_qp", kind)
    far.tell("connect", number, near.qp_num)
    attr = node.connected_attr(number)
    for name, value in more.items():
        setattr(attr, name, value)
    near.to_rts(attr)
    if far.by_shm:
        take_shm_path(near)
    return near, number


def take_shm_path(qp: Any) -> None:
    """Open the shared-memory path now: by default it opens after the first few messages."""
    assert qp.core.find_shm_path(at_once=True) is not None


def request(node: Node, opcode: int, length: int = 8, offset: int = 0, rkey: int = 0, va: int = 0) -> SendWR:
    wr = SendWR(num_sge=1, sg=[node.sge(offset, length)], opcode=opcode, send_flags=IBV_SEND_SIGNALED)
    if opcode == W.IBV_WR_ATOMIC_FETCH_AND_ADD:
        wr.set_wr_atomic(rkey, va, 1)
    elif opcode not in (W.IBV_WR_SEND, W.IBV_WR_SEND_WITH_IMM):
        wr.set_wr_rdma(rkey, va)
    return wr


def status_of(node: Node, qp: Any, wr: SendWR) -> ibv_wc_status:
    """Post one request and return its status."""
    qp.post_send(wr)
    sends = [wc for wc in poll(node.cq, 1) if wc.qp_num == qp.qp_num]
    return sends[0].status


def works(node: Node, a: Any, b: Any) -> bool:
    """Return whether a SEND between two queue pairs still succeeds."""
    b.post_recv(RecvWR(num_sge=1, sg=[node.sge(2048, 8)]))
    a.post_send(request(node, W.IBV_WR_SEND))
    return [wc.status for wc in poll(node.cq, 2)] == [OK, OK]
