"""The work of each rank: every program over TCP and over weft's queue pairs, in turn, timed; then once more, recorded.

    python -m weft.scenarios.workloads.rank FOLDER REPEATS PART SEED

PART is the percentage of the default number of turns. Rank 0 writes times and results into FOLDER.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from weft.collectives.live import record
from weft.collectives.live.store import VARIABLE, JobStore
from weft.collectives.live.world import join_world
from weft.scenarios.workloads.programs import WORKLOADS, Comm, Workload
from weft.scenarios.workloads.sockets import Sockets

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


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
