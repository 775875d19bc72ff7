"""Programs on real bytes compute what `check` proves on symbols."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.collectives.live import ranks
from tests.collectives.live.ranks import Board, as_ranks, together
from tests.patience import PATIENCE_S

from weft.collectives.kinds import Collective
from weft.collectives.live import rendezvous
from weft.collectives.live.arrays import Array, Bytes
from weft.collectives.live.beside import Calls
from weft.collectives.live.calls import choose
from weft.collectives.live.group import Group
from weft.collectives.live.link import Endpoint
from weft.collectives.live.plan import steps
from weft.collectives.schedules.check import begins_with
from weft.collectives.schedules.program import Program, Sends
from weft.collectives.schedules.writers import ALGORITHMS, program
from weft.errors import ConfigError, SubnetError


def programs(nodes: int, gpus: int) -> list[Program]:
    """Return all programs that need no switches."""
    result = []
    for name in ALGORITHMS:
        for kind in ALGORITHMS[name]:
            try:
                item = program(kind, name, nodes=nodes, gpus=gpus)
            except ConfigError:  # not for so many
                continue
            if not item.n_reducers:
                result.append(item)
    return result


@pytest.mark.parametrize(("nodes", "gpus"), [(4, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("announced_bytes", [1 << 16, 1 << 9], ids=["sent", "read"])
def test_programs_compute_on_bytes_what_is_proved_of_them(nodes: int, gpus: int, announced_bytes: int) -> None:
    """Short fragments are sent; long ones are read in place."""
    all_of_them = programs(nodes, gpus)
    assert len(all_of_them) > 25
    data = [draw(item) for item in all_of_them]

    def rank(group: Group) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
        return [run_with_barrier(group, item, own) for item, own in zip(all_of_them, data, strict=True)]

    for number, result in enumerate(together(nodes * gpus, rank, announced_bytes=announced_bytes)):
        for item, own, held in zip(all_of_them, data, result, strict=True):
            requested, where = expected(item, own, number)
            np.testing.assert_array_equal(held[where], requested, item.name)


def draw(one: Program) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Draw initial data of the ranks: chunks of more than one fragment, the last one short."""
    uneven = 0 if one.n_beside else 3
    return np.random.default_rng(7).integers(0, 1 << 40, (one.n_ranks, one.n_parts * 150 - uneven))


