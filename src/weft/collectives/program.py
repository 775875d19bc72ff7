"""A collective as data: who sends which chunk to whom, round by round, and whether it is added or put.

    round 0   rank 0 sends chunk 0 to rank 1, which adds it        a ring all-reduce of four ranks begins
              rank 1 sends chunk 1 to rank 2, which adds it
              ...
    round 1   rank 1 sends chunk 0, now of two ranks, to rank 2

Every rank has a buffer of `n_chunks` chunks of equal size. Rounds are an order, not a barrier: a send waits only for
what its sender must have received before (`dependencies`). The same program runs on real bytes, on the packet engine,
on the flow engine and in closed form; `check` proves what it computes before anybody times it.

Rounds are made when they are asked for, so that a ring of 65,536 ranks costs no memory. `runs` says which rounds in a
row differ in nothing but the numbers of their chunks: an engine that knows one of them knows all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.collectives.kinds import Collective
from weft.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sends:
    """The sends of one round. Ranks above the last are reducers in the network: switches that add."""

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    src_chunk: NDArray[np.int32]  # the first of those sent
    dst_chunk: NDArray[np.int32]  # where it goes
    n_chunks: NDArray[np.int32]
    add: NDArray[np.bool_]  # added to what is there; else put in its place

    def __len__(self) -> int:
        return len(self.src)

    @classmethod
    def make(
        cls,
        src: ArrayLike,
        dst: ArrayLike,
        chunk: ArrayLike,
        *,
        to: ArrayLike | None = None,
        n: ArrayLike = 1,
        add: ArrayLike,
    ) -> Sends:
        """Single values stand for all; chunks go to the place that they come from, unless `to` says another."""
        rows = np.atleast_1d(np.asarray(src, np.int32))

        def column(values: ArrayLike) -> NDArray[np.int32]:
            return np.broadcast_to(np.asarray(values, np.int32), len(rows))

        return cls(
            src=rows,
            dst=column(dst),
            src_chunk=column(chunk),
            dst_chunk=column(chunk if to is None else to),
            n_chunks=column(n),
            add=np.broadcast_to(np.asarray(add, np.bool_), len(rows)),
        )

    @classmethod
    def join(cls, parts: list[Sends]) -> Sends:
        names = cls.__slots__
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Rounds in a row with the same senders, receivers and sizes."""

    first: int
    n_rounds: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A collective, written down."""

    name: str  # `ring all-reduce`
    collective: Collective
    n_ranks: int
    n_chunks: int  # of the buffer of a rank
    runs: tuple[Run, ...]
    make_round: Callable[[int], Sends]
    root: int = 0  # of a broadcast or a reduction
    n_reducers: int = 0

    def __post_init__(self) -> None:
        if self.n_ranks < 2:
            raise ConfigError(f"{self.name} of {self.n_ranks} ranks: a collective has two or more")
        if not 0 <= self.root < self.n_ranks:
            raise ConfigError(f"root {self.root} of {self.name} is not from 0 to {self.n_ranks - 1}")

    @property
    def n_rounds(self) -> int:
        return self.runs[-1].first + self.runs[-1].n_rounds

    def rounds(self) -> Iterator[Sends]:
        return (self.make_round(number) for number in range(self.n_rounds))

    def chunk_bytes(self, size_bytes: int) -> int:
        """Of a collective whose buffer at each rank has `size_bytes`: rounded up, as NCCL pads."""
        return -(-size_bytes // self.n_chunks)


def in_runs(*n_rounds: int) -> tuple[Run, ...]:
    """Runs of these lengths, one after the other; those of no round are left out."""
    begins = np.cumsum((0, *n_rounds))
    return tuple(Run(first=int(first), n_rounds=n) for first, n in zip(begins, n_rounds, strict=False) if n)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """All sends of a program in one table, with what each waits for."""

    sends: Sends
    round: NDArray[np.int32]
    after_first: NDArray[np.int64]  # [send + 1] -> where its part of `after` begins
    after: NDArray[np.int32]  # sends that must have arrived before


def schedule(program: Program) -> Schedule:
    """Every send waits for those that last wrote what it reads at its sender.

    Additions to one chunk may arrive in any order: a send that reads it waits for all of them.
    """
    rounds = list(program.rounds())
    sends = Sends.join(rounds)
    number = np.repeat(np.arange(len(rounds), dtype=np.int32), [len(one) for one in rounds])
    writers: dict[tuple[int, int], list[int]] = {}
    after: list[list[int]] = []
    begin = 0
    for one in rounds:
        after += [_needed(sends, at, writers) for at in range(begin, begin + len(one))]
        for at in range(begin, begin + len(one)):
            _note(sends, at, writers)
        begin += len(one)
    first = np.concatenate(([0], np.cumsum([len(needed) for needed in after]))).astype(np.int64)
    flat = np.array([send for needed in after for send in needed], np.int32)
    return Schedule(sends=sends, round=number, after_first=first, after=flat)


def _needed(sends: Sends, at: int, writers: dict[tuple[int, int], list[int]]) -> list[int]:
    rank, chunk, n = int(sends.src[at]), int(sends.src_chunk[at]), int(sends.n_chunks[at])
    return sorted({send for one in range(chunk, chunk + n) for send in writers.get((rank, one), ())})


def _note(sends: Sends, at: int, writers: dict[tuple[int, int], list[int]]) -> None:
    rank, chunk, n = int(sends.dst[at]), int(sends.dst_chunk[at]), int(sends.n_chunks[at])
    for one in range(chunk, chunk + n):
        if sends.add[at]:
            writers.setdefault((rank, one), []).append(at)
        else:
            writers[rank, one] = [at]
