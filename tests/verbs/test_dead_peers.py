"""Processes that are killed in the middle of operations.

Their peers get an error in time and continue with other connections, and no resources are left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S, wait_until, without_notices
from tests.verbs.hosts import REMOTE, Node, connect, poll
from tests.verbs.peers import MEMORY_BYTES, Peer, connect_to, request, status_of, works

from weft import runtime
from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_QPT_RC,
    IBV_QPT_UC,
    ibv_qp_state,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.hca import queue_pair
from weft.verbs.pyverbs.cq import CQ
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.qp import QPCap
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

S, W = ibv_qp_state, ibv_wr_opcode
STATUS = ibv_wc_status
OK = STATUS.IBV_WC_SUCCESS
SEND, WRITE, READ = W.IBV_WR_SEND, W.IBV_WR_RDMA_WRITE, W.IBV_WR_RDMA_READ
RETRIES_EXCEEDED = STATUS.IBV_WC_RETRY_EXC_ERR
LARGE_BYTES = 4 << 20
TIMEOUT, RETRIES = 12, 2  # 17 ms, three times
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes share an adapter on Linux only")


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as result:
        yield result


def left_behind() -> set[str]:
    """Return possible leftovers of ended programs: names of sockets, files of shared memory."""
    sockets = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "weft" in line}
    shared = Path("/dev/shm")
    files = {str(file) for file in shared.iterdir() if "weft" in file.name} if shared.is_dir() else set()
    return {name for name in sockets if str(runtime.folder()) in name} | files


@pytest.fixture
def tidy(node: Node) -> Iterator[None]:
    """Check that all resources created during a test are gone after it."""
    before = left_behind()
    yield
    wait_until(lambda: left_behind() <= before, lambda: f"the end of {left_behind() - before}")


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("by_shm", [False, True])
@pytest.mark.parametrize("opcode", [SEND, WRITE, READ])
def test_dead_peer_is_reported_in_time(node, opcode, by_shm):
    with Peer(by_shm=by_shm) as peer:
        near, number = connect_to(node, peer, timeout=TIMEOUT, retry_cnt=RETRIES)
        peer.tell("receive", number, 8)
        assert status_of(node, near, request(node, opcode, rkey=peer.rkey, va=peer.address)) == OK
        peer.tell("receive", number, 8)
        peer.kill()
        wait_until_noticed(node, near, by_shm=by_shm)
        near.post_recv(RecvWR(wr_id=5))
        for _ in range(2):
            near.post_send(request(node, opcode, rkey=peer.rkey, va=peer.address))
        result = [wc.status for wc in poll(node.cq, 3)]
        assert result == [RETRIES_EXCEEDED, STATUS.IBV_WC_WR_FLUSH_ERR, STATUS.IBV_WC_WR_FLUSH_ERR]
        assert near.qp_state == S.IBV_QPS_ERR
    assert works(node, *connect(node, IBV_QPT_RC))


def wait_until_noticed(node: Node, qp: Any, *, by_shm: bool) -> None:
    """Wait until the end of a process is noticed: a thread closes its path, on a busy machine with a delay."""
    wait_until(lambda: not by_shm or not qp.core.shm_path._peer.meter.is_open)


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("by_shm", [False, True])
@pytest.mark.parametrize("opcode", [WRITE, READ])
def test_a_process_is_killed_in_the_middle_of_a_large_transfer(node, opcode, by_shm):
    """Completed work stays; work in flight fails within its timeout, and other connections continue."""
    mine = MR(node.pd, LARGE_BYTES, IBV_ACCESS_LOCAL_WRITE)
    with Peer(by_shm=by_shm) as peer, Peer(by_shm=by_shm) as other:
        near, _ = connect_to(node, peer, timeout=TIMEOUT, retry_cnt=RETRIES)
        healthy, _ = connect_to(node, other)
        wr = SendWR(num_sge=1, sg=[SGE(mine.buf, LARGE_BYTES, mine.lkey)], opcode=opcode)
        wr.set_wr_rdma(peer.rkey, peer.address)
        killer = threading.Timer(0.03, peer.kill)
        killer.start()
        status, afterwards = OK, 0
        while status == OK:
            assert afterwards < 2, "what is sent to the dead is still said to arrive"
            if not killer.is_alive():
                wait_until_noticed(node, near, by_shm=by_shm)
                afterwards += 1
            status = status_of(node, near, wr)
        killer.join()
        assert status == RETRIES_EXCEEDED
        assert near.qp_state == S.IBV_QPS_ERR
        assert status_of(node, healthy, request(node, WRITE, rkey=other.rkey, va=other.address)) == OK
        assert other.tell("read", 8, 0) == node.mr.read(8, 0)


@pytest.mark.usefixtures("tidy")
def test_a_process_that_gets_no_processor_is_not_taken_for_gone(node):
    """An adapter in hardware answers without its program, so a missing answer with unread packets is no failure."""
    with Peer() as peer:
        near, _ = connect_to(node, peer, timeout=TIMEOUT, retry_cnt=RETRIES)
        requester = near.core.requester
        stop(peer)
        near.post_send(request(node, WRITE, rkey=peer.rkey, va=peer.address))
        deadlines = set()
        while len(deadlines) < RETRIES + 3:  # this many timeouts have expired
            assert node.cq.poll()[0] == 0
            deadlines.add(requester.deadline_s)
        os.kill(peer.pid, signal.SIGCONT)
        assert poll(node.cq, 1)[0].status == OK


def stop(peer: Peer) -> None:
    os.kill(peer.pid, signal.SIGSTOP)
    wait_until(lambda: "T (stopped)" in Path(f"/proc/{peer.pid}/status").read_text(encoding="ascii"))


@pytest.mark.usefixtures("tidy")
def test_over_uc_what_the_other_has_yet_to_read_is_waited_for(node):
    """With more and more packets the receiver would never catch up, and no request could use the path again."""
    with Peer(by_shm=True) as peer:
        near, _ = connect_to(node, peer, IBV_QPT_UC)
        stop(peer)
        assert status_of(node, near, request(node, SEND)) == OK  # as packets: no receive is posted
        node.mr.write(b"written!", 8)
        near.post_send(request(node, WRITE, rkey=peer.rkey, va=peer.address))
        assert node.cq.poll()[0] == 0
        os.kill(peer.pid, signal.SIGCONT)
        assert poll(node.cq, 1)[0].status == OK
        wait_until(lambda: peer.tell("read", 8, 0) == b"written!")  # over UC a request completes when it is sent


@pytest.mark.usefixtures("tidy")
def test_no_more_than_a_window_is_made_for_a_process_that_may_be_gone(node, monkeypatch):
    """All packets of 1 GiB would take seconds, and a peer killed meanwhile would be noticed only after them."""
    monkeypatch.setattr(queue_pair, "SHM_PATH_AFTER", 1 << 20)
    carrier, arguments = node.ctx.adapter.carrier, []
    with Peer() as peer:
        near, _ = connect_to(node, peer, timeout=TIMEOUT, retry_cnt=RETRIES)
        os.kill(peer.pid, signal.SIGSTOP)  # it does not answer
        mine = MR(node.pd, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE)
        real = carrier.send

        def send(segment, to, mtu_bytes):
            arguments.append(len(segment.payload))
            real(segment, to, mtu_bytes)

        monkeypatch.setattr(carrier, "send", send)
        wr = SendWR(num_sge=1, sg=[SGE(mine.buf, MEMORY_BYTES, mine.lkey)], opcode=WRITE)
        wr.set_wr_rdma(peer.rkey, peer.address)
        near.post_send(wr)
        wait_until(lambda: arguments)
        assert max(arguments) <= carrier.window_bytes // 4 < MEMORY_BYTES
        peer.kill()
        assert poll(node.cq, 1)[0].status == RETRIES_EXCEEDED
        assert sum(arguments) <= carrier.window_bytes * (RETRIES + 1)
        mine.close()


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("by_shm", [False, True])
@pytest.mark.parametrize(("opcode", "length"), [(WRITE, 1 << 20), (W.IBV_WR_RDMA_WRITE_WITH_IMM, 64), (READ, 1 << 16)])
def test_a_killed_writer_leaves_its_victim_unharmed(node, opcode, length, by_shm):
    """At any moment of the kill: all of the victim's queues continue, and its memory no longer changes."""
    mine = MR(node.pd, 1 << 20, IBV_ACCESS_LOCAL_WRITE | REMOTE)
    pair, received = connect(node, IBV_QPT_RC), 0
    for attempt in range(4):
        with Peer() as peer:
            peer.tell("fill", b"written!")
            cq = CQ(node.ctx, 200)
            near, number = node.qp(IBV_QPT_RC, cq=cq, cap=QPCap(max_send_wr=1, max_recv_wr=100)), peer.tell("new_qp")
            peer.tell("connect", number, near.qp_num)
            near.to_rts(node.connected_attr(number))
            for _ in range(100):
                near.post_recv(RecvWR())
            if by_shm:
                peer.tell("take_shm_path", number)
            peer.begin("flood", number, opcode, length, mine.buf, mine.rkey)
            begun_s = time.monotonic()
            knife_s = begun_s + 10
            while time.monotonic() < knife_s:
                for _ in range(cq.poll(100)[0]):
                    near.post_recv(RecvWR())
                    received += 1
                if knife_s == begun_s + 10 and near.query(0)[0].rq_psn:  # a packet arrived
                    knife_s = time.monotonic() + 0.003 * attempt
            assert knife_s != begun_s + 10
            peer.kill()
            assert works(node, *pair)
            near.close()
            cq.close()
    assert mine.read(8, 0) == (bytes(8) if opcode == READ else b"written!")
    assert bool(received) is (opcode == W.IBV_WR_RDMA_WRITE_WITH_IMM)
    mine.write(b"mine", 4)
    assert mine.read(4, 0) == b"mine"
    mine.close()


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("by_shm", [False, True])
def test_connections_to_the_dead_do_not_reach_who_has_their_numbers_next(node, by_shm):
    with Peer(by_shm=by_shm) as peer:
        near, _ = connect_to(node, peer, timeout=TIMEOUT, retry_cnt=RETRIES)
        assert status_of(node, near, request(node, WRITE, rkey=peer.rkey, va=peer.address)) == OK
        peer.kill()
        with Peer() as heir:
            again = heir.tell("new_qp")
            node.mr.write(b"for the dead", 12)
            heir.tell("connect", again, 0x123456)
            wr = request(node, WRITE, 12, rkey=heir.rkey, va=heir.address)
            assert status_of(node, near, wr) == RETRIES_EXCEEDED
            assert heir.tell("read", 12, 0) == bytes(12)
            assert heir.tell("state", again) == S.IBV_QPS_RTS


SCRIPT = """
from tests.verbs.hosts import Node, connect
from weft.verbs.enums import IBV_QPT_RC
from weft.verbs.pyverbs.wr import SendWR
node = Node()
a, b = connect(node, IBV_QPT_RC)
a.post_send(SendWR(num_sge=1, sg=[node.sge(0, 8)]))
"""


@pytest.mark.usefixtures("tidy")
def test_a_program_that_ends_with_work_under_way_ends_quietly():
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, without_notices(done.stderr)) == (0, "", "")
