"""Memory of GPUs: tests without a GPU, and, marked `gpu`, tests with one."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.patience import PATIENCE_S
from tests.verbs.gpus import ALL, ROOT, Peer, attributes, copied, request
from tests.verbs.hosts import Node, connect, poll

from weft.verbs.carriers.processes.carrier import ProcessCarrier
from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_MW_BIND,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPT_RC,
    IBV_QPT_UC,
    IBV_QPT_UD,
    IBV_SEND_INLINE,
    IBV_SEND_SIGNALED,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SUCCESS,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
)
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.gpudirect import cuda
from weft.verbs.gpudirect.cuda import Allocation, CudaError
from weft.verbs.gpudirect.gpu import DeviceBytes, Part
from weft.verbs.hca import gpu_copies
from weft.verbs.hca.segment import Op, Segment, Service
from weft.verbs.pyverbs.mr import MR, MW, MWBind, MWBindInfo
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

SIZE = 1 << 20


def has_driver() -> bool:
    try:
        cuda.driver()
    except PyverbsUserError:
        return False
    return True


needs_no_driver = pytest.mark.skipif(has_driver(), reason="there is a GPU here")


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as result:
        yield result


@dataclass
class Claimed:
    """An array that claims to be on a GPU."""

    address: int
    shape: tuple[int, ...] = (1024,)
    strides: tuple[int, ...] | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = self.address, False
        return {"shape": self.shape, "typestr": "<f4", "data": data, "strides": self.strides, "version": 3}


# -- without a GPU ----------------------------------------------------------------------------------------------------


@needs_no_driver
def test_without_a_driver_the_error_names_it_and_the_way_out(node):
    with pytest.raises(PyverbsUserError, match=r"libcuda\.so\.1(.|\n)*Install the driver(.|\n)*it\.cpu\(\)"):
        MR(node.pd, 4096, ALL, address=Claimed(1 << 40))


@needs_no_driver
def test_host_memory_does_not_load_the_driver(node):
    memory = bytearray(4096)
    with MR(node.pd, 4096, ALL, address=memory) as mr:
        assert mr.region.device is None
    assert cuda.in_use() is None
    assert cuda.loaded() is None


@needs_no_driver
def test_a_driver_that_is_loaded_later_is_found(monkeypatch):
    """The search is repeated only after a new library was loaded."""
    monkeypatch.setattr(cuda, "LIBRARY", "libBrokenLocale.so.1")  # a library of glibc that no program links
    assert not cuda._find_loaded(cuda._libraries_loaded())
    ctypes.CDLL(cuda.LIBRARY)
    assert cuda._find_loaded(cuda._libraries_loaded())
    cuda._find_loaded.cache_clear()


def test_an_array_on_a_gpu_must_lie_in_one_piece(node):
    with pytest.raises(PyverbsUserError, match=r"is not contiguous.*contiguous"):
        MR(node.pd, 4096, ALL, address=Claimed(1 << 40, (32, 32), (256, 4)))


def allocations(count: int) -> list[Allocation]:
    """Return empty allocations: addresses can be computed without bytes."""
    return [Allocation(None, 0, 0, 10_000 * i, 10_000) for i in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize("junk", [b"short", bytes(104), bytes(96) + b"\xff" * 8])
def test_a_reference_that_is_none_is_an_error(junk):
    with pytest.raises(CudaError):
        DeviceBytes.unpack(junk)


@pytest.mark.skipif(sys.platform != "linux", reason="names of sockets are Linux's")
def test_a_process_that_cannot_reach_a_gpu_says_so_and_the_other_remembers():
    gid, device = 0xFFFF_7F00_0001, f"test{os.getpid()}-{time.monotonic_ns()}"
    a, b = (ProcessCarrier((gid,), device) for _ in range(2))
    (allocation,) = allocations(1)
    allocation._reference = b"no such GPU.....", bytes(64)
    segment = Segment(op=Op.WRITE, service=Service.RC, dest_qp=b.numbers[0], psn=0, count=3, length=9000)
    segment.payload = DeviceBytes((Part(allocation, 0, 9000),))
    try:
        a.send(segment, (gid, gid), 4096)
        assert b.receive() == []
        assert a.receive() == []
        assert a._without_gpu == {b._slot}
    finally:
        a.close()
        b.close()


class PretendedDriver:
    """A fake GPU driver, with GPU memory in host memory."""

    def __init__(self) -> None:
        self.copies: list[tuple[str, int]] = []

    def context_of(self, address: int) -> int:
        return 7

    def copy(self, kind: str, context: int, to: int, source: int, length: int) -> None:
        assert context == 7
        ctypes.memmove(to, source, length)
        self.copies.append((kind, length))


@pytest.mark.skipif(sys.platform != "linux", reason="shared-memory paths are Linux's")
@pytest.mark.parametrize(
    ("near", "far", "kind"), [("gpu", "gpu", "DtoD"), ("gpu", "host", "DtoH"), ("host", "gpu", "HtoD")]
)
def test_over_a_shared_memory_path_nobody_but_the_driver_touches_a_gpu(node, monkeypatch, near, far, kind):
    """Short messages, which are otherwise in the completion itself, and long ones; a READ copies in reverse."""
    driver = PretendedDriver()
    monkeypatch.setattr(gpu_copies, "in_use", lambda: driver)
    monkeypatch.setattr(cuda, "in_use", lambda: None)

    def region(place: str, memory: bytearray) -> Any:
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        device = Allocation(driver, 7, 0, address, len(memory)) if place == "gpu" else None  # type: ignore[arg-type]
        if device is not None:
            device._reference = bytes(16), bytes(64)
        return node.ctx.adapter.regions.register(node.pd.key, address, len(memory), ALL, device=device)

    a, b = pair(node)
    assert a.core.find_shm_path(at_once=True) is not None
    mine, theirs = bytearray(os.urandom(9000)), bytearray(9000)
    item, other = region(near, mine), region(far, theirs)
    back = "to".join(reversed(kind.split("to")))
    for length in (50, 9000):
        expected = bytes(mine[:length])
        for opcode in (IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ):
            driver.copies.clear()
            (mine if opcode == IBV_WR_RDMA_READ else theirs)[:length] = bytes(length)
            work = SendWR(
                num_sge=1, sg=[SGE(item.address, length, item.key)], opcode=opcode, send_flags=IBV_SEND_SIGNALED
            )
            work.set_wr_rdma(other.key, other.address)
            if opcode == IBV_WR_SEND:
                b.post_recv(RecvWR(num_sge=1, sg=[SGE(other.address, 9000, other.key)]))
            a.post_send(work)
            done(node, 2 if opcode == IBV_WR_SEND else 1)
            assert bytes(mine[:length]) == bytes(theirs[:length]) == expected
            assert driver.copies == [(back if opcode == IBV_WR_RDMA_READ else kind, length)]
    for held in (item, other):
        node.ctx.adapter.regions.drop(held)


# -- with a GPU, in one process ----------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    result = pytest.importorskip("torch", reason="torch is not installed")
    if not result.cuda.is_available():
        pytest.skip("there is no NVIDIA GPU here")
    return result


@pytest.fixture
def random(torch) -> Any:
    """A function that returns tensors of random bytes."""

    def made(nbytes: int = SIZE, device: str = "cuda") -> Any:
        tensor = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device=device)
        torch.cuda.synchronize()
        return tensor

    return made


@pytest.fixture
def moved(torch) -> Iterator[Any]:
    """Return the driver's copies since the test began."""
    before = copied()
    return lambda: copied() - before


