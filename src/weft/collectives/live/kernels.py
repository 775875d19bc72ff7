"""Kernels of `reading`: copy or add memory of another process into that of this one."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic

from weft.collectives.live.job import BLOCK_BYTES, BUSY, IDLE, NAMES, OUT, PUT, Job
from weft.jit import Kernel, handler, lean_kernel, part
from weft.verbs.shm.atomic import acquire, exchange, release, view

_F4, _F8, _I4, _I8, _I2, _I1 = (number for number, _ in enumerate(NAMES, 1))
_PART_BYTES = 1 << 12  # parts are multiples of that
_SPINS, _YIELDS = 64, 1 << 13  # loads between two calls of sched_yield, and calls: some milliseconds

_job = view(Job)
_VECTOR, _FAR_VECTOR, _JOB_BYTES = Job.offset("vector"), Job.offset("far_vector"), Job.size
_read_from: Kernel = types.ExternalFunction(
    "process_vm_readv", types.int64(types.int32, types.int64, types.uint64, types.int64, types.uint64, types.uint64)
)
_yield: Kernel = types.ExternalFunction("sched_yield", types.int32())


def _pointer_to(kind: Any) -> Kernel:
    """Return a kernel function that gives the numbers of a kind from an address on."""
    pointer = types.CPointer(kind)  # type: ignore[no-untyped-call]

    def _pointer(_context: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(pointer))

        return pointer(types.int64), emit

    return intrinsic(_pointer)


_f4, _f8, _i4, _i8, _i2, _i1 = (
    _pointer_to(kind) for kind in (types.float32, types.float64, types.int32, types.int64, types.int16, types.int8)
)


@part
def _sum(target, summands, count: int) -> None:
    for n in range(count):
        target[n] += summands[n]


@handler
def _add(kind: int, target: int, summands: int, size: int) -> None:
    if kind == _F4:
        _sum(_f4(target), _f4(summands), size // 4)
    elif kind == _F8:
        _sum(_f8(target), _f8(summands), size // 8)
    elif kind == _I4:
        _sum(_i4(target), _i4(summands), size // 4)
    elif kind == _I8:
        _sum(_i8(target), _i8(summands), size // 8)
    elif kind == _I2:
        _sum(_i2(target), _i2(summands), size // 2)
    elif kind == _I1:
        _sum(_i1(target), _i1(summands), size)


@part
def _read(at: int, own: int, far: int, size: int) -> bool:
    job = _job(at)
    job.vector, job.vector_length, job.far_vector, job.far_vector_length = own, size, far, size
    return _read_from(job.process, at + _VECTOR, 1, at + _FAR_VECTOR, 1, 0) == size


@handler
def _work(at: int) -> None:
    job = _job(at)
    done, length, kind = 0, job.length, job.kind
    job.has_failed = 0
    while done < length:
        size = min(BLOCK_BYTES, length - done)
        if not _read(at, job.own + done if kind == PUT else job.block, job.far + done, size):
            job.has_failed = 1
            return
        if kind != PUT:
            _add(kind, job.own + done, job.block, size)
        done += size


@lean_kernel
def help_out(at: int) -> None:
    """Process parts as they arrive."""
    job, spins = _job(at), 0
    release(job, "state", IDLE)
    while spins < _SPINS * _YIELDS or not exchange(job, "state", IDLE, OUT):
        if acquire(job, "state") == BUSY:
            _work(at)
            release(job, "state", IDLE)
            spins = 0
        spins += 1
        if spins % _SPINS == 0:
            _yield()


@lean_kernel
def take(jobs: int, n_jobs: int, process: int, far: int, own: int, length: int, kind: int) -> bool:
    """Copy all; this thread takes the first job, and those of absent helpers."""
    each = (-(-length // n_jobs) + _PART_BYTES - 1) // _PART_BYTES * _PART_BYTES
    is_right, assigned = True, 0
    for n in range(n_jobs - 1, -1, -1):
        at, begin = jobs + n * _JOB_BYTES, n * each
        job = _job(at)
        if begin >= length:
            continue
        job.process, job.far, job.own, job.kind = process, far + begin, own + begin, kind
        job.length = min(each, length - begin)
        if n != 0 and exchange(job, "state", IDLE, BUSY):
            assigned |= 1 << n
            continue
        _work(at)
        is_right &= job.has_failed == 0
    for n in range(1, n_jobs):
        if assigned >> n & 1:
            job, spins = _job(jobs + n * _JOB_BYTES), 0
            while acquire(job, "state") == BUSY:
                spins += 1
                if spins % _SPINS == 0:
                    _yield()
            is_right &= job.has_failed == 0
    return is_right
