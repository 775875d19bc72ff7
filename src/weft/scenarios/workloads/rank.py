"""The work of each rank: every program over TCP and over weft's queue pairs, in turn, timed; then once more, recorded.

    python -m weft.scenarios.workloads.rank FOLDER REPEATS PART SEED

PART is the percentage of the default number of turns. Rank 0 writes times and results into FOLDER.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from weft import runtime
from weft.collectives.kinds import Collective
from weft.collectives.live import record
from weft.collectives.live.arrays import Array, flat
from weft.collectives.live.calls import choose
from weft.collectives.live.link import FRAGMENT_BYTES
from weft.collectives.live.plan import steps
from weft.collectives.live.store import VARIABLE, JobStore
from weft.collectives.live.world import join_world
from weft.errors import SubnetError
from weft.scenarios.workloads.programs import WORKLOADS, Comm, Workload

TIMES = "times.json"


def turns(workload: Workload, percent: int) -> int:
    return max(2, workload.turns * percent // 100)


def main(folder: Path, repeats: int, percent: int, seed: int) -> None:
    world = join_world()
    by_tcp = Sockets(JobStore(os.environ[VARIABLE]), world.rank, world.size)
    times: dict[str, dict[str, list[Any]]] = {}
    for workload in WORKLOADS:
        n = turns(workload, percent)
        for comm in (by_tcp, world):
            _timed(workload, comm, 2, seed)  # connect and compile
        runs: dict[str, list[tuple[float, float]]] = {"tcp": [], "rdma": []}
        for _ in range(repeats):
            for name, comm in (("tcp", by_tcp), ("rdma", world)):
                runs[name].append(_timed(workload, comm, n, seed))
        times[workload.name] = {
            f"{name}_{figure}": [run[place] for run in own]
            for name, own in runs.items()
            for place, figure in enumerate(("s", "result"))
        }
        state = workload.make(world.rank, world.size, seed)
        os.environ[record.VARIABLE] = str(folder / workload.name)
        recorded = world.copy(workload.name)
        del os.environ[record.VARIABLE]
        recorded.barrier()  # a record starts with the first call
        workload.run(recorded, n, state)
        world.barrier()
    by_tcp.close()
    if world.rank == 0:
        (folder / TIMES).write_text(json.dumps(times), encoding="utf-8")


def _timed(workload: Workload, comm: Comm, n: int, seed: int) -> tuple[float, float]:
    """Time a program on all ranks, from a barrier to a barrier."""
    state = workload.make(comm.rank, comm.size, seed)
    comm.barrier()
    begin_s = time.perf_counter()
    result = workload.run(comm, n, state)
    comm.barrier()
    return time.perf_counter() - begin_s, result


# The methods of `weft.collectives.live.world` on plain TCP sockets, with the same programs for collectives.
#
# Data that the kernel does not accept at once is copied, and sent whenever this rank waits.

_TIMEOUT_S = 60.0
_ADDRESS = "127.0.0.1"


class Sockets:
    """A set of connections, one between each pair of ranks."""

    def __init__(self, store: JobStore, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._peers: dict[int, socket.socket] = {}
        self._left: dict[int, deque[memoryview]] = {peer: deque() for peer in range(size)}
        self._place = np.empty(FRAGMENT_BYTES, np.uint8)
        with socket.create_server((_ADDRESS, 0), backlog=size) as server:
            server.settimeout(_TIMEOUT_S)
            store.set(f"tcp {rank}", str(server.getsockname()[1]).encode())
            for peer in range(rank):
                port = int(store.get(f"tcp {peer}", _TIMEOUT_S))
                connection = socket.create_connection((_ADDRESS, port), _TIMEOUT_S)
                connection.sendall(bytes([rank]))
                self._peers[peer] = connection
            for _ in range(rank + 1, size):
                connection, _ = server.accept()
                self._peers[connection.recv(1)[0]] = connection
        for connection in self._peers.values():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)

    def send(self, data: Any, to: int) -> None:
        self._send(to, flat(data).data)

    def receive(self, data: Any, source: int) -> None:
        self._take(source, flat(data).data)

    def exchange(self, data: Any, to: int, place: Any, source: int) -> None:
        self.send(data, to)
        self.receive(place, source)

    def all_reduce(self, data: Any) -> None:
        self._run(Collective.ALL_REDUCE, data)

    def barrier(self) -> None:
        self._run(Collective.BARRIER, np.empty(0))

    def close(self) -> None:
        """Close the connections after all data has been sent."""
        while any(self._left.values()):
            self._wait(None)
        for connection in self._peers.values():
            connection.close()

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _run(self, kind: Collective, data: Any) -> None:
        memory, raw, place = Array(data), flat(data), self._place
        program = choose(kind, self.size, memory.size_bytes)
        for step in steps(program, self.rank, memory.size_bytes, memory.item_bytes, FRAGMENT_BYTES):
            if step.is_send:
                for piece in step.pieces:
                    self._send(step.peer, raw[piece.begin : piece.begin + piece.length].data)
                if not step.length:
                    self._send(step.peer, memoryview(b"\0"))  # a sign of progress
                continue
            self._take(step.peer, place[: max(1, step.length)].data)
            at = 0
            for piece in step.pieces:
                (memory.add if step.add else memory.put)(piece.begin, place[at : at + piece.length])
                at += piece.length

    def _send(self, peer: int, data: memoryview) -> None:
        if not self._left[peer]:
            with suppress(BlockingIOError):
                data = data[self._peers[peer].send(data) :]
        if data:
            self._left[peer].append(memoryview(bytes(data)))

    def _take(self, peer: int, place: memoryview) -> None:
        while place:
            try:
                count = self._peers[peer].recv_into(place)
            except BlockingIOError:
                self._wait(peer)
                continue
            if not count:
                raise SubnetError(f"rank {peer} closed its connection to rank {self.rank}")
            place = place[count:]

    def _wait(self, peer: int | None) -> None:
        """Wait until data from a peer has arrived, or data can be sent."""
        full = [self._peers[each] for each, left in self._left.items() if left]
        runtime.wait_ready([self._peers[peer]] if peer is not None else [], full, _TIMEOUT_S)
        for each, left in self._left.items():
            while left:
                try:
                    left[0] = left[0][self._peers[each].send(left[0]) :]
                except BlockingIOError:
                    break
                if not left[0]:
                    left.popleft()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
