"""Memory at addresses, for kernels that work on what several processes share: word n after an address.

`acquire` and `release` are the loads and stores that order others: what was written before a `release` is seen by who
`acquire`s that value. `lock` and `unlock` are of a word that is 0, or the number of the process that has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from weft.jit import Kernel, part, quick_kernel

_I64 = ir.IntType(64)
_TRIES = 2000
peek: Kernel
poke: Kernel
acquire: Kernel
release: Kernel
exchange: Kernel
move: Kernel
where: Kernel


def _pointer(builder: Any, address: Any, bits: int = 64) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _word(builder: Any, address: Any, word: Any) -> Any:
    return builder.gep(_pointer(builder, address), [word])


def _peek(_context: Any, address: Any, word: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_word(builder, *args))

    return types.int64(types.int64, types.int64), emit


def _poke(_context: Any, address: Any, word: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _word(builder, *args[:2]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


def _acquire(_context: Any, address: Any, word: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_word(builder, *args), "acquire", 8)

    return types.int64(types.int64, types.int64), emit


def _release(_context: Any, address: Any, word: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _word(builder, *args[:2]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


def _exchange(_context: Any, address: Any, before: Any, after: Any) -> Any:
    """Write `after` if `before` is there; whether it was."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = builder.cmpxchg(_pointer(builder, args[0]), args[1], args[2], "acq_rel", "acquire")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), emit


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
    """The address of the first byte of an array, or of bytes."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(made.data, _I64)

    return types.int64(buffer), emit


peek, poke, acquire, release, exchange, move, where = (
    intrinsic(one) for one in (_peek, _poke, _acquire, _release, _exchange, _move, _where)
)


@part
def take(address: int, process: int) -> bool:
    """The lock, if it can be had soon."""
    for _ in range(_TRIES):  # noqa: SIM110 - kernels have no generators
        if acquire(address, 0) == 0 and exchange(address, 0, process):
            return True
    return False


@quick_kernel
def lock(address: int, process: int) -> bool:
    return take(address, process)  # type: ignore[no-any-return]


@quick_kernel
def unlock(address: int) -> None:
    release(address, 0, 0)


@quick_kernel
def load(address: int) -> int:
    return acquire(address, 0)  # type: ignore[no-any-return]


@quick_kernel
def publish(address: int, value: int) -> None:
    """Write a word after all that was written before."""
    release(address, 0, value)


@quick_kernel
def _free_from(address: int, process: int) -> None:
    exchange(address, process, 0)


def break_lock(address: int, lives: Callable[[int], bool]) -> None:
    """Take it from a process that is gone."""
    process = load(address)
    if process and not lives(process):
        _free_from(address, process)
