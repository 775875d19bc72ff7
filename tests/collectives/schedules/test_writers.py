"""Every algorithm by its name: its result, its data over NVLink and over the rails, and its refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from weft.collectives.kinds import Algorithm, Collective
from weft.collectives.schedules.all_to_all import hierarchical_all_to_all
from weft.collectives.schedules.check import WrongProgram, begins_with, check
from weft.collectives.schedules.hierarchical import hierarchical_all_reduce, rail_rings
from weft.collectives.schedules.pat import pat_all_gather, pat_reduce_scatter
from weft.collectives.schedules.program import Program, Sends, schedule
from weft.collectives.schedules.sharp import (
    aggregation_tree,
    sharp,
    sharp_all_gather,
    sharp_all_reduce,
    sharp_reduce_scatter,
)
from weft.collectives.schedules.writers import algorithms, program
from weft.errors import ConfigError, UnknownName

ALL = [(kind, name) for kind in Collective for name in algorithms(kind)]
POWERS = ("halving-doubling", "recursive-doubling", "recursive-halving")
LEVELS = ("hierarchical", "hierarchical-tree", "nvls-tree", "sharp", "nvls", "collnet-direct", "collnet-chain")


def shapes(name: str) -> list[tuple[int, int]]:
    """Return numbers of nodes and GPUs that an algorithm supports: odd, prime and 1 where possible."""
    if name in POWERS:
        return [(2, 1), (1, 4), (4, 2), (4, 4), (32, 1)]
    if name == "pat":
        return [(n, 1) for n in (2, 3, 5, 7, 8, 13, 16, 31)]
    if name == "nvls":
        return [(1, 2), (1, 8), (2, 2), (3, 5), (7, 4), (33, 2)]
    if name == "nvls-tree":
        return [(2, 2), (3, 5), (7, 4), (8, 8), (13, 2)]
    between = [(2, 1), (5, 1), (13, 1), (33, 1), (2, 2), (3, 5), (7, 4), (8, 8)]
    return between if "collnet" in name or name == "sharp" else [*between, (1, 2), (1, 5), (1, 8)]


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_algorithm_computes_its_collective(kind, name):
    for nodes, gpus in shapes(name):
        result = program(kind, name, nodes=nodes, gpus=gpus, root=nodes * gpus // 2)
        assert (result.collective, result.n_ranks, result.gpus) == (kind, nodes * gpus, gpus)
        check(result)


@settings(max_examples=25)
@given(nodes=st.integers(2, 12), gpus=st.integers(2, 6), name=st.sampled_from(LEVELS))
def test_any_number_of_nodes_and_gpus_will_do(nodes, gpus, name):
    for kind in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        if name in algorithms(kind):
            check(program(kind, name, nodes=nodes, gpus=gpus))


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_rounds_of_a_run_differ_in_their_chunks_alone(kind, name):
    nodes, gpus = (8, 1) if name == "pat" else (4, 2)
    result = program(kind, name, nodes=nodes, gpus=gpus)
    assert [run.first for run in result.runs] == np.cumsum([0, *(run.n_rounds for run in result.runs[:-1])]).tolist()
    for run in result.runs:
        first, *rest = (result.make_round(number) for number in range(run.first, run.first + run.n_rounds))
        for other in rest:
            for column in ("src", "dst", "n_chunks", "stride", "add"):
                np.testing.assert_array_equal(getattr(first, column), getattr(other, column))


def test_the_ring_outside_is_two_runs():
    result = hierarchical_all_reduce(9, 4)
    assert [run.n_rounds for run in result.runs] == [1, 8, 8, 1]


def test_a_round_of_65536_ranks_is_made_alone():
    result = program("all_reduce", "hierarchical", nodes=8192, gpus=8)
    assert result.n_rounds == 2 + 2 * 8191
    sends = result.make_round(9_000)
    assert len(sends) == 65_536
    assert (sends.src % 8 == sends.dst % 8).all()


def drop(made: Program, number: int, row: int) -> Program:
    """Return the program without one send."""

    def make_round(which: int) -> Sends:
        sends = made.make_round(which)
        if which != number:
            return sends
        return Sends(**{name: np.delete(getattr(sends, name), row) for name in Sends.__slots__})

    return replace(made, make_round=make_round)


@pytest.mark.parametrize(("kind", "name"), [one for one in ALL if one[0] != "barrier"])
def test_no_send_can_be_left_out(kind, name):
    """So broken programs are detected, and no program has an unnecessary send."""
    nodes, gpus = (6, 1) if name == "pat" else (4, 2) if name in POWERS else (3, 2)
    result = program(kind, name, nodes=nodes, gpus=gpus)
    sends = [(number, row) for number, item in enumerate(result.rounds()) for row in range(len(item))]
    for number, row in sends[:: max(1, len(sends) // 12)]:
        with pytest.raises(WrongProgram):
            check(drop(result, number, row))


def test_the_first_wrong_chunk_and_rank_are_named():
    """Rail 1 of three nodes of two: node 2 does not send the first chunk that it should on to node 0."""
    result = hierarchical_all_reduce(3, 2)
    item = result.make_round(1)
    row = int(np.flatnonzero((item.src == 5) & (item.dst == 1))[0])
    with pytest.raises(WrongProgram, match=r"chunk 4 of rank 0 lacks the part of rank 4 and 1 more") as caught:
        check(drop(result, 1, row))
    assert (caught.value.rank, caught.value.chunk) == (0, int(item.src_chunk[row]))


def sent_chunks(made: Program) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return by rank or reducer the chunks that it sends inside its node (to GPUs or NVSwitches) and to other nodes."""
    n = made.n_ranks + made.n_reducers
    inside, outside = np.zeros(n, np.int64), np.zeros(n, np.int64)
    nvswitches = made.n_ranks // made.gpus if "NVLS" in made.name else 0
    node = np.concatenate((np.arange(made.n_ranks) // made.gpus, np.arange(nvswitches)))
    node = np.concatenate((node, np.full(n - len(node), -1)))
    for item in made.rounds():
        within = node[item.src] == node[item.dst]
        np.add.at(inside, item.src[within], item.n_chunks[within])
        np.add.at(outside, item.src[~within], item.n_chunks[~within])
    return inside, outside


def per_gpu(name: str, kind: Collective, nodes: int, gpus: int) -> tuple[float, float]:
    """Return the bytes that each GPU sends over NVLink and its rail, in sizes of the collective; all must send the
    same.
    """
    result = program(kind, name, nodes=nodes, gpus=gpus)
    inside, outside = (sent[: result.n_ranks] / result.n_parts for sent in sent_chunks(result))
    assert np.ptp(inside) == 0
    assert np.ptp(outside) == 0
    return float(inside[0]), float(outside[0])


@pytest.mark.parametrize(("n", "g"), [(2, 2), (4, 8), (5, 3), (7, 4)])
def test_sent_bytes_equal_the_closed_form(n, g):
    """S = 1. A ring or SHARP on each rail, each for 1/g of the buffer."""
    all_reduce, all_gather, reduce_scatter = Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER
    inside, ring = (g - 1) / g, (n - 1) / n / g
    expected = {
        (all_reduce, "hierarchical"): (2 * inside, 2 * ring),
        (reduce_scatter, "hierarchical"): (inside, ring),
        (all_gather, "hierarchical"): (inside, ring),
        (all_reduce, "collnet-direct"): (2 * inside, 1 / g),
        (all_reduce, "collnet-chain"): (2 * inside, 1 / g),
        (reduce_scatter, "sharp"): (inside, 1 / g),
        (all_gather, "sharp"): (inside, 1 / g / n),
        (all_reduce, "nvls"): (1 + 1 / g, 1 / g),
        (all_gather, "nvls"): (1 / g, 1 / g / n),
        (reduce_scatter, "nvls"): (1, 1 / g),
        (Collective.ALL_TO_ALL, "hierarchical"): (inside, (n - 1) / n),
    }
    for (kind, name), sent in expected.items():
        assert per_gpu(name, kind, n, g) == pytest.approx(sent), (kind, name)


def test_the_trees_of_a_rail_send_twice_its_part_less_what_the_roots_do_not():
    """n - 1 edges, each up and down: 2 (n - 1) S / g in all on a rail, and nothing from one rail to another."""
    n, g = 7, 4
    for name in ("nvls-tree", "hierarchical-tree", "tree"):
        result = program("all_reduce", name, nodes=n, gpus=g)
        outside = sent_chunks(result)[1][: result.n_ranks].reshape(n, g)
        assert (outside.sum(axis=0) == 2 * (n - 1) * result.n_parts / g).all()


def test_a_tree_goes_through_the_gpus_of_a_node_as_a_chain_and_the_hierarchical_one_at_once():
    for name, peers in (("tree", 1), ("hierarchical-tree", 3)):
        result = program("all_reduce", name, nodes=3, gpus=4)
        pairs = {pair for item in result.rounds() for pair in zip(item.src.tolist(), item.dst.tolist(), strict=True)}
        assert len([1 for src, dst in pairs if src // 4 == dst // 4]) == 12 * peers


def test_every_rail_has_switches_of_its_own():
    result = sharp(Collective.ALL_REDUCE, 3, 2, parents=aggregation_tree(3, 2))
    rails: dict[int, set[int]] = {}
    for item in result.rounds():
        for src, dst in zip(item.src.tolist(), item.dst.tolist(), strict=True):
            if src < 6 <= dst:
                rails.setdefault(dst, set()).add(src % 2)
    assert rails == {6: {0}, 7: {0}, 9: {1}, 10: {1}}


def test_rings_of_an_even_number_of_nodes_stay_on_their_rails_and_share_them_evenly():
    for kind in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        result = rail_rings(kind, 6, 4)
        item = result.make_round(0)
        out = item.src // 4 != item.dst // 4
        assert (item.src[out] % 4 == item.dst[out] % 4).all()
        assert (np.bincount(item.src[out]) == 1).all()
    assert per_gpu("ring", Collective.ALL_REDUCE, 5, 4)[1] == pytest.approx(2 * 19 / 20 / 4)


def test_parts_for_a_rail_go_between_two_nodes_as_one_message():
    """Each pair of nodes and each rail has one message; the pairwise exchange has one for each pair of GPUs."""
    result = hierarchical_all_to_all(5, 4)
    item = result.make_round(2)
    pairs = set(zip(item.src.tolist(), item.dst.tolist(), strict=True))
    assert len(pairs) == 5 * 4
    assert (item.src % 4 == item.dst % 4).all()
    assert item.n_chunks.sum() == 4 * len(pairs)


def collective_of(made: Program, begun: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected final data of each rank, NaN where any value is allowed, computed from the data of all by
    definition.
    """
    n, parts, kind = made.n_ranks, made.n_parts, made.collective
    own = [slice(rank * parts // n, (rank + 1) * parts // n) for rank in range(n)]
    ends = np.full((n, made.n_chunks), np.nan)
    for rank in range(n):
        if kind is Collective.ALL_REDUCE or (kind is Collective.REDUCE and rank == made.root):
            ends[rank, :parts] = begun[:, :parts].sum(axis=0)
        elif kind is Collective.REDUCE_SCATTER:
            ends[rank, own[rank]] = begun[:, own[rank]].sum(axis=0)
        elif kind is Collective.BROADCAST:
            ends[rank, :parts] = begun[made.root, :parts]
        elif kind is Collective.SCATTER:
            ends[rank, own[rank]] = begun[made.root, own[rank]]
        elif kind is Collective.SEND_RECV:
            ends[rank, parts : 2 * parts] = begun[rank - 1, :parts]
        for other in range(n):
            if kind is Collective.ALL_GATHER or (kind is Collective.GATHER and rank == made.root):
                ends[rank, own[other]] = begun[other, own[other]]
            elif kind is Collective.ALL_TO_ALL and other != rank:
                ends[rank, parts + own[other].start : parts + own[other].stop] = begun[other, own[rank]]
    return ends


def run_in_any_order(made: Program, held: NDArray[np.float64], random: np.random.Generator) -> None:
    """Execute sends in random order, each after all sends that it waits for."""
    plan = schedule(made)
    row, src_chunk, dst_chunk = plan.sends.chunks()
    first = np.searchsorted(row, np.arange(len(plan.sends) + 1))
    missing = np.diff(plan.after_first)
    waiting: list[list[int]] = [[] for _ in missing]
    for send in range(len(missing)):
        for other in plan.after[plan.after_first[send] : plan.after_first[send + 1]]:
            waiting[other].append(send)
    ready = np.flatnonzero(missing == 0).tolist()
    done = 0
    while ready:
        at = int(random.integers(len(ready)))
        ready[at], ready[-1] = ready[-1], ready[at]
        send = ready.pop()
        of = slice(first[send], first[send + 1])
        read = held[plan.sends.src[send], src_chunk[of]]
        place = plan.sends.dst[send], dst_chunk[of]
        held[place] = held[place] + read if plan.sends.add[send] else read
        done += 1
        for other in waiting[send]:
            missing[other] -= 1
            if missing[other] == 0:
                ready.append(other)
    assert done == len(missing)


def run_in_rounds(made: Program, held: NDArray[np.float64]) -> None:
    """Execute round by round: all sends of a round read before any is written."""
    for item in made.rounds():
        moves = list(zip(*(column.tolist() for column in item.chunks()), strict=True))
        read = [held[item.src[row], chunk] for row, chunk, _ in moves]
        for (row, _, chunk), value in zip(moves, read, strict=True):
            held[item.dst[row], chunk] = held[item.dst[row], chunk] + value if item.add[row] else value


# Early data must wait there: the first would forward them too soon, the second would overwrite them.
IN_ROUNDS = [(Collective.ALL_REDUCE, "recursive-doubling"), (Collective.ALL_REDUCE, "nvls-tree")]


@pytest.mark.parametrize(("kind", "name"), [one for one in ALL if one[0] != "barrier"])
def test_on_real_numbers_the_result_is_right_in_any_order_that_the_schedule_allows(kind, name):
    random = np.random.default_rng(7)
    nodes, gpus = (11, 1) if name == "pat" else (4, 4) if name in POWERS else (5, 3)
    result = program(kind, name, nodes=nodes, gpus=gpus, root=4)
    held = np.full((result.n_ranks + result.n_reducers, result.n_chunks), np.nan)
    held[result.n_ranks :] = 0
    local = begins_with(result)
    held[: result.n_ranks][local] = random.normal(size=int(local.sum()))
    expected = collective_of(result, held[: result.n_ranks].copy())
    if (kind, name) in IN_ROUNDS:
        run_in_rounds(result, held)
    else:
        run_in_any_order(result, held, random)
    matters = ~np.isnan(expected)
    assert matters.any()
    np.testing.assert_allclose(held[: result.n_ranks][matters], expected[matters], rtol=1e-12, atol=1e-12)


# Output of NCCL's own code, compiled from its collectives.h (2.30.7): rank 0 of 11, two parts in a message;
# (distance, parts) of each of its messages.
NCCL_ALL_GATHER = [(8, {0}), (4, {0}), (2, {4}), (1, {6}), (1, {4}), (2, {0, 8}), (1, {2}), (1, {0, 8})]
NCCL_REDUCE_SCATTER = [(1, {7}), (2, {6}), (1, {5}), (4, {4}), (1, {3}), (2, {2, 10}), (1, {1, 9}), (8, {8})]


def messages_of_rank_0(made: Program, way: int) -> list[tuple[int, set[int]]]:
    messages = []
    for item in made.rounds():
        row, part, _ = item.chunks()
        mine = item.src[row] == 0
        if mine.any():
            messages.append((int(item.dst[row][mine][0]) * way % made.n_ranks, set(part[mine].tolist())))
    return messages


def test_pat_does_what_nccl_does():
    assert messages_of_rank_0(pat_all_gather(11, 2), -1) == NCCL_ALL_GATHER
    assert messages_of_rank_0(pat_reduce_scatter(11, 2), 1) == NCCL_REDUCE_SCATTER


def test_pat_takes_log2_rounds_where_all_fits_and_n_less_one_where_one_part_does():
    for n in range(2, 40):
        for most in (1, 2, 3, 8, None):
            for result in (pat_all_gather(n, most), pat_reduce_scatter(n, most)):
                check(result)
                largest = max(np.bincount(item.src, item.n_chunks).max() for item in result.rounds())
                assert most is None or largest <= most
                if most in (1, None):
                    assert result.n_rounds == (n - 1 if most else (n - 1).bit_length())


def test_sharp_takes_any_tree():
    """Five nodes: two at the top, two under one switch, one under a chain of two."""
    uneven = [5, 5, 6, 6, 8, -1, 5, 5, 7]
    for write in (sharp_all_reduce, sharp_reduce_scatter, sharp_all_gather):
        check(write(5, uneven))
    result = sharp(Collective.ALL_REDUCE, 5, 3, parents=uneven)
    check(result)
    assert result.n_reducers == 3 * 4


def test_an_aggregation_tree_is_as_high_as_its_radix_says():
    assert aggregation_tree(5, 2).tolist() == [5, 5, 6, 6, 7, 8, 8, 9, 10, 10, -1]
    assert len(aggregation_tree(1024, 32)) == 1024 + 32 + 1
    for n in (2, 3, 17, 64):
        check(sharp_all_reduce(n, aggregation_tree(n, 4), slices=2))


@pytest.mark.parametrize(
    ("parents", "says"),
    [
        ([2, -1, -1], "gives the switch above each node"),
        ([2, 2], "gives the switch above each node"),
        ([2, 9, -1], "gives the switch above each node"),
        ([2, 3, -1, -1], "one switch at the top, marked -1, not 2"),
        ([2, 3, -1, 4, 3], "in circles above 1"),
    ],
)
def test_invalid_tree_is_refused(parents, says):
    with pytest.raises(ConfigError, match=says):
        sharp_all_reduce(2, parents)


def test_names_are_those_of_nccl_pytorch_and_mpi():
    assert program("ncclAllReduce", "NVLSTree", nodes=2, gpus=2).name == "NVLSTree all-reduce"
    assert program("MPI_Allgather", "Bruck", nodes=5).n_rounds == 3
    assert program("all_reduce_perf", Algorithm.COLLNET_CHAIN, nodes=2, gpus=4).name == "CollNetChain all-reduce"
    assert set(algorithms("all_to_all")) == {"pairwise", "bruck", "hierarchical"}


@pytest.mark.parametrize(
    ("kind", "name", "nodes", "gpus", "says"),
    [
        ("all_gather", "halving-doubling", 4, 1, "no algorithm of all_gather 'halving-doubling'; did you mean"),
        ("broadcast", "nvls", 1, 8, "no algorithm of broadcast 'nvls'"),
        ("all_reduce", "halving-doubling", 3, 4, "needs a power of two of ranks, not 12: use a ring"),
        ("all_gather", "pat", 4, 8, "PAT is for nodes with one GPU, not 8: use ring or hierarchical"),
        ("all_reduce", "nvls", 2, 1, "1 GPU has none: use a ring"),
        ("all_reduce", "nvls-tree", 1, 8, "for two nodes or more: use nvls"),
        ("all_reduce", "sharp", 1, 8, "there is one node: use nvls or a ring"),
        ("all_reduce", "ring", 0, 8, "on 0 nodes of 8 GPUs: give one or more of each"),
        ("all_reduce", "ring", 1, 1, "a collective has two or more"),
        ("all_reduce", "hierarchical", 1, 1, "a collective has two or more"),
    ],
)
def test_oversized_input_is_refused_with_a_remedy(kind, name, nodes, gpus, says):
    with pytest.raises(ConfigError, match=says):
        program(kind, name, nodes=nodes, gpus=gpus)
    with pytest.raises(UnknownName, match="collective 'allreduze'"):
        algorithms("allreduze")


@pytest.mark.parametrize("kind", [Collective.BROADCAST, Collective.REDUCE, Collective.GATHER, Collective.SCATTER])
def test_a_root_that_is_not_there_is_refused(kind):
    for name in algorithms(kind):
        with pytest.raises(ConfigError, match=r"root 12 .* is not from 0 to 11"):
            program(kind, name, nodes=3, gpus=4, root=12)


def test_the_size_is_that_of_nccl_tests():
    """The larger of what a rank sends and receives, all of it: for each GPU of an all-to-all 1/n to every other."""
    assert program("all_to_all", "pairwise", nodes=8).chunk_bytes(8 << 20) == 1 << 20
    assert program("all_to_all", "hierarchical", nodes=2, gpus=4).chunk_bytes(8 << 20) == 1 << 20
    assert program("send_recv", "shift", nodes=8).chunk_bytes(8 << 20) == 8 << 20
    assert program("gather", "linear", nodes=8).chunk_bytes(8 << 20) == 1 << 20