def pair(node: Node, kind: int = IBV_QPT_RC) -> tuple[Any, Any]:
    a, b = node.qp(kind), node.qp(kind)
    a.to_rts(attributes(node, b.qp_num))
    b.to_rts(attributes(node, a.qp_num))
    return a, b


def done(node: Node, count: int = 1) -> None:
    assert [item.status for item in poll(node.cq, count)] == [IBV_WC_SUCCESS] * count


@pytest.mark.gpu
@pytest.mark.parametrize("opcode", [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND])
@pytest.mark.parametrize(
    ("near", "far", "kind"), [("cuda", "cuda", {"DtoD"}), ("cuda", "cpu", {"DtoH"}), ("cpu", "cuda", {"HtoD"})]
)
def test_a_message_takes_one_copy(node, random, moved, opcode, near, far, kind):
    """And none through the host between two regions on the GPU."""
    mine, theirs = random(SIZE, near), random(SIZE, far)
    before = mine.cpu(), theirs.cpu()
    a, b = pair(node)
    with MR(node.pd, SIZE, ALL, address=mine) as item, MR(node.pd, SIZE, ALL, address=theirs) as other:
        if opcode == IBV_WR_SEND:
            b.post_recv(RecvWR(num_sge=1, sg=[SGE(other.buf, SIZE, other.lkey)]))
        a.post_send(request(item, opcode, (other.buf, other.rkey)))
        done(node, 2 if opcode == IBV_WR_SEND else 1)
    expected = before[1] if opcode == IBV_WR_RDMA_READ else before[0]
    assert mine.cpu().equal(expected)
    assert theirs.cpu().equal(expected)
    back = {"DtoH": {"HtoD"}, "HtoD": {"DtoH"}}.get(next(iter(kind)), kind) if opcode == IBV_WR_RDMA_READ else kind
    assert moved() == {next(iter(back)): SIZE}


