"""Fast functions of RoCE's carrier give the results of `packets` and zlib."""

from __future__ import annotations

import random
import zlib

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir
from tests.verbs.test_packets import segments

from weft.jit import kernel
from weft.verbs.carriers.roce.headers import pack, unpack
from weft.verbs.carriers.roce.kernels import folding, native
from weft.verbs.hca.packets import encode
from weft.verbs.hca.segment import Segment

MTU = 256


def headers(packet: Segment) -> bytes:
    """Return the headers as objects."""
    ((result, _),) = encode(packet, MTU)
    return b"".join(header.raw for header in result)


@given(segments())
def test_headers_are_those_of_packets(segment):
    packets = segment.packets(MTU)
    if len(packets) == 1:
        assert pack(segment) == headers(packets[0])
        return
    assert pack(segment, is_last=False) == headers(packets[0])
    assert without_psn(pack(segment, is_first=False)) == without_psn(headers(packets[-1]))
    for between in packets[1:-1]:
        between.ack_request = False
        assert without_psn(pack(segment, is_first=False, is_last=False)) == without_psn(headers(between))


def without_psn(head: bytes) -> bytes:
    """Return a header without its PSN, which the kernel writes."""
    return head[:9] + bytes(3) + head[12:]


@given(segments())
def test_headers_are_read_as_they_were_written(segment):
    for packet in segment.packets(MTU):
        result = unpack(headers(packet) + b"whatever follows", packet.payload)
        assert headers(result) == headers(packet)
        assert (result.op, result.first, result.last, result.payload) == (
            packet.op,
            packet.first,
            packet.last,
            packet.payload,
        )


@kernel
def crcs(data, copy, other):
    """Return the CRCs of the same bytes by the machine's instructions and by tables, also computed during a copy."""
    begin, at, size = np.uint32(0xFFFFFFFF), data.ctypes.data, data.size
    return (
        native.crc_of(begin, at, size),
        native.crc_of_by_tables(begin, at, size),
        native.crc_and_copy(begin, at, copy.ctypes.data, size),
        native.crc_and_copy_by_tables(begin, at, other.ctypes.data, size),
    )


@given(st.integers(0, 20), st.integers(0, 9000), st.integers())
def test_every_crc_is_that_of_zlib(skipped, size, seed):
    data = random.Random(seed).randbytes(skipped + size)
    copies = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    result = crcs(np.frombuffer(data, np.uint8)[skipped:], *copies)
    assert {int(item) ^ 0xFFFFFFFF for item in result} == {zlib.crc32(data[skipped:])}
    assert [copy.tobytes() for copy in copies] == [data[skipped:]] * 2


@kernel
def folded_crcs(data, copy):
    begin, at, size = np.uint32(0xFFFFFFFF), data.ctypes.data, data.size
    return native.crc_of_by_folding(begin, at, size), native.crc_and_copy_by_folding(begin, at, copy.ctypes.data, size)


@pytest.mark.skipif(not folding.CAN_FOLD, reason="this processor does not multiply without carries")
@given(st.integers(0, 20), st.one_of(st.integers(0, 300), st.integers(0, 9000)), st.integers())
def test_folding_gives_the_crc_of_zlib(skipped, size, seed):
    """So do the folds by PCLMULQDQ on x86-64 and by PMULL on ARM."""
    data = random.Random(seed).randbytes(skipped + size)
    copy = np.zeros(size, np.uint8)
    result = folded_crcs(np.frombuffer(data, np.uint8)[skipped:], copy)
    assert {int(item) ^ 0xFFFFFFFF for item in result} == {zlib.crc32(data[skipped:])}
    assert copy.tobytes() == data[skipped:]


def test_x86_64_folds_by_its_instruction(monkeypatch):
    """The test compiles for x86-64 on any machine: LLVM would emit a call for an unknown instruction name."""
    module = ir.Module()
    pair = ir.VectorType(ir.IntType(64), 2)
    function = ir.Function(module, ir.FunctionType(pair, [pair]), "times")
    builder = ir.IRBuilder(function.append_basic_block())
    monkeypatch.setattr(folding, "_multiply", folding.by_pclmulqdq)
    builder.ret(folding.times(builder, function.args[0], 512))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(features="+pclmul")
    assembly = target.emit_assembly(llvm.parse_assembly(str(module)))
    assert assembly.count("pclmul") == 2
    assert "call" not in assembly


def test_the_errno_is_of_the_call_before():
    @kernel
    def send_nowhere():
        native.sendmsg(np.int32(-1), np.uint64(0), np.int32(0))
        return native.errno()

    assert send_nowhere() == 9  # EBADF
