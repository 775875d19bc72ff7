"""Execution of one call by one rank: its steps in order (`plan`), over a link to each peer.

A stretch of fragments is either sent, each written into a slot of the receiver, which stores or adds it; or announced:
the receiver gets its address and reads it there, and the bytes must not change until then. Stretches that the sender
changes in the same round are never announced, so that ranks do not wait for each other.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from weft.collectives.live.job import PUT
from weft.collectives.live.link import TAG_MASK, Arrival, Broken, Link
from weft.collectives.live.plan import Piece, Step
from weft.collectives.live.rendezvous import Rendezvous
from weft.errors import SubnetError


class Memory(Protocol):
    """The memory of a program: its data, followed by scratch memory."""

    size_bytes: int
    item_bytes: int
    sums: int | None  # the sum for kernels, one of `job.KINDS`; None: `add` computes it

    def address(self, begin: int) -> int: ...

    def put(self, begin: int, data: NDArray[np.uint8]) -> None: ...

    def add(self, begin: int, data: NDArray[np.uint8]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Sent:
    """The bytes in flight of the nth fragment of a link, or of the stretch that its nth slot announces."""

    link: Link
    nth: int
    is_announced: bool
    begin: int
    end: int

    @property
    def is_done(self) -> bool:
        return (self.link.returned if self.is_announced else self.link.completed) >= self.nth


class Execution:
    """An execution of a call; `call` describes it in errors, equally on all ranks."""

    def __init__(self, rendezvous: Rendezvous, memory: Memory, call: str, deadline_s: float) -> None:
        self._rendezvous, self._memory, self._call, self._deadline_s = rendezvous, memory, call, deadline_s
        self._tag = zlib.crc32(call.encode()) & TAG_MASK
        self._under_way: deque[_Sent] = deque()
        self._announced: dict[tuple[int, bool], _Places] = {}  # by stream: what is to be read of a stretch

    def run(self, steps: list[Step]) -> None:
        rendezvous, call, deadline_s = self._rendezvous, self._call, self._deadline_s
        links = {peer: rendezvous.link(peer, "collective") for peer in sorted({step.peer for step in steps})}
        for link in links.values():
            rendezvous.bring_up(link, deadline_s)
        for step in steps:
            (self._send if step.is_send else self._take)(links[step.peer], step)
        for link in links.values():
            rendezvous.wait(link, lambda link=link: link.completed == link.posted, deadline_s, call)  # type: ignore[misc]
        for sent in self._under_way:
            self._wait_for(sent)
        rendezvous.check_read(call)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send(self, link: Link, step: Step) -> None:
        is_announced = (
            link.is_read and step.can_be_announced and step.stretch_bytes >= self._rendezvous.end.announced_bytes
        )
        if is_announced and not step.is_first:
            return
        if not link.credits:
            self._rendezvous.wait(link, lambda: link.credits > 0, self._deadline_s, self._call)
        pieces = step.stretch if is_announced else step.pieces
        places = [(self._memory.address(piece.begin), piece.length) for piece in pieces]
        (link.announce if is_announced else link.send)(places, self._tag)
        nth = link.used if is_announced else link.posted
        self._under_way.extend(_Sent(link, nth, is_announced, each.begin, each.begin + each.length) for each in pieces)

    def _let_go(self, pieces: tuple[Piece, ...]) -> None:
        """Wait until no send from these bytes is in flight."""
        while self._under_way and self._under_way[0].is_done:
            self._under_way.popleft()
        for sent in self._under_way:
            if any(sent.begin < piece.begin + piece.length and piece.begin < sent.end for piece in pieces):
                self._wait_for(sent)

    def _wait_for(self, sent: _Sent) -> None:
        self._rendezvous.wait(sent.link, lambda: sent.is_done, self._deadline_s, self._call)

    # -- taking -------------------------------------------------------------------------------------------------------

    def _take(self, link: Link, step: Step) -> None:
        stream = step.peer, step.add
        places = self._announced.get(stream)
        if places is None:
            arrival = self._next(link)
            if not arrival.is_announced:
                self._let_go(step.pieces)
                self._use(step, arrival.data)
                link.free()
                return
            places = self._announced[stream] = _Places(arrival.places())
        # Fragments that this rank sends in the same round are sent before these are read, and not earlier.
        if step.is_crossed:
            self._read(link, step, step.pieces, places)
        elif step.is_first:
            self._read(link, step, step.stretch, places)
        if step.is_last:
            del self._announced[stream]
            link.free(at_once=True)

    def _next(self, link: Link) -> Arrival:
        if not link.arrived:
            self._rendezvous.wait(link, lambda: bool(link.arrived), self._deadline_s, self._call)
        arrival = link.arrived.popleft()
        if arrival.tag != self._tag:
            raise SubnetError(
                f"rank {self._rendezvous.rank} is in {self._call}, and rank {link.rank} is not: all ranks must call "
                "the same, in the same order, with the same sizes and types"
            )
        return arrival

    def _use(self, step: Step, data: NDArray[np.uint8]) -> None:
        offset = 0
        for piece in step.pieces:
            part = data[offset : offset + piece.length]
            (self._memory.add if step.add else self._memory.put)(piece.begin, part)
            offset += piece.length

    def _read(self, link: Link, step: Step, pieces: tuple[Piece, ...], places: _Places) -> None:
        """Read a stretch from the memory of the sender."""
        self._let_go(pieces)
        memory, workers = self._memory, self._rendezvous.end.workers(self._rendezvous.size)
        for piece in pieces:
            for begin, far, length in places.take(piece):
                kind = memory.sums if step.add else PUT
                if kind is not None:
                    is_read = workers.take(link.process, far, memory.address(begin), length, kind)
                else:
                    is_read = self._add_beside(link, begin, far, length)
                if not is_read:
                    self._rendezvous.check_read(self._call)
                    raise Broken(link.who, f"no way to it any more: its memory cannot be read, in {self._call}")

    def _add_beside(self, link: Link, begin: int, far: int, length: int) -> bool:
        """Add data through PyTorch or numpy, from the endpoint's buffer, as much as it holds at a time."""
        end, item_bytes = self._rendezvous.end, self._memory.item_bytes
        most = len(end.beside) // item_bytes * item_bytes
        for done in range(0, length, most):
            size = min(most, length - done)
            if not end.workers(self._rendezvous.size).take(link.process, far + done, end.beside.ctypes.data, size, PUT):
                return False
            self._memory.add(begin + done, end.beside[:size])
        return True


class _Places:
    """An iterator over the pieces in the memory of another process, which may be cut differently from those here."""

    def __init__(self, places: list[tuple[int, int]]) -> None:
        self._places = deque(places)

    def take(self, piece: Piece) -> Iterator[tuple[int, int, int]]:
        """Yield contiguous parts: offset in the buffer, address in the other process, and length."""
        done = 0
        while done < piece.length:
            far, length = self._places.popleft()
            size = min(length, piece.length - done)
            if size < length:
                self._places.appendleft((far + size, length - size))
            yield piece.begin + done, far, size
            done += size
