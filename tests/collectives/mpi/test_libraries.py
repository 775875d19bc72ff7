"""The algorithm that a library selects by its own rules."""

from __future__ import annotations

import pytest

from weft.collectives.kinds import Collective
from weft.collectives.mpi.choose import choose
from weft.collectives.mpi.clock import _joined
from weft.collectives.mpi.libraries import (
    LIBRARIES,
    bruck_messages,
    library,
    mvapich2_letter,
    open_mpi_word,
)
from weft.collectives.schedules.all_to_all import bruck_all_to_all
from weft.collectives.schedules.check import check
from weft.errors import UnknownName

KINDS = tuple(library("openmpi").rules)


@pytest.mark.parametrize(
    ("kind", "ranks", "size", "word"),
    [  # as coll_tuned_decision_fixed.c of v5.0.9 reads; sizes at both sides of a limit
        ("all_reduce", 2, 7, "ring"),
        ("all_reduce", 2, 8, "recursive_doubling"),
        ("all_reduce", 63, 127, "segmented_ring"),
        ("all_reduce", 63, 128, "rabenseifner"),
        ("all_reduce", 64, 262_143, "recursive_doubling"),
        ("all_reduce", 255, 131_072, "recursive_doubling"),
        ("all_reduce", 384, 4095, "nonoverlapping"),
        ("all_reduce", 5000, 16_384, "recursive_doubling"),
        ("broadcast", 16, 1 << 20, "scatter_allgather"),
        ("broadcast", 128, 16_384, "basic_linear"),
        ("broadcast", 64, 1, "knomial"),
        ("reduce", 300, 8192, "in-order_binary"),
        ("all_gather", 2, 1, "two_proc"),
        ("all_gather", 40, 1024, "neighbor"),
        ("all_to_all", 2, 300_000, "two_proc"),
        ("all_to_all", 100, 1023, "modified_bruck"),
        ("barrier", 7, 0, "linear"),
        ("barrier", 300, 0, "tree"),
    ],
)
def test_open_mpis_fixed_rules(kind, ranks, size, word):
    assert open_mpi_word(Collective(kind), ranks, size) == word


@pytest.mark.parametrize(
    ("kind", "ranks", "ppn", "size", "letter"),
    [  # as the tables of 2.3.7 for EDR and HDR have it
        ("all_reduce", 2, 1, 1, "s"),
        ("all_reduce", 32, 1, 512 << 10, "r"),
        ("all_reduce", 48, 16, 32, "D"),
        ("all_reduce", 448, 28, 8192, "D"),
        ("all_reduce", 10_000, 64, 8192, "D"),
        ("all_to_all", 16, 1, 256, "b"),
        ("all_gather", 16, 1, 16_384, "r"),
    ],
)
def test_mvapich2s_tables(kind, ranks, ppn, size, letter):
    assert mvapich2_letter(Collective(kind), ranks, ppn, size) == letter


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(("nodes", "ppn"), [(2, 1), (5, 1), (4, 4), (3, 5), (1, 6)])
def test_every_choice_computes_its_collective(name, nodes, ppn):
    chosen = library(name)
    for kind in KINDS:
        for size in (4, 256, 8192, 1 << 20):
            for step in choose(chosen, kind, nodes=nodes, ppn=ppn, size_bytes=size).steps:
                assert step.program.n_ranks == nodes * ppn
                if step.program.name != "Bruck all-to-all":  # only its messages are written down
                    check(step.program)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(("nodes", "ppn"), [(2, 1), (4, 4)])
def test_a_barrier_has_no_bytes(name, nodes, ppn):
    choice = choose(library(name), Collective.BARRIER, nodes=nodes, ppn=ppn, size_bytes=0)
    assert {step.size_bytes for step in choice.steps} == {0}


def test_a_library_falls_back_where_its_own_choice_cannot_be():
    ompi = library("openmpi")
    few = choose(ompi, Collective.ALL_REDUCE, nodes=40, ppn=1, size_bytes=64)
    assert few.name == "recursive_doubling"  # a ring of sixteen elements in forty parts
    odd = choose(ompi, Collective.ALL_GATHER, nodes=45, ppn=1, size_bytes=8192)
    assert odd.name == "ring"
    three = choose(ompi, Collective.ALL_GATHER, nodes=3, ppn=1, size_bytes=8)
    assert three.name == "bruck"


def test_nonoverlapping_is_a_reduction_and_a_broadcast_by_their_own_rules():
    choice = choose(library("openmpi"), Collective.ALL_REDUCE, nodes=4, ppn=36, size_bytes=8)
    assert choice.name == "nonoverlapping: binomial reduce + binary_tree bcast"
    assert [step.program.collective for step in choice.steps] == [Collective.REDUCE, Collective.BROADCAST]


@pytest.mark.parametrize("n_ranks", [2, 3, 6, 8, 13])
def test_the_messages_of_bruck_are_those_of_its_program(n_ranks):
    whole, short = bruck_all_to_all(n_ranks), bruck_messages(n_ranks)
    assert whole.n_rounds == short.n_rounds
    for number in range(short.n_rounds):
        item, other = _joined(whole.make_round(number), n_ranks), short.make_round(number)
        assert item.dst.tolist() == other.dst.tolist()
        assert item.n_chunks.tolist() == other.n_chunks.tolist()


def test_an_unknown_library_is_told_the_known_ones():
    with pytest.raises(UnknownName, match="openmpi"):
        library("openmp")
