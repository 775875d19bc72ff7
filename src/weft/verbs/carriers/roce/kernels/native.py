"""Give kernels access to memory at addresses, CRC-32, and functions of the C library.

The C functions are referenced by name, not by address, so that compiled kernels can be cached. Callers have checked the
addresses. Numbers in memory are little-endian, as on all machines that Numba supports today.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from weft.jit import Kernel, part
from weft.verbs.carriers.roce.kernels.folding import BLOCK_BYTES, CAN_FOLD, FEATURES, fold
from weft.verbs.carriers.roce.layout import IPV4_BYTES, ONES_BYTES, OUTER_IPV4_BYTES, UDP_BYTES
from weft.verbs.carriers.roce.processor import crc_instructions
from weft.wire.kernels import CRC32

Array = np.ndarray[Any, Any]
crc_word: Kernel
crc_byte: Kernel
_WORD, _HALF, _BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)

sendmsg = types.ExternalFunction("sendmsg", types.int64(types.int32, types.uintp, types.int32))
recvmsg = types.ExternalFunction("recvmsg", types.int64(types.int32, types.uintp, types.int32))
memcpy = types.ExternalFunction("memcpy", types.uintp(types.uintp, types.uintp, types.uintp))
_errno_at = types.ExternalFunction("__errno_location", types.uintp())


def _load(width: Any, kind: Any) -> Callable[..., Any]:
    def typed(_context: Any, _address: Any) -> Any:
        def emit(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            loaded = builder.load(builder.inttoptr(args[0], width.as_pointer()))
            loaded.align = 1
            return loaded

        return kind(types.uintp), emit

    return typed


def _store(width: Any, kind: Any) -> Callable[..., Any]:
    def typed(_context: Any, _address: Any, _value: Any) -> Any:
        def emit(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            builder.store(args[1], builder.inttoptr(args[0], width.as_pointer())).align = 1
            return context.get_dummy_value()

        return types.void(types.uintp, kind), emit

    return typed


load_word, store_word = intrinsic(_load(_WORD, types.uint64)), intrinsic(_store(_WORD, types.uint64))
load_half = intrinsic(_load(_HALF, types.int32))
load_byte, store_byte = intrinsic(_load(_BYTE, types.uint8)), intrinsic(_store(_BYTE, types.uint8))


@part
def errno():
    """Return the errno of the last call in this thread."""
    return np.int64(load_half(_errno_at()))


def _instruction(name: str, width: Any, kind: Any) -> Callable[..., Any]:
    """Return a Numba intrinsic for an instruction of ARMv8 that computes CRC-32."""

    def typed(_context: Any, _crc: Any, _data: Any) -> Any:
        def emit(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            data = builder.zext(args[1], width) if args[1].type.width < width.width else args[1]
            takes = ir.FunctionType(_HALF, [_HALF, width])
            return builder.call(builder.module.declare_intrinsic(name, (), takes), [args[0], data])

        return types.uint32(types.uint32, kind), emit

    return typed


def _moved(shift: Array, crcs: Array) -> Array:
    """Return CRCs after the zero bytes of `shift`."""
    moved: Array = np.bitwise_xor.reduce([shift[i][crcs >> 8 * i & 0xFF] for i in range(4)])
    return moved


def _shift(tables: Array, doublings: int) -> Array:
    """Return a table [byte of a CRC, its value] -> its CRC after 2 ** `doublings` zero bytes."""
    crcs = np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
    shift: Array = tables[0][crcs & 0xFF] ^ crcs >> 8
    for _ in range(doublings):
        shift = _moved(shift, shift)
    return shift


TABLES = CRC32.astype(np.uint32)  # [bytes that follow in its word, byte] -> its contribution to the CRC
_STRIPE_BYTES = 1024
SHIFT = _shift(TABLES, _STRIPE_BYTES.bit_length() - 1)


@part
def crc_byte_by_table(crc, data):
    return np.uint32(TABLES[0, (crc ^ data) & 0xFF] ^ (crc >> np.uint32(8)))


@part
def crc_word_by_tables(crc, data):
    mixed = np.uint64(data) ^ np.uint64(crc)
    result = np.uint32(0)
    for i in range(8):
        result ^= TABLES[7 - i, (mixed >> np.uint64(8 * i)) & np.uint64(0xFF)]
    return np.uint32(result)


@part
def _shifted(crc):
    return (
        SHIFT[0, crc & 0xFF] ^ SHIFT[1, crc >> np.uint32(8) & 0xFF] ^ SHIFT[2, crc >> np.uint32(16) & 0xFF]
        ^ SHIFT[3, crc >> np.uint32(24)]
    )  # fmt: skip


@part
def crc_of_by_tables(crc, address, size):
    """Compute a CRC in four stripes at a time, so that the latencies of four table lookups overlap."""
    result, stripe = np.uint32(crc), _STRIPE_BYTES
    striped = size - size % (4 * stripe)
    for block in range(0, striped, 4 * stripe):
        a, b, c, d = result, np.uint32(0), np.uint32(0), np.uint32(0)
        for at in range(address + block, address + block + stripe, 8):
            a = crc_word_by_tables(a, load_word(np.uint64(at)))
            b = crc_word_by_tables(b, load_word(np.uint64(at + stripe)))
            c = crc_word_by_tables(c, load_word(np.uint64(at + 2 * stripe)))
            d = crc_word_by_tables(d, load_word(np.uint64(at + 3 * stripe)))
        result = np.uint32(_shifted(np.uint32(_shifted(np.uint32(_shifted(a) ^ b)) ^ c)) ^ d)
    for i in range(striped, size & ~7, 8):
        result = crc_word_by_tables(result, load_word(np.uint64(address + i)))
    for i in range(size & ~7, size):
        result = crc_byte_by_table(result, load_byte(np.uint64(address + i)))
    return result


@part
def crc_of_by_instruction(crc, address, size):
    result, end = np.uint32(crc), address + size
    for at in range(address, address + (size & ~7), 8):
        result = crc_word(result, load_word(np.uint64(at)))
    for at in range(address + (size & ~7), end):
        result = crc_byte(result, load_byte(np.uint64(at)))
    return result


@part
def crc_and_copy_by_tables(crc, address, to, size):
    memcpy(np.uint64(to), np.uint64(address), np.uint64(size))
    return crc_of_by_tables(crc, to, size)


@part
def crc_and_copy_by_instruction(crc, address, to, size):
    """Copy and compute a CRC; each byte is read once."""
    result, whole = np.uint32(crc), size & ~7
    for i in range(0, whole, 8):
        word = load_word(np.uint64(address + i))
        store_word(np.uint64(to + i), word)
        result = crc_word(result, word)
    for i in range(whole, size):
        byte = load_byte(np.uint64(address + i))
        store_byte(np.uint64(to + i), byte)
        result = crc_byte(result, byte)
    return result


@part
def crc_of_by_folding(crc, address, size):
    folded, result = (size & ~15) if size >= BLOCK_BYTES else 0, np.uint32(crc)
    if folded:
        first, second = fold(result, np.uint64(address), np.uint64(0), np.uint64(folded), False)
        result = crc_word_by_tables(crc_word_by_tables(np.uint32(0), first), second)
    return crc_of_by_tables(result, address + folded, size - folded)


@part
def crc_and_copy_by_folding(crc, address, to, size):
    """Copy and compute a CRC; each byte but the last few is read once."""
    folded, result = (size & ~15) if size >= BLOCK_BYTES else 0, np.uint32(crc)
    if folded:
        first, second = fold(result, np.uint64(address), np.uint64(to), np.uint64(folded), True)
        result = crc_word_by_tables(crc_word_by_tables(np.uint32(0), first), second)
    return crc_and_copy_by_tables(result, address + folded, to + folded, size - folded)


# Continue a CRC over memory, and copy the memory: start with 0xFFFFFFFF, invert the result. ARM's own instruction is a
# quarter faster there than folding; x86-64 has one for another polynomial only. CRC_FEATURES: what LLVM calls them
if "crc32" in crc_instructions():
    crc_word = intrinsic(_instruction("llvm.aarch64.crc32x", _WORD, types.uint64))
    crc_byte = intrinsic(_instruction("llvm.aarch64.crc32b", _HALF, types.uint8))
    crc_of, crc_and_copy, CRC_FEATURES = crc_of_by_instruction, crc_and_copy_by_instruction, "+crc"
elif CAN_FOLD:
    crc_byte, crc_of, crc_and_copy = crc_byte_by_table, crc_of_by_folding, crc_and_copy_by_folding
    CRC_FEATURES = FEATURES
else:
    crc_byte, crc_of, crc_and_copy = crc_byte_by_table, crc_of_by_tables, crc_and_copy_by_tables
    CRC_FEATURES = ""


@part
def _put16(address, value):
    store_byte(np.uint64(address), np.uint8(value >> 8 & 0xFF))
    store_byte(np.uint64(address + 1), np.uint8(value & 0xFF))


@part
def get24(text, at):
    return np.int64(text[at]) << 16 | np.int64(text[at + 1]) << 8 | np.int64(text[at + 2])


@part
def outer_crc(outer, outer_bytes, size, identification):
    """Return the CRC of the headers at the address `outer` for a datagram of this size."""
    udp = size + UDP_BYTES
    if outer_bytes == OUTER_IPV4_BYTES:
        _put16(outer + ONES_BYTES + 2, udp + IPV4_BYTES)
        _put16(outer + ONES_BYTES + 4, identification)
    else:
        _put16(outer + ONES_BYTES + 4, udp)
    _put16(outer + outer_bytes - 4, udp)
    return crc_of(np.uint32(0xFFFFFFFF), outer, outer_bytes)
