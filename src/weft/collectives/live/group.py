"""Ranks that do collectives together.

    group.run(program, memory, "all_reduce of 1,024 float32")

carries out a checked program: this rank's steps of it (`plan`), in order, over a link to each rank that it sends to or
hears from. Ranks must call the same things in the same order. Every fragment carries a number made of the words that
describe the call and of how many came before it, so that a rank that does something else is found out by the first
that hears from it; it gives up, and tells all that it has links to.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from weft.collectives.live.link import TAG_MASK, Endpoint, Link
from weft.collectives.live.mail import Mail
from weft.collectives.live.meeting import Meeting, Store
from weft.collectives.live.plan import Step, steps
from weft.collectives.live.record import record_of
from weft.collectives.program import Program
from weft.errors import SubnetError

_USE = "collective"


class Memory(Protocol):
    """What a program runs on: its data, and behind it what is beside the data."""

    size_bytes: int
    item_bytes: int

    def address(self, begin: int) -> int: ...

    def put(self, begin: int, data: NDArray[np.uint8]) -> None: ...

    def add(self, begin: int, data: NDArray[np.uint8]) -> None: ...


class Group:
    """`rank` of `size`; `name` tells groups of one store apart. All must be made by all of their ranks."""

    def __init__(self, end: Endpoint, store: Store, name: str, rank: int, size: int, timeout_s: float = 300) -> None:
        self.rank, self.size, self.name = rank, size, name
        self._meeting = Meeting(end, store, name, rank, size, timeout_s)
        self.record = record_of(name, rank, size)
        self.mail = Mail(self._meeting, self.record)
        self._calls = 0

    def run(self, program: Program, memory: Memory, words: str) -> None:
        """`words` are what all ranks must agree on; they are told to who does not."""
        self._calls += 1
        meeting, call = self._meeting, f"{words}, call {self._calls} of its group"
        if meeting.failed is not None:
            raise meeting.failed
        begin_s = self.record.begin() if self.record is not None else 0.0
        try:
            self._run(
                _steps(program, self.rank, memory.size_bytes, memory.item_bytes, meeting.end.fragment_bytes),
                memory,
                call,
            )
        except SubnetError as error:
            meeting.give_up(error)
            raise
        if self.record is not None:
            sizes = memory.size_bytes, memory.item_bytes
            self.record.collective(begin_s, program.collective, *sizes, program.root, words)

    def _run(self, made: list[Step], memory: Memory, call: str) -> None:
        meeting, deadline_s = self._meeting, time.monotonic() + self._meeting.timeout_s
        links = {peer: meeting.link(peer, _USE) for peer in sorted({step.peer for step in made})}
        for link in links.values():
            meeting.bring_up(link, deadline_s)
        tag = zlib.crc32(call.encode()) & TAG_MASK
        under_way: deque[tuple[Link, int, int, int]] = deque()  # sent, maybe not arrived: whose nth, and which bytes

        def let_go(begin: int, end: int) -> None:
            """Wait until nothing that was sent from these bytes is under way: it may have to be sent again."""
            while under_way and under_way[0][0].completed >= under_way[0][1]:
                under_way.popleft()
            for sent, nth, first, last in under_way:
                if first < end and begin < last:
                    meeting.wait(sent, lambda sent=sent, nth=nth: sent.completed >= nth, deadline_s, call)  # type: ignore[misc]

        for step in made:
            link = links[step.peer]
            if step.is_send:
                if not link.credits:
                    meeting.wait(link, lambda link=link: link.credits > 0, deadline_s, call)  # type: ignore[misc]
                link.send([(memory.address(piece.begin), piece.length) for piece in step.pieces], tag)
                under_way.extend((link, link.posted, one.begin, one.begin + one.length) for one in step.pieces)
                continue
            if not link.arrived:
                meeting.wait(link, lambda link=link: bool(link.arrived), deadline_s, call)  # type: ignore[misc]
            arrival, offset = link.arrived.popleft(), 0
            if arrival.tag != tag:
                raise SubnetError(
                    f"rank {self.rank} is in {call}, and rank {link.rank} is not: all ranks must call the same, in the "
                    "same order, with the same sizes and types"
                )
            for piece in step.pieces:
                let_go(piece.begin, piece.begin + piece.length)
                data = arrival.data[offset : offset + piece.length]
                (memory.add if step.add else memory.put)(piece.begin, data)
                offset += piece.length
            link.free()
        for link in links.values():
            meeting.wait(link, lambda link=link: link.completed == link.posted, deadline_s, call)  # type: ignore[misc]

    def close(self) -> None:
        self._meeting.close()


@lru_cache(maxsize=256)
def _steps(program: Program, rank: int, size_bytes: int, item_bytes: int, fragment_bytes: int) -> list[Step]:
    return steps(program, rank, size_bytes, item_bytes, fragment_bytes)
