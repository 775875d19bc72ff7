"""A carrier over ibsim's sockets: a client of ibsim, or of a lab of weft's, without libumad2sim.

Control and data are datagrams on abstract unix sockets, whose names end with a zero byte:

    @sim:ctl      requests, 80 bytes: connect, IsSM        our end @sim:ctlN
    @sim:outK     MADs, 288 bytes; K is our number there   our end @sim:inN; libumad2sim takes its process id for N

ibsim answers each MAD, or sends it back with status 110 (ETIMEDOUT) at once if it went nowhere. It carries single MADs,
so longer messages are cut and put together here; and it stops reading when its own sends do not fit: so few are in its
sockets at a time, and the rest wait here. It takes the upper half of transaction ids for itself.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft import runtime
from weft.errors import ConfigError
from weft.mad.bulk import Bulk
from weft.mad.carrier import (
    HERE,
    RETRIES,
    SMP_CLASSES,
    TIMEOUT_MS,
    Address,
    Answers,
    Arrived,
    Lids,
    Mads,
    Polled,
    check_requests,
    exchange_singly,
)
from weft.mad.datagrams import BATCH, Datagrams
from weft.mad.ibsim_packets import (
    CLIENT_INFO,
    CONNECT,
    CONTROL,
    DATA,
    DISCONNECT,
    HEAD_BYTES,
    MAGIC,
    PACKET,
    SET_ISSM,
    address,
    heads_of,
    packet,
)
from weft.mad.transfers import Transfers, has_rmpp, is_message, is_segment
from weft.wire.fields import Buffer
from weft.wire.mad import RESPONSE, MgmtClass
from weft.wire.smp import SmpAttribute

_MOST_AT_ONCE = 128  # in the sockets; a few more, and ibsim turns round and round until one of its own sends fits
# A server that has ended is noticed at once. One that does not answer handles a large fabric, or the machine is busy.
_CONTROL_S, _CLOSING_S, _LONGEST_S = 120.0, 1.0, 60.0
_SA = int(MgmtClass.SUBN_ADM)
_SM_INFO = SmpAttribute.SM_INFO.to_bytes(2, "big")
_PID_BITS = 22
_IDS = 1 << 31 - _PID_BITS  # per process: ibsim writes a signed 32-bit id
_numbers = itertools.count()


@dataclass(slots=True)
class _InFlight:
    packet: bytes
    timeout_s: float
    retries_left: int
    heard_s: float = float("-inf")  # when a segment of its answer came


class IbsimCarrier(Polled):
    """A carrier at a node of the subnet that `server` simulates, by the node's name; without one, at the first."""

    def __init__(self, host: str = "", server: str = "") -> None:
        super().__init__()
        self._server = server or os.environ.get("IBSIM_SOCKNAME", "sim")
        self._id, self._control = self._take_id()
        self._data = runtime.abstract(address(self._server, f"in{self._id}"))
        try:
            info = self._request(CONNECT, CLIENT_INFO.pack(self._id, 0, 0, host.encode()[:31]))
        except ConfigError:
            self._control.close()
            self._data.close()
            raise
        self._number, _, _, name = CLIENT_INFO.unpack_from(info)
        self.host = name.split(b"\0")[0].decode()
        self._data.connect(address(self._server, f"out{self._number}"))
        with suppress(BlockingIOError):
            while True:
                self._data.recv(1)  # datagrams from before the connection may come from any process
        self._line = Datagrams(self._data, PACKET)
        self._flying: dict[int, _InFlight] = {}
        self._waiting: deque[int] = deque()  # tokens that are not in the socket yet
        self._timers: list[tuple[float, int]] = []
        self._in_socket: set[int] = set()
        self._is_full = False  # the socket
        self._bulk = Bulk(0, 0.0, 0)
        self._wanted: set[tuple[int, int, int]] = set()
        self._urgent: deque[bytes] = deque()  # SMPs without a response
        self._outbox: deque[bytes] = deque()  # and the rest, packets that the socket did not take yet
        self._transfers = Transfers(self._on_segment_out, time.monotonic, insists=False)

    def _take_id(self) -> tuple[int, socket.socket]:
        """Reserve an id that no other carrier of this process has, and return it with its control socket."""
        for number in itertools.islice(_numbers, _IDS):
            client_id = os.getpid() + (number % _IDS << _PID_BITS)
            try:
                return client_id, runtime.abstract(
                    address(self._server, f"ctl{client_id}"), address(self._server, "ctl")
                )
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    why = f"no ibsim or lab listens at {self._server}: {error.strerror}"
                    raise ConfigError(f"{why}. `weft up` or `ibsim -s` starts one") from None
        raise ConfigError(
            f"this process has {_IDS} clients of {self._server}, the most that ibsim can distinguish: close some"
        )

    def _request(self, kind: int, data: bytes = b"") -> bytes:
        self._control.settimeout(_CONTROL_S)
        number = 0 if kind == CONNECT else self._number
        try:
            self._control.send(CONTROL.pack(MAGIC, number, kind, len(data), data))
            raw, extra, _, _ = self._control.recvmsg(CONTROL.size, runtime.CREDENTIALS_BYTES)
        except TimeoutError:
            raise ConfigError(f"{self._server} does not answer: is it ibsim, or a lab?") from None
        except OSError as error:
            raise ConfigError(f"{self._server} is gone: {error.strerror}") from None
        if not runtime.is_from_trusted(extra):
            raise ConfigError(
                f"{self._server} belongs to user {runtime.sender(extra).uid}: weft trusts yours and root's"
            )
        _, _, answered, _, reply = CONTROL.unpack(raw)
        if answered != kind:
            node = CLIENT_INFO.unpack_from(data)[3].rstrip(b"\0").decode() if kind == CONNECT else self.host
            reason = reply.rstrip(b"\0").decode(errors="replace")
            if reply.startswith(data) or not reason.isprintable():  # ibsim echoes the request
                reason = "is there such a node?"
            elif reason.startswith(os.strerror(errno.EMFILE)):
                reason += "; close programs that are attached, or restart it with a higher `ulimit -n`"
            raise ConfigError(f"{self._server} refuses a program at node {node!r}: {reason}")
        return bytes(reply)

    # -- the protocol of carriers --

    def send(self, mad: Buffer, to: Address = HERE, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES) -> int:
        token = self._next_tokens(1)
        named = bytes(mad[:8]) + token.to_bytes(8, "big") + bytes(mad[16:])
        self._flying[token] = _InFlight(packet(named, to), timeout_ms / 1000, retries)
        self._waiting.append(token)
        self._fill()
        return token

    def exchange(
        self, mads: Mads, to: Lids | None = None, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES
    ) -> Answers:
        mads, lids = check_requests(mads, to)
        if any(has_rmpp(mgmt_class) for mgmt_class in np.unique(mads[:, 1]).tolist()):
            return exchange_singly(self, mads, lids, timeout_ms=timeout_ms, retries=retries)
        first = self._next_tokens(len(mads))
        heads = heads_of(mads[:, 1], lids)
        self._bulk = bulk = Bulk(len(mads), timeout_ms / 1000, retries)
        while not bulk.is_over:
            self._send_bulk(bulk, mads, heads, first)
            if not self._read(bulk, first):
                self._wait(bulk.next_due_s() - time.monotonic())
                if bulk.under_way > _MOST_AT_ONCE // 4:
                    os.sched_yield()  # more will follow, and many cost little more than one
            bulk.on_timer(time.monotonic())
            self._keep_up()
        return bulk.answers, bulk.came

    def post(self, mad: Buffer, to: Address = HERE) -> None:
        if is_message(mad):
            self._transfers.start(bytes(mad), to.lid)
        else:
            (self._urgent if mad[1] in SMP_CLASSES else self._outbox).append(packet(bytes(mad), to))
        self._keep_up()

    def register(self, mgmt_class: int, methods: Iterable[int], *, class_version: int = 1, oui: int = 0) -> None:
        self._wanted |= {(mgmt_class, class_version, method) for method in methods}

    def set_is_sm(self, on: bool) -> None:
        self._request(SET_ISSM, struct.pack("=i", on))

    def close(self) -> None:
        with suppress(OSError, ConfigError):
            until_s = time.monotonic() + _CLOSING_S
            while (self._urgent or self._outbox) and time.monotonic() < until_s:
                self._wait(until_s - time.monotonic())
                self._keep_up()
            self._request(DISCONNECT)
        self._control.close()
        self._data.close()

    # -- sockets --

    def _put(self, raw: bytes) -> bool:
        """Send a packet; return False if the socket is full."""
        try:
            self._data.send(raw)
        except BlockingIOError:
            self._is_full = True
        except OSError as error:
            raise self._gone(error) from None
        else:
            self._is_full = False
        return not self._is_full

    def _gone(self, error: OSError) -> ConfigError:
        return ConfigError(f"{self._server} is gone: {error.strerror}")

    def _go_on(self, wait_s: float) -> None:
        if wait_s:
            self._wait(wait_s)
        self._read()
        self._keep_up()

    def _keep_up(self) -> None:
        """Handle timers, and write queued packets to the socket."""
        self._on_timer()
        while self._urgent and self._put(self._urgent[0]):
            self._urgent.popleft()
        self._fill()
        while self._outbox and self._put(self._outbox[0]):
            self._outbox.popleft()

    def _fill(self) -> None:
        """Put as many as may be there into the socket."""
        while self._waiting and len(self._in_socket) + self._bulk.under_way < _MOST_AT_ONCE:
            token = self._waiting[0]
            flying = self._flying.get(token)
            if flying is not None:
                if not self._put(flying.packet):
                    return
                self._in_socket.add(token)
                heapq.heappush(self._timers, (time.monotonic() + flying.timeout_s, token))
            self._waiting.popleft()

    def _send_bulk(self, bulk: Bulk, mads: NDArray[np.uint8], heads: NDArray[np.void], first: int) -> None:
        """Send requests in large batches: a few at a time would cost almost as much as many."""
        free = _MOST_AT_ONCE - bulk.under_way - len(self._in_socket)
        if free < _MOST_AT_ONCE // 2 and bulk.under_way:
            return
        rows = bulk.to_send(min(free, BATCH))
        outbox = self._line.outbox[: len(rows)]
        outbox["head"], outbox["mad"] = heads[rows], mads[rows]
        outbox["upper"], outbox["number"] = 0, first + rows
        try:
            sent = self._line.send(len(rows)) if len(rows) else 0
        except OSError as error:
            raise self._gone(error) from None
        self._is_full = sent < len(rows)
        bulk.on_sent(rows[:sent], time.monotonic())
        bulk.put_back(rows[sent:])

    def _read(self, bulk: Bulk | None = None, first: int = 0) -> int:
        """Read everything that has arrived and return how much: answers to a bulk at once, the rest one by one."""
        count = BATCH
        total = 0
        while count == BATCH:
            try:
                inbox = self._line.receive()
            except OSError as error:
                raise self._gone(error) from None
            count = len(inbox)
            total += count
            if bulk is not None and count:
                inbox = self._take_bulk(bulk, first, inbox)
            for row in inbox:
                self._on_packet(row.tobytes()[: DATA.size])
        return total

    def _take_bulk(self, bulk: Bulk, first: int, inbox: NDArray[Any]) -> NDArray[Any]:
        """Take the answers and the returned requests of a bulk; return the other packets."""
        rows = (inbox["number"] - np.uint32(first)).astype(np.int64)  # earlier numbers wrap round
        is_row = (rows < bulk.count) & (inbox["mgmt_class"] != _SA)  # responses to posted MADs are included
        if is_row.all() and inbox["method"].min() >= RESPONSE and not inbox["status"].any():
            bulk.on_answers(rows, inbox["mad"])
            return inbox[:0]
        is_back, is_response = inbox["status"] != 0, inbox["method"] >= RESPONSE
        answers, bounced = is_row & is_response & ~is_back, is_row & is_back & ~is_response
        bulk.on_answers(rows[answers], inbox["mad"][answers])
        bulk.on_bounced(rows[bounced])
        rest: NDArray[Any] = inbox[~(answers | bounced)]
        return rest

    def _wait(self, left_s: float) -> None:
        """Wait until input arrives, the socket accepts more output, or a timer is due."""
        due_s = [self._timers[0][0]] if self._timers else []
        transfer_s = self._transfers.next_deadline_s()
        due_s += [] if transfer_s is None else [transfer_s]
        if due_s:
            left_s = min(left_s, min(due_s) - time.monotonic())
        data = self._data.fileno()
        left_s = max(0.0, min(left_s, _LONGEST_S))
        is_ready = runtime.wait_ready([data, *self._watched], [data] if self._is_full else [], left_s)
        # Datagram sockets do not report the end of the peer: a client that only waits would wait for ever.
        if left_s and not is_ready and not runtime.is_alive(address(self._server, f"out{self._number}")):
            raise ConfigError(f"{self._server} is gone: it has closed its socket")

    # -- what arrives --

    def _on_packet(self, raw: bytes) -> None:
        _, lid, _, queue_pair, status, _, mad = DATA.unpack(raw)
        if status:
            self._on_bounced(mad)
        elif not is_segment(mad):
            self._on_message(mad, lid, queue_pair)
        elif self._transfers.knows(mad, lid) or self._is_wanted(mad):
            message = self._transfers.receive(mad, lid)
            if message is not None:
                self._on_message(message, lid, queue_pair)

    def _on_segment_out(self, mad: bytes, lid: int) -> None:
        self._outbox.append(packet(mad, Address(lid)))

    def _on_bounced(self, mad: bytes) -> None:
        """Handle a request of ours that came back undelivered; ignore posted MADs, which may have the same number.

        A lab also sends back what a manager has not answered in the time that libibmad gives it. It may need longer,
        and its answer still arrives: how long that is waited for is the caller's word.
        """
        if mad[1] == _SA or (mad[1] in SMP_CLASSES and mad[16:18] == _SM_INFO):
            return
        token = int.from_bytes(mad[12:16], "big")
        flying = self._flying.get(token)
        if flying is not None and flying.packet[HEAD_BYTES:][16:64] == mad[16:64]:
            self._try_again(token)

    def _is_wanted(self, mad: bytes) -> bool:
        if not mad[3] & RESPONSE:
            return (mad[1], mad[2], mad[3]) in self._wanted
        flying = self._flying.get(int.from_bytes(mad[12:16], "big"))
        if flying is not None:
            flying.heard_s = time.monotonic()
        return flying is not None

    def _on_message(self, mad: bytes, lid: int, queue_pair: int) -> None:
        if mad[3] & RESPONSE:
            token = int.from_bytes(mad[12:16], "big")
            if token in self._flying and self._flying[token].packet[HEAD_BYTES + 1] == mad[1]:
                self._end(token, mad)
        elif self._is_wanted(mad):
            self._arrived.append(Arrived(mad, Address(lid=lid, qp=queue_pair)))

    def _try_again(self, token: int) -> None:
        flying = self._flying.get(token)
        self._in_socket.discard(token)
        if flying is None:
            return
        if not flying.retries_left:
            self._end(token, None)
            return
        flying.retries_left -= 1
        self._waiting.append(token)

    def _end(self, token: int, answer: bytes | None) -> None:
        self._in_socket.discard(token)
        if self._flying.pop(token, None) is not None:
            self._done[token] = answer

    def _on_timer(self) -> None:
        now_s = time.monotonic()
        while self._timers and self._timers[0][0] <= now_s:
            _, token = heapq.heappop(self._timers)
            if token not in self._in_socket:
                continue
            heard_s = self._flying[token].heard_s + self._flying[token].timeout_s
            if heard_s > now_s:
                heapq.heappush(self._timers, (heard_s, token))
            else:
                self._try_again(token)
        self._transfers.on_timer()
