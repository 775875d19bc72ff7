"""Memory of objects: arrays, bytearrays, mmaps and tensors are registered in place and live as long as the region."""

from __future__ import annotations

import array
import ctypes
import errno
import gc
import mmap
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.verbs.hosts import REMOTE, Node, connect, poll

from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_REMOTE_READ,
    IBV_QPT_RC,
    IBV_REREG_MR_CHANGE_ACCESS,
    IBV_REREG_MR_CHANGE_TRANSLATION,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
)
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.pyverbs import buffers
from weft.verbs.pyverbs.buffers import is_writable, span
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.wr import SGE, SendWR

WRITE = IBV_ACCESS_LOCAL_WRITE
BYTES = 64


class Tensor:
    """A tensor like torch's: no buffer protocol, only addresses."""

    def __init__(self, numbers: np.ndarray, device: str = "cpu") -> None:
        self.numbers, self.device = numbers, SimpleNamespace(type=device)

    def data_ptr(self) -> int:
        return self.numbers.ctypes.data

    def is_contiguous(self) -> bool:
        return self.numbers.flags.c_contiguous

    def numel(self) -> int:
        return self.numbers.size

    def element_size(self) -> int:
        return self.numbers.itemsize


class Interface:
    """An object that has only `__array_interface__`."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers
        self.__array_interface__ = numbers.__array_interface__


KINDS = {
    "bytearray": lambda: bytearray(BYTES),
    "mmap": lambda: mmap.mmap(-1, BYTES),
    "memoryview": lambda: memoryview(bytearray(2 * BYTES))[BYTES:],
    "array": lambda: array.array("d", bytes(BYTES)),
    "ctypes": lambda: (ctypes.c_int * (BYTES // 4))(),
    "numpy": lambda: np.zeros((4, 8), np.float16),
    "numpy by columns": lambda: np.zeros((4, 4), np.int32, order="F"),
    "numpy of records": lambda: np.zeros(4, [("key", "i4"), ("value", "f8"), ("rest", "i4")]),
    "numpy of dates": lambda: np.zeros(8, "datetime64[s]"),
    "numpy without indices": lambda: np.zeros((), "V64"),
    "interface": lambda: Interface(np.zeros(BYTES, np.uint8)),
    "tensor": lambda: Tensor(np.zeros((4, 4), np.float32)),
}


@pytest.fixture
def node():
    with Node() as result:
        yield result


def contents(obj: object) -> bytes:
    arguments = span(obj)
    return ctypes.string_at(arguments.address, arguments.nbytes)


@pytest.mark.parametrize("kind", KINDS)
def test_others_read_and_write_the_memory_of_an_object_itself(node, kind):
    theirs = KINDS[kind]()
    a, _ = connect(node, IBV_QPT_RC)
    mr = MR(node.pd, access=WRITE | REMOTE, address=theirs)
    assert mr.length == BYTES
    node.mr.write(bytes(range(BYTES)), BYTES)
    for opcode, offset in ((IBV_WR_RDMA_WRITE, 0), (IBV_WR_RDMA_READ, 1024)):
        wr = SendWR(num_sge=1, sg=[SGE(node.mr.buf + offset, BYTES, node.mr.lkey)], opcode=opcode)
        wr.set_wr_rdma(mr.rkey, mr.buf)
        a.post_send(wr)
        assert poll(node.cq, 1)[0].status == IBV_WC_SUCCESS
    assert contents(theirs) == mr.read(BYTES, 0) == node.mr.read(BYTES, 1024) == bytes(range(BYTES))


@given(
    shape=st.lists(st.integers(0, 4), max_size=3),
    kind=st.sampled_from(["u1", "f4", "c16", "datetime64[s]"]),
    step=st.sampled_from([1, 2, -1]),
    turned=st.booleans(),
)
def test_an_array_has_its_own_bytes_or_is_refused(shape, kind, step, turned):
    whole = np.zeros(shape, kind)
    part = (whole.T if turned else whole)[..., ::step] if shape else whole
    if not part.flags.forc or not part.size:
        if part.size:
            with pytest.raises(PyverbsUserError, match="ascontiguousarray"):
                span(part)
        return
    if kind == "datetime64[s]" and not part.flags.c_contiguous:
        return  # only its strides are known: refusing is safe
    result = span(part)
    assert (result.address, result.nbytes, result.writable) == (part.ctypes.data, part.nbytes, True)


def test_a_part_of_an_object_can_be_registered_and_no_more_than_all_of_it(node):
    arguments = np.arange(BYTES, dtype=np.uint8)
    assert MR(node.pd, 16, WRITE, arguments).length == 16
    assert MR(node.pd, 16, WRITE, arguments[32:]).read(2, 0) == bytes((32, 33))
    for length, obj in ((BYTES + 1, arguments), (-1, arguments), (0, np.zeros(0))):
        with pytest.raises(PyverbsUserError, match=f"the object has {obj.nbytes}"):
            MR(node.pd, length, WRITE, obj)


# -- as long as it is registered --------------------------------------------------------------------------------------


def test_registered_buffer_cannot_be_resized_or_closed(node):
    growing, mapped = bytearray(BYTES), mmap.mmap(-1, BYTES)
    regions = [MR(node.pd, BYTES, WRITE, address=item) for item in (growing, mapped)]
    for change in (lambda: growing.extend(b"more"), mapped.close):
        with pytest.raises(BufferError):
            change()
    for region in regions:
        region.close()
    growing.extend(b"more")
    mapped.close()


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("make", [lambda: np.zeros(BYTES, np.uint8), lambda: Tensor(np.zeros(BYTES, np.uint8))])
def test_memory_stays_as_long_as_its_region(node, make):
    arguments = make()
    alive = weakref.ref(arguments)
    mr = MR(node.pd, 0, WRITE, arguments)
    del arguments
    gc.collect()
    assert alive() is not None
    mr.close()
    gc.collect()
    assert alive() is None


def test_a_region_moves_to_another_object_and_sets_the_first_free(node):
    before, after = bytearray(BYTES), bytearray(b"x" * 2 * BYTES)
    mr = MR(node.pd, 0, WRITE, before)
    mr.rereg(IBV_REREG_MR_CHANGE_TRANSLATION, addr=after)
    assert (mr.length, mr.read(2, 0)) == (2 * BYTES, b"xx")
    before.extend(b"more")
    with pytest.raises(BufferError):
        after.extend(b"more")
    mr.close()
    with pytest.raises(PyverbsRDMAError, match="closed"):
        mr.rereg(IBV_REREG_MR_CHANGE_ACCESS, access=WRITE)


# -- refused objects ---------------------------------------------------------------------------------------------------


def read_only_map() -> mmap.mmap:
    return mmap.mmap(-1, 4096, prot=mmap.PROT_READ)


def constant() -> np.ndarray:
    numbers = np.zeros(BYTES)
    numbers.flags.writeable = False
    return numbers


@pytest.mark.parametrize(
    "make",
    [
        lambda: b"constant",
        read_only_map,
        constant,
        lambda: Interface(constant()),
        lambda: memoryview(bytearray(8)).toreadonly(),
    ],
)
@pytest.mark.parametrize("on_demand", [0, IBV_ACCESS_ON_DEMAND])
def test_read_only_memory_is_for_reading(node, make, on_demand):
    arguments = make()
    with pytest.raises(PyverbsRDMAError, match="read-only") as refused:
        MR(node.pd, 0, WRITE | on_demand, arguments)
    assert refused.value.error_code == errno.EFAULT
    mr = MR(node.pd, 0, IBV_ACCESS_REMOTE_READ | on_demand, arguments)
    with pytest.raises(PyverbsRDMAError, match="read-only"):
        mr.rereg(IBV_REREG_MR_CHANGE_ACCESS, access=WRITE)
    assert mr.region.access == IBV_ACCESS_REMOTE_READ | on_demand


def test_read_only_pages_are_not_registered_for_writing_by_address_either(node):
    pages = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    address = span(pages).address
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + mmap.PAGESIZE), mmap.PAGESIZE, mmap.PROT_READ)
    with pytest.raises(PyverbsRDMAError, match="read-only") as refused:
        MR(node.pd, 3 * mmap.PAGESIZE, WRITE, address)
    assert refused.value.error_code == errno.EFAULT
    MR(node.pd, mmap.PAGESIZE, WRITE, np.int64(address)).close()
    MR(node.pd, 3 * mmap.PAGESIZE, IBV_ACCESS_REMOTE_READ, address).close()
    for ask in (is_writable, buffers._are_writable_by_text):  # the second is for kernels before 6.11
        assert not ask(address + mmap.PAGESIZE - 1, 2)
        assert ask(address + 2 * mmap.PAGESIZE, mmap.PAGESIZE)


@pytest.mark.parametrize(
    ("make", "way_out"),
    [
        (lambda: np.zeros((8, 8))[:, ::2], r"numpy\.ascontiguousarray"),
        (lambda: memoryview(bytearray(8))[::2], r"numpy\.ascontiguousarray"),
        (lambda: Interface(np.zeros((8, 8))[:, ::2]), r"numpy\.ascontiguousarray"),
        (lambda: Tensor(np.zeros((8, 8)).T), r"it\.contiguous\(\)"),
        (lambda: Tensor(np.zeros(8), device="meta"), r"it\.cpu\(\)"),
        (lambda: np.array([None, "x"], object), "array of numbers"),
        (lambda: "text", "is not memory"),
        (lambda: 1.5, "is not memory"),
        (lambda: [1, 2], "is not memory"),
    ],
)
def test_objects_without_memory_are_refused_with_a_remedy(node, make, way_out):
    with pytest.raises(PyverbsUserError, match=way_out):
        MR(node.pd, 0, WRITE, make())


def test_a_tensor_of_torch_is_registered(node):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = torch.zeros(16, dtype=torch.bfloat16)
    mr = MR(node.pd, 0, WRITE, tensor)
    mr.write(b"\x80\x3f" * 16, 32)
    assert tensor.sum().item() == 16
    with pytest.raises(PyverbsUserError, match="contiguous"):
        MR(node.pd, 0, WRITE, torch.zeros(4, 4).t())


@pytest.mark.parametrize(
    ("protection", "expected"), [(mmap.PROT_READ, False), (mmap.PROT_READ | mmap.PROT_WRITE, True)]
)
def test_kernels_without_a_query_for_one_mapping_are_asked_for_all(protection, expected, monkeypatch):
    """Linux before 6.11 has no such query."""

    def refuse(at: int, end: int) -> bool:
        raise OSError(errno.ENOTTY, "no such ioctl")

    monkeypatch.setattr(buffers, "_are_writable", refuse)
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=protection)
    assert buffers.is_writable(buffers.span(page).address, mmap.PAGESIZE) == expected
    assert not buffers.is_writable(mmap.PAGESIZE, 1)  # nothing is mapped there
