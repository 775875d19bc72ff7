"""The subnet administrator: one request in, one whole answer out.

    administrator = Administrator(state)
    administrator.answer(mad, source)     bytes: a MAD, or a message longer than one, of which the carrier makes RMPP

What it says is of the last sweep that came to its end. Handlers find records; here are the header, the statuses that
all attributes share, and the table of handlers. Where the standard leaves something open it does as OpenSM does.
(InfiniBand Architecture volume 1, "Subnet Administration".)
"""

from __future__ import annotations

import numpy as np

from weft.mad.carrier import Address
from weft.sm.sa import groups, paths, records, services
from weft.sm.sa.context import Context, Handler, Reply
from weft.wire.mad import MAD_BYTES, RESPONSE, Method, RmppFlag, RmppStatus, RmppType, Status
from weft.wire.sa import SA_HEADER_BYTES, PathRecord, SaAttribute, SaMad, SaStatus
from weft.wire.sa_query import component_mask

HANDLERS: dict[tuple[int, int], Handler] = {
    **services.HANDLERS,
    **records.HANDLERS,
    **paths.HANDLERS,
    **groups.HANDLERS,
}
_VERSION = 2
_QUESTIONS = {*(method for _, method in HANDLERS), Method.SET, Method.DELETE, Method.GET_TRACE_TABLE}
_LONG = {Method.GET_TABLE, Method.GET_MULTI}  # answered by RMPP, however short


class Administrator(Context):
    """The subnet administrator. The manager sets `is_master` and `other_managers`."""

    def answer(self, mad: bytes, source: Address) -> bytes | None:
        """Return the answer; None to a response, a key that is not trusted, or a port that is not in the subnet."""
        request = SaMad.unpack(mad if len(mad) >= MAD_BYTES else mad.ljust(MAD_BYTES, b"\0"))
        method, attribute, self.source = int(request.method), request.attribute_id, source
        if method & RESPONSE or method in (Method.SEND, Method.TRAP, Method.REPORT, Method.TRAP_REPRESS):
            return None
        if request.sm_key and not self.is_trusted(request):
            return None  # osmtest waits for that
        handler = HANDLERS.get((attribute, method))
        reply = self._refusal(request, method, handler)
        if reply is None and handler is not None:
            slot = self.directory.slot_at(source.lid)
            if slot < 0:
                return None
            reply = handler(self, request, slot)
        return None if reply is None else _message(request, attribute, method, reply)

    def _refusal(self, request: SaMad, method: int, handler: Handler | None) -> Reply | None:
        if request.class_version != _VERSION:
            return Reply(Status.BAD_VERSION)
        if handler is None:
            is_known_method = method in _QUESTIONS
            return Reply(Status.METHOD_ATTRIBUTE_NOT_SUPPORTED if is_known_method else Status.METHOD_NOT_SUPPORTED)
        if self.state.view is None or not self.is_master:
            return Reply(Status.BUSY)
        return None

    def prepare(self) -> None:
        """Build the arrays of a sweep and compile kernels, so that the first request does not wait."""
        own = Address(lid=self.state.sm_lid)
        query = PathRecord(slid=own.lid, dlid=own.lid)
        mask = component_mask(PathRecord, "slid", "dlid")
        request = SaMad(method=Method.GET, attribute_id=SaAttribute.PATH_RECORD, component_mask=mask, data=query.raw)
        self.answer(request.raw, own)


def _message(request: SaMad, attribute: int, method: int, reply: Reply) -> bytes:
    """Return the complete answer."""
    status, rows = int(reply.status), reply.records
    if isinstance(rows, bytes):
        count, size, data = (1 if rows else 0), len(rows), rows
    else:
        count, size, data = len(rows), rows.shape[1], np.ascontiguousarray(rows).tobytes()
    if not status and method == Method.GET and count != 1:
        status = SaStatus.TOO_MANY_RECORDS if count else SaStatus.NO_RECORDS
    long = method in _LONG and not status
    header = bytearray(request.raw[:SA_HEADER_BYTES])
    header[3] = RESPONSE | (Method.GET if method == Method.SET else method)
    header[4:6] = status.to_bytes(2, "big")
    if attribute == SaAttribute.MULTI_PATH_RECORD:
        header[16:18] = SaAttribute.PATH_RECORD.to_bytes(2, "big")
    header[24:36] = bytes((long, RmppType.DATA if long else 0, long * RmppFlag.ACTIVE, RmppStatus.NORMAL, *bytes(8)))
    header[36:44] = bytes(8)  # the SM_Key stays with the SA
    if status:
        header[44:46] = bytes(2)
        return bytes(header) + request.raw[SA_HEADER_BYTES:]
    header[44:46] = (-(-size // 8) if count else 0).to_bytes(2, "big")
    message = bytes(header) + data
    return message if long else message.ljust(MAD_BYTES, b"\0")