def run_with_barrier(
    group: Group, one: Program, data: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the final data of this rank."""
    n_items = data.shape[1]
    chunk = -(-n_items // one.n_parts)
    mine = np.repeat(begins_with(one)[:, : one.n_parts], chunk, axis=1)[:, :n_items]
    held = np.where(mine[group.rank], data[group.rank], -1)
    beside = np.full(one.n_beside * chunk, -1)
    group.run(one, Array(held, beside), one.name)
    group.run(program(Collective.BARRIER, "dissemination", nodes=one.n_ranks), Array(held[:0]), "barrier")
    return np.concatenate((held, beside))


def expected(
    one: Program, data: np.ndarray[tuple[int, int], np.dtype[np.int64]], rank: int
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], slice]:
    """Return the expected final data of a rank and their place, in MPI's terms."""
    n, size = data.shape
    part = -(-size // one.n_parts) * one.n_parts // n
    block = slice(rank * size // n, (rank + 1) * size // n)
    whole, kind = slice(0, size), one.collective
    if kind is Collective.ALL_REDUCE or (kind is Collective.REDUCE and rank == one.root):
        return data.sum(axis=0), whole
    if kind is Collective.REDUCE_SCATTER:
        block = slice(rank * part, min((rank + 1) * part, size))
        return data.sum(axis=0)[block], block
    if kind in (Collective.BROADCAST, Collective.SCATTER):
        where = whole if kind is Collective.BROADCAST else slice(rank * part, min((rank + 1) * part, size))
        return data[one.root][where], where
    if kind is Collective.ALL_GATHER or (kind is Collective.GATHER and rank == one.root):
        return np.concatenate([data[r, r * part : (r + 1) * part] for r in range(n)]), whole
    if kind is Collective.SEND_RECV:
        return data[rank - 1], slice(size, 2 * size)
    if kind is Collective.ALL_TO_ALL:
        rest = np.concatenate([data[r, block] if r != rank else np.full(size // n, -1) for r in range(n)])
        return rest, slice(size, 2 * size)
    return data[0, :0], slice(0, 0)


def test_a_program_for_switches_that_add_is_refused() -> None:
    with pytest.raises(ConfigError, match="only the simulators have them"):
        steps(program("all_reduce", "sharp", nodes=4), 0, 64, 4, 64)


def test_an_item_that_is_longer_than_a_fragment_is_refused() -> None:
    with pytest.raises(ConfigError, match="an item of 2,000 bytes: up to 1,024 go in one piece"):
        steps(program("broadcast", "ring", nodes=2), 0, 4000, 2000, 1024)


def test_a_round_that_overwrites_what_it_has_to_send_is_refused() -> None:
    """Rank 0 sends its second chunk after its first, and receives into the second at once."""

    def crossed(_: int) -> Sends:
        return Sends.make([0, 1], [1, 0], [0, 0], to=[0, 1], n=[2, 1], add=[False, False])

    item = Program.of("crossed", Collective.BROADCAST, 2, (1,), crossed, n_chunks=2)
    with pytest.raises(ConfigError, match="round 0 a rank would receive into what it has not sent yet"):
        steps(item, 0, 200, 1, 100)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
def test_tensors_readable_on_the_same_machine_are_not_sent(kind: str) -> None:
    item = choose(Collective(kind), 3, 1 << 20)

    def rank(group: Group) -> list[int]:
        group.run(item, Array(np.full(3 * 5000, group.rank)), kind)
        return [link.posted for link in group._rendezvous._links.values()]

    assert together(3, rank, announced_bytes=1 << 10) == [[0, 0]] * 3


def test_data_forwarded_in_the_round_that_replaces_it_is_the_old_data() -> None:
    """Rank 1 learns of all its incoming data, but must not read them before its own old data are sent."""

    def pass_on(_: int) -> Sends:
        return Sends.make([0, 1], [1, 2], [0, 0], add=False)

    item = Program.of("pass on", Collective.BROADCAST, 3, (1,), pass_on, n_chunks=1)
    middle = steps(item, 1, 9000, 1, 1000)
    assert all(step.is_crossed for step in middle)

    def rank(group: Group) -> tuple[list[int], int]:
        data = np.full(9000, group.rank, np.uint8)
        group.run(item, Array(data), "pass on")
        group.run(program(Collective.BARRIER, "dissemination", nodes=3), Array(data[:0]), "barrier")
        return np.unique(data).tolist(), sum(link.used - link.posted for link in group._rendezvous._links.values())

    assert together(3, rank, announced_bytes=1 << 9) == [([0], 3), ([0], 0), ([1], 0)]


@pytest.mark.parametrize("announced_bytes", [1 << 16, 1], ids=["sent", "read"])
@pytest.mark.parametrize("sizes", [(8, 12), (8, 8)])
def test_ranks_that_differ_both_learn_it(sizes: tuple[int, int], announced_bytes: int) -> None:
    """The ranks differ in the size, or in the call."""

    def rank(group: Group) -> str:
        size = sizes[group.rank]
        call = "all_reduce" if sizes[0] != sizes[1] or group.rank == 0 else "broadcast"

        def twice() -> None:
            """Run twice: a rank that only sends may detect the difference late."""
            for _ in range(2):
                group.run(program(call, "ring", nodes=2), Array(np.ones(size)), f"{call} of {size} float64")

        with pytest.raises(SubnetError) as caught:
            twice()
        with pytest.raises(SubnetError):  # and every later call
            group.run(program("all_reduce", "ring", nodes=2), Array(np.ones(4)), "another")
        return str(caught.value)

    for output in together(2, rank, announced_bytes=announced_bytes):
        assert "all ranks must call the same" in output


@pytest.mark.parametrize("is_up", [False, True], ids=["first call", "links are up"])
def test_ranks_with_other_memory_both_learn_it(is_up: bool) -> None:
    """They form two groups, each without knowledge of the other."""
    ring = program("all_reduce", "ring", nodes=2)

    def rank(end: Endpoint, board: Board, number: int) -> str:
        calls = Calls(board, "calls", number)
        groups = [Group(end, board, name, number, 2, PATIENCE_S, calls) for name in ("host", "gpu")]
        for group in groups if is_up else ():
            group.run(ring, Array(np.ones(4)), "the same")
        with pytest.raises(SubnetError) as caught:
            groups[number].run(ring, Array(np.ones(4)), ("all_reduce on cpu", "all_reduce on cuda")[number])
        return str(caught.value)

    assert as_ranks(2, rank) == [
        f"rank {own} is in all_reduce on {memory}, and rank {far} is in all_reduce on {other}: all ranks must call the "
        "same, with tensors of the same kind of memory"
        for own, memory, far, other in ((0, "cpu", 1, "cuda"), (1, "cuda", 0, "cpu"))
    ]


def test_a_rank_that_never_comes_is_named() -> None:
    def rank(group: Group) -> None:
        if group.rank == 0:
            with pytest.raises(SubnetError, match=r"rank 1: it did not come within the timeout of 0\.2 s"):
                group.run(program("all_reduce", "ring", nodes=2), Array(np.ones(4)), "all_reduce")

    together(2, rank, timeout_s=0.2)


@pytest.mark.parametrize("comes", [False, True], ids=["never comes", "hangs in between"])
def test_all_ranks_name_the_rank_that_hangs_though_their_time_is_over_together(comes: bool) -> None:
    """Rank 2 waits for rank 1, which only waits for rank 0."""
    ring = program("all_reduce", "ring", nodes=4)

    def rank(group: Group) -> str:
        if comes:
            group.run(ring, Array(np.ones(64)), "the first")
        if group.rank == 0:
            return ""
        group._rendezvous.timeout_s = 0.5
        with pytest.raises(SubnetError) as caught:
            group.run(ring, Array(np.ones(64)), "the second")
        return str(caught.value)

    output = together(4, rank)[1:]
    assert all(re.match(r"(rank \d gave up: )?rank 0: ", item) for item in output), output


def test_failure_before_any_connection_is_reported() -> None:
    def rank(group: Group) -> None:
        if group.rank == 0:
            group._rendezvous.give_up(SubnetError("out of memory"))
            return
        with pytest.raises(SubnetError, match=r"^rank 0 gave up: out of memory \(this is rank \d\)$"):
            group.run(program("all_reduce", "ring", nodes=3), Array(np.ones(4)), "all_reduce")

    together(3, rank)


class _Refusing(Array):
    def add(self, begin: int, data: Bytes) -> None:
        raise RuntimeError("there is no such sum")


def test_an_error_of_the_memory_of_one_ends_it_for_all() -> None:
    """It has read a part of unknown size: later data would be mistaken for the rest."""

    def rank(group: Group) -> None:
        error, memory = (RuntimeError, _Refusing) if group.rank == 0 else (SubnetError, Array)
        for kind in (error, SubnetError):
            with pytest.raises(kind, match="there is no such sum"):
                group.run(program("all_reduce", "ring", nodes=2), memory(np.ones(4)), "all_reduce")

    together(2, rank)


class _DyingBoard(Board):
    def set(self, key: str, value: bytes) -> None:
        if key.endswith("gave up"):
            raise OSError("nobody is there")
        super().set(key, value)


def test_failing_rank_reports_its_own_error_without_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "Board", _DyingBoard)
    monkeypatch.setattr(rendezvous, "_HEAR_S", 0.1)

    def rank(group: Group) -> None:
        error, memory = (RuntimeError, _Refusing) if group.rank == 0 else (SubnetError, Array)
        with pytest.raises(error, match=r"there is no such sum|rank 0 gave up without a reason \(this is rank 1, in"):
            group.run(program("all_reduce", "ring", nodes=2), memory(np.ones(4)), "all_reduce")

    together(2, rank)


@pytest.mark.parametrize(
    ("own", "far", "indices"),
    [
        ([0xFFFF], [0xFFFF, 0x8001], (0, 0)),
        ([0x8001, 0x7FFF], [0x7FFF, 0, 0x8001], (0, 2)),  # not where both are limited
        ([0x7FFF, 0x8002, 0x8001], [0x0001, 0x8002, 0x7FFF], (1, 1)),
        ([0x8002, 0x8001], [0x8001, 0x8002], (1, 0)),  # the lower key if places are equal
    ],
)
def test_links_are_in_the_first_partition_that_both_ends_have(
    own: list[int], far: list[int], indices: tuple[int, int]
) -> None:
    end = Endpoint()
    try:
        assert (end.link(1, "x")._common_key(own, far), end.link(0, "x")._common_key(far, own)) == indices
        with pytest.raises(
            SubnetError, match="rank 1: no partition in common: P_Keys are 0x8001, 0x7fff here and none"
        ):
            end.link(1, "x")._common_key([0x8001, 0x7FFF, 0], [0, 0])
    finally:
        end.close()
