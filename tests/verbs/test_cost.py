"""The cost of a message in Python, counted in calls: on a busy machine, times are unreliable."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable

import pytest
from tests.verbs.hosts import Node, connect

from weft.verbs import enums as e
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs import buffers
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

pytestmark = [
    pytest.mark.usefixtures("few_objects"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes share memory on Linux only"),
]
OK = e.IBV_WC_SUCCESS


@pytest.fixture
def node():
    with Node() as result:
        yield result


@pytest.fixture(params=("alone", "shared"))
def pair(request, node, monkeypatch):
    """A pair of queue pairs connected by the shared-memory path, in private or shared memory."""
    a, b = connect(node, e.IBV_QPT_RC)
    assert a.core.find_shm_path(at_once=True) is not None
    if request.param == "shared":
        monkeypatch.setattr(node.ctx.adapter.memory, "is_shared", True)
    return a, b


def calls(what: Callable[[], None]) -> int:
    """Return the number of calls of functions, in C too, after a warm-up."""
    count = 0

    def on_call(_frame: object, event: str, _what: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    for _ in range(3):
        what()
    gc.collect()
    gc.disable()  # it would count destructors of other tests' objects
    sys.setprofile(on_call)
    try:
        what()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count - 2  # without `what` itself and the end of the profile


def test_a_message_and_its_completions_take_few_calls(request, node, pair):
    """Created, posted, transferred, received and polled at both ends: blocking TCP needs two system calls."""
    a, b = pair
    buf, lkey = node.mr.buf, node.mr.lkey

    def send() -> None:
        b.post_recv(RecvWR(1, 1, [SGE(buf + 64, 64, lkey)]))
        a.post_send(SendWR(2, e.IBV_WR_SEND, 1, 0, [SGE(buf, 64, lkey)], e.IBV_SEND_SIGNALED))
        for _ in range(2):
            count, completions = node.cq.poll()
            assert count == 1
            assert completions[0].status == OK

    assert calls(send) <= {"alone": 56, "shared": 34}[request.node.callspec.params["pair"]]


def test_a_poll_that_finds_nothing_takes_few_calls(node, pair, monkeypatch):
    """Some polls also check for packets, or for expired timers."""
    monkeypatch.setattr(node.ctx.adapter, "_timed", set())  # timers of other tests may be left
    assert min(calls(lambda: node.cq.poll()) for _ in range(3)) <= 6


@pytest.mark.parametrize(("is_shared", "most"), [(False, 71), (True, 76)])
def test_registering_memory_takes_few_calls(node, monkeypatch, is_shared, most):
    """The kernel is queried only about this mapping, and no folder is searched for a GPU's driver.

    An earlier test may have shared the memory of the queues with another process; its lock takes five more calls.
    """
    monkeypatch.setattr(node.ctx.adapter.memory, "is_shared", is_shared)
    memory = bytearray(4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    try:
        buffers._are_writable(address, address + 4096)
    except OSError:
        pytest.skip("Linux before 6.11 lists all mappings")
    assert calls(lambda: MR(node.pd, 4096, e.IBV_ACCESS_LOCAL_WRITE, address).close()) <= most


def test_reads_are_never_inline(node, pair):
    """Inline requests have no key check: an inline READ could write to any address."""
    wr = SendWR(1, e.IBV_WR_RDMA_READ, 1, 0, [SGE(node.mr.buf, 8, 0)], e.IBV_SEND_SIGNALED | e.IBV_SEND_INLINE)
    wr.set_wr_rdma(node.mr.rkey, node.mr.buf + 64)
    with pytest.raises(PyverbsRDMAError, match="inline"):
        pair[0].post_send(wr)


def test_a_long_request_lets_other_threads_run(node, pair):
    """It releases the interpreter's lock and takes it again; a wrong state of the lock would crash the process."""
    size = 1 << 20
    with MR(node.pd, 2 * size, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE) as mr:
        mr.write(b"w" * size, size)
        wr = SendWR(1, e.IBV_WR_RDMA_WRITE, 1, 0, [SGE(mr.buf, size, mr.lkey)], e.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(mr.rkey, mr.buf + size)
        pair[0].post_send(wr)
        assert node.cq.poll()[1][0].status == OK
        assert mr.read(size, size) == b"w" * size
