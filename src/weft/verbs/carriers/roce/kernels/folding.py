"""CRC-32 by multiplication without carries, which x86-64 calls PCLMULQDQ and ARM PMULL.

    [ 16 bytes | 16 | 16 | 16 ] [ 16 | 16 | 16 | 16 ] ...      four sums of 16 bytes: each, times a constant, is added
          `-------- times x^512 --------^                      to what stands 64 bytes behind it, again and again

Bytes are a polynomial, and their CRC is what is left of it modulo another one. So what stands n bits before something
may be replaced by its product with x^n modulo that one, which is short, added there (Gopal et al., "Fast CRC
Computation for Generic Polynomials Using PCLMULQDQ Instruction", 2009). The 16 bytes left at the end have the same CRC
as all together. The four are independent, so a processor works on all at once.
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
Multiply = Callable[[Any, Any, Any, int], Any]  # builder, two pairs of words, and whether their first or second ones


def _constant(bits: int) -> int:
    """x^bits modulo the polynomial, first bit last, and once more by x: products of such numbers are a bit too low."""
    power = 1
    for _ in range(bits):
        power <<= 1
        power ^= _POLYNOMIAL * (power >> 32)
    return int(f"{power:032b}"[::-1], 2) << 1


def by_pclmulqdq(builder: Any, one: Any, other: Any, half: int) -> Any:
    takes = ir.FunctionType(_PAIR, [_PAIR, _PAIR, _BYTE])
    function = builder.module.declare_intrinsic("llvm.x86.pclmulqdq", (), takes)
    return builder.call(function, [one, other, _BYTE(0x11 * half)])


def _by_pmull(builder: Any, one: Any, other: Any, half: int) -> Any:
    bytes_16 = ir.VectorType(_BYTE, 16)
    function = builder.module.declare_intrinsic(
        "llvm.aarch64.neon.pmull64", (), ir.FunctionType(bytes_16, [_WORD, _WORD])
    )
    words = [builder.extract_element(pair, ir.IntType(32)(half)) for pair in (one, other)]
    return builder.bitcast(builder.call(function, words), _PAIR)


def _multiplication() -> Multiply | None:
    """That of the processor that kernels are compiled for, if it has one."""
    features = config.CPU_FEATURES if config.CPU_FEATURES is not None else codegen.get_host_cpu_features()  # type: ignore[attr-defined]
    has = set(features.split(","))
    if "+pclmul" in has:
        return by_pclmulqdq
    return _by_pmull if "+aes" in has and "+neon" in has else None


_multiply = _multiplication()
CAN_FOLD = _multiply is not None


def times(builder: Any, pair: Any, distance_bits: int) -> Any:
    """What stands so far before something, as it may be added there: its two words are 64 bits apart."""
    assert _multiply is not None
    powers = ir.Constant(_PAIR, [_constant(distance_bits + 32), _constant(distance_bits - 32)])
    return builder.xor(_multiply(builder, pair, powers, 0), _multiply(builder, pair, powers, 1))


def _fold(_context: Any, _crc: Any, _address: Any, _to: Any, _size: Any, _copies: Any) -> Any:
    """Go on with a CRC over 64 bytes or more, in steps of 16, and copy them if asked: two words that have the same."""
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

    made = types.UniTuple(types.uint64, 2)
    return made(types.uint32, types.uint64, types.uint64, types.uint64, _copies), emit


fold = intrinsic(_fold)
