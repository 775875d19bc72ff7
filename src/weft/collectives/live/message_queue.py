"""Messages from one rank to another, with tags, as MPI and PyTorch send them.

A message is a header of 16 bytes (tag, bytes) and its data, in fragments. Unexpected messages are queued. Sends make
progress whenever their rank waits: a rank may begin several, and wait for them later. Messages to oneself are
delivered or queued at once.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.collectives.live.link import Link
from weft.collectives.live.record import RECEIVE, SEND, GroupRecord
from weft.collectives.live.rendezvous import Rendezvous
from weft.errors import ConfigError, SubnetError

_USE = "mail"
_HEAD = struct.Struct("<QQ")


@dataclass(eq=False)
class Sending:
    """An outgoing message; its memory must not change until `is_done`."""

    link: Link | None  # None: to itself
    data: Any
    head: NDArray[np.uint8]
    address: int  # address of the first byte
    fragment_bytes: int
    sent: int = -1  # bytes; -1: not even the head
    last: int = -1  # which send of the link was its last

    @property
    def is_done(self) -> bool:
        return self.sent == len(self.data) and (self.link is None or self.link.completed >= self.last)

    def go_on(self, link: Link) -> bool:
        """Send as far as credits allow. Return whether anything was sent."""
        before = self.sent
        while link.credits and self.sent < len(self.data):
            pieces, room = [], self.fragment_bytes
            if self.sent < 0:
                pieces, room, self.sent = [(self.head.ctypes.data, _HEAD.size)], room - _HEAD.size, 0
            size = min(room, len(self.data) - self.sent)
            if size:
                pieces.append((self.address + self.sent, size))
            link.send(pieces, 0)
            self.sent, self.last = self.sent + size, link.posted
        return self.sent != before


@dataclass(eq=False)
class Receiving:
    """A posted receive, from a rank or any; `source` and `length` are those of the message when it has begun."""

    data: Any
    source: int | None
    tag: int
    length: int = -1
    error: str = ""
    is_done: bool = False
    is_recorded: bool = False

    def takes(self, source: int, tag: int) -> bool:
        return self.source in (None, source) and self.tag == tag

    def begin(self, source: int, length: int, empty: Callable[[int], Any]) -> Any:
        """Begin a message; return its buffer."""
        self.source, self.length = source, length
        if length > len(self.data):
            self.error = f"a message of {length} bytes from rank {source} came for a place of {len(self.data)}"
            return empty(length)
        return self.data[:length]


@dataclass(eq=False)
class _Arriving:
    """An incoming message of a link, into the buffer of a receive or into a temporary one."""

    source: int
    tag: int
    place: Any
    wanted_by: Receiving | None
    filled: int = 0


@dataclass(eq=False)
class MessageQueue:
    rendezvous: Rendezvous
    record: GroupRecord | None = None
    _sends: dict[Link, deque[Sending]] = field(default_factory=dict)
    _pending: list[Receiving] = field(default_factory=list)
    # Not yet received by the program, complete or still arriving
    _unexpected: list[_Arriving] = field(default_factory=list)
    _arriving: dict[Link, _Arriving] = field(default_factory=dict)
    _links: list[Link] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rendezvous.on_idle = self.go_on

    def send(self, to: int, data: Any, tag: int = 0) -> Sending:
        """Begin a send; `wait` completes it."""
        if to == self.rendezvous.rank:
            now = self._begin(to, tag, len(data))
            self._fill(now, data)
            return Sending(None, data, data[:0], 0, 0, sent=len(data))
        link = self._link(to)
        begin_s = self.record.begin() if self.record is not None else 0.0
        head = np.frombuffer(_HEAD.pack(tag, len(data)), np.uint8)
        end = self.rendezvous.end
        sending = Sending(link, data, head, end.address(data), end.fragment_bytes)
        self._sends.setdefault(link, deque()).append(sending)
        self.go_on()
        if self.record is not None:
            self.record.message(begin_s, SEND, to, tag, len(data))
        return sending

    def receive(self, data: Any, source: int | None = None, tag: int = 0) -> Receiving:
        """Post a receive; `wait` completes it."""
        self._hear_from(source)
        receiving = Receiving(data, source, tag)
        for arriving in self._unexpected:
            if receiving.takes(arriving.source, arriving.tag):
                self._unexpected.remove(arriving)
                self._give(arriving, receiving)
                return receiving
        self._pending.append(receiving)
        return receiving

    def poll(self) -> None:
        """Make progress without waiting."""
        try:
            self.rendezvous.look()
        except SubnetError as error:
            self.rendezvous.give_up(error)
            raise

    def wait(self, transfer: Sending | Receiving, timeout_s: float | None = None) -> None:
        """Wait for a request, up to `timeout_s` or the group's timeout."""
        begin_s = self.record.begin() if self.record is not None else 0.0
        rendezvous, rank = self.rendezvous, self.rendezvous.rank
        peer = transfer.source if isinstance(transfer, Receiving) else transfer.link.rank if transfer.link else rank
        words = (
            f"a {'send to' if isinstance(transfer, Sending) else 'receive from'} rank {'any' if peer is None else peer}"
        )
        link = None if peer is None or peer == rank else self._link(peer)
        timeout_s = timeout_s or rendezvous.timeout_s
        if rendezvous.failed is not None:
            raise rendezvous.failed
        try:
            rendezvous.wait(link, lambda: transfer.is_done, time.monotonic() + timeout_s, words, timeout_s)
        except SubnetError as error:
            rendezvous.give_up(error)
            raise
        self._end(transfer, begin_s)

    def _end(self, transfer: Sending | Receiving, begin_s: float) -> None:
        """Complete a request."""
        if not isinstance(transfer, Receiving):
            return
        if transfer.error:
            raise ConfigError(transfer.error)
        is_new, transfer.is_recorded = not transfer.is_recorded, True
        if self.record is not None and is_new and transfer.source is not None:
            self.record.message(begin_s, RECEIVE, transfer.source, transfer.tag, transfer.length)

    def go_on(self) -> bool:
        """Make progress; return whether there was any."""
        something = False
        for link in self._links:
            if not self.rendezvous.is_up(link):
                continue
            while link.arrived:
                self._take(link)
                something = True
            waiting = self._sends.get(link, ())
            while waiting and waiting[0].go_on(link):
                something = True
                if waiting[0].sent < len(waiting[0].data):
                    break
                waiting.popleft()
        return something

    def _hear_from(self, source: int | None) -> None:
        for rank in range(self.rendezvous.size) if source is None else (source,):
            if rank != self.rendezvous.rank:
                self._link(rank)

    def _link(self, peer: int) -> Link:
        if not 0 <= peer < self.rendezvous.size or peer == self.rendezvous.rank:
            raise ConfigError(
                f"rank {peer} is none of the others of rank {self.rendezvous.rank} of {self.rendezvous.size}"
            )
        link = self.rendezvous.link(peer, _USE)
        if link not in self._links:
            self._links.append(link)
        return link

    def _take(self, link: Link) -> None:
        """Process one fragment."""
        data = link.arrived.popleft().data
        now = self._arriving.get(link)
        if now is None:
            tag, length = _HEAD.unpack(self.rendezvous.end.read(data[: _HEAD.size]))
            data = data[_HEAD.size :]
            now = self._arriving[link] = self._begin(link.rank, tag, length)
        self._fill(now, data)
        link.free()
        if now.filled == len(now.place):
            del self._arriving[link]

    def _begin(self, source: int, tag: int, length: int) -> _Arriving:
        """Begin an incoming message, with or without a matching receive."""
        receiving = next((candidate for candidate in self._pending if candidate.takes(source, tag)), None)
        empty = self.rendezvous.end.empty
        place = receiving.begin(source, length, empty) if receiving is not None else empty(length)
        now = _Arriving(source, tag, place, receiving)
        if receiving is not None:
            self._pending.remove(receiving)
        else:
            self._unexpected.append(now)
        return now

    def _fill(self, now: _Arriving, data: Any) -> None:
        now.place[now.filled : now.filled + len(data)] = data
        self.rendezvous.end.settle()
        now.filled += len(data)
        if now.filled == len(now.place) and now.wanted_by is not None:
            now.wanted_by.is_done = True

    def _give(self, arriving: _Arriving, receiving: Receiving) -> None:
        """Hand a queued message, complete or not, to a receive."""
        end = self.rendezvous.end
        place = receiving.begin(arriving.source, len(arriving.place), end.empty)
        place[: arriving.filled] = arriving.place[: arriving.filled]
        end.settle()
        arriving.place, arriving.wanted_by = place, receiving
        receiving.is_done = arriving.filled == len(place)
