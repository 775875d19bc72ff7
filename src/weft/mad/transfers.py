"""RMPP at one port: long messages out as segments, segments in as long messages (IBA volume 1, "RMPP").

    requester                                 manager
        GetTable  ---------------------------->
        <----------------------------  segment 1
        ACK 1, window to 64  ----------------->
        <------------------------  segments 2 ... 64
        ACK 64, window to 127  --------------->
        <------------------------  segments 65 ... last
        ACK last  ---------------------------->

A real host's kernel does this below libibumad; here it is for ports that have no kernel: `lab.attach` for programs, and
the carriers that move single MADs. After a loss all is sent again from the last that was acknowledged, and the receiver
keeps what came out of order, as in Linux (drivers/infiniband/core/mad_rmpp.c).

Programs that libumad2sim brings into ibsim never acknowledge. What is sent to them again comes when they are gone, to
the next program at that port, and libumad2sim crashes over a class that this one does not use. So in ibsim nothing is
sent again, nor aborted, before the first ACK: who lost its first segment asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from weft.errors import ConfigError
from weft.wire.fields import Buffer
from weft.wire.mad import MAD_BYTES, RESPONSE, Mad, MgmtClass, RmppFlag, RmppMad, RmppStatus, RmppType
from weft.wire.rmpp import acknowledge, join, segment, segments_of

WINDOW = 64  # segments that a receiver lets come before it acknowledges, as Linux does
TIMEOUT_S = 0.1
RETRIES = 7
_ABANDONED_S = 40.0  # after which half a message is forgotten
_HEADER_BYTES = {MgmtClass.SUBN_ADM: 56, MgmtClass.DEV_MGT: 64, MgmtClass.DEV_ADM: 64, MgmtClass.BIS: 64}
_VENDOR_HEADER_BYTES = 40  # classes 0x30 to 0x4F
_PLAIN_HEADER_BYTES = 24
Send = Callable[[bytes, int], None]  # a MAD, to a LID
Key = tuple[int, int, int, bool]  # class, transaction, the other's LID, whether it is a response


def header_bytes(mgmt_class: int) -> int:
    """Return the length of the header that every segment of this class repeats."""
    if 0x30 <= mgmt_class <= 0x4F:
        return _VENDOR_HEADER_BYTES
    return _HEADER_BYTES.get(mgmt_class, _PLAIN_HEADER_BYTES)  # type: ignore[call-overload,no-any-return]


def has_rmpp(mgmt_class: int) -> bool:
    """Return whether MADs of this class have an RMPP header."""
    return header_bytes(mgmt_class) != _PLAIN_HEADER_BYTES


def is_rmpp(mad: Buffer) -> bool:
    """Return whether a MAD is part of a transfer."""
    return has_rmpp(mad[1]) and bool(RmppMad.rmpp_flags.get(mad) & RmppFlag.ACTIVE)


def is_segment(mad: Buffer) -> bool:
    """Return whether a MAD is a segment. Over libumad2sim OpenSM marks its answers, but never segments them."""
    return is_rmpp(mad) and RmppMad.rmpp_type.get(mad) != RmppType.NONE


def ends_at(mad: Buffer) -> int:
    """Return the end of the payload in a MAD: in the last segment, where the padding starts.

    ibsim's programs have no RMPP: they count the records of a table by this.
    """
    is_last = is_segment(mad) and RmppMad.rmpp_type.get(mad) == RmppType.DATA
    is_last = is_last and bool(RmppMad.rmpp_flags.get(mad) & RmppFlag.LAST)
    return min(RmppMad.size + RmppMad.data2.get(mad), MAD_BYTES) if is_last else MAD_BYTES


def is_message(mad: Buffer) -> bool:
    """Return whether a message goes as RMPP: if it is longer than a MAD, or marked, as a short table is.

    Raise ConfigError if it is neither that nor a MAD.
    """
    long = len(mad) > MAD_BYTES and has_rmpp(mad[1])
    marked = len(mad) >= RmppMad.size and is_rmpp(mad) and len(mad) >= header_bytes(mad[1])
    if not (long or marked) and len(mad) != MAD_BYTES:
        raise ConfigError(
            f"a MAD has {MAD_BYTES} bytes, this one has {len(mad)}; only classes with RMPP, the SA's, have messages "
            "of other lengths"
        )
    return long or marked


def mark(message: Buffer, kind: RmppType = RmppType.DATA) -> bytearray:
    """Return a message whose header is marked as RMPP, as the kernel expects."""
    marked = bytearray(message)
    RmppMad.rmpp_version.set(marked, 1)
    RmppMad.rmpp_type.set(marked, kind)
    RmppMad.rmpp_flags.set(marked, RmppFlag.ACTIVE)
    return marked


@dataclass(slots=True)
class _Outgoing:
    header: bytes
    data: bytes
    segments: int
    lid: int
    deadline_s: float
    acknowledged: int = 0
    sent: int = 0
    window_end: int = 1  # the receiver opens it with its first ACK
    retries_left: int = RETRIES


@dataclass(slots=True)
class _Incoming:
    deadline_s: float
    segments: list[bytes] = field(default_factory=list)  # without a gap
    early: dict[int, bytes] = field(default_factory=dict)
    window_end: int = 1
    last_ack: bytes = b""  # for a complete message: if the ACK was lost, segments are repeated


class Transfers:
    """The messages in transfer at a port. `send` transmits a MAD, `clock` is in seconds.

    Unless `insists`, nothing is sent again to peers that have not acknowledged anything.
    """

    def __init__(self, send: Send, clock: Callable[[], float], *, insists: bool = True) -> None:
        self.send, self.clock, self.insists = send, clock, insists
        self._outgoing: dict[Key, _Outgoing] = {}
        self._incoming: dict[Key, _Incoming] = {}

    def start(self, message: bytes, lid: int) -> None:
        """Send a message of any length: a MAD whose data goes on behind byte 256.

        A repeated request gets no second answer while the first is in transfer: the segments would mix.
        """
        head, key = header_bytes(message[1]), _key(message, lid)
        if key not in self._outgoing:
            header, data = message[:head], message[head:]
            outgoing = _Outgoing(header, data, segments_of(header, data), lid, self.clock() + TIMEOUT_S)
            self._outgoing[key] = outgoing
            self._go_on(outgoing)

    def receive(self, mad: bytes, lid: int) -> bytes | None:
        """Take a MAD of a transfer; the whole message when it was the last that was missing."""
        kind = RmppMad.rmpp_type.get(mad)
        if kind == RmppType.DATA:
            return self._on_data(mad, lid)
        key = _key(mad, lid, turned=True)
        if kind == RmppType.ACK:
            self._on_ack(key, mad)
        else:  # STOP, ABORT: of what we send, or of what is sent to us
            self._outgoing.pop(key, None)
            self._incoming.pop(_key(mad, lid), None)
        return None

    def knows(self, mad: Buffer, lid: int) -> bool:
        """Return whether a MAD belongs to a transfer: an ACK of an outgoing one, or a segment of an incoming one."""
        if RmppMad.rmpp_type.get(mad) != RmppType.DATA:
            return _key(mad, lid, turned=True) in self._outgoing
        half = self._incoming.get(_key(mad, lid))
        return half is not None and bool(half.last_ack)

    def unsent_bytes(self) -> int:
        """Return about how many bytes of outgoing messages are not acknowledged, with headers."""
        return sum((message.segments - message.acknowledged) * MAD_BYTES for message in self._outgoing.values())

    def next_deadline_s(self) -> float | None:
        out = (message.deadline_s for message in self._outgoing.values())
        return min((*out, *(half.deadline_s for half in self._incoming.values())), default=None)

    def on_timer(self) -> None:
        """Send again what was not acknowledged, give up what never was, forget what never ended."""
        if not self._outgoing and not self._incoming:
            return
        now_s = self.clock()
        for key, message in list(self._outgoing.items()):
            if message.deadline_s > now_s:
                continue
            if not message.acknowledged and not self.insists:
                del self._outgoing[key]
                continue
            if not message.retries_left:
                del self._outgoing[key]
                self.send(_abort(message.header), message.lid)
                continue
            message.retries_left -= 1
            message.sent, message.deadline_s = message.acknowledged, now_s + TIMEOUT_S
            self._go_on(message)
        for key in [key for key, half in self._incoming.items() if half.deadline_s <= now_s]:
            del self._incoming[key]

    # -- out --

    def _go_on(self, message: _Outgoing) -> None:
        while message.sent < min(message.window_end, message.segments):
            message.sent += 1
            self.send(segment(message.header, message.data, message.sent), message.lid)

    def _on_ack(self, key: Key, mad: bytes) -> None:
        message = self._outgoing.get(key)
        number, window_end = RmppMad.data1.get(mad), RmppMad.data2.get(mad)
        if message is None or not message.acknowledged <= number <= message.sent or window_end < message.window_end:
            return
        if number == message.segments:
            del self._outgoing[key]
            return
        message.acknowledged, message.window_end = number, window_end
        message.retries_left, message.deadline_s = RETRIES, self.clock() + TIMEOUT_S
        self._go_on(message)

    # -- in --

    def _on_data(self, mad: bytes, lid: int) -> bytes | None:
        key, number = _key(mad, lid), RmppMad.data1.get(mad)
        half = self._incoming.setdefault(key, _Incoming(0.0))
        half.deadline_s = self.clock() + _ABANDONED_S
        if half.last_ack:
            self.send(half.last_ack, lid)
            return None
        if len(half.segments) < number <= half.window_end:  # no right sender goes beyond
            half.early[number] = mad
        while (following := half.early.pop(len(half.segments) + 1, None)) is not None:
            half.segments.append(following)
        return self._take_stock(half, number, lid) if half.segments else None

    def _take_stock(self, half: _Incoming, number: int, lid: int) -> bytes | None:
        """Acknowledge segment `number` if it is time, and return the message if it is complete."""
        newest, head = half.segments[-1], header_bytes(half.segments[-1][1])
        is_last = bool(RmppMad.rmpp_flags.get(newest) & RmppFlag.LAST)
        comes_again = number <= half.window_end - WINDOW  # it was acknowledged: that ACK was lost
        if is_last or comes_again or number >= half.window_end:
            half.window_end = len(half.segments) + WINDOW
            self.send(acknowledge(newest, head, WINDOW), lid)
        if not is_last:
            return None
        message = half.segments[0][:head] + join(half.segments, head)
        half.last_ack = acknowledge(newest, head, WINDOW)
        half.segments.clear()
        return message


def _key(mad: Buffer, lid: int, *, turned: bool = False) -> Key:
    """Return the key of a MAD's transfer; an ACK has the opposite response bit."""
    return mad[1], Mad.transaction_id.get(mad), lid, bool(mad[3] & RESPONSE) is not turned


def _abort(header: bytes) -> bytes:
    abort = mark(header.ljust(MAD_BYTES, b"\0"), RmppType.ABORT)
    RmppMad.rmpp_status.set(abort, RmppStatus.TOO_MANY_RETRIES)
    return bytes(abort)
