r"""Trees as MPI libraries lay them, all of the buffer at once: a rank sends to one child after the other.

    binomial, radix 2            k-nomial, radix 4             binary

          0                            0                           0
       /  |  \                   / / / |  \  \                   /   \
      4   2   1                 1 2 3  4   8  12                1     2
     / \  |                            |   |   |               / \   / \
    6   5 3                            5.. 9.. 13..           3   5 4   6
    |
    7

A k-nomial tree of radix k is ceil(log_k n) levels high, and on each a rank sends to k - 1 children. Open MPI and
MVAPICH2 have radix 4 for broadcasts; the binary tree is numbered as Open MPI's, level by level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.schedules.program import Program, Sends
from weft.errors import ConfigError

RADIX = 4


def binomial_broadcast(n_ranks: int, root: int = 0) -> Program:
    """Return a broadcast in which every round doubles the ranks that have the data: 0 to 1, then both to 2 and 3."""

    def make_round(number: int) -> Sends:
        have = np.arange(min(1 << number, n_ranks - (1 << number)))
        return Sends.make(have, have + (1 << number), 0, add=False)

    return _rooted("binomial broadcast", Collective.BROADCAST, n_ranks, (n_ranks - 1).bit_length(), make_round, root)


def knomial_broadcast(n_ranks: int, root: int = 0, radix: int = RADIX) -> Program:
    """Return a broadcast down a k-nomial tree, to the largest subtrees first."""
    levels = _levels(n_ranks, radix)

    def make_round(number: int) -> Sends:
        child, parent = _knomial(n_ranks, radix, levels - 1 - number)
        return Sends.make(parent, child, 0, add=False)

    return _rooted("k-nomial broadcast", Collective.BROADCAST, n_ranks, levels, make_round, root)


def knomial_reduce(n_ranks: int, root: int = 0, radix: int = RADIX) -> Program:
    """Return a reduce up a k-nomial tree, from the smallest subtrees first."""

    def make_round(number: int) -> Sends:
        child, parent = _knomial(n_ranks, radix, number)
        return Sends.make(child, parent, 0, add=True)

    name = "binomial reduce" if radix == 2 else "k-nomial reduce"
    return _rooted(name, Collective.REDUCE, n_ranks, _levels(n_ranks, radix), make_round, root)


def binomial_reduce(n_ranks: int, root: int = 0) -> Program:
    """Return a reduce up a binomial tree."""
    return knomial_reduce(n_ranks, root, radix=2)


def binary_broadcast(n_ranks: int, root: int = 0) -> Program:
    """Return a broadcast down a binary tree, in one piece."""

    def make_round(number: int) -> Sends:
        child, parent = _binary(n_ranks, number)
        return Sends.make(parent, child, 0, add=False)

    return _rooted("binary broadcast", Collective.BROADCAST, n_ranks, n_ranks.bit_length() - 1, make_round, root)


def binary_reduce(n_ranks: int, root: int = 0) -> Program:
    """Return a reduce up a binary tree, in one piece."""
    levels = n_ranks.bit_length() - 1

    def make_round(number: int) -> Sends:
        child, parent = _binary(n_ranks, levels - 1 - number)
        return Sends.make(child, parent, 0, add=True)

    return _rooted("binary reduce", Collective.REDUCE, n_ranks, levels, make_round, root)


def in_order_binary_reduce(n_ranks: int, root: int = 0) -> Program:
    """Return a reduce up a binary tree of neighbours to the last rank, which sends it to the root.

    Below the last of s ranks are the one before it, which has the second half below it, and the last of the first half.
    """
    levels = _in_order(n_ranks)

    def make_round(number: int) -> Sends:
        if number == len(levels):
            return Sends.make(n_ranks - 1, 0, 0, add=False)
        child, parent = levels[-1 - number]
        return Sends.make(child, parent, 0, add=True)

    name = "in-order binary reduce"
    return _rooted(name, Collective.REDUCE, n_ranks, len(levels) + 1, make_round, root)


def linear_broadcast(n_ranks: int, root: int = 0) -> Program:
    """Return a broadcast in which the root sends to each rank."""
    rank = np.arange(1, n_ranks)
    sends = Sends.make(np.zeros_like(rank), rank, 0, add=False)
    return _rooted("linear broadcast", Collective.BROADCAST, n_ranks, 1, lambda _number: sends, root)


def linear_reduce(n_ranks: int, root: int = 0) -> Program:
    """Return a reduce in which all ranks send to the root."""
    sends = Sends.make(np.arange(1, n_ranks), 0, 0, add=True)
    return _rooted("linear reduce", Collective.REDUCE, n_ranks, 1, lambda _number: sends, root)


def linear_barrier(n_ranks: int) -> Program:
    """Return a barrier in which all ranks notify rank 0, which notifies all."""
    rank = np.arange(1, n_ranks)
    rounds = Sends.make(rank, 0, 0, add=True), Sends.make(np.zeros_like(rank), rank, 0, add=True)
    return Program.of("linear barrier", Collective.BARRIER, n_ranks, (1, 1), rounds.__getitem__, n_chunks=1)


def tree_barrier(n_ranks: int) -> Program:
    """Return a barrier up and down a binomial tree."""
    levels = _levels(n_ranks, 2)

    def make_round(number: int) -> Sends:
        child, parent = _knomial(n_ranks, 2, min(number, 2 * levels - 1 - number))
        return Sends.make(child, parent, 0, add=True) if number < levels else Sends.make(parent, child, 0, add=True)

    return Program.of("tree barrier", Collective.BARRIER, n_ranks, (1,) * (2 * levels), make_round, n_chunks=1)


def turned(program: Program, root: int) -> Program:
    """Rotate the ranks of a program for root 0, so that `root` is the root."""
    n = program.n_ranks
    if not 0 <= root < n:
        raise ConfigError(f"root {root} of {program.name} is not from 0 to {n - 1}")

    def make_round(number: int) -> Sends:
        sends = program.make_round(number)
        return replace(sends, src=(sends.src + root) % n, dst=(sends.dst + root) % n)

    return replace(program, make_round=make_round, root=root) if root else program


def _rooted(
    name: str, kind: Collective, n_ranks: int, n_rounds: int, make_round: Callable[[int], Sends], root: int
) -> Program:
    return turned(Program.of(name, kind, n_ranks, (1,) * n_rounds, make_round, n_chunks=1), root)


def _levels(n_ranks: int, radix: int) -> int:
    if radix < 2:
        raise ConfigError(f"a k-nomial tree of radix {radix}: give 2 or more")
    levels, reached = 0, 1
    while reached < n_ranks:
        levels, reached = levels + 1, reached * radix
    return levels


def _knomial(n_ranks: int, radix: int, level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return children and parents on one level: children whose lowest digit other than 0 is at this level."""
    place = radix**level
    child = np.arange(place, n_ranks, place)
    child = child[child // place % radix > 0]
    return child, child - child // place % radix * place


def _binary(n_ranks: int, level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return children on level + 1 and their parents: 1 and 2 below 0, then 3 and 5 below 1, 4 and 6 below 2."""
    width = 1 << level
    child = np.arange(2 * width - 1, min(4 * width - 1, n_ranks))
    return child, width - 1 + (child - (2 * width - 1)) % width


def _in_order(n_ranks: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return children and parents, level by level from the last rank down."""
    begin, size = np.array([0]), np.array([n_ranks])
    levels: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    while True:
        begin, size = begin[size > 1], size[size > 1]
        if not len(size):
            return levels
        parent, half = begin + size - 1, size // 2
        two = size > 2  # ranks below it that are more than one
        levels.append((np.concatenate((parent - 1, (begin + half - 1)[two])), np.concatenate((parent, parent[two]))))
        begin = np.concatenate((np.where(two, begin + half, begin), begin[two]))
        size = np.concatenate((np.where(two, size - half, size) - 1, half[two]))
