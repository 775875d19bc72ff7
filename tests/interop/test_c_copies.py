"""Long copies that two processes share: the requester, and an idle program in C that polls without a completion."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.interop.c_programs import compile_program, outside_of_labs
from tests.patience import wait_until
from tests.verbs.hosts import Node
from tests.verbs.peers import MEMORY_BYTES, Peer, status_of, take_shm_path

from weft import compiler
from weft.verbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_QPT_RC, IBV_SEND_SIGNALED, ibv_wc_status, ibv_wr_opcode
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.wr import SGE, SendWR
from weft.verbs.shm import layout

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
WRITE, READ = ibv_wr_opcode.IBV_WR_RDMA_WRITE, ibv_wr_opcode.IBV_WR_RDMA_READ
OK, RETRIES_EXCEEDED = ibv_wc_status.IBV_WC_SUCCESS, ibv_wc_status.IBV_WC_RETRY_EXC_ERR
PATTERN = np.arange(MEMORY_BYTES // 4, dtype=">u4").tobytes()  # no two words are equal


class Helper:
    """The program, connected to a queue pair here and to another process."""

    def __init__(self, node: Node, compiled: str, other: Peer) -> None:
        self.process = subprocess.Popen(
            [compiled, "wait in vain"], env=outside_of_labs(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        near, self.other_number = node.qp(IBV_QPT_RC), other.tell("new_qp")
        first, second, self.address, self.rkey = map(int, self.line().split())
        print(near.qp_num, self.other_number, file=self.process.stdin, flush=True)
        assert self.line() == "connected\n"
        attr = node.connected_attr(first)
        attr.timeout, attr.retry_cnt = 12, 2
        near.to_rts(attr)
        other.tell("connect", self.other_number, second)
        take_shm_path(near)
        self.near, self.copy = near, layout.Copy.from_address(near.core.shm_path._peer.address + layout.COPY)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    @property
    def has_helped(self) -> bool:
        """Return whether the helper took part in the last copy."""
        return bool(self.copy.left >> 32)

    def when_it_copies(self, kill: Any) -> threading.Thread:
        def watch() -> None:
            while not self.copy.helpers:
                pass
            kill()

        result = threading.Thread(target=watch)
        result.start()
        return result


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> str:
    return compile_program("c_face_program", tmp_path_factory.mktemp("c"))


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as result:
        yield result


@pytest.fixture
def other() -> Iterator[Peer]:
    with Peer() as result:
        yield result


@pytest.fixture
def helper(node, compiled, other) -> Iterator[Helper]:
    result = Helper(node, compiled, other)
    yield result
    result.process.kill()
    result.process.communicate()


def transfer(node: Node, helper: Helper, opcode: int, mr: MR, length: int) -> int:
    wr = SendWR(num_sge=1, sg=[SGE(mr.buf, length, mr.lkey)], opcode=opcode, send_flags=IBV_SEND_SIGNALED)
    wr.set_wr_rdma(helper.rkey, helper.address)
    return status_of(node, helper.near, wr)


def transfer_together(node: Node, helper: Helper, opcode: int, mr: MR, length: int) -> None:
    """Repeat a transfer until the helper took part in it."""

    def helped() -> bool:
        assert transfer(node, helper, opcode, mr, length) == OK
        return helper.has_helped

    wait_until(helped, "help", lambda: helper.process.poll() is None)


def test_two_processes_copy_the_same_bytes_as_one(node, helper):
    sent, back = (MR(node.pd, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE) for _ in range(2))
    sent.write(PATTERN, MEMORY_BYTES)
    for length in (61_441, (1 << 20) + 4095, MEMORY_BYTES - 8):
        transfer_together(node, helper, WRITE, sent, length)
        transfer_together(node, helper, READ, back, length)
        assert back.read(length + 8, 0) == PATTERN[:length] + bytes(8)
    for mr in (sent, back):
        mr.close()


@pytest.mark.parametrize("opcode", [WRITE, READ])
def test_a_helper_that_is_killed_in_the_middle_is_an_error_and_no_end_of_waiting(node, helper, opcode):
    mr = MR(node.pd, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE)
    killer = helper.when_it_copies(helper.process.kill)
    while (status := transfer(node, helper, opcode, mr, MEMORY_BYTES)) == OK:
        pass
    killer.join()
    assert status == RETRIES_EXCEEDED
    mr.close()


def test_helper_serves_others_after_its_client_is_killed(node, helper, other):
    other.tell("take_shm_path", helper.other_number)
    killer = helper.when_it_copies(lambda: os.kill(other.pid, signal.SIGKILL))
    other.begin("flood", helper.other_number, WRITE, MEMORY_BYTES, helper.address, helper.rkey)
    killer.join()
    test_two_processes_copy_the_same_bytes_as_one(node, helper)
