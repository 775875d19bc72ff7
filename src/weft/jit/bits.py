"""Operations on bits for kernels."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from weft.jit import Kernel


def _lowest_bit(_context: Any, bits: Any) -> Any:
    """Return the number of the lowest bit that is set; with none, 64."""

    def emit(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), emit


def _lowest_bit_alone(bits: int) -> int:
    return (int(bits) & -int(bits)).bit_length() - 1 if bits else 64


lowest_bit: Kernel = _lowest_bit_alone if numba.config.DISABLE_JIT else intrinsic(_lowest_bit)  # type: ignore[attr-defined]
