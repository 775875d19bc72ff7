"""A program as one rank sees it: fragments to send, and fragments to take, in order.

The bytes from one rank to another in one round form a stream, cut into fragments that fit a slot. In each round a rank
sends fragment 0 of all streams, then takes fragment 0 of all arriving streams, then sends fragment 1, and so on. All
ranks keep this order of (round, fragment), so the rank that is furthest behind never waits for a slot of a rank that
waits for it: one slot for each neighbour is enough, and more slots only let ranks run ahead.

Consecutive fragments form a stretch. If the receiver can read it in the memory of the sender, the first fragment
announces it, and the others are not sent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from weft.collectives.schedules.program import Program, Sends
from weft.errors import ConfigError

PIECES_MAX = 30  # pieces of a fragment: elements of a request
STRETCH = 4  # fragments


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of the buffer, in bytes."""

    begin: int
    length: int


@dataclass(frozen=True, slots=True)
class Step:
    """A fragment to send to a peer, or to receive and store or add, piece by piece."""

    peer: int
    is_send: bool
    add: bool
    pieces: tuple[Piece, ...]
    stretch: tuple[Piece, ...]  # the pieces of all of it
    stretch_bytes: int
    is_first: bool  # in its stretch
    is_last: bool
    is_crossed: bool = False  # this rank also takes, or sends, some of the same bytes in this round
    is_alone: bool = True  # no other stream goes to the same peer in this round, or comes from it

    @property
    def length(self) -> int:
        """Return the bytes of the step."""
        return sum(piece.length for piece in self.pieces)

    @property
    def can_be_announced(self) -> bool:
        """Return whether a stretch may be announced: its bytes stay until the next round and a slot has room."""
        return not self.is_crossed and self.is_alone and len(self.stretch) <= PIECES_MAX


def steps(program: Program, rank: int, size_bytes: int, item_bytes: int, fragment_bytes: int) -> list[Step]:
    """Return the steps of this rank. Chunks have whole items; the last one may have fewer or none."""
    if program.n_reducers:
        raise ConfigError(f"{program.name} needs switches that add: only the simulators have them; use ring or tree")
    if item_bytes > fragment_bytes:
        raise ConfigError(
            f"an item of {item_bytes:,} bytes: up to {fragment_bytes:,} go in one piece; give smaller ones"
        )
    layout = Layout(program, size_bytes, item_bytes)
    fragment_bytes = fragment_bytes // item_bytes * item_bytes
    ordered: list[Step] = []
    for number in range(program.n_rounds):
        sends = program.make_round(number)
        outgoing = _streams(layout, sends, sends.src == rank, sends.dst, sends.src_chunk, fragment_bytes, is_send=True)
        incoming = _streams(layout, sends, sends.dst == rank, sends.src, sends.dst_chunk, fragment_bytes, is_send=False)
        _refuse_overwriting(program, number, outgoing, incoming)
        outgoing, incoming = _marked(outgoing, incoming), _marked(incoming, outgoing)
        # No two begin with the same one: rank r takes from r + 1 first, which sends to r first.
        outgoing.sort(key=lambda stream: (rank - stream[0].peer) % program.n_ranks)
        incoming.sort(key=lambda stream: (stream[0].peer - rank) % program.n_ranks)
        for out, into in zip_longest(zip_longest(*outgoing), zip_longest(*incoming), fillvalue=()):
            ordered += [step for step in (*out, *into) if step is not None]
    return ordered


