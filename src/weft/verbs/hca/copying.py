"""Copy bytes between the memories of the two processes of a path: kernels.

    copy(path, own, far, size, outward) -> bool

Memory of queues is mapped by both. All other memory is copied by the system, page by page, which one processor does
at a third of the speed of memory. So a long copy is shared: its description (`Copy`) is in the memory of the other
process, and idle pollers there copy parts of it in the other direction. The first process copies the remaining parts.
Memory of a GPU is copied by its driver only: addresses with ON_GPU go to `gpu_path`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from weft.jit import Kernel, part
from weft.verbs.shm import layout
from weft.verbs.shm.atomic import acquire, exchange, move, release, view

_SHARED_BYTES, _PART_MAX_BYTES = 60 << 10, 1 << 19  # smallest shared copy, largest part
_SPINS = 1 << 12
_FAR_VECTOR, _VALUES, _WORD_BYTES = layout.Scratch.offset("far"), layout.Scratch.offset("before"), layout.Word.size
_shared_copy, _scratch = view(layout.Copy), view(layout.Scratch)

_process_vm = types.int64(types.int32, types.int64, types.uint64, types.int64, types.uint64, types.uint64)
_write_to: Kernel = types.ExternalFunction("process_vm_writev", _process_vm)
_read_from: Kernel = types.ExternalFunction("process_vm_readv", _process_vm)
_yield: Kernel = types.ExternalFunction("sched_yield", types.int32())
_I64 = ir.IntType(64)


def _called(_context: Any, function: Any, own: Any, far: Any, size: Any, outward: Any) -> Any:
    """Call a function of C at an address."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I64, [_I64] * 4)
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int64(*[types.int64] * 5), emit


_ask_c: Kernel = intrinsic(_called)


@part
def _copy_by_system(path, own: int, far: int, size: int, outward: bool) -> bool:
    at, vectors = path.scratch, _scratch(path.scratch)
    vectors.own, vectors.own_length, vectors.far, vectors.far_length = own, size, far, size
    if outward:
        return _write_to(path.far_process, at, 1, at + _FAR_VECTOR, 1, 0) == size
    return _read_from(path.far_process, at, 1, at + _FAR_VECTOR, 1, 0) == size


@part
def _can_share(path) -> bool:
    """Return whether the peer is idle, and no copy of a killed process is left."""
    copy = _shared_copy(path.far + layout.COPY)
    return copy.is_idle != 0 and _is_taken(acquire(copy, "left")) and acquire(copy, "helpers") == 0


@part
def _is_taken(left: int) -> bool:
    return left >> 32 >= left & 0xFFFF_FFFF


@part
def _copy_together(path, own: int, far: int, size: int, outward: bool) -> bool:
    """Copy together with the other process, part by part; copy all parts here if it failed."""
    copy, is_right, taken = _shared_copy(path.far + layout.COPY), True, 0
    count = left = 2 if size < _PART_MAX_BYTES else max(8, size // _PART_MAX_BYTES)
    part_length = -(-size // count)
    copy.process, copy.theirs, copy.ours, copy.length = path.own_process, own, far, size
    copy.part_length, copy.is_ours, copy.has_failed = part_length, 1 if outward else 0, 0
    release(copy, "left", left)
    while not _is_taken(left):
        if exchange(copy, "left", left, left - 1):
            at = ((left & 0xFFFF_FFFF) - 1) * part_length
            is_right &= _copy_by_system(path, own + at, far + at, min(part_length, size - at), outward)
            taken += 1
        left = acquire(copy, "left")
    if taken == count:
        copy.is_idle = 0
    spins = 0
    while acquire(copy, "helpers") != 0:
        spins += 1
        if spins % _SPINS == 0:
            _yield()
            if not _copy_by_system(path, path.scratch + _VALUES, path.far_begin, _WORD_BYTES, False):
                return False  # the other process is gone
    if copy.has_failed != 0:
        return _copy_by_system(path, own, far, size, outward)
    return is_right


@part
def copy(path, own: int, far: int, size: int, outward: bool) -> bool:
    """Copy between an address here and one of the other process; return False if the system forbids it."""
    if (own | far) & layout.ON_GPU:
        return _ask_c(path.copy_on_gpu, own, far, size, 1 if outward else 0) != 0
    offset = far - path.far_begin
    if offset >= 0 and offset + size <= path.far_length:
        if outward:
            move(path.far + offset, own, size)
        else:
            move(own, path.far + offset, size)
        return True
    if size >= _SHARED_BYTES and _can_share(path):
        return _copy_together(path, own, far, size, outward)
    return _copy_by_system(path, own, far, size, outward)
