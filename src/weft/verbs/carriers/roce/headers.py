"""Headers of transport in a hurry: those of the opcodes that move data, packed and read by `struct`.

`weft.verbs.hca.packets` says what they are, and does all others; a test holds the two to each other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from weft.verbs.hca.packets import OPCODES, PLACES, decode, encode
from weft.verbs.hca.segment import Op, Segment, Service
from weft.wire.format import Format
from weft.wire.headers import AETH, DETH, IETH, RETH, ImmDt
from weft.wire.opcodes import EXTENDED_HEADERS
from weft.wire.packet import read_transport

_BTH = "BBHII"
_MIGRATED = 1 << 6  # what hardware sends, and everybody accepts
_SOLICITED, _ACK_REQUEST, _24 = 1 << 7, 1 << 31, 0xFF_FFFF
_SERVICES = (Service.RC, Service.UC, Service.UD)
_FAST = (Op.SEND, Op.WRITE, Op.READ, Op.READ_RESPONSE, Op.ACKNOWLEDGE)
_FORMS: dict[type[Format], tuple[str, Callable[[Segment], tuple[int, ...]]]] = {
    RETH: ("QII", lambda one: (one.va, one.rkey, one.length)),
    AETH: ("I", lambda one: (one.syndrome << 24 | one.msn,)),
    DETH: ("II", lambda one: (one.q_key, one.source_qp)),
    ImmDt: ("I", lambda one: (one.immediate or 0,)),
    IETH: ("I", lambda one: (one.invalidate or 0,)),
}


@dataclass(frozen=True, slots=True)
class _Layout:
    """Of one opcode."""

    opcode: int
    service: Service
    op: Op
    first: bool
    last: bool
    form: struct.Struct
    kinds: tuple[type[Format], ...]


def _layout(opcode: int) -> _Layout:
    kinds = EXTENDED_HEADERS[opcode]
    form = struct.Struct(">" + _BTH + "".join(_FORMS[kind][0] for kind in kinds))
    return _Layout(opcode, *PLACES[opcode], form, kinds)


_BY_OPCODE = {
    opcode: _layout(opcode) for opcode, place in PLACES.items() if place[0] in _SERVICES and place[1] in _FAST
}
_BY_SEGMENT = {key: _BY_OPCODE[opcode] for key, opcode in OPCODES.items() if opcode in _BY_OPCODE}


def pack(one: Segment, *, is_first: bool = True, is_last: bool = True) -> bytes:
    """The headers of the first packet of a segment, of its last, or of one between.

    They are those of a packet without payload: whoever sends it says how long the pad is.
    """
    first, last = is_first and one.first, is_last and one.last
    has = is_last and one.immediate is not None, is_last and one.invalidate is not None
    layout = _BY_SEGMENT.get((one.service, one.op, first, last, *has))
    if layout is None:
        packet = replace(one, count=1 + (not is_first) + (not is_last), payload=b"").packets(1)[not is_first]
        return b"".join(header.raw for header in next(encode(packet, 1))[0])
    flags = _MIGRATED | (_SOLICITED if is_last and one.solicited else 0)
    numbers = one.dest_qp, one.psn | (_ACK_REQUEST if is_last and one.ack_request else 0)
    more = [value for kind in layout.kinds for value in _FORMS[kind][1](one)]
    return layout.form.pack(layout.opcode, flags, one.p_key, *numbers, *more)


def unpack(data: bytes, payload: bytes | memoryview) -> Segment:
    """From headers with whatever behind them."""
    layout = _BY_OPCODE.get(data[0])
    if layout is None:
        return decode(read_transport(data, 0)[0], bytes(payload))
    _, flags, p_key, dest_qp, psn, *more = layout.form.unpack_from(data)
    made = Segment(
        op=layout.op,
        service=layout.service,
        dest_qp=dest_qp & _24,
        psn=psn & _24,
        first=layout.first,
        last=layout.last,
        p_key=p_key,
        solicited=bool(flags & _SOLICITED),
        ack_request=bool(psn & _ACK_REQUEST),
        payload=payload,
    )
    for kind in layout.kinds:
        if kind is RETH:
            made.va, made.rkey, made.length = more[:3]
            del more[:3]
        elif kind is DETH:
            made.q_key, made.source_qp = more[0], more[1] & _24
            del more[:2]
        elif kind is AETH:
            made.syndrome, made.msn = more[0] >> 24, more[0] & _24
            del more[:1]
        elif kind is ImmDt:
            made.immediate = more.pop(0)
        else:
            made.invalidate = more.pop(0)
    return made
