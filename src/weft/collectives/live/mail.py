"""Messages from one rank to another, with tags, as MPI and PyTorch send them.

A message is a head of 16 bytes (tag, bytes) and its data, in fragments. What comes before anybody wants it is kept
beside. Sends go on whenever their rank waits for anything: a rank may begin several, and wait for them later.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.collectives.live.link import Link
from weft.collectives.live.meeting import Meeting
from weft.errors import ConfigError, SubnetError

_USE = "mail"
_HEAD = struct.Struct("<QQ")


@dataclass(eq=False)
class Sending:
    """A message that goes out; its memory must stay as it is until `is_done`."""

    link: Link
    data: NDArray[np.uint8]
    head: NDArray[np.uint8]
    fragment_bytes: int
    sent: int = -1  # bytes; -1: not even the head
    last: int = -1  # which send of the link was its last

    @property
    def is_done(self) -> bool:
        return self.sent == len(self.data) and self.link.completed >= self.last

    def go_on(self) -> bool:
        """As far as the other end has room. True if anything was sent."""
        before = self.sent
        while self.link.credits and self.sent < len(self.data):
            pieces, room = [], self.fragment_bytes
            if self.sent < 0:
                pieces, room, self.sent = [(self.head.ctypes.data, _HEAD.size)], room - _HEAD.size, 0
            here = min(room, len(self.data) - self.sent)
            if here:
                pieces.append((self.data.ctypes.data + self.sent, here))
            self.link.send(pieces, 0)
            self.sent, self.last = self.sent + here, self.link.posted
        return self.sent != before


@dataclass(eq=False)
class Receiving:
    """A message that is wanted: from a rank or any, with a tag or any; `source`, `tag` and `length` say what came."""

    data: NDArray[np.uint8]
    source: int | None
    tag: int | None
    length: int = -1
    error: str = ""
    is_done: bool = False

    def takes(self, source: int, tag: int) -> bool:
        return self.source in (None, source) and self.tag in (None, tag)

    def begin(self, source: int, tag: int, length: int) -> NDArray[np.uint8]:
        """Where it goes."""
        self.source, self.tag, self.length = source, tag, length
        if length > len(self.data):
            self.error = f"a message of {length} bytes from rank {source} came for a place of {len(self.data)}"
            return np.empty(length, np.uint8)
        return self.data[:length]


@dataclass(eq=False)
class _Arriving:
    """What comes over a link now: into the place of who wants it, or into one of its own."""

    source: int
    tag: int
    place: NDArray[np.uint8]
    wanted_by: Receiving | None
    filled: int = 0


@dataclass(eq=False)
class Mail:
    meeting: Meeting
    _sends: dict[Link, deque[Sending]] = field(default_factory=dict)
    _wanted: list[Receiving] = field(default_factory=list)
    _kept: list[_Arriving] = field(default_factory=list)  # that nobody wanted yet, whole or still coming
    _arriving: dict[Link, _Arriving] = field(default_factory=dict)
    _links: list[Link] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.meeting.on_idle = self.go_on

    def send(self, to: int, data: NDArray[np.uint8], tag: int = 0) -> Sending:
        """Begins it; `wait` ends it."""
        link = self._link(to)
        head = np.frombuffer(_HEAD.pack(tag, len(data)), np.uint8)
        made = Sending(link, data, head, self.meeting.end.fragment_bytes)
        self._sends.setdefault(link, deque()).append(made)
        self.go_on()
        return made

    def receive(self, data: NDArray[np.uint8], source: int | None = None, tag: int | None = None) -> Receiving:
        """Wants it; `wait` waits until it is here."""
        for rank in range(self.meeting.size) if source is None else (source,):
            if rank != self.meeting.rank:
                self._link(rank)
        made = Receiving(data, source, tag)
        for kept in self._kept:
            if made.takes(kept.source, kept.tag):
                self._kept.remove(kept)
                self._give(kept, made)
                return made
        self._wanted.append(made)
        return made

    def wait(self, what: Sending | Receiving) -> None:
        meeting = self.meeting
        if meeting.failed is not None:
            raise meeting.failed
        deadline_s = time.monotonic() + meeting.timeout_s
        is_send = isinstance(what, Sending)
        peer = what.link.rank if isinstance(what, Sending) else what.source
        link = self._link(peer) if peer is not None else None
        words = f"a {'send to' if is_send else 'receive from'} rank {'any' if peer is None else peer}"
        try:
            meeting.wait(link, lambda: what.is_done, deadline_s, words)
        except SubnetError as error:
            meeting.give_up(error)
            raise
        if isinstance(what, Receiving) and what.error:
            raise ConfigError(what.error)

    def go_on(self) -> bool:
        """Whatever can be done now."""
        something = False
        for link in self._links:
            if not self.meeting.is_up(link):
                continue
            while link.arrived:
                self._take(link)
                something = True
            waiting = self._sends.get(link, ())
            while waiting and waiting[0].go_on():
                something = True
                if waiting[0].sent < len(waiting[0].data):
                    break
                waiting.popleft()
        return something

    def _link(self, peer: int) -> Link:
        if not 0 <= peer < self.meeting.size or peer == self.meeting.rank:
            raise ConfigError(f"rank {peer} is none of the others of rank {self.meeting.rank} of {self.meeting.size}")
        link = self.meeting.link(peer, _USE)
        if link not in self._links:
            self._links.append(link)
        return link

    def _take(self, link: Link) -> None:
        """One fragment."""
        data = link.arrived.popleft().data
        now = self._arriving.get(link)
        if now is None:
            tag, length = _HEAD.unpack(data[: _HEAD.size].tobytes())
            data = data[_HEAD.size :]
            wanted = next((one for one in self._wanted if one.takes(link.rank, tag)), None)
            place = wanted.begin(link.rank, tag, length) if wanted is not None else np.empty(length, np.uint8)
            now = self._arriving[link] = _Arriving(link.rank, tag, place, wanted)
            if wanted is not None:
                self._wanted.remove(wanted)
            else:
                self._kept.append(now)
        now.place[now.filled : now.filled + len(data)] = data
        now.filled += len(data)
        link.free()
        if now.filled == len(now.place):
            del self._arriving[link]
            if now.wanted_by is not None:
                now.wanted_by.is_done = True

    def _give(self, kept: _Arriving, wanted: Receiving) -> None:
        """What was kept, to who wants it now; what is still to come of it goes there as well."""
        place = wanted.begin(kept.source, kept.tag, len(kept.place))
        place[: kept.filled] = kept.place[: kept.filled]
        kept.place, kept.wanted_by = place, wanted
        wanted.is_done = kept.filled == len(place)
