"""A collective as data: the sends of each round with their chunks, and whether the receiver adds or stores them.

    round 0   rank 0 sends chunk 0 to rank 1, which adds it        a ring all-reduce of four ranks begins
              rank 1 sends chunk 1 to rank 2, which adds it
              ...
    round 1   rank 1 sends chunk 0, now of two ranks, to rank 2

Every rank has a buffer of `n_chunks` chunks of equal size. Rounds are an order, not a barrier: a send waits only for
what its sender must have received before (`schedule`). The same program runs on real bytes, on the packet engine,
on the flow engine and in closed form; `check` proves its result before it is timed.

In a round all is read before anything is written. Who runs a program on real bytes keeps the order of rounds between
what a rank sends from a chunk and what arrives for it; almost all programs are right without that too, for the ways of
the data forbid any other order, but not where partners add to each other what they send.

Rounds are made when they are asked for, so that a ring of 65,536 ranks costs no memory. `runs` says which rounds in a
row differ in nothing but the numbers of their chunks: an engine that knows one of them knows all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.collectives.kinds import Collective
from weft.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sends:
    """The sends of one round. Ranks above the last are reducers in the network, switches that add."""

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    src_chunk: NDArray[np.int32]  # the first of those sent
    dst_chunk: NDArray[np.int32]  # its place at the receiver
    n_chunks: NDArray[np.int32]
    stride: NDArray[np.int32]  # from one of them to the next, at both ends: 1 where they lie together
    add: NDArray[np.bool_]  # added to what is there; else put in its place

    def __len__(self) -> int:
        return len(self.src)

    def chunks(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return a row for each chunk that moves: its send, its source and its destination."""
        row = np.repeat(np.arange(len(self)), self.n_chunks)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(self.n_chunks) - self.n_chunks, self.n_chunks)
        step = nth * self.stride[row]
        return row, self.src_chunk[row] + step, self.dst_chunk[row] + step

    @classmethod
    def make(
        cls,
        src: ArrayLike,
        dst: ArrayLike,
        chunk: ArrayLike,
        *,
        to: ArrayLike | None = None,
        n: ArrayLike = 1,
        stride: ArrayLike = 1,
        add: ArrayLike,
    ) -> Sends:
        """Return sends; single values are broadcast, and `to` defaults to `chunk`."""
        rows = np.atleast_1d(np.asarray(src, np.int32))

        def column(values: ArrayLike, dtype: type[np.generic] = np.int32) -> NDArray[Any]:
            array = np.asarray(values, dtype)
            return array if array.shape == rows.shape else np.full(len(rows), array)  # faster than np.broadcast_to

        return cls(
            src=rows,
            dst=column(dst),
            src_chunk=column(chunk),
            dst_chunk=column(chunk if to is None else to),
            n_chunks=column(n),
            stride=column(stride),
            add=column(add, np.bool_),
        )

    @classmethod
    def join(cls, parts: list[Sends]) -> Sends:
        names = cls.__slots__
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A sequence of rounds with the same senders, receivers and sizes."""

    first: int
    n_rounds: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A collective as rounds of sends."""

    name: str  # `ring all-reduce`
    collective: Collective
    n_ranks: int
    n_chunks: int  # in the buffer of a rank
    runs: tuple[Run, ...]
    make_round: Callable[[int], Sends]
    root: int = 0  # for broadcast, reduce, gather and scatter
    n_reducers: int = 0
    n_beside: int = 0  # chunks at the end of the buffer beside the data: where an all-to-all receives, or passes on
    gpus: int = 1  # ranks of a node, which NVLink joins: rank // gpus is the node
    aggregated: bool = False  # sends of a round from one rank to another go as one message

    @classmethod
    def of(
        cls,
        name: str,
        collective: Collective,
        n_ranks: int,
        runs: Iterable[int],
        make_round: Callable[[int], Sends],
        n_chunks: int | None = None,
        **fields: Any,
    ) -> Program:
        """Return a program with runs of these lengths, by default with as many chunks as ranks."""
        return cls(
            name=name,
            collective=collective,
            n_ranks=n_ranks,
            n_chunks=n_ranks if n_chunks is None else n_chunks,
            runs=in_runs(*runs),
            make_round=make_round,
            **fields,
        )

    def __post_init__(self) -> None:
        if self.n_ranks < 2:
            raise ConfigError(f"{self.name} of {self.n_ranks} ranks: a collective has two or more")
        if self.n_chunks < 1:
            raise ConfigError(f"{self.name} in {self.n_chunks} slices: give one or more")
        if not 0 <= self.root < self.n_ranks:
            raise ConfigError(f"root {self.root} of {self.name} is not from 0 to {self.n_ranks - 1}")

    @property
    def n_rounds(self) -> int:
        return self.runs[-1].first + self.runs[-1].n_rounds

    def rounds(self) -> Iterator[Sends]:
        return (self.make_round(number) for number in range(self.n_rounds))

    @property
    def n_parts(self) -> int:
        """Return the chunks of the size of nccl-tests, the larger of a rank's two buffers."""
        return self.n_chunks - self.n_beside

    def chunk_bytes(self, size_bytes: int) -> int:
        """Return the bytes of a chunk, rounded up as NCCL pads; `size_bytes` is that of nccl-tests."""
        return -(-size_bytes // self.n_parts)


def in_runs(*n_rounds: int) -> tuple[Run, ...]:
    """Return runs of these lengths in sequence, without empty ones."""
    begins = np.cumsum((0, *n_rounds))
    return tuple(Run(first=int(first), n_rounds=n) for first, n in zip(begins, n_rounds, strict=False) if n)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """The sends of a program in one table, with their dependencies."""

    sends: Sends
    round: NDArray[np.int32]
    after_first: NDArray[np.int64]  # [send + 1] -> where its part of `after` begins
    after: NDArray[np.int32]  # sends that must have arrived before


def schedule(program: Program) -> Schedule:
    """Return the sends of a program; each waits for the last writes of the chunks that it reads.

    Additions to one chunk may arrive in any order: a send that reads it waits for all of them.
    """
    rounds = list(program.rounds())
    sends = Sends.join(rounds)
    number = np.repeat(np.arange(len(rounds), dtype=np.int32), [len(part) for part in rounds])
    row, src_chunk, dst_chunk = sends.chunks()
    read, written = (
        of[row].astype(np.int64) * program.n_chunks + chunk
        for of, chunk in ((sends.src, src_chunk), (sends.dst, dst_chunk))
    )
    order = np.argsort(written, kind="stable")  # by place, and there in the order of time
    writer, place = row[order], written[order]
    end = np.searchsorted(place * len(rounds) + number[writer], read * len(rounds) + number[row])
    begin = _last_put(place, sends.add[writer])[end - 1]
    begin = np.where((end > 0) & (place[end - 1] == read), begin, end)
    needed = end - begin
    nth = np.arange(needed.sum()) - np.repeat(np.cumsum(needed) - needed, needed)
    first, after = _waits(np.repeat(row, needed), writer[np.repeat(begin, needed) + nth], len(sends))
    return Schedule(sends=sends, round=number, after_first=first, after=after)


def joined(whole: Schedule) -> Schedule:
    """Merge the sends of a round between the same ranks into one, with all dependencies.

    Only the number of their chunks is kept.
    """
    sends = whole.sends
    n = int(max(sends.src.max(), sends.dst.max())) + 1
    key = (whole.round.astype(np.int64) * n + sends.src) * n + sends.dst
    _, first, message = np.unique(key, return_index=True, return_inverse=True)
    n_chunks = np.bincount(message, sends.n_chunks).astype(np.int32)
    merged = replace(Sends(**{name: getattr(sends, name)[first] for name in Sends.__slots__}), n_chunks=n_chunks)
    after_first, after = _waits(np.repeat(message, np.diff(whole.after_first)), message[whole.after], len(first))
    return Schedule(sends=merged, round=whole.round[first], after_first=after_first, after=after)


def _waits(waiting: NDArray[np.int64], other: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return dependencies as offsets [n + 1] and values, each once and in order."""
    pairs = np.sort(waiting * n + other, kind="stable")
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique takes ten times as long: these are almost in order
    waiter, after = np.divmod(pairs, max(n, 1))
    first = np.concatenate(([0], np.cumsum(np.bincount(waiter, minlength=n)))).astype(np.int64)
    return first, after.astype(np.int32)


def _last_put(place: NDArray[np.int64], add: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each write the last store to its place up to it, or the first addition."""
    opens = ~add
    opens[:1] = True
    opens[1:] |= place[1:] != place[:-1]
    return np.maximum.accumulate(np.where(opens, np.arange(len(place)), 0))
