"""Proof of a program: execute it on symbols, and compare the result of every rank.

A symbol stands for the initial contents of one chunk of one rank. Each symbol is a random 62-bit number, so that two
different sums are equal with a probability of 2 to the -62, whatever the program. For a wrong sum, that chunk is
executed again with counts, to report the error.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.schedules.program import Program, Sends
from weft.errors import ConfigError


class WrongProgram(ConfigError):
    """An error for a program that does not compute its collective, with the first wrong rank and chunk."""

    def __init__(self, message: str, rank: int, chunk: int) -> None:
        super().__init__(message)
        self.rank, self.chunk = rank, chunk


def check(program: Program) -> None:
    """Raise WrongProgram with the first wrong chunk and rank."""
    if program.collective is Collective.BARRIER:
        _check_barrier(program)
        return
    n, chunks = program.n_ranks, program.n_chunks
    random = np.random.default_rng(0xC0FFEE)
    symbols = random.integers(1, 1 << 62, (n, chunks), np.int64)  # [rank, chunk]
    held = np.zeros((n + program.n_reducers, chunks), np.int64)
    held[:n] = np.where(begins_with(program), symbols, random.integers(1, 1 << 62, (n, chunks), np.int64))
    for number, sends in enumerate(program.rounds()):
        _refuse_bad_sends(program, number, sends)
        _execute(held, sends)
    expected, matters = _ends_with(program, symbols)
    wrong = np.argwhere(matters & (held[:n] != expected))
    if len(wrong):
        rank, chunk = (int(value) for value in wrong[0])
        raise WrongProgram(
            f"{program.name} of {n} ranks is wrong: at the end chunk {chunk} of rank {rank} "
            f"{_tell(program, rank, chunk)}; {len(wrong):,} of {int(matters.sum()):,} chunks are wrong",
            rank,
            chunk,
        )


def _check_barrier(program: Program) -> None:
    """Check that every rank has a message, directly or not, from every rank."""
    n = program.n_ranks
    heard = np.eye(n + program.n_reducers, n, dtype=np.bool_)  # [rank, rank]
    for number, sends in enumerate(program.rounds()):
        _refuse_bad_sends(program, number, sends)
        news = heard[sends.src]
        np.logical_or.at(heard, sends.dst, news)
    deaf = np.argwhere(~heard[:n])
    if len(deaf):
        rank, other = (int(value) for value in deaf[0])
        raise WrongProgram(f"{program.name} of {n} ranks is wrong: rank {rank} does not hear from {other}", rank, 0)


def begins_with(program: Program) -> NDArray[np.bool_]:
    """Return whether a rank's chunk has data at the beginning: [rank, chunk]."""
    present = np.zeros((program.n_ranks, program.n_chunks), np.bool_)
    parts = present[:, : program.n_parts]
    if program.collective in (Collective.ALL_GATHER, Collective.GATHER):
        parts[:] = _blocks(*parts.shape)
    elif program.collective in (Collective.BROADCAST, Collective.SCATTER):
        parts[program.root] = True
    else:
        parts[:] = True
    return present


