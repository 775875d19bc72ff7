"""What travels between queue pairs: consecutive packets of one message as one thing, or one packet of control.

A message of a megabyte is 256 packets of 4 KiB, with 256 packet sequence numbers. Nothing in the protocol needs them to
be apart: a receiver accepts a run of packets as it would accept them one after the other. So a segment is a run, and a
carrier that moves bytes in bulk moves a whole message as one; one that loses packets cuts it where it lost them, by
`Segment.cut`, and a carrier of real packets makes as many as there are, by `packets`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from weft.verbs.shm.memory import Payload

PSN_MASK = 0xFF_FFFF
MESSAGE_MAX_BYTES = 1 << 31
OWN_Q_KEY = 1 << 31  # of a request for a datagram: "take the queue pair's"
_HALF = 1 << 23
_ACKNOWLEDGED_EVERY = 64  # packets, as Linux's rxe has it


class Service(IntEnum):
    """Which transport: the upper three bits of an opcode."""

    RC = 0
    UC = 1
    RD = 2
    UD = 3
    XRC = 5


class Op(IntEnum):
    """What a message is."""

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
    RESYNC = 11  # of RD: forget the message that is under way, and go on after this PSN


REQUESTS = frozenset((Op.SEND, Op.WRITE, Op.READ, Op.COMPARE_SWAP, Op.FETCH_ADD, Op.ATOMIC_WRITE, Op.FLUSH, Op.RESYNC))


class Nak(IntEnum):
    """Codes of a negative acknowledgement, syndrome 0x60 and up."""

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
    """From b to a, the short way round: negative if a is behind."""
    return (a - b + _HALF & PSN_MASK) - _HALF


def packets_of(size_bytes: int, mtu_bytes: int) -> int:
    """How many packets a message takes: one at least."""
    return max(1, -(-size_bytes // mtu_bytes))


@dataclass(slots=True, kw_only=True)
class Segment:
    """`first` and `last` say whether it begins and ends its message. Fields that an operation has not are zero."""

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
    immediate: int | None = None  # of the last packet; as in verbs, its bytes in memory are those on the wire
    invalidate: int | None = None  # likewise: a key
    va: int = 0  # RETH or AtomicETH, of the first packet
    rkey: int = 0
    length: int = 0
    compare: int = 0
    swap: int = 0  # or what is added; of a response what was there
    flush: int = 0  # placement type of a FLUSH
    selectivity: int = 0  # and whether it means a range, or the whole region
    syndrome: int = 0
    msn: int = 0
    source_qp: int = 0  # DETH
    q_key: int = 0
    ee: int = 0  # RDETH
    srq: int = 0  # XRCETH: the shared receive queue that it is for
    payload: Payload = b""

    @property
    def last_psn(self) -> int:
        return psn_after(self.psn, self.count - 1)

    def cut(self, count: int, mtu_bytes: int) -> tuple[Segment, Segment]:
        """The first `count` packets, and the rest."""
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
        """One by one. If it wants to be acknowledged so do some on the way: a long message is not taken for lost."""
        made, rest = [], self
        while rest.count > 1:
            one, rest = rest.cut(1, mtu_bytes)
            made.append(one)
            one.ack_request = self.ack_request and len(made) % _ACKNOWLEDGED_EVERY == 0
        return [*made, rest]
