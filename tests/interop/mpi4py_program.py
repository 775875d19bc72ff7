"""A program for mpi4py, as its tutorial has them; which module is MPI is its argument: mpi4py.MPI or weft.mpi."""

from __future__ import annotations

import importlib
import sys

import numpy as np

MPI = importlib.import_module(sys.argv[1])
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
right, left = (rank + 1) % size, (rank - 1) % size
lines: list[object] = []


def matvec(part, vector):
    """The tutorial's product of a matrix, of which each rank has some rows."""
    whole = np.zeros(len(vector) * size)
    comm.Allgather([vector, MPI.DOUBLE], [whole, MPI.DOUBLE])
    return part @ whole


def pi(steps):
    """The tutorial's integral."""
    n = np.array(steps if rank == 0 else 0, "i")
    comm.Bcast([n, MPI.INT], root=0)
    h = 1.0 / n
    own = np.array(sum(4.0 / (1.0 + (h * (i + 0.5)) ** 2) for i in range(rank, int(n), size)) * h)
    total = np.array(0.0)
    comm.Reduce([own, MPI.DOUBLE], [total, MPI.DOUBLE], op=MPI.SUM, root=0)
    return round(float(total), 9)


def objects():
    status = MPI.Status()
    comm.send({"a": rank, "b": 3.14}, dest=right, tag=11)
    yield comm.recv(source=MPI.ANY_SOURCE, tag=11, status=status), status.Get_source() == left
    request = comm.isend([rank] * 3, dest=right, tag=4)
    yield comm.irecv(source=left, tag=4).wait()
    request.wait()
    yield comm.bcast({"key": [7, 2.72, 2 + 3j]} if rank == 1 else None, root=1)
    yield comm.scatter([(i + 1) ** 2 for i in range(size)] if rank == 0 else None, root=0)
    yield comm.gather(rank**2, root=size - 1)
    yield comm.allgather(chr(65 + rank)), comm.alltoall([f"{rank}>{i}" for i in range(size)])
    for op in ("SUM", "PROD", "MAX", "MIN", "LAND", "LOR", "BAND", "BOR", "BXOR"):
        yield op, comm.allreduce(rank + 1, op=getattr(MPI, op)), comm.scan(rank, op=getattr(MPI, op))
    yield comm.allreduce((rank % 2, rank), op=MPI.MAXLOC), comm.reduce((rank % 2, rank), op=MPI.MINLOC, root=0)
    yield comm.exscan(rank + 5), comm.sendrecv(rank, dest=right, source=left)


def arrays():
    a = np.arange(6 * size, dtype=np.int64) * (rank + 1)
    for op in (MPI.SUM, MPI.PROD, MPI.MAX, MPI.MIN, MPI.LAND, MPI.LOR, MPI.BAND, MPI.BOR, MPI.BXOR):
        comm.Allreduce(a, b := np.empty_like(a), op=op)
        yield b.tolist()
    comm.Allreduce(MPI.IN_PLACE, c := a.astype(np.float32))
    yield c.tolist()
    comm.Reduce_scatter_block(a, d := np.empty(6, np.int64))
    comm.Alltoall(a, e := np.empty_like(a))
    comm.Scan(a, f := np.empty_like(a))
    yield d.tolist(), e.tolist(), f.tolist()
    counts = [i + 1 for i in range(size)]
    comm.Gatherv(a[: rank + 1], [g := np.zeros(sum(counts), np.int64), counts], root=0)
    comm.Allgatherv(a[: rank + 1], [h := np.zeros(sum(counts), np.int64), (counts, None)])
    comm.Scatterv([h, counts], i := np.zeros(rank + 1, np.int64), root=1)
    comm.Alltoallv([a, [rank + 1] * size], [j := np.zeros(sum(counts), np.int64), counts])
    yield g.tolist(), h.tolist(), i.tolist(), j.tolist()
    comm.Reduce_scatter(np.ones(sum(counts)), k := np.zeros(rank + 1), counts)
    large = np.full(200_000, float(rank))
    requests = [comm.Isend(large, dest=right, tag=77), comm.Irecv(m := np.empty_like(large), source=left, tag=77)]
    MPI.Request.Waitall(requests)
    yield k.tolist(), float(m.sum())


def groups():
    half = comm.Split(color=rank % 2, key=-rank)
    yield half.Get_rank(), half.Get_size(), half.allgather(rank), half.allreduce(rank)
    few = comm.Create_group(comm.Get_group().Incl([2, 0])) if rank != 1 else MPI.COMM_NULL
    yield few.allgather(rank) if few != MPI.COMM_NULL else None
    yield MPI.COMM_SELF.Get_size(), MPI.COMM_SELF.allreduce(rank), comm.Dup().bcast(rank, root=2)


lines.append(pi(1000))
lines.append(matvec(np.arange(2.0 * 2 * size).reshape(2, -1) + rank, np.array([rank, 1.0])).tolist())
for part in (objects, arrays, groups):
    lines.extend(part())
every = comm.gather(lines, root=0)
if rank == 0:
    for number, said in enumerate(every):
        for line in said:
            print(number, line)
