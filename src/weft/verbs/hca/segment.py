"""Define segments: consecutive packets of one message as one object, or one control packet.

A message of 1 MiB is 256 packets of 4 KiB, with 256 packet sequence numbers. A receiver handles a run of packets as it
would handle them one by one. So a carrier that moves bytes in bulk moves a whole message as one segment, a carrier that
loses packets cuts a segment where they are lost (`Segment.cut`), and a carrier of real packets splits it (`packets`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from weft.verbs.shm.memory import Payload

PSN_MASK = 0xFF_FFFF
MESSAGE_MAX_BYTES = 1 << 31
OWN_Q_KEY = 1 << 31  # flag in a send request: use the Q_Key of the queue pair
_HALF = 1 << 23
_ACKNOWLEDGED_EVERY = 64  # packets, as Linux's rxe has it


class Service(IntEnum):
    """A transport service: the upper three bits of an opcode."""

    RC = 0
    UC = 1
    RD = 2
    UD = 3
    XRC = 5


class Op(IntEnum):
    """An operation on the wire."""

    SEND = 1
    WRITE = 2
    READ = 3
    READ_RESPONSE = 4
    COMPARE_SWAP = 5
    FETCH_ADD = 6
    ATOMIC_RESPONSE = 7
    ACKNOWLEDGE = 8
    ATOMIC_WRITE = 9
    FLUSH = 10
    RESYNC = 11  # RD: drop the current message and continue after this PSN


REQUESTS = frozenset((Op.SEND, Op.WRITE, Op.READ, Op.COMPARE_SWAP, Op.FETCH_ADD, Op.ATOMIC_WRITE, Op.FLUSH, Op.RESYNC))


class Nak(IntEnum):
    """A code of a negative acknowledgement, syndrome 0x60 and up."""

    PSN_SEQUENCE_ERROR = 0
    INVALID_REQUEST = 1
    REMOTE_ACCESS_ERROR = 2
    REMOTE_OPERATIONAL_ERROR = 3
    INVALID_RD_REQUEST = 4


ACK_UNLIMITED = 0x1F  # a positive acknowledgement without a count of credits
RNR_NAK, NAK = 0x20, 0x60  # upper bits of a syndrome


def is_ack(syndrome: int) -> bool:
    return syndrome >> 5 == 0


def is_rnr(syndrome: int) -> bool:
    return syndrome >> 5 == RNR_NAK >> 5


def psn_after(psn: int, count: int = 1) -> int:
    return (psn + count) & PSN_MASK


def psn_distance(a: int, b: int) -> int:
    """Return the distance from b to a modulo 2**24: negative if a is behind b."""
    return (a - b + _HALF & PSN_MASK) - _HALF


def packets_of(size_bytes: int, mtu_bytes: int) -> int:
    """Return the number of packets of a message, at least one."""
    return max(1, -(-size_bytes // mtu_bytes))


@dataclass(slots=True, kw_only=True)
class Segment:
    """A run of packets. `first` and `last`: it starts and ends its message. Unused fields are zero."""

    op: Op
    service: Service
    dest_qp: int
    psn: int
    count: int = 1  # packets
    first: bool = True
    last: bool = True
    p_key: int = 0xFFFF
    solicited: bool = False
    ack_request: bool = False
    immediate: int | None = None  # in the last packet; in network order in memory, as in verbs
    invalidate: int | None = None  # key, likewise
    va: int = 0  # RETH or AtomicETH, in the first packet
    rkey: int = 0
    length: int = 0
    compare: int = 0
    swap: int = 0  # or the addend; in a response the old value
    flush: int = 0  # FLUSH: placement type
    selectivity: int = 0  # FLUSH: a range or the whole region
    syndrome: int = 0
    msn: int = 0
    source_qp: int = 0  # DETH
    q_key: int = 0
    ee: int = 0  # RDETH
    srq: int = 0  # XRCETH: shared receive queue
    payload: Payload = b""

    @property
    def last_psn(self) -> int:
        return psn_after(self.psn, self.count - 1)

    def cut(self, count: int, mtu_bytes: int) -> tuple[Segment, Segment]:
        """Split into the first `count` packets and the rest."""
        at = count * mtu_bytes
        head = replace(
            self,
            count=count,
            last=False,
            payload=self.payload[:at],
            immediate=None,
            invalidate=None,
            solicited=False,
            ack_request=False,
        )
        tail = replace(self, psn=psn_after(self.psn, count), count=self.count - count, first=False)
        tail.payload = self.payload[at:]
        return head, tail

    def packets(self, mtu_bytes: int) -> list[Segment]:
        """Split into single packets. Some request an acknowledgement too, so that a long message does not time out."""
        packets, rest = [], self
        while rest.count > 1:
            packet, rest = rest.cut(1, mtu_bytes)
            packets.append(packet)
            packet.ack_request = self.ack_request and len(packets) % _ACKNOWLEDGED_EVERY == 0
        return [*packets, rest]
