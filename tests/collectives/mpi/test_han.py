"""Open MPI's coll/han, by its source (v5.0.8), and how segments follow each other."""

from __future__ import annotations

import pytest

from weft.collectives.kinds import Collective
from weft.collectives.mpi import clock
from weft.collectives.mpi.choose import choose, find_coll
from weft.collectives.mpi.clock import Part, Step
from weft.collectives.mpi.han import han
from weft.collectives.mpi.interconnect import FabricInterconnect
from weft.collectives.mpi.libraries import library
from weft.collectives.mpi.message import Messages
from weft.collectives.ranks import place
from weft.collectives.schedules.check import check
from weft.errors import ConfigError, UnknownName
from weft.fabric.spec import load
from weft.sim.engine import Options
from weft.sim.perftest import prepare

TAKEN = (
    Collective.ALL_REDUCE,
    Collective.REDUCE,
    Collective.BROADCAST,
    Collective.BARRIER,
    Collective.ALL_GATHER,
)


@pytest.mark.parametrize(("nodes", "ppn"), [(2, 4), (3, 5), (5, 3), (6, 2), (2, 20)])
@pytest.mark.parametrize("kind", TAKEN)
def test_han_programs_compute_the_collective(kind, nodes, ppn):
    for size in (4, 8192, 1 << 20) if kind is not Collective.BARRIER else (0,):
        choice = han(kind, nodes, ppn, size)
        assert choice is not None
        (step,) = choice.steps
        check(step.program)
        assert step.program.n_ranks == nodes * ppn
        assert sum(part.n_rounds for part in step.parts) in (0, step.program.n_rounds)


@pytest.mark.parametrize(
    ("kind", "nodes", "ppn", "size", "name"),
    [  # inside by coll_tuned_decision_fixed.c of so many ranks, between by nbc_ireduce.c and nbc_ibcast.c
        ("all_reduce", 4, 36, 8, "han: binomial | binomial and linear | binomial"),  # two elements of four nodes
        ("all_reduce", 4, 36, 16, "han: binomial | rabenseifner and linear | binomial"),
        ("all_reduce", 5, 36, 4096, "han: binomial | rabenseifner and binomial | knomial"),
        ("all_reduce", 2, 36, 4096, "han: binomial | binomial and linear | knomial"),
        ("reduce", 8, 36, 4096, "han: binomial | rabenseifner"),
        ("broadcast", 8, 36, 16, "han: | binary_tree | binomial"),
        ("barrier", 8, 36, 0, "han: recursive_doubling | recursive_doubling | recursive_doubling"),
        ("all_gather", 8, 36, 16, "han: binomial | recursive_doubling | knomial"),
    ],
)
def test_its_choices(kind, nodes, ppn, size, name):
    choice = han(Collective(kind), nodes, ppn, size)
    assert choice is not None
    assert choice.name == name


def test_it_leaves_to_tuned_what_has_no_two_levels():
    ompi = library("openmpi")
    for kind, nodes, ppn in (
        (Collective.ALL_REDUCE, 1, 8),
        (Collective.ALL_REDUCE, 8, 1),
        (Collective.ALL_TO_ALL, 4, 4),
    ):
        left, usual = (choose(ompi, kind, nodes=nodes, ppn=ppn, size_bytes=64, coll=coll) for coll in ("han", "tuned"))
        assert left.name == usual.name
    assert choose(ompi, Collective.ALL_REDUCE, nodes=4, ppn=4, size_bytes=64).name == "recursive_doubling"


def test_longer_ones_go_in_segments_of_64_kib():
    (whole,) = han(Collective.ALL_REDUCE, 4, 8, 65_536).steps
    (longer,) = han(Collective.ALL_REDUCE, 4, 8, 65_540).steps
    (many,) = han(Collective.ALL_REDUCE, 4, 8, 1 << 20).steps
    assert [(step.segments, step.size_bytes) for step in (whole, longer, many)] == [
        (1, 65_536),
        (2, 65_536),
        (16, 65_536),
    ]


def test_a_segment_follows_when_the_longest_part_is_free():
    ranks = place(prepare(load("star:hosts=4,server=host-hdr")))
    messages = Messages(
        interconnect=FabricInterconnect(ranks=ranks, ppn=2, options=Options()), rules=library("openmpi").message_rules()
    )
    choice = han(Collective.ALL_REDUCE, 4, 2, 65_536)
    assert choice is not None
    (item,) = choice.steps

    def ends(segments: int, parts: tuple[Part, ...] = item.parts) -> float:
        step = Step(program=item.program, size_bytes=65_536, segments=segments, parts=parts, by_level=True)
        return float(clock.run((step,), messages).max())

    assert ends(3) - ends(2) == pytest.approx(ends(2) - ends(1))
    rounds = sum(part.n_rounds for part in item.parts)

    def follows_us(*inside: bool) -> float:
        """Return the time between segments whose first round and other rounds are inside nodes or between them."""
        parts = tuple(Part(n_rounds=n, inside=where) for n, where in zip((1, rounds - 1), inside, strict=False))
        return ends(3, parts) - ends(2, parts)

    first, rest = follows_us(True), follows_us(True, True) - follows_us(True)
    assert 0 < first < rest
    assert follows_us(True, True) == pytest.approx(ends(1))  # the processes do one after the other
    assert follows_us(True, False) == follows_us(False, False) == pytest.approx(rest)  # the longer one
    assert follows_us(False, True) == pytest.approx(rest)


def test_components_are_found_by_name_and_are_open_mpis():
    assert find_coll(library("openmpi"), "") == "tuned"
    assert find_coll(library("openmpi"), "HAN") == "han"
    assert find_coll(library("mvapich2"), "") == ""
    with pytest.raises(ConfigError, match="--coll hcoll: its choices are not written down"):
        find_coll(library("openmpi"), "hcoll")
    with pytest.raises(ConfigError, match="components are Open MPI's"):
        find_coll(library("mvapich2"), "han")
    with pytest.raises(UnknownName, match="tuned"):
        find_coll(library("openmpi"), "tunned")
