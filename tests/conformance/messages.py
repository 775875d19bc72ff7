"""Requirements for every pair of carriers: a table of the SA longer than a MAD arrives complete.

    check_messages(asker, answering, lid)     with both carriers in one thread; `lid`: that of the answering one
    ask_table(asker, lid, records)            request a table and check the answer
    answer(carrier)                           answer the requests that arrived with generated records

The records are numbered NodeRecords; the request's attribute modifier is the number of records plus one.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.mad.carrier import Address, Carrier
from weft.wire.mad import Method, RmppFlag
from weft.wire.sa import SA_HEADER_BYTES, NodeRecord, SaAttribute, SaMad
from weft.wire.smp import NodeDescription, NodeInfo

CLASS, VERSION = 3, 2
SOME_200_KB = 200_000 // NodeRecord.size


def listen(carrier: Carrier) -> None:
    """Register this port's carrier as the SA."""
    carrier.register(CLASS, [Method.GET, Method.GET_TABLE], class_version=VERSION)


def record(number: int) -> bytes:
    description = NodeDescription(node_string=f"n{number}".encode())
    return NodeRecord(lid=number, node_info=NodeInfo(node_guid=number), node_description=description).raw


def question(records: int) -> bytes:
    return SaMad.pack(
        method=Method.GET_TABLE, attribute_id=SaAttribute.NODE_RECORD, attribute_modifier=records + 1, rmpp_version=1
    )


def answer(carrier: Carrier, otherwise: int = 0) -> int:
    """Answer all requests and return their number. `otherwise` is the number of records for a request without a
    number.
    """
    arrivals = carrier.arrivals()
    for arrival in arrivals:
        requests = SaMad.unpack(arrival.mad[:256])
        reply = SaMad.unpack(arrival.mad[:256]).replace(
            method=requests.method | 0x80,
            rmpp_version=1,
            rmpp_flags=RmppFlag.ACTIVE if requests.method == Method.GET_TABLE else 0,
            attribute_offset=NodeRecord.size // 8,
            data=b"",
        )
        if requests.method == Method.GET_TABLE:
            count = requests.attribute_modifier - 1 if requests.attribute_modifier else otherwise
            message = reply.raw[:SA_HEADER_BYTES] + b"".join(record(number) for number in range(1, count + 1))
            carrier.post(message, arrival.source)
        else:
            carrier.post(reply.raw, arrival.source)
    return len(arrivals)


def ask_table(asker: Carrier, lid: int, records: int, meanwhile: Callable[[], object] = lambda: None) -> None:
    token = asker.send(question(records), Address(lid), timeout_ms=1000, retries=3)
    result: list[tuple[int, bytes | None]] = []
    for _ in range(2000):
        result = asker.poll(0.01, only=token)
        if result:
            break
        meanwhile()
    ((_, message),) = result
    assert message is not None, f"no answer with {records} records"
    assert message[3] == Method.GET_TABLE_RESP
    data = message[SA_HEADER_BYTES:]
    assert len(data) == records * NodeRecord.size
    right = b"".join(record(number) for number in range(1, records + 1))
    assert data == right, f"of {records} records, not all are those that were sent"


def check_messages(asker: Carrier, answering: Carrier, lid: int) -> None:
    def meanwhile() -> None:
        answering.poll(0.0)
        answer(answering)

    for records in (0, 1, 2, SOME_200_KB):
        ask_table(asker, lid, records, meanwhile)
    assert answer(answering) == 0, "each question is answered once"
