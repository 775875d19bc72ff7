"""The algorithms of MPI libraries: each computes its collective with its known amount of data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.collectives.schedules.check import WrongProgram, check
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
from weft.collectives.schedules.ring import ring_all_gather
from weft.errors import ConfigError

ROOTED = (
    binomial_broadcast,
    knomial_broadcast,
    binary_broadcast,
    linear_broadcast,
    scatter_broadcast,
    binomial_reduce,
    knomial_reduce,
    binary_reduce,
    in_order_binary_reduce,
    linear_reduce,
    rabenseifner_reduce,
)
OF_ALL = (
    folded_doubling_all_reduce,
    rabenseifner_all_reduce,
    folded_doubling_barrier,
    linear_barrier,
    tree_barrier,
)


@settings(max_examples=40, deadline=None)
@given(write=st.sampled_from(ROOTED), n_ranks=st.integers(2, 40), root=st.integers(0, 39))
def test_a_program_with_a_root_computes_its_collective_for_any_number_of_ranks(write, n_ranks, root):
    check(write(n_ranks, root % n_ranks))


@settings(max_examples=30, deadline=None)
@given(write=st.sampled_from(OF_ALL), n_ranks=st.integers(2, 70))
def test_a_program_of_all_computes_its_collective_for_any_number_of_ranks(write, n_ranks):
    check(write(n_ranks))


@pytest.mark.parametrize("n_ranks", [2, 4, 6, 10, 16, 34])
def test_neighbours_gather_in_half_the_rounds_of_a_ring_and_send_as_much(n_ranks):
    result = neighbour_all_gather(n_ranks)
    check(result)
    assert result.n_rounds == n_ranks // 2
    sent = sum(int(item.n_chunks.sum()) for item in result.rounds())
    assert sent == sum(int(item.n_chunks.sum()) for item in ring_all_gather(n_ranks).rounds())


def test_an_odd_number_has_no_neighbours_for_all():
    with pytest.raises(ConfigError, match="even number of ranks, not 5: use a ring"):
        neighbour_all_gather(5)


@pytest.mark.parametrize("ppn", [2, 3, 8])
@pytest.mark.parametrize(
    "write",
    [rabenseifner_all_reduce, folded_doubling_barrier, scatter_broadcast, binomial_reduce],
    ids=lambda write: write.__name__,
)
def test_leaders_speak_for_their_nodes(write, ppn):
    result = with_leaders(write(6), ppn, up=knomial_reduce(ppn), down=knomial_broadcast(ppn))
    check(result)
    crossing = [item for item in result.rounds() if (item.src // ppn != item.dst // ppn).any()]
    assert all((item.src % ppn == 0).all() and (item.dst % ppn == 0).all() for item in crossing)


def test_leaders_need_programs_of_their_own_nodes():
    with pytest.raises(ConfigError, match="must be of 4 ranks"):
        with_leaders(rabenseifner_all_reduce(2), 4, up=knomial_reduce(3), down=knomial_broadcast(4))
    with pytest.raises(ConfigError, match="leaders reduce, broadcast or meet"):
        with_leaders(ring_all_gather(2), 4, up=knomial_reduce(4), down=knomial_broadcast(4))


def test_a_k_nomial_tree_is_as_high_as_its_radix_says_and_its_root_sends_most():
    assert [knomial_broadcast(64, radix=radix).n_rounds for radix in (2, 4, 8)] == [6, 3, 2]
    sends = [int((item.src == 0).sum()) for item in knomial_broadcast(64).rounds()]
    assert sends == [3, 3, 3]
    with pytest.raises(ConfigError, match="radix 1: give 2 or more"):
        knomial_broadcast(8, radix=1)


@pytest.mark.parametrize("n_ranks", [2, 7, 12, 15, 31])
def test_the_binary_tree_is_open_mpis(n_ranks):
    """ompi_coll_base_topo_build_tree with a fanout of 2: the children of a rank on a level of w are w and 2 w after."""
    parents = {}
    for number in range((program := binary_broadcast(n_ranks)).n_rounds):
        sends = program.make_round(number)
        parents |= dict(zip(sends.dst.tolist(), sends.src.tolist(), strict=True))
    expected = {}
    for rank in range(n_ranks):
        width = 1 << ((rank + 1).bit_length() - 1)
        expected |= {child: rank for child in (rank + width, rank + 2 * width) if child < n_ranks}
    assert parents == expected


def test_halving_begins_with_the_nearest_so_that_what_goes_far_is_small():
    distances = [
        (int(np.abs(item.src - item.dst).max()), int(item.n_chunks[0])) for item in rabenseifner_all_reduce(16).rounds()
    ]
    assert distances[:4] == [(1, 8), (2, 4), (4, 2), (8, 1)]
    assert distances[4:] == distances[3::-1]


def test_surplus_ranks_send_to_a_neighbour_and_receive_the_result():
    first, *_, last = rabenseifner_all_reduce(6).rounds()
    assert (first.src.tolist(), first.dst.tolist()) == ([1, 3], [0, 2])
    assert (last.src.tolist(), last.dst.tolist()) == ([0, 2], [1, 3])
    assert rabenseifner_all_reduce(8).n_rounds == 6


def test_a_program_that_forgets_them_is_found_out():
    result = folded_doubling_all_reduce(6)
    with pytest.raises(WrongProgram, match="rank"):
        check(replace(result, runs=result.runs[:-1]))


@pytest.mark.parametrize("n_ranks", [2, 3, 4, 7, 8, 13, 144])
def test_the_in_order_binary_tree_is_open_mpis(n_ranks):
    """The reference is the loop of ompi_coll_base_topo_build_in_order_bintree, which looks for one rank at a time."""
    program = in_order_binary_reduce(n_ranks)
    check(program)
    parents: dict[int, int] = {}
    for number in range(program.n_rounds - 1):
        result = program.make_round(number)
        parents.update(zip(result.src.tolist(), result.dst.tolist(), strict=True))
    assert parents == {rank: _in_order_parent(n_ranks, rank) for rank in range(n_ranks - 1)}


def _in_order_parent(size: int, rank: int) -> int:
    above, before = -1, 0
    while rank != size - 1:
        half = size // 2 if size > 2 else 0
        above = before + size - 1
        if rank >= half:
            size, before, rank = size - half - 1, before + half, rank - half
        else:
            size = half
    return above