@pytest.mark.gpu
def test_lists_may_name_tensors_and_host_memory(node, random):
    first, second, third = random(1000), random(3000), bytearray(os.urandom(500))
    sink = random(4500)
    a, b = pair(node)
    mrs = [MR(node.pd, 0, ALL, address=item) for item in (first, second, third, sink)]
    everything = bytes(first.cpu().numpy()) + bytes(second.cpu().numpy()) + bytes(third)
    for count in (2, 3):  # GPU memory only, then both kinds
        length = (0, 0, 4000, 4500)[count]
        b.post_recv(RecvWR(num_sge=1, sg=[SGE(mrs[3].buf, length, mrs[3].lkey)]))
        sg = [SGE(mr.buf, mr.length, mr.lkey) for mr in mrs[:count]]
        a.post_send(SendWR(num_sge=count, sg=sg, opcode=IBV_WR_SEND, send_flags=IBV_SEND_SIGNALED))
        done(node, 2)
        assert bytes(sink.cpu().numpy())[:length] == everything[:length]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [IBV_QPT_UC, IBV_QPT_UD])
def test_unacknowledged_copy_goes_through_the_host(node, random, moved, kind):
    mine, theirs = random(1000), random(1040)
    expected = mine.cpu()
    a, b = connect(node, kind)
    with MR(node.pd, 0, ALL, address=mine) as item, MR(node.pd, 0, ALL, address=theirs) as other:
        b.post_recv(RecvWR(num_sge=1, sg=[SGE(other.buf, 1040, other.lkey)]))
        work = request(item, IBV_WR_SEND)
        if kind == IBV_QPT_UD:
            from weft.verbs.pyverbs.addr import AH

            work.set_wr_ud(AH(node.pd, attr=node.address()), b.qp_num, 0x11)
        a.post_send(work)
        done(node, 2)
    offset = 40 if kind == IBV_QPT_UD else 0
    assert theirs.cpu()[offset : offset + 1000].equal(expected)
    assert moved()["DtoD"] == 0


