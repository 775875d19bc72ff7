"""Segments as packets of the wire, and back: which opcode, which headers.

    for headers, payload in encode(segment, mtu_bytes): ...      BTH first; what goes before it is the carrier's
    segment = decode(headers, payload)                           one packet: a segment of one

One packet after the other, in objects: for captures, for tests, and for carriers that are not in a hurry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.verbs.transport.segment import Op, Segment, Service
from weft.wire.format import Format, Malformed
from weft.wire.headers import (
    AETH,
    BTH,
    DETH,
    FETH,
    IETH,
    RDETH,
    RETH,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    ImmDt,
    Opcode,
)
from weft.wire.opcodes import EXTENDED_HEADERS

_RUNS = {Op.SEND: "SEND", Op.WRITE: "RDMA_WRITE", Op.READ_RESPONSE: "RDMA_READ_RESPONSE"}  # may take many packets
_SINGLE = {
    Op.READ: "RDMA_READ_REQUEST",
    Op.COMPARE_SWAP: "COMPARE_SWAP",
    Op.FETCH_ADD: "FETCH_ADD",
    Op.ATOMIC_RESPONSE: "ATOMIC_ACKNOWLEDGE",
    Op.ACKNOWLEDGE: "ACKNOWLEDGE",
    Op.ATOMIC_WRITE: "ATOMIC_WRITE",
    Op.FLUSH: "FLUSH",
    Op.RESYNC: "RESYNC",
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


def encode(segment: Segment, mtu_bytes: int) -> Iterator[tuple[tuple[Format, ...], bytes]]:
    """Its packets, in order."""
    for packet in segment.packets(mtu_bytes):
        opcode = opcode_of(packet)
        bth = BTH(opcode=opcode, m=1, **{name: int(getattr(packet, field)) for name, field in _BTH.items()})
        more = (
            form(**{name: getattr(packet, field) for name, field in _FIELDS[form].items()})
            for form in EXTENDED_HEADERS[opcode]
        )
        yield (bth, *more), bytes(packet.payload)


def decode(headers: Sequence[Format], payload: bytes) -> Segment:
    """From a BTH and what follows it; Malformed if no queue pair can take it."""
    bth = headers[0]
    assert isinstance(bth, BTH)
    if bth.opcode not in _PLACES:
        raise Malformed(f"opcode {bth.opcode:#04x} is none of a queue pair")
    if bth.t_ver:
        raise Malformed(f"version {bth.t_ver} of the transport is none")
    if bth.pad_cnt and bth.pad_cnt != -len(payload) % 4:
        raise Malformed(f"{len(payload)} bytes and {bth.pad_cnt} of padding are no multiple of 4")
    service, op, first, last = _PLACES[bth.opcode]
    fields: dict[str, Any] = {field: getattr(bth, name) for name, field in _BTH.items()}
    for header in headers[1:]:
        fields |= {field: getattr(header, name) for name, field in _FIELDS.get(type(header), {}).items()}
    fields["solicited"], fields["ack_request"] = bool(bth.se), bool(bth.a)
    return Segment(op=op, service=service, first=first, last=last, payload=payload, **fields)


def opcode_of(packet: Segment) -> Opcode:
    """Of a segment of one packet."""
    if packet.op in _SINGLE:
        return Opcode[f"{packet.service.name}_{_SINGLE[packet.op]}"]
    more = ""
    if packet.immediate is not None:
        more = "_WITH_IMMEDIATE"
    elif packet.invalidate is not None:
        more = "_WITH_INVALIDATE"
    return Opcode[f"{packet.service.name}_{_RUNS[packet.op]}_{_PARTS[packet.first, packet.last]}{more}"]


_PARTS = {(True, True): "ONLY", (True, False): "FIRST", (False, True): "LAST", (False, False): "MIDDLE"}


def _places() -> dict[int, tuple[Service, Op, bool, bool]]:
    """[opcode] -> what it says."""
    found: dict[int, tuple[Service, Op, bool, bool]] = {}
    for service in Service:
        for op, name in _SINGLE.items():
            if (full := f"{service.name}_{name}") in Opcode.__members__:
                found[Opcode[full]] = service, op, True, True
        for op, name in _RUNS.items():
            for (first, last), part in _PARTS.items():
                for more in ("", "_WITH_IMMEDIATE", "_WITH_INVALIDATE"):
                    if (full := f"{service.name}_{name}_{part}{more}") in Opcode.__members__:
                        found[Opcode[full]] = service, op, first, last
    return found


_PLACES = _places()
