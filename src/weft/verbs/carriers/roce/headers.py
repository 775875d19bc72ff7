"""Pack and read the transport headers of frequent opcodes quickly, with `struct`.

`weft.verbs.hca.packets` handles all other opcodes; a test compares the two.
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
_MIGRATED = 1 << 6  # as sent by hardware
_SOLICITED, _ACK_REQUEST, _24 = 1 << 7, 1 << 31, 0xFF_FFFF
_SERVICES = (Service.RC, Service.UC, Service.UD)
_FAST = (Op.SEND, Op.WRITE, Op.READ, Op.READ_RESPONSE, Op.ACKNOWLEDGE)
_FORMS: dict[type[Format], tuple[str, Callable[[Segment], tuple[int, ...]]]] = {
    RETH: ("QII", lambda segment: (segment.va, segment.rkey, segment.length)),
    AETH: ("I", lambda segment: (segment.syndrome << 24 | segment.msn,)),
    DETH: ("II", lambda segment: (segment.q_key, segment.source_qp)),
    ImmDt: ("I", lambda segment: (segment.immediate or 0,)),
    IETH: ("I", lambda segment: (segment.invalidate or 0,)),
}


@dataclass(frozen=True, slots=True)
class _Layout:
    """The headers of one opcode."""

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


def pack(segment: Segment, *, is_first: bool = True, is_last: bool = True) -> bytes:
    """Return the headers of the first packet of a segment, of its last, or of one between.

    The pad count is that of an empty payload; the sender sets it.
    """
    first, last = is_first and segment.first, is_last and segment.last
    has = is_last and segment.immediate is not None, is_last and segment.invalidate is not None
    layout = _BY_SEGMENT.get((segment.service, segment.op, first, last, *has))
    if layout is None:
        packet = replace(segment, count=1 + (not is_first) + (not is_last), payload=b"").packets(1)[not is_first]
        return b"".join(header.raw for header in next(encode(packet, 1))[0])
    flags = _MIGRATED | (_SOLICITED if is_last and segment.solicited else 0)
    numbers = segment.dest_qp, segment.psn | (_ACK_REQUEST if is_last and segment.ack_request else 0)
    more = [value for kind in layout.kinds for value in _FORMS[kind][1](segment)]
    return layout.form.pack(layout.opcode, flags, segment.p_key, *numbers, *more)


def unpack(data: bytes, payload: bytes | memoryview) -> Segment:
    """Return the segment of a packet from its headers; bytes after them are ignored."""
    layout = _BY_OPCODE.get(data[0])
    if layout is None:
        return decode(read_transport(data, 0)[0], bytes(payload))
    _, flags, p_key, dest_qp, psn, *more = layout.form.unpack_from(data)
    segment = Segment(
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
            segment.va, segment.rkey, segment.length = more[:3]
            del more[:3]
        elif kind is DETH:
            segment.q_key, segment.source_qp = more[0], more[1] & _24
            del more[:2]
        elif kind is AETH:
            segment.syndrome, segment.msn = more[0] >> 24, more[0] & _24
            del more[:1]
        elif kind is ImmDt:
            segment.immediate = more.pop(0)
        else:
            segment.invalidate = more.pop(0)
    return segment
