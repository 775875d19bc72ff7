"""Every program computes its collective, at every number of ranks; and a wrong one is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.collectives.kinds import Collective
from weft.collectives.schedules.check import WrongProgram, check
from weft.collectives.schedules.program import Program, Schedule, Sends, in_runs, schedule
from weft.collectives.schedules.recursive import (
    dissemination_barrier,
    doubling_all_gather,
    doubling_all_reduce,
    halving_doubling_all_reduce,
    halving_reduce_scatter,
    pairwise_all_to_all,
)
from weft.collectives.schedules.ring import (
    chain_broadcast,
    chain_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from weft.collectives.schedules.tree import double_tree_all_reduce, parents, tree_broadcast, tree_reduce, twin_parents
from weft.errors import ConfigError

ANY_NUMBER: list[Callable[[int], Program]] = [
    ring_all_reduce,
    ring_reduce_scatter,
    ring_all_gather,
    chain_broadcast,
    chain_reduce,
    double_tree_all_reduce,
    tree_broadcast,
    tree_reduce,
    pairwise_all_to_all,
    dissemination_barrier,
]
POWERS: list[Callable[[int], Program]] = [
    halving_doubling_all_reduce,
    doubling_all_reduce,
    halving_reduce_scatter,
    doubling_all_gather,
]


@pytest.mark.parametrize("write", ANY_NUMBER)
def test_a_program_computes_its_collective_at_every_number_of_ranks(write):
    for n in range(2, 34):
        check(write(n))


@pytest.mark.parametrize("write", POWERS)
def test_halving_and_doubling_compute_theirs_at_powers_of_two(write):
    for n in (2, 4, 8, 16, 32, 64):
        check(write(n))


@settings(max_examples=30)
@given(n=st.integers(2, 40), slices=st.integers(1, 12), data=st.data())
def test_slices_and_roots_are_free(n, slices, data):
    root = data.draw(st.integers(0, n - 1))
    for write in (chain_broadcast, chain_reduce, tree_broadcast, tree_reduce):
        check(write(n, slices, root))
    check(double_tree_all_reduce(n, slices))


@pytest.mark.parametrize("write", [chain_broadcast, tree_broadcast, chain_reduce, tree_reduce])
def test_rank_0_is_the_root_unless_another_is_given(write):
    for more, root in (({}, 0), ({"root": 5}, 5)):
        program = write(8, **more)
        first, last = program.make_round(0), program.make_round(program.n_rounds - 1)
        assert set((first.src if program.collective is Collective.BROADCAST else last.dst).tolist()) == {root}


@settings(max_examples=20)
@given(order=st.integers(2, 20).flatmap(lambda n: st.permutations(range(n))))
def test_a_ring_may_go_round_in_any_order(order):
    check(ring_all_reduce(len(order), order))
    check(ring_reduce_scatter(len(order), order))
    check(ring_all_gather(len(order), order))


@pytest.mark.parametrize("write", [*ANY_NUMBER, *POWERS])
def test_rounds_of_a_run_differ_in_their_chunks_alone(write):
    program = write(8)
    covered = [number for run in program.runs for number in range(run.first, run.first + run.n_rounds)]
    assert covered == list(range(program.n_rounds))
    for run in program.runs:
        first = program.make_round(run.first)
        for number in range(run.first, run.first + run.n_rounds):
            other = program.make_round(number)
            for column in ("src", "dst", "n_chunks", "add"):
                np.testing.assert_array_equal(getattr(first, column), getattr(other, column))


def test_a_ring_sends_as_little_as_can_be():
    """2 (n - 1) / n of the buffer from each rank: Patarasuk and Yuan's bound."""
    program = ring_all_reduce(12)
    sent = np.bincount(np.concatenate([item.src for item in program.rounds()]), minlength=12)
    assert set(sent / program.n_chunks) == {2 * 11 / 12}


def test_a_leaf_of_one_tree_is_inside_the_other():
    for n in range(4, 70):
        inside = [np.isin(np.arange(n), up) for up in (parents(n), twin_parents(n))]
        assert (inside[0] | inside[1]).mean() > 0.9


def spoil(program: Program, number: int, change: Callable[[Sends], Sends]) -> Program:
    make = program.make_round
    return replace(program, make_round=lambda n: change(make(n)) if n == number else make(n))


def test_a_missing_send_is_named_by_the_rank_that_lacks_it():
    def drop(sends: Sends) -> Sends:
        return Sends(**{name: getattr(sends, name)[1:] for name in Sends.__slots__})

    with pytest.raises(WrongProgram, match=r"ring all-reduce of 4 ranks is wrong: .* lacks the part of rank"):
        check(spoil(ring_all_reduce(4), 1, drop))


def test_a_part_that_is_added_twice_is_named():
    with pytest.raises(WrongProgram, match=r"has the part of rank 1 2 times"):
        check(spoil(tree_reduce(3, 1), 0, lambda sends: Sends.join([sends, sends])))


def test_a_copy_instead_of_a_sum_is_found():
    with pytest.raises(WrongProgram, match="is wrong") as caught:
        check(spoil(ring_all_reduce(6), 2, lambda sends: replace(sends, add=np.zeros(len(sends), bool))))
    assert 0 <= caught.value.rank < 6