def _ends_with(program: Program, symbols: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the expected contents, and whether they are checked: [rank, chunk]."""
    n, parts, kind = program.n_ranks, program.n_parts, program.collective
    expected, matters = np.zeros_like(symbols), np.zeros(symbols.shape, np.bool_)
    begun = symbols[:, :parts]
    if kind in (Collective.ALL_TO_ALL, Collective.SEND_RECV):  # received after what is sent
        if program.n_beside < parts:
            raise ConfigError(
                f"{program.name} has no room for {parts} chunks that a rank receives: give n_beside={parts}"
            )
        received = slice(parts, 2 * parts)
        if kind is Collective.SEND_RECV:
            expected[:, received], matters[:, received] = np.roll(begun, 1, axis=0), True
        else:
            expected[:, received] = begun.reshape(n, n, -1).transpose(1, 0, 2).reshape(n, parts)
            matters[:, received] = ~_blocks(n, parts)  # a rank's own part is copied, not sent
        return expected, matters
    if kind in (Collective.ALL_GATHER, Collective.GATHER):
        expected[:, :parts] = begun[np.arange(parts) * n // parts, np.arange(parts)]
    elif kind in (Collective.BROADCAST, Collective.SCATTER):
        expected[:, :parts] = begun[program.root]
    else:
        expected[:, :parts] = begun.sum(axis=0)
    if kind in (Collective.REDUCE_SCATTER, Collective.SCATTER):
        matters[:, :parts] = _blocks(n, parts)
    elif kind in (Collective.REDUCE, Collective.GATHER):
        matters[program.root, :parts] = True
    else:
        matters[:, :parts] = True
    return expected, matters


def _blocks(n_ranks: int, n_chunks: int) -> NDArray[np.bool_]:
    """Return whether a chunk is in the rank's own part of the buffer: [rank, chunk]."""
    owned: NDArray[np.bool_] = np.arange(n_ranks)[:, None] == (np.arange(n_chunks) * n_ranks // n_chunks)[None, :]
    return owned


def _execute(held: NDArray[np.int64], sends: Sends) -> None:
    """Execute one round: all reads happen before all writes."""
    row, src_chunk, dst_chunk = sends.chunks()
    read = held[sends.src[row], src_chunk]
    to = sends.dst[row], dst_chunk
    add = sends.add[row]
    held[to[0][~add], to[1][~add]] = read[~add]
    with np.errstate(over="ignore"):  # sums of symbols are modulo 2**64
        np.add.at(held, (to[0][add], to[1][add]), read[add])


def _refuse_bad_sends(program: Program, number: int, sends: Sends) -> None:
    n = program.n_ranks + program.n_reducers
    outside = (np.minimum(sends.src, sends.dst) < 0) | (np.maximum(sends.src, sends.dst) >= n)
    lowest = np.minimum(sends.src_chunk, sends.dst_chunk)
    highest = np.maximum(sends.src_chunk, sends.dst_chunk) + (sends.n_chunks - 1) * sends.stride
    past = (lowest < 0) | (highest >= program.n_chunks) | (sends.n_chunks < 1) | (sends.stride < 1)
    if (bad := np.flatnonzero(outside | past | (sends.src == sends.dst))).size:
        row = int(bad[0])
        apart = f", {sends.stride[row]} apart," if sends.stride[row] != 1 else ""
        raise ConfigError(
            f"{program.name}: in round {number} rank {sends.src[row]} sends {sends.n_chunks[row]} chunks from "
            f"{sends.src_chunk[row]} on{apart} to rank {sends.dst[row]}: "
            f"there are {n} ranks and {program.n_chunks} chunks, and no rank sends to itself"
        )


def _tell(program: Program, rank: int, chunk: int) -> str:
    """Describe a wrong chunk by counting: the parts that are missing or repeated."""
    held: dict[tuple[int, int], Counter[tuple[int, int]]] = {}
    initial = begins_with(program)
    for sends in program.rounds():
        moves = [tuple(int(value) for value in each) for each in zip(*sends.chunks(), strict=True)]
        read = [_get(held, initial, int(sends.src[row]), src_chunk) for row, src_chunk, _ in moves]
        for (row, _, dst_chunk), value in zip(moves, read, strict=True):
            to = int(sends.dst[row]), dst_chunk
            held[to] = _get(held, initial, *to) + value if sends.add[row] else Counter(value)
    content = _get(held, initial, rank, chunk)
    reduces = program.collective in (Collective.ALL_REDUCE, Collective.REDUCE, Collective.REDUCE_SCATTER)
    missing = [each for each in range(program.n_ranks) if (each, chunk) not in content] if reduces else []
    twice = [each for (each, _), count in content.items() if count > 1]
    parts = (
        [f"lacks the part of rank {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else "")]
        if missing
        else []
    )
    parts += [f"has the part of rank {twice[0]} {content[twice[0], chunk]} times"] if twice else []
    return ", ".join(parts) or f"holds {_name(content)}"


def _get(
    held: dict[tuple[int, int], Counter[tuple[int, int]]], initial: NDArray[np.bool_], rank: int, chunk: int
) -> Counter[tuple[int, int]]:
    if (rank, chunk) in held:
        return held[rank, chunk]
    return Counter({(rank, chunk): 1}) if rank < len(initial) and initial[rank, chunk] else Counter()


def _name(content: Counter[tuple[int, int]]) -> str:
    return " + ".join(f"chunk {chunk} of rank {rank}" for rank, chunk in sorted(content)) or "nothing"
