"""Five small programs of the kind that clusters run; the result of each is independent of the carrier.

They use the methods that `weft.collectives.live.world` and `rank.Sockets` have.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Comm(Protocol):
    rank: int
    size: int

    def send(self, data: Any, to: int) -> None: ...

    def receive(self, data: Any, source: int) -> None: ...

    def exchange(self, data: Any, to: int, place: Any, source: int) -> None: ...

    def all_reduce(self, data: Any) -> None: ...

    def barrier(self) -> None: ...


# -- heat -------------------------------------------------------------------------------------------------------------


def make_field(rank: int, size: int, seed: int) -> Floats:
    """Return 64 × 64 cells, with a row of each neighbour above and below."""
    return np.random.default_rng([seed, rank]).random((66, 64))


def halo(comm: Comm, turns: int, field: Floats) -> float:
    """Simulate heat on a torus cut into strips: exchange edge rows every turn, and sum all heat every tenth."""
    above, below = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    inner, total = field[1:-1], np.empty(1)
    for turn in range(turns):
        comm.exchange(field[1], above, field[-1], below)
        comm.exchange(field[-2], below, field[0], above)
        flows = field[:-2] + field[2:] - 4 * inner
        flows[:, 1:] += inner[:, :-1]
        flows[:, :-1] += inner[:, 1:]
        flows[:, 0] += inner[:, -1]
        flows[:, -1] += inner[:, 0]
        inner += 0.1 * flows
        if turn % 10 == 9:
            total[0] = inner.sum()
            comm.all_reduce(total)
    return float(total[0])


# -- a mean -----------------------------------------------------------------------------------------------------------


def make_vector(rank: int, size: int, seed: int) -> Floats:
    return np.random.default_rng([seed, rank]).random(8_192)


def all_reduces(comm: Comm, turns: int, own: Floats) -> float:
    """Agree on a vector: each rank takes a step towards its own, then all take half of the mean."""
    agreed = np.zeros_like(own)
    for _ in range(turns):
        agreed += own
        comm.all_reduce(agreed)
        agreed *= 0.5 / comm.size
    return float(agreed.sum())


# -- a sweep ----------------------------------------------------------------------------------------------------------


def make_random(rank: int, size: int, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, rank])


def sweep(comm: Comm, turns: int, random: np.random.Generator) -> float:
    """Try values of its own on each rank, a random walk of 20,000 steps for each; at the end all know the farthest."""
    farthest = np.zeros(comm.size)
    for _ in range(turns):
        walked = float(np.abs(random.standard_normal(20_000).cumsum()).max())
        farthest[comm.rank] = max(farthest[comm.rank], walked)
    comm.all_reduce(farthest)
    return float(farthest.max())


# -- a net ------------------------------------------------------------------------------------------------------------

_IN, _HIDDEN, _BATCH = 256, 512, 16


def make_net(rank: int, size: int, seed: int) -> tuple[NDArray[np.float32], np.random.Generator]:
    """Return the same weights for all ranks, and a sample generator for each."""
    weights = np.random.default_rng(seed).standard_normal(2 * _IN * _HIDDEN, np.float32) * np.float32(0.05)
    return weights, np.random.default_rng([seed, rank])


def training(comm: Comm, turns: int, net: tuple[NDArray[np.float32], np.random.Generator]) -> float:
    """Train data-parallel to reverse the input: two layers, 16 samples per rank and step, gradients summed at once."""
    weights, random = net
    half = _IN * _HIDDEN
    first, second = weights[:half].reshape(_IN, _HIDDEN), weights[half:].reshape(_HIDDEN, _IN)
    gradients = np.empty_like(weights)
    loss = 0.0
    for _ in range(turns):
        inputs = random.standard_normal((_BATCH, _IN), np.float32)
        hidden = np.maximum(inputs @ first, 0)
        error = hidden @ second - inputs[:, ::-1]
        loss = float((error**2).mean())
        gradients[half:] = (hidden.T @ error).ravel()
        gradients[:half] = (inputs.T @ ((error @ second.T) * (hidden > 0))).ravel()
        comm.all_reduce(gradients)
        weights -= np.float32(1e-3 / comm.size) * gradients
    return _sum(comm, loss)


# -- files ------------------------------------------------------------------------------------------------------------

_BLOCKS, _BLOCK_ITEMS = 16, 1 << 17


def make_file(rank: int, size: int, seed: int) -> IO[bytes] | None:
    """Return a file of 16 MiB at the ranks that serve it, the first half."""
    if rank >= size // 2:
        return None
    file = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with its rank
    np.random.default_rng([seed, rank]).random(_BLOCKS * _BLOCK_ITEMS).tofile(file)
    file.flush()
    return file


def storage(comm: Comm, turns: int, file: IO[bytes] | None) -> float:
    """Serve files from one half of the ranks; the others read them into memory, one block of a MiB after the other."""
    servers = comm.size // 2
    requested, data, total = np.empty(1, np.int64), np.empty(_BLOCK_ITEMS), 0.0
    if file is not None:
        readers = range(servers + comm.rank, comm.size, servers)
        for _ in range(turns):
            for reader in readers:
                comm.receive(requested, reader)
                os.preadv(file.fileno(), [data.data], int(requested[0]) * data.nbytes)
                comm.send(data, reader)
    else:
        server = (comm.rank - servers) % servers
        for turn in range(turns):
            requested[0] = turn % _BLOCKS
            comm.send(requested, server)
            comm.receive(data, server)
            total += float(data[::512].sum())  # touches each page
    return _sum(comm, total)


def _sum(comm: Comm, value: float) -> float:
    total = np.array([value])
    comm.all_reduce(total)
    return float(total[0])


# -- all of them ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload: `run(comm, turns, state)` on the state of `make(rank, size, seed)`; `says` quotes the document."""

    name: str
    make: Callable[[int, int, int], Any]
    run: Callable[[Comm, int, Any], float]
    turns: int  # by default
    says: str
    needs: bool  # InfiniBand, according to the document


WORKLOADS = (
    Workload(
        name="parameter sweep",
        make=make_random,
        run=sweep,
        turns=300,
        says="Ethernet is fine: no inter-node communication means no latency sensitivity",
        needs=False,
    ),
    Workload(
        name="training, data-parallel",
        make=make_net,
        run=training,
        turns=20,
        says="Gradient synchronisation is an all-reduce: the pattern InfiniBand excels at",
        needs=True,
    ),
    Workload(
        name="halo exchange",
        make=make_field,
        run=halo,
        turns=100,
        says="A simulation exchanging boundary data every timestep benefits enormously",
        needs=True,
    ),
    Workload(
        name="storage reads",
        make=make_file,
        run=storage,
        turns=32,
        says="Parallel file systems use RDMA for high-bandwidth storage access",
        needs=True,
    ),
    Workload(
        name="all-reduce heavy",
        make=make_vector,
        run=all_reduces,
        turns=60,
        says="MPI_Allreduce thousands of times per second: InfiniBand is the only option",
        needs=True,
    ),
)
