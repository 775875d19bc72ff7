"""Memory at addresses, for kernels that work on what several processes share: records, and bytes.

    ring = view(CompletionQueueRecord)(address)     then ring.tail, ring.tail = 1: plain loads and stores of a word
    acquire(ring, "head"), release(ring, "tail", 1)

`acquire` and `release` are the loads and stores that order others: what was written before a `release` is seen by who
`acquire`s that value. `lock` and `unlock` are of memory of queues, by its address.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from weft.jit import Kernel, part, quick_kernel
from weft.verbs.shm.layout import Header, Word
from weft.verbs.shm.record import Record

_I64 = ir.IntType(64)
_TRIES = 2000
acquire: Kernel
release: Kernel
exchange: Kernel
add: Kernel
move: Kernel
where: Kernel
numbers: Kernel


def view(declared: type[Record]) -> Kernel:
    """Return an intrinsic that gives kernels the record at an address; its fields are signed numbers."""
    return view_of([(name, np.int64) for name in declared.names])


def view_of(form: Any) -> Kernel:
    """Return an intrinsic that gives kernels the structure at an address: a ctypes.Structure, or fields for a dtype."""

    def _view(_context: Any, address: Any) -> Any:
        kind = numba.from_dtype(np.dtype(form, align=True))

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(kind))

        return kind(types.int64), emit

    return intrinsic(_view)


def _pointer(builder: Any, address: Any, bits: int = 64) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _field(builder: Any, kind: Any, pointer: Any, name: Any) -> Any:
    at = builder.add(builder.ptrtoint(pointer, _I64), _I64(kind.offset(name.literal_value)))
    return _pointer(builder, at)


def _acquire(_context: Any, record: Any, name: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_field(builder, record, args[0], name), "acquire", 8)

    return types.int64(record, name), emit


def _release(_context: Any, record: Any, name: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _field(builder, record, args[0], name), "release", 8)
        return context.get_dummy_value()

    return types.void(record, name, types.int64), emit


def _exchange(_context: Any, record: Any, name: Any, before: Any, after: Any) -> Any:
    """Write `after` if `before` is there; whether it was."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = builder.cmpxchg(_field(builder, record, args[0], name), args[2], args[3], "acq_rel", "acquire")
        return builder.extract_value(pair, 1)

    return types.boolean(record, name, types.int64, types.int64), emit


def _add(_context: Any, record: Any, name: Any, value: Any) -> Any:
    """Add to a field that other threads add to at the same time."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.atomic_rmw("add", _field(builder, record, args[0], name), args[2], "monotonic")
        return context.get_dummy_value()

    return types.void(record, name, types.int64), emit


def _move(_context: Any, to: Any, source: Any, size: Any) -> Any:
    """Copy bytes."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        takes = ir.FunctionType(byte, [byte, byte, _I64])
        function = builder.module.globals.get("memmove") or ir.Function(builder.module, takes, "memmove")
        builder.call(function, [_pointer(builder, args[0], 8), _pointer(builder, args[1], 8), args[2]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


def _where(_context: Any, buffer: Any) -> Any:
    """Return the address of the first byte of an array or of bytes."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(made.data, _I64)

    return types.int64(buffer), emit


def _numbers(_context: Any, record: Any) -> Any:
    """Return all fields of a record in order, as unsigned numbers."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = builder.ptrtoint(args[0], _I64)
        words = [builder.load(_pointer(builder, builder.add(at, _I64(record.offset(name))))) for name in record.fields]
        return context.make_tuple(builder, signature.return_type, words)

    return types.UniTuple(types.uint64, len(record.fields))(record), emit  # type: ignore[no-untyped-call]


acquire, release, exchange, add = (
    intrinsic(prefer_literal=True)(function) for function in (_acquire, _release, _exchange, _add)
)
move, where, numbers = intrinsic(_move), intrinsic(_where), intrinsic(_numbers)
_header, _word = view(Header), view(Word)


@part
def take(header, process: int) -> bool:
    """Take the lock; return False if it stays taken."""
    for _ in range(_TRIES):  # noqa: SIM110 - kernels have no generators
        if acquire(header, "lock") == 0 and exchange(header, "lock", 0, process):
            return True
    return False


@quick_kernel
def lock(address: int, process: int) -> bool:
    return take(_header(address), process)


@quick_kernel
def unlock(address: int) -> None:
    release(_header(address), "lock", 0)


@quick_kernel
def load(address: int) -> int:
    """Read a word with acquire order."""
    return acquire(_word(address), "value")


@quick_kernel
def publish(address: int, value: int) -> None:
    """Write a word after all that was written before."""
    release(_word(address), "value", value)


@quick_kernel
def free_from(address: int, process: int) -> None:
    """Release the lock if this process has it."""
    exchange(_header(address), "lock", process, 0)