def through_a_switch(n: int) -> Program:
    """Return a program in which all send to a reducer in the network, which returns the sum: SHARP in two rounds."""
    ranks = np.arange(n)
    rounds = [Sends.make(ranks, n, 0, add=True), Sends.make(np.full(n, n), ranks, 0, add=False)]
    return Program(
        name="all-reduce in a switch",
        collective=Collective.ALL_REDUCE,
        n_ranks=n,
        n_chunks=1,
        runs=in_runs(1, 1),
        make_round=rounds.__getitem__,
        n_reducers=1,
    )


def test_a_reducer_in_the_network_begins_with_nothing_and_adds():
    check(through_a_switch(5))
    with pytest.raises(WrongProgram, match="has the part of rank 0 2 times"):
        check(spoil(through_a_switch(5), 1, lambda sends: replace(sends, add=np.ones(len(sends), bool))))


def test_a_barrier_with_a_round_too_few_is_found():
    full = dissemination_barrier(9)
    with pytest.raises(WrongProgram, match="rank 0 does not hear from"):
        check(replace(full, runs=full.runs[:-1]))


def test_invalid_input_is_refused():
    with pytest.raises(ConfigError, match="needs a power of two of ranks, not 12"):
        halving_doubling_all_reduce(12)
    with pytest.raises(ConfigError, match="a collective has two or more"):
        ring_all_reduce(1)
    with pytest.raises(ConfigError, match="must name each of 0 to 3 once"):
        ring_all_reduce(4, [0, 1, 2, 2])
    with pytest.raises(ConfigError, match="root 9 of tree broadcast"):
        tree_broadcast(4, 2, 9)
    bad = spoil(ring_all_gather(4), 1, lambda sends: replace(sends, dst=sends.src))
    with pytest.raises(ConfigError, match="no rank sends to itself"):
        check(bad)
    beyond = spoil(ring_all_gather(4), 1, lambda _: Sends.make([0], 1, 1, n=2, stride=3, add=False))
    with pytest.raises(ConfigError, match="sends 2 chunks from 1 on, 3 apart, to rank 1: there are 4"):
        check(beyond)
    for stride, words in ((1, "from 3 on to"), (2, "from 3 on, 2 apart, to")):
        last = Sends.make([0], 1, 3, n=2, stride=stride, add=False)
        with pytest.raises(ConfigError, match=f"sends 2 chunks {words} rank 1: there are 4"):
            check(spoil(ring_all_gather(4), 1, lambda _, last=last: last))
    with pytest.raises(ConfigError, match="no room for 8 chunks that a rank receives"):
        check(replace(pairwise_all_to_all(4), n_beside=0))


def test_a_send_waits_for_what_it_reads_and_for_nothing_else():
    """A send of a ring waits for the one send that delivered the same chunk, and the first sends wait for nothing."""
    result = schedule(ring_all_reduce(5))
    waits = np.diff(result.after_first)
    assert (waits[result.round == 0] == 0).all()
    assert (waits[result.round > 0] == 1).all()
    for at in np.flatnonzero(result.round > 0):
        before = result.after[result.after_first[at]]
        assert result.sends.dst[before] == result.sends.src[at]
        assert result.sends.dst_chunk[before] == result.sends.src_chunk[at]
        assert result.round[before] == result.round[at] - 1


def plain_schedule(program: Program) -> list[list[int]]:
    """Return, for each send, the sends that it waits for, by a simple loop over the chunks."""
    writers: dict[tuple[int, int], list[int]] = {}
    after: list[list[int]] = []
    for item in program.rounds():
        begin = len(after)
        moves = [
            (
                begin + row,
                int(item.src_chunk[row] + k * item.stride[row]),
                int(item.dst_chunk[row] + k * item.stride[row]),
            )
            for row in range(len(item))
            for k in range(item.n_chunks[row])
        ]
        after += [[] for _ in range(len(item))]
        for send, chunk, _ in moves:
            after[send] += writers.get((int(item.src[send - begin]), chunk), [])
        for send, _, chunk in moves:
            place = int(item.dst[send - begin]), chunk
            writers[place] = [*writers.get(place, []), send] if item.add[send - begin] else [send]
    return [sorted(set(needed)) for needed in after]


def lists(made: Schedule) -> list[list[int]]:
    return [part.tolist() for part in np.split(made.after, made.after_first[1:-1])]


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), ranks=st.integers(2, 5), chunks=st.integers(1, 6), rounds=st.integers(1, 6))
def test_the_schedule_is_that_of_a_plain_reading(seed, ranks, chunks, rounds):
    """The schedule also holds for sends without meaning: several to one place in a round, put and added, near and far
    apart.
    """
    random = np.random.default_rng(seed)

    def some() -> Sends:
        n = int(random.integers(0, 8))
        begin = random.integers(0, chunks, (2, n))
        stride = random.integers(1, 3, n)
        count = random.integers(1, (chunks - 1 - begin.max(axis=0)) // stride + 2)
        rank, add = random.integers(0, ranks, (2, n)), random.random(n) < 0.5
        return Sends.make(rank[0], rank[1], begin[0], to=begin[1], n=count, stride=stride, add=add)

    result = [Sends.make([0], 1, 0, add=False), *(some() for _ in range(rounds))]
    program = Program(
        name="at random",
        collective=Collective.ALL_REDUCE,
        n_ranks=ranks,
        n_chunks=chunks,
        runs=in_runs(*(1,) * len(result)),
        make_round=result.__getitem__,
    )
    assert lists(schedule(program)) == plain_schedule(program)


@pytest.mark.parametrize("write", [*ANY_NUMBER, *POWERS])
def test_the_schedule_of_a_program_is_that_of_a_plain_reading(write):
    assert lists(schedule(write(8))) == plain_schedule(write(8))
