"""Objects are closed once, children before parents; memory comes from the C library."""

from __future__ import annotations

import errno
import gc

import pytest

from weft.verbs.attributes.objects import PyverbsCM
from weft.verbs.attributes.text import gid_str, mtu_to_str, rereg_error_to_str
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs import mem_alloc


class Thing(PyverbsCM):
    def __init__(self, name: str, ends: list[str], parent: PyverbsCM | None = None) -> None:
        self.name, self.ends, self.parent = name, ends, parent
        self._is_open = True
        if parent:
            parent.add_ref(self)

    def _release(self) -> None:
        self.ends.append(self.name)


def test_children_end_before_their_parent_and_the_youngest_first():
    ends = []
    parent = Thing("parent", ends)
    children = [Thing(f"child{number}", ends, parent) for number in range(3)]
    with parent:
        pass
    assert ends == ["child2", "child1", "child0", "parent"]
    for item in [parent, *children]:
        item.close()
    assert len(ends) == 4


@pytest.mark.usefixtures("few_objects")
def test_a_forgotten_object_ends_and_its_parent_forgets_it():
    ends = []
    parent = Thing("parent", ends)
    Thing("child", ends, parent)
    gc.collect()
    assert ends == ["child"]
    parent.close()
    assert ends == ["child", "parent"]


def test_an_object_that_could_not_end_stays_open():
    class Busy(Thing):
        def _release(self) -> None:
            super()._release()
            if len(self.ends) == 1:
                raise PyverbsRDMAError("Failed to dealloc", errno.EBUSY)

    busy = Busy("busy", ends := [])
    with pytest.raises(PyverbsRDMAError, match="Errno: 16, Device or resource busy"):
        busy.close()
    busy.close()
    assert len(ends) == 2


def test_an_error_says_its_number_and_the_reason():
    error = PyverbsRDMAError("Failed to create AH", errno.EINVAL, "there is no port 2")
    assert str(error) == "Failed to create AH. Errno: 22, Invalid argument: there is no port 2"
    assert str(PyverbsRDMAError("Failed")) == "Failed"
    assert PyverbsRDMAError("Failed").error_code == -1


def test_aligned_memory_is_zero_and_can_be_written_and_read():
    address = mem_alloc.posix_memalign(4096, alignment=4096)
    assert address % 4096 == 0
    assert mem_alloc.read(address, 4096) == bytes(4096)
    mem_alloc.write(address, "weft", 4, offset=8)
    mem_alloc.writebe32(address, 0x01020304, offset=1)
    mem_alloc.writebe64(address, 0x05060708090A0B0C, offset=2)
    assert mem_alloc.read(address, 24) == bytes(4) + b"\1\2\3\4weft" + bytes(4) + bytes(range(5, 13))
    assert mem_alloc.read32(address, 1) == int.from_bytes(b"\1\2\3\4", "little")
    mem_alloc.free(address)


def test_memory_given_back_to_the_kernel_reads_as_zero():
    address = mem_alloc.mmap(length=8192)
    mem_alloc.write(address, b"x" * 8192, 8192)
    mem_alloc.madvise(address, 4096)
    assert mem_alloc.read(address, 8192) == bytes(4096) + b"x" * 4096
    with pytest.raises(PyverbsRDMAError, match=f"Errno: {errno.EINVAL}"):
        mem_alloc.madvise(address + 1, 4096)
    mem_alloc.munmap(address, 8192)


def test_memory_that_cannot_be_had_is_an_error():
    with pytest.raises(MemoryError):
        mem_alloc.malloc(1 << 62)
    with pytest.raises(MemoryError):
        mem_alloc.posix_memalign(8, alignment=3)
    with pytest.raises(MemoryError):
        mem_alloc.mmap(length=0)


def test_a_write_longer_than_its_data_is_refused():
    with pytest.raises(ValueError, match="was given 2"):
        mem_alloc.write(0, b"ab", 3)


def test_numbers_print_as_words():
    assert gid_str(0, int.from_bytes(bytes(7) + b"\1", "little")) == "0000:0000:0000:0000:0000:0000:0000:0001"
    assert [mtu_to_str(code) for code in range(7)] == [0, 256, 512, 1024, 2048, 4096, 0]
    assert rereg_error_to_str(-4) == "IBV_REREG_MR_ERR_CMD"
