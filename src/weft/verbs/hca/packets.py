"""Encode segments as packets with their opcodes and headers, and decode them.

    for headers, payload in encode(segment, mtu_bytes): ...      from the BTH on; earlier headers are the carrier's
    segment = decode(headers, payload)                           one packet becomes one segment

This is slow: it is for captures, for tests, and for slow carriers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.verbs.hca.segment import Op, Segment, Service
from weft.wire.format import Format, Malformed
from weft.wire.headers import AETH, BTH, DETH, FETH, IETH, RDETH, RETH, XRCETH, AtomicAckETH, AtomicETH, ImmDt, Opcode
from weft.wire.opcodes import EXTENDED_HEADERS

# Operations by the names of their opcodes: those with any number of packets, and those with one.
_RUNS = {"SEND": Op.SEND, "RDMA_WRITE": Op.WRITE, "RDMA_READ_RESPONSE": Op.READ_RESPONSE}
_PARTS = {"ONLY": (True, True), "FIRST": (True, False), "LAST": (False, True), "MIDDLE": (False, False)}
_SINGLE = {
    "RDMA_READ_REQUEST": Op.READ,
    "COMPARE_SWAP": Op.COMPARE_SWAP,
    "FETCH_ADD": Op.FETCH_ADD,
    "ATOMIC_ACKNOWLEDGE": Op.ATOMIC_RESPONSE,
    "ACKNOWLEDGE": Op.ACKNOWLEDGE,
    "ATOMIC_WRITE": Op.ATOMIC_WRITE,
    "FLUSH": Op.FLUSH,
    "RESYNC": Op.RESYNC,
}
_BTH = {"se": "solicited", "p_key": "p_key", "dest_qp": "dest_qp", "a": "ack_request", "psn": "psn"}
# Fields of headers, and of segments.
_FIELDS: dict[type[Format], dict[str, str]] = {
    RETH: {"va": "va", "r_key": "rkey", "dma_len": "length"},
    AETH: {"syndrome": "syndrome", "msn": "msn"},
    AtomicETH: {"va": "va", "r_key": "rkey", "swap_dt": "swap", "cmp_dt": "compare"},
    AtomicAckETH: {"orig_rem_dt": "swap"},
    DETH: {"q_key": "q_key", "src_qp": "source_qp"},
    RDETH: {"ee_context": "ee"},
    XRCETH: {"xrc_srq": "srq"},
    ImmDt: {"imm_dt": "immediate"},
    IETH: {"r_key": "invalidate"},
    FETH: {"plt": "flush", "sel": "selectivity"},
}


def _place(opcode: Opcode) -> tuple[Service, Op, bool, bool]:
    service, operation = opcode.name.split("_", 1)
    if operation in _SINGLE:
        return Service[service], _SINGLE[operation], True, True
    name, _, part = operation.partition("_WITH_")[0].rpartition("_")
    return Service[service], _RUNS[name], *_PARTS[part]


# [opcode] -> service, operation, whether it is the first packet of a message, and the last
PLACES = {int(opcode): _place(opcode) for opcode in Opcode if opcode is not Opcode.CNP}
# [service, operation, is first, is last, has an immediate, invalidates a key] -> opcode
OPCODES = {
    (*place, ImmDt in EXTENDED_HEADERS[opcode], IETH in EXTENDED_HEADERS[opcode]): opcode
    for opcode, place in PLACES.items()
}


def encode(segment: Segment, mtu_bytes: int) -> Iterator[tuple[tuple[Format, ...], bytes]]:
    """Yield the packets of a segment in order."""
    for packet in segment.packets(mtu_bytes):
        more = packet.immediate is not None, packet.invalidate is not None
        opcode = OPCODES[packet.service, packet.op, packet.first, packet.last, *more]
        bth = BTH(opcode=opcode, m=1, **{name: int(getattr(packet, field)) for name, field in _BTH.items()})
        extended = (
            form(**{name: getattr(packet, field) for name, field in _FIELDS[form].items()})
            for form in EXTENDED_HEADERS[opcode]
        )
        yield (bth, *extended), bytes(packet.payload)


def decode(headers: Sequence[Format], payload: bytes) -> Segment:
    """Return the segment of a packet from its BTH on. Raise Malformed if no queue pair accepts it."""
    bth = headers[0]
    assert isinstance(bth, BTH)
    if bth.opcode not in PLACES:
        raise Malformed(f"opcode {bth.opcode:#04x} is not an opcode of a queue pair")
    if bth.t_ver:
        raise Malformed(f"transport version {bth.t_ver} is not 0")
    if bth.pad_cnt and bth.pad_cnt != -len(payload) % 4:
        raise Malformed(f"{len(payload)} bytes and {bth.pad_cnt} of padding are not a multiple of 4")
    service, op, first, last = PLACES[bth.opcode]
    fields: dict[str, Any] = {field: getattr(bth, name) for name, field in _BTH.items()}
    for header in headers[1:]:
        fields |= {field: getattr(header, name) for name, field in _FIELDS.get(type(header), {}).items()}
    fields["solicited"], fields["ack_request"] = bool(bth.se), bool(bth.a)
    return Segment(op=op, service=service, first=first, last=last, payload=payload, **fields)
