"""Processes that share one adapter: the owner of a packet, and the death of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tests.patience import PATIENCE_S
from tests.verbs.wires import Host, connect

from weft.verbs.carriers.processes.carrier import ProcessCarrier
from weft.verbs.enums import IBV_QPS_ERR, IBV_QPT_RC, IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR
from weft.verbs.enums.cm import RDMA_PS_TCP
from weft.verbs.hca.segment import Op, Segment, Service
from weft.verbs.pyverbs.cmid import CMID, AddrInfo
from weft.verbs.pyverbs.qp import QPCap, QPInitAttr

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names of sockets are Linux's")
GID, GROUP = 0xFFFF_7F00_0001, 0xFF << 120 | 1
TO = (GID, GID)


@pytest.fixture
def device() -> str:
    return f"test{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture
def ends(device) -> Iterator[dict[str, ProcessCarrier]]:
    """A pair of carriers that act as those of two processes."""
    result = {name: ProcessCarrier((GID,), device) for name in ("a", "b")}
    yield result
    for item in result.values():
        item.close()


def datagram(dest_qp: int, payload: bytes = b"x") -> Segment:
    return Segment(op=Op.SEND, service=Service.UD, dest_qp=dest_qp, psn=1, source_qp=9, q_key=3, payload=payload)


def test_each_process_has_its_own_numbers_and_gives_them_back(ends, device):
    assert not set(ends["a"].numbers) & set(ends["b"].numbers)
    before = ends["a"].numbers
    ends["a"].close()
    ends["a"] = ProcessCarrier((GID,), device)
    assert ends["a"].numbers == before


def test_a_packet_goes_to_the_process_whose_queue_pair_it_names(ends):
    a, b = ends["a"], ends["b"]
    for number in (a.numbers[5], b.numbers[7]):
        a.send(datagram(number), TO, 1024)
    (mine,), (other,) = a.receive(), b.receive()
    assert (mine.segment.dest_qp, other.segment.dest_qp) == (a.numbers[5], b.numbers[7])
    assert (other.source, other.segment.payload, other.segment.q_key) == (TO, b"x", 3)
    assert other.grh == mine.grh


@pytest.mark.parametrize(("number", "to"), [(0xFF_FFFF, (GROUP, GID)), (1, TO)])
def test_groups_and_management_are_for_all(ends, number, to):
    ends["a"].send(datagram(number), to, 1024)
    assert [len(end.receive()) for end in ends.values()] == [1, 1]


def test_packet_for_another_address_is_lost(ends):
    ends["a"].send(datagram(ends["b"].numbers[0]), (GID + 1, GID), 1024)
    assert [len(end.receive()) for end in ends.values()] == [0, 0]


def test_a_long_message_waits_for_a_process_that_is_slow(ends):
    a, b = Host.over(ends["a"]), Host.over(ends["b"])
    near, far = connect(a, b, TO, TO)
    data = os.urandom(200_000)
    a.put(0, data)
    b.receive(far, 1, 0, len(data))
    a.send(near, 2, 0, len(data))
    done = []
    while len(done) < 2:
        for host in (a, b):
            host.adapter.progress()
            done += host.done()
    assert sorted(done) == [(1, IBV_WC_SUCCESS), (2, IBV_WC_SUCCESS)]
    assert b.get(0, len(data)) == data
    assert not near.adapter.counters["strangers"]


@pytest.mark.parametrize("sender", ["a", "b"])
def test_waiting_ends_when_something_comes_from_here_or_elsewhere(ends, sender):
    b = ends["b"]
    timer = threading.Timer(0.05, ends[sender].send, (datagram(b.numbers[0]), TO, 1024))
    timer.start()
    b.wait(PATIENCE_S)
    timer.join()
    assert len(b.receive()) == 1


def test_a_process_that_is_gone_takes_nothing_and_hurts_nobody(ends):
    number = ends["b"].numbers[0]
    ends["a"].send(datagram(number), TO, 1024)
    ends["b"].close()
    ends["a"].send(datagram(number), TO, 1024)
    ends["a"].receive()
    ends["b"] = ProcessCarrier((GID,), ends["a"]._device)
    ends["a"].send(datagram(number), TO, 1024)
    assert len(ends["b"].receive()) == 1


def test_malformed_packets_are_dropped(ends):
    for junk in (b"", b"short", bytes(40), b"\xff" * 100):
        peer = ends["a"]._peer(ends["b"]._slot)
        peer.put(junk)
        peer.flush()
    assert ends["b"].receive() == []


SERVER = """
import sys
from weft.verbs.enums.cm import RAI_PASSIVE
from weft.verbs.pyverbs.cmid import CMID, AddrInfo
from weft.verbs.enums import IBV_QPT_RC
from weft.verbs.pyverbs.qp import QPCap, QPInitAttr
listener = CMID(AddrInfo(src="127.0.0.1", flags=RAI_PASSIVE), qp_init_attr=QPInitAttr(qp_type=IBV_QPT_RC, cap=QPCap()))
listener.listen()
print(listener._own_port, flush=True)
child = listener.get_request()
memory = child.reg_write(4096)
child.accept()
print(memory.buf, memory.rkey, flush=True)
sys.stdin.read()  # the program is idle: its adapter answers
"""


def test_an_adapter_answers_while_its_program_sleeps_and_its_death_is_an_error_of_the_peer():
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            port = server.stdout.readline().decode().strip()
            init = QPInitAttr(qp_type=IBV_QPT_RC, cap=QPCap(max_send_wr=4))
            near = CMID(AddrInfo(dst="127.0.0.1", dst_service=port, port_space=RDMA_PS_TCP), qp_init_attr=init)
            near.set_option(0, 3, 10, 1)
            near.connect()
            address, rkey = (int(word) for word in server.stdout.readline().split())
            memory = near.reg_msgs(4096)
            near.post_write(memory, 4096, address, rkey)
            assert near.get_send_comp().status == IBV_WC_SUCCESS
        finally:
            server.kill()
            server.wait()
        for _ in range(2):
            near.post_write(memory, 4096, address, rkey)
        assert [near.get_send_comp().status for _ in range(2)] == [IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR]
        assert near.qp.qp_state == IBV_QPS_ERR
        near.close()


FORKED = """
import os
from weft.verbs.pyverbs.context import Context, the_adapter
from weft.verbs.pyverbs.cq import CQ
before = the_adapter()
numbers = before.carrier.numbers
cq = CQ(Context(name="mlx5_0"), 10)
child = os.fork()
if not child:
    after = the_adapter()
    cq.close()  # its inherited copy of the other's object closes without an error
    os._exit(0 if after is not before and after.carrier.numbers != numbers else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), the_adapter() is before)
"""


def test_a_forked_process_has_an_adapter_of_its_own():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.split() == ["0", "True"], done.stderr
