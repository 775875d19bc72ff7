"""One call, carried out by one rank: its steps in order (`plan`), over a link to each rank that it has to do with.

A stretch of fragments goes one of two ways. Sent: each is written into a slot of the receiver's, who puts or adds it
from there. Told: the receiver hears where the stretch is and reads it there; then the bytes must stay as they are until
it has. Who is told of nothing that its sender changes in the same round never waits for one who waits for it.
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
from weft.collectives.live.meeting import Meeting
from weft.collectives.live.plan import Piece, Step
from weft.errors import SubnetError


class Memory(Protocol):
    """What a program runs on: its data, and behind it what is beside the data."""

    size_bytes: int
    item_bytes: int
    sums: int | None  # what "add" is for kernels, one of `job.KINDS`; None: only `add` knows

    def address(self, begin: int) -> int: ...

    def put(self, begin: int, data: NDArray[np.uint8]) -> None: ...

    def add(self, begin: int, data: NDArray[np.uint8]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Sent:
    """Bytes that may be under way: those of the nth fragment of a link, or of what its nth slot tells of."""

    link: Link
    nth: int
    is_told: bool
    begin: int
    end: int

    @property
    def is_done(self) -> bool:
        return (self.link.returned if self.is_told else self.link.completed) >= self.nth


class Execution:
    """`call` says in errors what it is; ranks that do the same say the same."""

    def __init__(self, meeting: Meeting, memory: Memory, call: str, deadline_s: float) -> None:
        self._meeting, self._memory, self._call, self._deadline_s = meeting, memory, call, deadline_s
        self._tag = zlib.crc32(call.encode()) & TAG_MASK
        self._under_way: deque[_Sent] = deque()
        self._told: dict[tuple[int, bool], _Places] = {}  # by stream: what is to be read of a stretch

    def run(self, made: list[Step]) -> None:
        meeting, call, deadline_s = self._meeting, self._call, self._deadline_s
        links = {peer: meeting.link(peer, "collective") for peer in sorted({step.peer for step in made})}
        for link in links.values():
            meeting.bring_up(link, deadline_s)
        for step in made:
            (self._send if step.is_send else self._take)(links[step.peer], step)
        for link in links.values():
            meeting.wait(link, lambda link=link: link.completed == link.posted, deadline_s, call)  # type: ignore[misc]
        for sent in self._under_way:
            self._wait_for(sent)
        meeting.check_read(call)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send(self, link: Link, step: Step) -> None:
        is_told = link.is_read and step.can_be_told and step.stretch_bytes >= self._meeting.end.told_bytes
        if is_told and not step.is_first:
            return
        if not link.credits:
            self._meeting.wait(link, lambda: link.credits > 0, self._deadline_s, self._call)
        pieces = step.stretch if is_told else step.pieces
        places = [(self._memory.address(piece.begin), piece.length) for piece in pieces]
        (link.tell if is_told else link.send)(places, self._tag)
        nth = link.used if is_told else link.posted
        self._under_way.extend(_Sent(link, nth, is_told, one.begin, one.begin + one.length) for one in pieces)

    def _let_go(self, pieces: tuple[Piece, ...]) -> None:
        """Wait until nothing sent from these bytes is under way: to be read, or to be sent again."""
        while self._under_way and self._under_way[0].is_done:
            self._under_way.popleft()
        for sent in self._under_way:
            if any(sent.begin < one.begin + one.length and one.begin < sent.end for one in pieces):
                self._wait_for(sent)

    def _wait_for(self, sent: _Sent) -> None:
        self._meeting.wait(sent.link, lambda: sent.is_done, self._deadline_s, self._call)

    # -- taking -------------------------------------------------------------------------------------------------------

    def _take(self, link: Link, step: Step) -> None:
        stream = step.peer, step.add
        told = self._told.get(stream)
        if told is None:
            arrival = self._next(link)
            if not arrival.is_told:
                self._let_go(step.pieces)
                self._use(step, arrival.data)
                link.free()
                return
            told = self._told[stream] = _Places(arrival.places())
        # What this rank sends in the same round is sent from its fragments before these are taken, and not earlier.
        if step.is_crossed:
            self._read(link, step, step.pieces, told)
        elif step.is_first:
            self._read(link, step, step.stretch, told)
        if step.is_last:
            del self._told[stream]
            link.free(at_once=True)

    def _next(self, link: Link) -> Arrival:
        if not link.arrived:
            self._meeting.wait(link, lambda: bool(link.arrived), self._deadline_s, self._call)
        arrival = link.arrived.popleft()
        if arrival.tag != self._tag:
            raise SubnetError(
                f"rank {self._meeting.rank} is in {self._call}, and rank {link.rank} is not: all ranks must call the "
                "same, in the same order, with the same sizes and types"
            )
        return arrival

    def _use(self, step: Step, data: NDArray[np.uint8]) -> None:
        offset = 0
        for piece in step.pieces:
            part = data[offset : offset + piece.length]
            (self._memory.add if step.add else self._memory.put)(piece.begin, part)
            offset += piece.length

    def _read(self, link: Link, step: Step, pieces: tuple[Piece, ...], told: _Places) -> None:
        """From where it is in the memory of who sent it."""
        self._let_go(pieces)
        memory, hands = self._memory, self._meeting.end.hands(self._meeting.size)
        for piece in pieces:
            for begin, far, length in told.take(piece):
                kind = memory.sums if step.add else PUT
                if kind is not None:
                    is_read = hands.take(link.process, far, memory.address(begin), length, kind)
                else:
                    is_read = self._add_beside(link, begin, far, length)
                if not is_read:
                    self._meeting.check_read(self._call)
                    raise Broken(link.who, f"no way to it any more: its memory cannot be read, in {self._call}")

    def _add_beside(self, link: Link, begin: int, far: int, length: int) -> bool:
        """What only PyTorch or numpy can add, from memory of the endpoint's, as much as that holds at a time."""
        end, item_bytes = self._meeting.end, self._memory.item_bytes
        most = len(end.beside) // item_bytes * item_bytes
        for done in range(0, length, most):
            here = min(most, length - done)
            if not end.hands(self._meeting.size).take(link.process, far + done, end.beside.ctypes.data, here, PUT):
                return False
            self._memory.add(begin + done, end.beside[:here])
        return True


class _Places:
    """In the memory of another process, one after the other; they may be cut otherwise than the pieces here."""

    def __init__(self, places: list[tuple[int, int]]) -> None:
        self._places = deque(places)

    def take(self, piece: Piece) -> Iterator[tuple[int, int, int]]:
        """What lies together here and there: where it is in the buffer, its address there, and its length."""
        done = 0
        while done < piece.length:
            far, length = self._places.popleft()
            here = min(length, piece.length - done)
            if here < length:
                self._places.appendleft((far + here, length - here))
            yield piece.begin + done, far, here
            done += here
