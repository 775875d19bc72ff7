"""Kernels that run in several threads: atomic operations and a barrier, on words of an int64 array.

Threads are those of Python, in kernels that release the GIL. Interpreted, there is one thread.
"""

from __future__ import annotations

import platform
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from weft.jit import Kernel, handler

WORD = 16  # words of different use are as far apart, so that no two share a cache line
ARRIVED, GENERATION, ABORTED = 0, WORD, 2 * WORD  # words of a barrier
BARRIER_WORDS = 3 * WORD
_SPINS = 2_000  # before a thread that waits yields its core


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Return the address of `array[index]`."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return cgutils.get_item_pointer(context, builder, signature.args[0], array, [args[1]], wraparound=False)


def _read_modify_write(operation: str) -> Kernel:
    """Return an intrinsic that changes `array[index]` by a value in one step, and returns the value before."""

    def typed(_context: Any, array: Any, index: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.atomic_rmw(operation, _pointer(context, builder, signature, args), args[2], "seq_cst")

        return types.int64(array, types.intp, types.int64), emit

    return intrinsic(typed)


def _load(_context: Any, array: Any, index: Any) -> Any:
    """Read `array[index]`, which another thread may write."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(context, builder, signature, args), "seq_cst", 8)

    return types.int64(array, types.intp), emit


def _relax(_context: Any) -> Any:
    """Leave the core's resources to its other thread for a moment."""

    def emit(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        number = ir.IntType(32)
        name, takes, values = "llvm.x86.sse2.pause", [], []
        if platform.machine() != "x86_64":
            name, takes, values = "llvm.aarch64.hint", [number], [number(1)]  # yield
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), takes), name)
        builder.call(function, values)
        return context.get_dummy_value()

    return types.void(), emit


def _yield(_context: Any) -> Any:
    """Let the system run another thread on this core."""

    def emit(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        takes = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, takes, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), emit


def _add_alone(array: Any, index: int, value: int) -> Any:
    before = array[index]
    array[index] += value
    return before


def _exchange_alone(array: Any, index: int, value: int) -> Any:
    before = array[index]
    array[index] = value
    return before


_alone: bool = numba.config.DISABLE_JIT  # type: ignore[attr-defined]
atomic_add: Kernel = _add_alone if _alone else _read_modify_write("add")
atomic_exchange: Kernel = _exchange_alone if _alone else _read_modify_write("xchg")
atomic_load: Kernel = (lambda array, index: array[index]) if _alone else intrinsic(_load)
relax: Kernel = (lambda: None) if _alone or platform.machine() not in ("x86_64", "aarch64") else intrinsic(_relax)
yield_core: Kernel = (lambda: None) if _alone else intrinsic(_yield)


@handler
def is_last(words, threads):
    """Wait at a barrier until it opens; return True at once in the last thread, which then calls `open_barrier`."""
    generation = words[GENERATION]
    if atomic_add(words, ARRIVED, 1) == threads - 1:
        return True
    spins = 0
    while atomic_load(words, GENERATION) == generation and atomic_load(words, ABORTED) == 0:
        spins += 1
        if spins > _SPINS:
            yield_core()
        else:
            relax()
    return False


@handler
def open_barrier(words):
    """Let all threads pass the barrier."""
    words[ARRIVED] = 0
    atomic_add(words, GENERATION, 1)