class Layout:
    """The places of chunks: in the data, or in scratch memory, which is counted on from the end of the data."""

    def __init__(self, program: Program, size_bytes: int, item_bytes: int) -> None:
        n_items = size_bytes // item_bytes
        if program.n_beside and n_items % program.n_parts:
            raise ConfigError(f"{program.name} of {n_items} items: they must be a multiple of {program.n_parts}")
        self.size_bytes, self.n_parts = size_bytes, program.n_parts
        self.chunk_bytes = -(-n_items // program.n_parts) * item_bytes
        self.beside_bytes = program.n_beside * self.chunk_bytes

    def places(self, chunk: int, n_chunks: int) -> list[Piece]:
        """Return the pieces of consecutive chunks: one, or one in the data and one in scratch memory."""
        begin, end = self._begin(chunk), self._begin(chunk + n_chunks)
        if begin < self.size_bytes < end:
            return [Piece(begin, self.size_bytes - begin), Piece(self.size_bytes, end - self.size_bytes)]
        return [Piece(begin, end - begin)]

    def _begin(self, chunk: int) -> int:
        data = min(chunk * self.chunk_bytes, self.size_bytes)
        return data + max(0, chunk - self.n_parts) * self.chunk_bytes


def _streams(
    layout: Layout,
    sends: Sends,
    mine: np.ndarray[tuple[int], np.dtype[np.bool_]],
    peers: np.ndarray[tuple[int], np.dtype[np.int32]],
    chunks: np.ndarray[tuple[int], np.dtype[np.int32]],
    fragment_bytes: int,
    *,
    is_send: bool,
) -> list[list[Step]]:
    """Return the fragments to or from each peer in this round, apart for those that are added."""
    streams: dict[tuple[int, bool], list[Piece]] = {}
    for row in np.flatnonzero(mine):
        pieces = streams.setdefault((int(peers[row]), bool(sends.add[row])), [])
        first, n, stride = int(chunks[row]), int(sends.n_chunks[row]), int(sends.stride[row])
        for chunk, count in [(first, n)] if stride == 1 else [(first + k * stride, 1) for k in range(n)]:
            pieces += layout.places(chunk, count)
    return [
        _steps_of(peer, is_send, add, _cut(pieces, fragment_bytes) or [()], layout.size_bytes)
        for (peer, add), pieces in streams.items()
    ]


def _steps_of(peer: int, is_send: bool, add: bool, fragments: list[tuple[Piece, ...]], size_bytes: int) -> list[Step]:
    """Return the steps of a stream. An empty one still signals the progress of its sender."""
    steps = []
    for begin in range(0, len(fragments), STRETCH):
        stretch = fragments[begin : begin + STRETCH]
        whole = _joined([piece for fragment in stretch for piece in fragment], size_bytes)
        length = sum(piece.length for piece in whole)
        for nth, pieces in enumerate(stretch):
            is_first, is_last = nth == 0, nth == len(stretch) - 1
            steps.append(Step(peer, is_send, add, pieces, whole, length, is_first, is_last))
    return steps


def _joined(pieces: list[Piece], size_bytes: int) -> tuple[Piece, ...]:
    """Merge adjacent pieces, but not data with scratch memory, which lies elsewhere."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and joined[-1].begin + joined[-1].length == piece.begin != size_bytes:
            joined[-1] = Piece(joined[-1].begin, joined[-1].length + piece.length)
        else:
            joined.append(piece)
    return tuple(joined)


def _marked(streams: list[list[Step]], opposite: list[list[Step]]) -> list[list[Step]]:
    """Mark the streams of a round that may be announced, given the streams of the other direction."""
    pieces = [piece for stream in opposite for step in stream for piece in step.pieces]
    begins, ends = np.array([each.begin for each in pieces]), np.array([each.begin + each.length for each in pieces])

    def is_crossed(stream: list[Step]) -> bool:
        mine = [piece for step in stream if step.is_first for piece in step.stretch]
        return any(bool(np.any((begins < each.begin + each.length) & (ends > each.begin))) for each in mine)

    peers = Counter(stream[0].peer for stream in streams)
    marks = [(is_crossed(stream), peers[stream[0].peer] == 1) for stream in streams]
    return [
        [replace(step, is_crossed=crossed, is_alone=alone) for step in stream]
        for stream, (crossed, alone) in zip(streams, marks, strict=True)
    ]


def _cut(pieces: list[Piece], fragment_bytes: int) -> list[tuple[Piece, ...]]:
    fragments: list[tuple[Piece, ...]] = []
    now: list[Piece] = []
    room = fragment_bytes
    for piece in pieces:
        begin, left = piece.begin, piece.length
        while left:
            size = min(left, room)
            now.append(Piece(begin, size))
            begin, left, room = begin + size, left - size, room - size
            if not room or len(now) == PIECES_MAX:
                fragments.append(tuple(now))
                now, room = [], fragment_bytes
    return [*fragments, tuple(now)] if now else fragments


def _refuse_overwriting(program: Program, number: int, outgoing: list[list[Step]], incoming: list[list[Step]]) -> None:
    """Raise an error if a round sends bytes that an earlier fragment of it overwrites."""
    received = [
        (piece.begin, piece.begin + piece.length, nth)
        for stream in incoming
        for nth, step in enumerate(stream)
        for piece in step.pieces
    ]
    if not received:
        return
    begins, ends, order = (np.array(column) for column in zip(*received, strict=True))
    for stream in outgoing:
        for nth, step in enumerate(stream):
            for piece in step.pieces:
                if np.any((begins < piece.begin + piece.length) & (ends > piece.begin) & (order < nth)):
                    raise ConfigError(
                        f"{program.name}: in round {number} a rank would receive into what it has not sent yet; "
                        "give the program a place beside its data (n_beside)"
                    )
