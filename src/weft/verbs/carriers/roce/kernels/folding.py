"""Compute CRC-32 by carry-less multiplication, the instruction PCLMULQDQ on x86-64 and PMULL on ARM.

    [ 16 bytes | 16 | 16 | 16 ] [ 16 | 16 | 16 | 16 ] ...      four sums of 16 bytes: each is multiplied by a constant
          `-------- times x^512 --------^                      and added to the block 64 bytes later, repeatedly

Bytes are a polynomial, and their CRC is its remainder modulo another polynomial. So a block may be replaced by its
product with x^n modulo that polynomial, which is short, added n bits later (Gopal et al., "Fast CRC Computation for
Generic Polynomials Using PCLMULQDQ Instruction", 2009). The last 16 bytes have the same CRC as all bytes together. The
four sums are independent, so a processor computes them in parallel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, codegen, config, types
from numba.extending import intrinsic

_POLYNOMIAL = 0x1_04C1_1DB7  # Ethernet's
_LANES, _LANE_BYTES = 4, 16
BLOCK_BYTES = _LANES * _LANE_BYTES
_WORD, _BYTE = ir.IntType(64), ir.IntType(8)
_PAIR = ir.VectorType(_WORD, 2)
Multiply = Callable[
    [Any, Any, Any, int], Any
]  # builder, two pairs of words, and 0 or 1 for their first or second words


def _constant(bits: int) -> int:
    """Return x^bits modulo the polynomial, bit-reversed, times x: products of reversed numbers are one bit low."""
    power = 1
    for _ in range(bits):
        power <<= 1
        power ^= _POLYNOMIAL * (power >> 32)
    return int(f"{power:032b}"[::-1], 2) << 1


def by_pclmulqdq(builder: Any, left: Any, right: Any, half: int) -> Any:
    takes = ir.FunctionType(_PAIR, [_PAIR, _PAIR, _BYTE])
    function = builder.module.declare_intrinsic("llvm.x86.pclmulqdq", (), takes)
    return builder.call(function, [left, right, _BYTE(0x11 * half)])


def _by_pmull(builder: Any, left: Any, right: Any, half: int) -> Any:
    bytes_16 = ir.VectorType(_BYTE, 16)
    function = builder.module.declare_intrinsic(
        "llvm.aarch64.neon.pmull64", (), ir.FunctionType(bytes_16, [_WORD, _WORD])
    )
    words = [builder.extract_element(pair, ir.IntType(32)(half)) for pair in (left, right)]
    return builder.bitcast(builder.call(function, words), _PAIR)


def _multiplication() -> tuple[Multiply | None, str]:
    """Return the carry-less multiplication of the processor for which kernels are compiled, and LLVM's features for it.

    Without one it returns None.
    """
    features = config.CPU_FEATURES if config.CPU_FEATURES is not None else codegen.get_host_cpu_features()  # type: ignore[attr-defined]
    has = set(features.split(","))
    if "+pclmul" in has:
        return by_pclmulqdq, "+pclmul"
    return (_by_pmull, "+neon,+aes") if "+aes" in has and "+neon" in has else (None, "")


_multiply, FEATURES = _multiplication()
CAN_FOLD = _multiply is not None


def times(builder: Any, pair: Any, distance_bits: int) -> Any:
    """Multiply a pair of words, 64 bits apart, so that it may be added `distance_bits` later."""
    assert _multiply is not None
    powers = ir.Constant(_PAIR, [_constant(distance_bits + 32), _constant(distance_bits - 32)])
    return builder.xor(_multiply(builder, pair, powers, 0), _multiply(builder, pair, powers, 1))


def _fold(_context: Any, _crc: Any, _address: Any, _to: Any, _size: Any, _copies: Any) -> Any:
    """Continue a CRC over 64 bytes or more, in steps of 16, and copy them if asked; return two words with this CRC."""
    if not isinstance(_copies, types.BooleanLiteral):
        return None
    copies = _copies.literal_value

    def emit(_context: Any, builder: Any, signature: Any, args: Any) -> Any:
        crc, address, to, size = args[:4]

        def take(at: Any) -> Any:
            pair = builder.load(builder.inttoptr(builder.add(address, at), _PAIR.as_pointer()), align=1)
            if copies:
                builder.store(pair, builder.inttoptr(builder.add(to, at), _PAIR.as_pointer()), align=1)
            return pair

        first = [take(_WORD(n * _LANE_BYTES)) for n in range(_LANES)]
        begun = builder.insert_element(ir.Constant(_PAIR, [0, 0]), builder.zext(crc, _WORD), ir.IntType(32)(0))
        first[0] = builder.xor(first[0], begun)
        sums = [cgutils.alloca_once_value(builder, pair) for pair in first]
        whole = builder.and_(size, _WORD(-BLOCK_BYTES))
        with cgutils.for_range_slice(builder, _WORD(BLOCK_BYTES), whole, _WORD(BLOCK_BYTES), _WORD) as (at, _):
            for n, place in enumerate(sums):
                moved = times(builder, builder.load(place), 8 * BLOCK_BYTES)
                builder.store(builder.xor(moved, take(builder.add(at, _WORD(n * _LANE_BYTES)))), place)
        total = builder.load(sums[0])
        for place in sums[1:]:
            total = builder.xor(times(builder, total, 8 * _LANE_BYTES), builder.load(place))
        builder.store(total, sums[0])
        with cgutils.for_range_slice(builder, whole, size, _WORD(_LANE_BYTES), _WORD) as (at, _):
            builder.store(builder.xor(times(builder, builder.load(sums[0]), 8 * _LANE_BYTES), take(at)), sums[0])
        total = builder.load(sums[0])
        words = [builder.extract_element(total, ir.IntType(32)(n)) for n in range(2)]
        return cgutils.pack_array(builder, words)

    two_words = types.UniTuple(types.uint64, 2)
    return two_words(types.uint32, types.uint64, types.uint64, types.uint64, _copies), emit


fold = intrinsic(_fold)