@pytest.mark.gpu
def test_atomics_change_words_on_a_gpu(node, torch):
    words = torch.tensor([5, 7], dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    a, _ = pair(node)
    with MR(node.pd, 0, ALL, address=words) as mr:
        for opcode, compare, swap in ((IBV_WR_ATOMIC_FETCH_AND_ADD, 10, 0), (IBV_WR_ATOMIC_CMP_AND_SWP, 15, 99)):
            work = SendWR(num_sge=1, sg=[SGE(mr.buf + 8, 8, mr.lkey)], opcode=opcode, send_flags=IBV_SEND_SIGNALED)
            work.set_wr_atomic(mr.rkey, mr.buf, compare, swap)
            a.post_send(work)
            done(node)
            before = words.tolist()[1]
            assert before == {IBV_WR_ATOMIC_FETCH_AND_ADD: 5, IBV_WR_ATOMIC_CMP_AND_SWP: 15}[opcode]
    assert words.tolist() == [99, 15]


@pytest.mark.gpu
def test_a_window_opens_a_part_of_a_tensor(node, random):
    tensor, data = random(8192), random(100)
    a, _ = pair(node)
    access = ALL | IBV_ACCESS_MW_BIND
    with MR(node.pd, 0, access, address=tensor) as mr, MR(node.pd, 0, ALL, address=data) as small:
        mw = MW(node.pd, 1)
        a.bind_mw(mw, MWBind(MWBindInfo(mr, mr.buf + 4096, 4096, IBV_ACCESS_REMOTE_WRITE), IBV_SEND_SIGNALED))
        done(node)
        a.post_send(request(small, IBV_WR_RDMA_WRITE, (mr.buf + 5000, mw.rkey)))
        done(node)
        mw.close()
    assert tensor[5000:5100].equal(data)


@pytest.mark.gpu
def test_an_address_of_a_gpu_is_known_as_such(node, random):
    tensor = random(4096)
    with MR(node.pd, 4096, ALL, address=tensor.data_ptr()) as mr:
        assert mr.region.device is not None
        assert mr.read(4096, 0) == bytes(tensor.cpu().numpy())
        mr.write(b"hello", 5, 100)
        assert bytes(tensor[100:105].cpu().numpy()) == b"hello"


@pytest.mark.gpu
def test_any_kind_of_tensor_can_be_registered(node, torch):
    parameter = torch.nn.Parameter(torch.ones(100, device="cuda"))
    kinds = [parameter, *(torch.ones(64, device="cuda").to(kind) for kind in (torch.bfloat16, torch.float8_e4m3fn))]
    for tensor in kinds:
        with MR(node.pd, 0, ALL, address=tensor) as mr:
            assert (mr.buf, mr.length) == (tensor.data_ptr(), tensor.nbytes)
    with MR(node.pd, 0, ALL, address=torch.ones(10).pin_memory()) as mr:  # host memory, although torch allocated it
        assert mr.region.device is None
    with pytest.raises(PyverbsUserError, match="is not contiguous"):
        MR(node.pd, 0, ALL, address=torch.ones(8, 8, device="cuda").t())


@pytest.mark.gpu
def test_cupy_arrays_can_be_registered(node, random):
    cupy = pytest.importorskip("cupy")
    data, array = random(4096), cupy.zeros(1024, cupy.float32)
    a, _ = pair(node)
    with MR(node.pd, 0, ALL, address=data) as item, MR(node.pd, 0, ALL, address=array) as other:
        a.post_send(request(item, IBV_WR_RDMA_WRITE, (other.buf, other.rkey)))
        done(node)
    assert array.get().tobytes() == bytes(data.cpu().numpy())


@pytest.mark.gpu
def test_address_outside_the_allocation_is_refused(node, random):
    tensor = random(64 << 20)  # large enough for its own allocation
    with pytest.raises(PyverbsRDMAError, match="more than the allocation") as caught:
        MR(node.pd, 65 << 20, ALL, address=tensor.data_ptr())
    assert caught.value.error_code == errno.EFAULT
    host = ctypes.create_string_buffer(4096)
    with pytest.raises(PyverbsUserError, match="is not memory of a GPU"):
        MR(node.pd, 0, ALL, address=Claimed(ctypes.addressof(host)))


@pytest.mark.gpu
def test_memory_without_a_handle_is_refused_with_the_way_out(torch):
    program = """
import torch
from tests.verbs.hosts import Node
from weft.verbs.pyverbs.mr import MR
with Node() as node:
    MR(node.pd, 0, 1, address=torch.ones(10, device="cuda"))
"""
    env = os.environ | {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
    }
    ended = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "has no CUDA IPC handle" in ended.stderr
    assert "expandable_segments" in ended.stderr


@pytest.mark.gpu
def test_the_region_keeps_the_memory_of_a_tensor(node, torch, random):
    tensor, sink = random(), random()
    expected = tensor.cpu()
    a, _ = pair(node)
    with MR(node.pd, 0, ALL, address=tensor) as item, MR(node.pd, 0, ALL, address=sink) as other:
        del tensor
        torch.cuda.empty_cache()
        used = [random() for _ in range(8)]
        a.post_send(request(item, IBV_WR_RDMA_WRITE, (other.buf, other.rkey)))
        done(node)
        del used
    assert sink.cpu().equal(expected)


@pytest.mark.gpu
def test_memory_of_a_gpu_is_not_inline(node, random):
    a, _ = pair(node)
    with MR(node.pd, 0, ALL, address=random(64)) as mr:
        work = request(mr, IBV_WR_SEND)
        work.send_flags |= IBV_SEND_INLINE
        with pytest.raises(PyverbsRDMAError, match="memory of a GPU cannot be sent inline"):
            a.post_send(work)


# -- two processes ----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_two_processes_move_tensors_without_the_host(node, torch, random, moved):
    mine = random()
    mine.fill_(17)
    torch.cuda.synchronize()
    with Peer(SIZE) as peer, MR(node.pd, 0, ALL, address=mine) as mr:
        qp = peer.connect(node)
        qp.post_send(request(mr, IBV_WR_RDMA_WRITE, peer.far))
        done(node)
        assert peer.ask("values") == [17]
        peer.ask("fill", 23)
        qp.post_send(request(mr, IBV_WR_RDMA_READ, peer.far))
        done(node)
        assert mine.unique().tolist() == [23]
        mine.fill_(42)
        torch.cuda.synchronize()
        peer.ask("receive")
        qp.post_send(request(mr, IBV_WR_SEND))
        done(node)
        assert peer.ask("poll") == IBV_WC_SUCCESS
        assert peer.ask("values") == [42]
        assert moved() == {"DtoD": 3 * SIZE}  # the requester copies, over the shared-memory path
        assert peer.ask("copied") == {}


@pytest.mark.gpu
def test_a_part_of_a_tensor_goes_to_its_place_in_another_process(node, torch, random):
    mine = random()
    expected = torch.zeros(SIZE, dtype=torch.uint8)
    expected[4099 : 4099 + 70_001] = mine[4099 : 4099 + 70_001].cpu()
    with Peer(SIZE) as peer, MR(node.pd, 0, ALL, address=mine) as mr:
        qp = peer.connect(node)
        qp.post_send(request(mr, IBV_WR_RDMA_WRITE, peer.far, length=70_001, offset=4099))
        qp.post_send(request(mr, IBV_WR_RDMA_READ, peer.far))
        done(node, 2)
        assert mine.cpu().equal(expected)


@pytest.mark.gpu
def test_into_host_memory_of_another_process_it_is_one_copy(node, random, moved):
    mine = random()
    mine.fill_(9)
    with Peer(SIZE, "cpu") as peer, MR(node.pd, 0, ALL, address=mine) as mr:
        qp = peer.connect(node)
        qp.post_send(request(mr, IBV_WR_RDMA_WRITE, peer.far))
        done(node)
        assert peer.ask("values") == [9]
        assert moved() == Counter()
        assert peer.ask("copied") == {"DtoH": SIZE}


@pytest.mark.gpu
def test_a_process_that_does_not_see_the_gpu_gets_the_bytes(node, torch, random, moved):
    mine = random()
    mine.fill_(11)
    torch.cuda.synchronize()
    with Peer(SIZE, "cpu", CUDA_VISIBLE_DEVICES="") as peer, MR(node.pd, 0, ALL, address=mine) as mr:
        qp = peer.connect(node)
        qp.post_send(request(mr, IBV_WR_RDMA_WRITE, peer.far))
        done(node)
        assert peer.ask("values") == [11]
        assert peer.ask("copied") == {}
        assert moved()["DtoH"] >= SIZE


@pytest.mark.gpu
def test_the_death_of_a_process_is_an_error_of_its_peer_who_goes_on(node, random):
    mine, sink = random(), random()
    a, _ = pair(node)
    with MR(node.pd, 0, ALL, address=mine) as mr, MR(node.pd, 0, ALL, address=sink) as other:
        with Peer(SIZE) as peer:
            qp = peer.connect(node)
            qp.post_send(request(mr, IBV_WR_RDMA_READ, peer.far))
            done(node)
        qp.post_send(request(mr, IBV_WR_RDMA_WRITE, peer.far))
        assert poll(node.cq, 1)[0].status == IBV_WC_RETRY_EXC_ERR
        a.post_send(request(mr, IBV_WR_RDMA_WRITE, (other.buf, other.rkey)))
        done(node)
    assert sink.equal(mine)


@pytest.mark.gpu
def test_a_forked_process_still_registers_host_memory(node, random):
    random(16)
    with MR(node.pd, 0, IBV_ACCESS_LOCAL_WRITE, address=random(16)):
        pass
    child = os.fork()
    if not child:
        with Node() as forked:
            MR(forked.pd, 0, ALL, address=bytearray(100))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
