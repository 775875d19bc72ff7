"""mpi4py's API on ranks that are threads; `tests/interop/test_mpi4py.py` compares with mpi4py itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
from tests.collectives.live.ranks import as_ranks
from tests.patience import PATIENCE_S

from weft import mpi as MPI  # noqa: N812 - as programs import it
from weft.errors import ConfigError, SubnetError
from weft.mpi.communicator import Communicator, world
from weft.mpi.process import Process, from_environment

T = TypeVar("T")


def ranks(n: int, do: Callable[[Communicator], T]) -> list[T]:
    return as_ranks(n, lambda end, board, rank: do(world(Process(end, board, PATIENCE_S), rank, n)))


SIZES = pytest.mark.parametrize("n", [1, 3])


@SIZES
def test_reductions_of_arrays_and_objects_agree(n: int) -> None:
    """Arrays use functions of numpy, objects those of Python."""
    rows = np.random.default_rng(3).integers(0, 4, (n, 5))

    def rank(comm: Communicator) -> None:
        mine = rows[comm.rank]
        for op in ("SUM", "PROD", "MAX", "MIN", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR"):
            how = getattr(MPI, op)
            comm.Allreduce(mine, everywhere := np.empty_like(mine), how)
            np.testing.assert_array_equal(everywhere, [comm.allreduce(int(item), how) for item in mine], op)
            comm.Reduce(mine, at_root := np.full(5, -1), how, root=n - 1)
            assert (at_root == (everywhere if comm.rank == n - 1 else -1)).all(), op
            comm.Scan(mine, so_far := np.empty_like(mine), how)
            np.testing.assert_array_equal(so_far, [comm.scan(int(item), how) for item in mine], op)
            comm.Exscan(mine, before := np.full(5, -1), how)
            each = [comm.exscan(int(item), how) for item in mine]
            np.testing.assert_array_equal(before, [-1 if item is None else item for item in each], op)

    ranks(n, rank)


@SIZES
def test_collectives_move_equal_blocks_to_the_right_ranks(n: int) -> None:
    def rank(comm: Communicator) -> None:
        me, row = comm.rank, np.arange(n * 2)
        comm.Allgather(row[:2] + me, every := np.empty(2 * n, row.dtype))
        expected = [item + rank for rank in range(n) for item in (0, 1)]
        assert every.tolist() == expected
        block = [None, row[:2] + me][me > 0]  # as mpi4py takes it: in place
        gathered = np.r_[[0, 1], np.full(2 * n - 2, -1)] if me == 0 else None
        comm.Gather(block, gathered, root=0)
        assert gathered is None or gathered.tolist() == expected
        comm.Scatter(row + me if me == n - 1 else None, mine := np.empty(2, row.dtype), root=n - 1)
        assert mine.tolist() == [2 * me + n - 1, 2 * me + n]
        comm.Alltoall(row + 100 * me, swapped := np.empty_like(row))
        assert swapped.tolist() == [100 * rank + 2 * me + item for rank in range(n) for item in (0, 1)]
        comm.Reduce_scatter_block(row + me, mine)
        assert mine.tolist() == [n * item + n * (n - 1) // 2 for item in (2 * me, 2 * me + 1)]
        comm.Bcast(buf := np.full(3000, me), root=n - 1)
        assert (buf == n - 1).all()
        assert comm.bcast({"of": me}, root=n - 1) == {"of": n - 1}
        assert comm.gather(me, root=n - 1) == (list(range(n)) if me == n - 1 else None)
        assert comm.scatter([f"for {rank}" for rank in range(n)] if me == 0 else None) == f"for {me}"
        assert comm.allgather("x" * me) == ["x" * rank for rank in range(n)]
        assert comm.alltoall([(me, rank) for rank in range(n)]) == [(rank, me) for rank in range(n)]
        assert comm.allreduce((7, me), MPI.MAXLOC) == (7, 0)
        assert comm.allreduce((me, me), MPI.MINLOC) == (0, 0)
        comm.Barrier()

    ranks(n, rank)


@SIZES
def test_collectives_move_blocks_of_different_lengths(n: int) -> None:
    """Rank r has r + 1 items; they are received in reverse order, with gaps."""
    counts = [rank + 1 for rank in range(n)]
    begins = [20 * (n - 1 - rank) for rank in range(n)]

    def rank(comm: Communicator) -> None:
        me = comm.rank
        mine = np.full(me + 1, float(me))
        for call in (comm.Gatherv, comm.Allgatherv):
            place = np.full(20 * n, -1.0)
            call(mine, [place, counts, begins, MPI.DOUBLE])
            if me == 0 or call == comm.Allgatherv:
                for rank, begin in enumerate(begins):
                    assert place[begin : begin + 20].tolist() == [rank] * (rank + 1) + [-1] * (19 - rank)
        sent = np.arange(20.0 * n)
        comm.Scatterv([sent, (counts, begins)], mine)
        assert mine.tolist() == [begins[me] + item for item in range(me + 1)]
        to_each, from_each = [me + 1] * n, counts
        comm.Alltoallv([np.full((me + 1) * n, me), to_each], [place := np.empty(sum(counts), int), from_each])
        assert place.tolist() == [rank for rank in range(n) for _ in range(rank + 1)]
        comm.Allgatherv(np.full(2, me), [strided := np.full(3 * n, -1), (2, 3)])
        assert strided.tolist() == [item for rank in range(n) for item in (rank, rank, -1)]
        comm.Reduce_scatter(np.ones(sum(counts)), reduced := np.zeros(me + 1))
        assert (reduced == n).all()

    ranks(n, rank)


def test_messages_with_statuses_and_requests() -> None:
    def rank(comm: Communicator) -> None:
        me, n, status = comm.rank, comm.size, MPI.Status()
        right, left = (me + 1) % n, (me - 1) % n
        comm.send({"from": me}, right, tag=3)  # all send first
        assert comm.recv(source=left, tag=3, status=status) == {"from": left}
        assert (status.Get_source(), status.Get_tag()) == (left, 3)
        large = np.full(40_000, me, np.int32)  # larger than an eager message
        receiving = comm.Irecv(place := np.empty_like(large), left)
        sending = comm.Isend(large, right, tag=9)
        MPI.Request.Waitall([sending, receiving], statuses := [MPI.Status(), status])
        assert (place == left).all()
        assert (len(statuses), status.Get_tag(), status.Get_count(MPI.INT)) == (2, 9, 40_000)
        comm.Sendrecv_replace([large, 5, MPI.INT], right, source=left)
        assert large.tolist() == [left] * 5 + [me] * 39_995
        assert comm.sendrecv(me, right, source=left) == left
        begun = [comm.irecv(source=left, tag=tag) for tag in (1, 2)]
        comm.send("two", right, tag=2)
        assert MPI.Request.waitany(begun) == (1, "two")
        comm.Barrier()
        comm.isend("one", right, tag=1).wait()
        assert begun[0].wait() == "one"
        assert not begun[0]
        comm.Send(np.zeros(3), right, tag=6)
        comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        assert (status.source, status.tag, status.Get_count(MPI.DOUBLE)) == (left, 6, 3)
        comm.Recv(np.empty(3), left, 6)
        assert not comm.Iprobe()
        assert comm.recv(source=MPI.PROC_NULL, status=status) is None
        comm.send("lost", MPI.PROC_NULL)
        assert status.source == MPI.PROC_NULL

    ranks(1, rank)
    ranks(2, rank)


def test_messages_progress_while_ranks_wait_in_other_communicators() -> None:

    def rank(comm: Communicator) -> None:
        me = comm.rank
        half = comm.Split(me % 2, key=-me)
        assert half.allgather(me) == sorted((rank for rank in range(4) if rank % 2 == me % 2), reverse=True)
        assert bool(comm.Split(0 if me else MPI.UNDEFINED)) == (me > 0)
        again = comm.Dup()
        large = np.full(100_000, me)
        sending = again.Isend(large, (me + 1) % 4)
        receiving = again.Irecv(place := np.empty_like(large), (me - 1) % 4)
        comm.Barrier()
        half.Barrier()
        receiving.Wait()
        sending.Wait()
        assert (place == (me - 1) % 4).all()
        if me in (1, 3):
            pair = comm.Create_group(comm.group.Incl([3, 1]))
            assert pair.allgather(me) == [3, 1]
            assert pair.rank == (0 if me == 3 else 1)
        most = comm.Create(comm.Get_group().Excl([2]))
        assert most.allgather(me) == [0, 1, 3] if me != 2 else most is MPI.COMM_NULL
        with pytest.raises(ConfigError, match="COMM_NULL has no ranks"):
            MPI.COMM_NULL.Barrier()
        half.Free()
        assert not half
        assert comm.Split_type(MPI.COMM_TYPE_SHARED).size == 4

    ranks(4, rank)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda comm, x: comm.Allreduce(x[::2], x[:2]), r"sendbuf of Allreduce is not contiguous \(shape \(2,\)\)"),
        (lambda comm, x: comm.Allreduce(x, x[:2].copy()), "sendbuf has 4 float64, recvbuf has 2 float64"),
        (
            lambda comm, x: comm.Allreduce(x, np.empty(4, np.float32)),
            "recvbuf has 4 float32; give the same count and type",
        ),
        (lambda comm, x: comm.Allreduce(x, x.copy(), MPI.BAND), "MPI_BAND is not defined for float64"),
        (lambda comm, x: comm.Allreduce(x, x.copy(), MPI.MAXLOC), "MPI_MAXLOC reduces objects only"),
        (lambda comm, x: comm.Scan(x, x.copy(), MPI.MAXLOC), "MPI_MAXLOC reduces objects only"),
        (lambda comm, x: comm.Exscan(x, x.copy(), max), "<built-in function max> reduces objects only"),
        (lambda comm, x: comm.Allreduce([1.0], x), "sendbuf of Allreduce is a float, not a buffer"),
        (lambda comm, x: comm.Recv(b"abc", 0), "buf of Recv is read-only"),
        (lambda comm, x: comm.Bcast(np.array([None])), "buf of Bcast is an array of Python objects"),
        (lambda comm, x: comm.Bcast([x, 5]), "has 4 items, too few for 5 items at displacement 0"),
        (
            lambda comm, x: comm.Bcast([bytearray(7), MPI.DOUBLE]),
            "has 7 bytes, not a multiple of 8, the size of float64",
        ),
        (lambda comm, x: comm.Bcast(x, root=1), "root=1 is not a rank; give 0 to 0"),
        (lambda comm, x: comm.Send(x, 1), "dest=1 is not a rank; give 0 to 0"),
        (lambda comm, x: comm.recv(source=-7), "source=-7 is not a rank; give 0 to 0"),
        (lambda comm, x: comm.send(1, 0, tag=-1), "tag=-1 is not a message tag; give 0 to"),
        (lambda comm, x: comm.scatter([1, 2]), "scatter of 2 objects; give one for each of 1 ranks"),
        (lambda comm, x: comm.Allgatherv(x, [x, [2, 2]]), "has 2 counts; give one for each of 1 ranks"),
        (lambda comm, x: comm.Split(-3), "color=-3"),
        (lambda comm, x: (comm._process.close(), comm.Send(x, 0)), "MPI is finalized"),
        (lambda comm, x: (comm.send("long", 0), comm.Recv(np.empty(1, "u1"), 0)), "came for a place of 1"),
    ],
)
def test_wrong_arguments_are_refused_with_a_reason(call: Callable[[Communicator, Any], None], error: str) -> None:
    def rank(comm: Communicator) -> None:
        with pytest.raises(MPI.Exception, match=error):
            call(comm, np.ones(4))

    ranks(1, rank)


@pytest.mark.parametrize("mine", [np.ones(4, np.float32), np.ones(2, np.float64)], ids=["type", "size"])
def test_calls_with_different_types_or_sizes_fail_on_all_ranks(mine: Any) -> None:
    def rank(comm: Communicator) -> None:
        data = mine if comm.rank else np.ones(4)
        with pytest.raises(SubnetError, match="all ranks must call the same"):
            comm.Allreduce(data, data.copy())

    ranks(2, rank)


V, S = "give the same count and type on both", "all ranks must call the same"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda comm, x: comm.Gatherv(x[: 1 + comm.rank], [np.empty(9), [1, 1, 3]]), f"1 sends 2 float64 .* 1 f.*{V}"),
        (lambda comm, x: comm.Gatherv(x[: comm.rank], [np.empty(9), [0, 0, 2]]), f"1 float64 .* expects nothing.*{V}"),
        (
            lambda comm, x: comm.Gatherv(x.astype("fd"[comm.rank != 1]), [np.empty(9), 3]),
            f"3 float32 .*expects 3 f.*{V}",
        ),
        (
            lambda comm, x: comm.Scatterv([np.ones(9), [3, 3, 1]], x),
            f"rank 0 sends 1 float64 to rank 2.*expects 3.*{V}",
        ),
        (lambda comm, x: comm.Alltoallv([np.ones(6), 2], [np.ones(6), [2, 2, 1 + (comm.rank > 1)]]), V),
        (lambda comm, x: comm.Alltoallv([x, 1], [x, 1]) if comm.rank else comm.Gatherv(x, [np.empty(9), 3]), S),
        (lambda comm, x: comm.Gatherv(x, [np.empty(9), 3], root=comm.rank // 2), S),
        (lambda comm, x: comm.Scatterv([np.ones(9), 3], x, root=comm.rank // 2), S),
        (lambda comm, x: comm.Allgatherv(x[: 1 + comm.rank], [np.empty(9), [1, 2 + (comm.rank == 2), 3]]), S),
        (lambda comm, x: comm.Allgatherv(y := x.astype("fd"[comm.rank > 1]), [np.empty(9, y.dtype), 3]), S),
        (lambda comm, x: comm.Scan(y := x[: 1 + comm.rank], y.copy()), S),
        (lambda comm, x: comm.Scan(y := x.astype("fd"[comm.rank > 1]), y.copy()), S),
        (lambda comm, x: comm.Exscan(x, x.copy(), [MPI.SUM, MPI.SUM, MPI.MAX][comm.rank]), S),
        (lambda comm, x: comm.gather(x, root=comm.rank // 2), S),
        (lambda comm, x: comm.alltoall([1, 2, 3]) if comm.rank else comm.scatter([1, 2, 3]), S),
    ],
)
def test_calls_with_different_counts_types_or_roots_fail_on_all_ranks(
    call: Callable[[Communicator, Any], None], error: str
) -> None:
    def rank(comm: Communicator) -> None:
        with pytest.raises(MPI.Exception, match=error):
            call(comm, np.ones(3))

    ranks(3, rank)


def test_a_rank_that_sends_nothing_may_have_any_type() -> None:
    def rank(comm: Communicator) -> None:
        mine = np.ones(2, np.int32) if comm.rank else np.empty(0)
        comm.Gatherv(mine, [place := np.zeros(4, np.int32), [0, 2, 2]], root=1)
        assert comm.rank != 1 or (place == 1).all()

    ranks(3, rank)


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"WORLD_SIZE": "2", "RANK": "0"}, "WORLD_SIZE=2 but WEFT_JOB is not set; start the ranks with `weft run -n 2"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE=x is not a whole number"),
    ],
)
def test_environment_without_a_job_is_refused(variables: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        from_environment(variables)
