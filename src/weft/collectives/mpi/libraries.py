"""The algorithms of MPI libraries for collectives: Open MPI's and MVAPICH2's own rules, as data.

    tuned(Collective.ALL_REDUCE, nodes=4, ppn=36, size_bytes=8)

The rules are `openmpi.toml` and `mvapich2.toml`; here is what their words mean, and what a library does instead where
its own choice cannot be: a ring of fewer elements than ranks, neighbours of an odd number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import msgspec
import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.mpi.clock import Step
from weft.collectives.mpi.message import Rules
from weft.collectives.schedules.folded import (
    folded_doubling_all_reduce,
    folded_doubling_barrier,
    rabenseifner_all_reduce,
    rabenseifner_reduce,
    scatter_broadcast,
)
from weft.collectives.schedules.knomial import (
    binary_broadcast,
    binary_reduce,
    binomial_broadcast,
    binomial_reduce,
    in_order_binary_reduce,
    knomial_broadcast,
    knomial_reduce,
    linear_barrier,
    linear_broadcast,
    linear_reduce,
    tree_barrier,
)
from weft.collectives.schedules.leaders import with_leaders
from weft.collectives.schedules.neighbour import neighbour_all_gather
from weft.collectives.schedules.pat import bruck_all_gather
from weft.collectives.schedules.program import Program, Sends
from weft.collectives.schedules.recursive import dissemination_barrier, doubling_all_gather, pairwise_all_to_all
from weft.collectives.schedules.ring import chain_broadcast, chain_reduce, ring_all_gather, ring_all_reduce
from weft.errors import find_named
from weft.fabric.rates import Sourced, read_data

ELEMENT_BYTES = 4  # reductions of OSU's programs
_ALL_REDUCE, _REDUCE, _BROADCAST = Collective.ALL_REDUCE, Collective.REDUCE, Collective.BROADCAST
_ALL_GATHER, _ALL_TO_ALL, _BARRIER = Collective.ALL_GATHER, Collective.ALL_TO_ALL, Collective.BARRIER


class BySize(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule of Open MPI."""

    take: tuple[str, ...]
    bytes_below: tuple[int, ...] = ()
    ranks_below: int = 1 << 62


