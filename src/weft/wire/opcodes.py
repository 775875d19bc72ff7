"""Extended headers after a BTH, by opcode (InfiniBand Architecture volume 1, "OpCode")."""

from __future__ import annotations

from weft.wire.format import Format
from weft.wire.headers import (
    AETH,
    DETH,
    FETH,
    IETH,
    RDETH,
    RETH,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    CNPPadding,
    ImmDt,
    Opcode,
)

Headers = tuple[type[Format], ...]

_REQUESTS: dict[str, Headers] = {
    "SEND_FIRST": (),
    "SEND_MIDDLE": (),
    "SEND_LAST": (),
    "SEND_LAST_WITH_IMMEDIATE": (ImmDt,),
    "SEND_ONLY": (),
    "SEND_ONLY_WITH_IMMEDIATE": (ImmDt,),
    "RDMA_WRITE_FIRST": (RETH,),
    "RDMA_WRITE_MIDDLE": (),
    "RDMA_WRITE_LAST": (),
    "RDMA_WRITE_LAST_WITH_IMMEDIATE": (ImmDt,),
    "RDMA_WRITE_ONLY": (RETH,),
    "RDMA_WRITE_ONLY_WITH_IMMEDIATE": (RETH, ImmDt),
    "RDMA_READ_REQUEST": (RETH,),
    "COMPARE_SWAP": (AtomicETH,),
    "FETCH_ADD": (AtomicETH,),
    "SEND_LAST_WITH_INVALIDATE": (IETH,),
    "SEND_ONLY_WITH_INVALIDATE": (IETH,),
    "FLUSH": (FETH, RETH),
    "ATOMIC_WRITE": (RETH,),
    "RESYNC": (),
}
_RESPONSES: dict[str, Headers] = {
    "RDMA_READ_RESPONSE_FIRST": (AETH,),
    "RDMA_READ_RESPONSE_MIDDLE": (),
    "RDMA_READ_RESPONSE_LAST": (AETH,),
    "RDMA_READ_RESPONSE_ONLY": (AETH,),
    "ACKNOWLEDGE": (AETH,),
    "ATOMIC_ACKNOWLEDGE": (AETH, AtomicAckETH),
}
# Headers of each transport before those of a request, and of a response.
_TRANSPORTS: dict[str, tuple[Headers, Headers]] = {
    "RC": ((), ()),
    "UC": ((), ()),
    "RD": ((RDETH, DETH), (RDETH,)),
    "UD": ((DETH,), ()),
    "XRC": ((XRCETH,), ()),
}


def _headers_of(opcode: Opcode) -> Headers:
    if opcode is Opcode.CNP:
        return (CNPPadding,)
    transport, operation = opcode.name.split("_", 1)
    request, response = _TRANSPORTS[transport]
    return request + _REQUESTS[operation] if operation in _REQUESTS else response + _RESPONSES[operation]


EXTENDED_HEADERS: dict[int, Headers] = {int(opcode): _headers_of(opcode) for opcode in Opcode}
CARRIES_NO_PAYLOAD = frozenset(
    int(opcode)
    for opcode in Opcode
    if opcode.name.endswith(("ACKNOWLEDGE", "READ_REQUEST", "COMPARE_SWAP", "FETCH_ADD", "RESYNC", "FLUSH", "CNP"))
)