class ByLetter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of a table of MVAPICH2."""

    ppn: int
    ranks: int
    from_bytes: int
    take: str


class Library(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file of an MPI library, with one kind of rules."""

    name: str
    eager_bytes: int
    tcp_eager_bytes: int
    handshakes: int
    rules: dict[Collective, tuple[dict[str, object], ...]]

    def message_rules(self, *, cached: bool = True) -> Rules:
        return Rules(
            eager_bytes=self.eager_bytes,
            tcp_eager_bytes=self.tcp_eager_bytes,
            handshakes=self.handshakes,
            cached=cached,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The algorithm of a library for a collective of one size."""

    name: str  # as the library calls it
    steps: tuple[Step, ...]


@cache
def _read(file: str) -> Library:
    return msgspec.convert({**read_data("weft.collectives.mpi", f"{file}.toml"), "name": file}, Library)


LIBRARIES = ("openmpi", "mvapich2")


def library(name: str) -> Library:
    return _read(find_named("MPI library", name, {each: each for each in LIBRARIES}))


# -- Open MPI ---------------------------------------------------------------------------------------------------------


def open_mpi_word(kind: Collective, n_ranks: int, size_bytes: int) -> str:
    """Return the word of Open MPI's rules for a collective."""
    rules = msgspec.convert(library("openmpi").rules[kind], tuple[BySize, ...])
    rule = next(each for each in rules if n_ranks < each.ranks_below)
    return rule.take[sum(size_bytes >= limit for limit in rule.bytes_below)]


def tuned(kind: Collective, nodes: int, ppn: int, size_bytes: int) -> Choice:
    """Return the choice of Open MPI's coll/tuned, which does not consider nodes."""
    n = nodes * ppn
    word = open_mpi_word(kind, n, size_bytes)
    if word == "nonoverlapping":
        parts = [tuned(part, nodes, ppn, size_bytes) for part in (_REDUCE, _BROADCAST)]
        names = " + ".join(f"{part.name} {suffix}" for part, suffix in zip(parts, ("reduce", "bcast"), strict=True))
        return Choice(name=f"nonoverlapping: {names}", steps=parts[0].steps + parts[1].steps)
    few = size_bytes // ELEMENT_BYTES < (1 << (n.bit_length() - 1))
    if kind is _ALL_REDUCE and word == "rabenseifner" and few:
        steps = (
            Step(program=linear_reduce(n), size_bytes=size_bytes),
            Step(program=linear_broadcast(n), size_bytes=size_bytes),
        )
        return Choice(name="basic_linear", steps=steps)
    if kind is _ALL_REDUCE and word in ("ring", "segmented_ring") and size_bytes // ELEMENT_BYTES < n:
        word = "recursive_doubling"
    if kind is _REDUCE and word == "rabenseifner" and few:
        word = "linear"
    if kind is _BROADCAST and word == "scatter_allgather" and size_bytes < n:
        word = "basic_linear"
    if kind is _ALL_GATHER and word == "recursive_doubling" and n & (n - 1):
        word = "bruck"
    if kind is _ALL_GATHER and word == "neighbor" and n % 2:
        word = "ring"
    overlapped = kind is _ALL_TO_ALL and word in ("linear", "linear_sync")
    return Choice(name=word, steps=(step_of(_OPEN_MPI[kind][word](n), size_bytes, overlapped=overlapped),))


def step_of(program: Program, size_bytes: int, *, overlapped: bool = False, by_level: bool = False) -> Step:
    """Return a step; a program with a part of each rank counts the bytes of all."""
    parts = program.n_ranks if program.collective in (_ALL_GATHER, _ALL_TO_ALL) else 1
    return Step(program=program, size_bytes=size_bytes * parts, overlapped=overlapped, by_level=by_level)


def bruck_messages(n_ranks: int) -> Program:
    """Return the messages of Bruck's all-to-all, one from each rank in a round, without their parts.

    With parts, as in `bruck_all_to_all`, a program has a row for each: too many for thousands of ranks.
    """
    rank = np.arange(n_ranks)

    def make_round(number: int) -> Sends:
        bit = 1 << number
        whole, rest = divmod(n_ranks, 2 * bit)
        return Sends.make(rank, (rank + bit) % n_ranks, 0, n=whole * bit + max(rest - bit, 0), add=False)

    runs = (1,) * (n_ranks - 1).bit_length()
    return Program.of("Bruck all-to-all", _ALL_TO_ALL, n_ranks, runs, make_round)


_chain_bcast, _chain_reduce = partial(chain_broadcast, slices=1), partial(chain_reduce, slices=1)
_OPEN_MPI: dict[Collective, dict[str, Callable[[int], Program]]] = {
    _ALL_REDUCE: {
        "recursive_doubling": folded_doubling_all_reduce,
        "ring": ring_all_reduce,
        "segmented_ring": ring_all_reduce,
        "rabenseifner": rabenseifner_all_reduce,
    },
    _REDUCE: {
        "linear": linear_reduce,
        "chain": _chain_reduce,
        "pipeline": _chain_reduce,
        "binary": binary_reduce,
        "in-order_binary": in_order_binary_reduce,
        "binomial": binomial_reduce,
        "rabenseifner": rabenseifner_reduce,
    },
    _BROADCAST: {
        "basic_linear": linear_broadcast,
        "chain": _chain_bcast,
        "pipeline": _chain_bcast,
        "binary_tree": binary_broadcast,
        "split_binary_tree": binary_broadcast,
        "binomial": binomial_broadcast,
        "knomial": knomial_broadcast,
        "scatter_allgather": scatter_broadcast,
    },
    _ALL_GATHER: {
        "two_proc": doubling_all_gather,
        "recursive_doubling": doubling_all_gather,
        "bruck": bruck_all_gather,
        "neighbor": neighbour_all_gather,
        "ring": ring_all_gather,
    },
    _ALL_TO_ALL: {
        "two_proc": pairwise_all_to_all,
        "pairwise": pairwise_all_to_all,
        "linear": pairwise_all_to_all,
        "linear_sync": pairwise_all_to_all,
        "modified_bruck": bruck_messages,
    },
    _BARRIER: {
        "linear": linear_barrier,
        "recursive_doubling": folded_doubling_barrier,
        "bruck": dissemination_barrier,
        "tree": tree_barrier,
    },
}


# -- MVAPICH2 ---------------------------------------------------------------------------------------------------------


def mvapich2_letter(kind: Collective, n_ranks: int, ppn: int, size_bytes: int) -> str:
    """Return the letter of MVAPICH2's tables for a collective."""
    table = msgspec.convert(library("mvapich2").rules[kind], tuple[ByLetter, ...])
    sizes = sorted({row.ppn for row in table})
    per_node = next((each for each in sizes if each >= ppn), sizes[-1])
    rows = [row for row in table if row.ppn == per_node]
    row = max((row for row in rows if row.ranks <= n_ranks), key=lambda row: row.ranks, default=rows[0])
    place = (size_bytes // row.from_bytes).bit_length() - 1
    return row.take[min(max(place, 0), len(row.take) - 1)]


def mvapich2(kind: Collective, nodes: int, ppn: int, size_bytes: int) -> Choice:
    n = nodes * ppn
    if kind is _BARRIER:
        return _by_leaders("pairwise", folded_doubling_barrier, nodes, ppn, 0)
    letter = mvapich2_letter(kind, n, ppn, size_bytes)
    if kind is _REDUCE and letter in "aA":
        return mvapich2(_ALL_REDUCE, nodes, ppn, size_bytes)
    name, write = _MVAPICH2[kind][letter.lower()]
    two_levels = letter.isupper() and ppn > 1 and nodes > 1
    of = nodes if two_levels else n
    few = size_bytes // ELEMENT_BYTES < (1 << (of.bit_length() - 1))
    if few and kind is _ALL_REDUCE:
        name, write = _MVAPICH2[kind]["d"]
    if few and kind is _REDUCE and letter in "sS":
        name, write = _MVAPICH2[kind]["b"]
    if size_bytes < of and kind is _BROADCAST and letter in "dDrR":
        name, write = _MVAPICH2[kind]["b"]
    if kind is _ALL_GATHER and letter == "d" and n & (n - 1):
        name, write = _MVAPICH2[kind]["b"]
    if two_levels:
        return _by_leaders(name, write, nodes, ppn, size_bytes)
    overlapped = kind is _ALL_TO_ALL and letter == "l"
    return Choice(name=name, steps=(step_of(write(n), size_bytes, overlapped=overlapped),))


def _by_leaders(name: str, write: Callable[[int], Program], nodes: int, ppn: int, size_bytes: int) -> Choice:
    if ppn == 1 or nodes == 1:
        return Choice(name=name, steps=(step_of(write(nodes * ppn), size_bytes),))
    whole = with_leaders(write(nodes), ppn, up=knomial_reduce(ppn), down=knomial_broadcast(ppn))
    return Choice(name=f"two-level {name}", steps=(step_of(whole, size_bytes, by_level=True),))


_MVAPICH2: dict[Collective, dict[str, tuple[str, Callable[[int], Program]]]] = {
    _ALL_REDUCE: {
        "d": ("recursive doubling", folded_doubling_all_reduce),
        "s": ("reduce-scatter and all-gather", rabenseifner_all_reduce),
        "r": ("ring", ring_all_reduce),
    },
    _BROADCAST: {
        "b": ("binomial", binomial_broadcast),
        "k": ("k-nomial", knomial_broadcast),
        "d": ("scatter, doubling all-gather", scatter_broadcast),
        "r": ("scatter, ring all-gather", partial(scatter_broadcast, ring=True)),
        "p": ("pipelined k-nomial", knomial_broadcast),
    },
    _ALL_TO_ALL: {
        "h": ("recursive doubling", bruck_messages),
        "b": ("Bruck", bruck_messages),
        "l": ("scatter destinations", pairwise_all_to_all),
        "p": ("pairwise", pairwise_all_to_all),
    },
    _ALL_GATHER: {
        "d": ("recursive doubling", doubling_all_gather),
        "b": ("Bruck", bruck_all_gather),
        "r": ("ring", ring_all_gather),
    },
    _REDUCE: {
        "b": ("binomial", binomial_reduce),
        "k": ("k-nomial", knomial_reduce),
        "s": ("reduce-scatter and gather", rabenseifner_reduce),
    },
}
