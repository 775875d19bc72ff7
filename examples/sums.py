"""Add arrays on all ranks repeatedly and check every sum: `weft run -n 2 examples/sums.py`, while its fabric breaks.

It ends when a file `enough` exists.
"""

import os
import time

import numpy as np

from weft import mpi as MPI  # noqa: N812 - as programs import it

comm, number, is_enough = MPI.COMM_WORLD, 0, False
total_of_ranks = comm.size * (comm.size + 1) // 2
while not is_enough:
    number += 1
    total = np.empty(20_000, np.int64)
    comm.Allreduce(np.full(20_000, number * (comm.rank + 1)), total)
    assert (total == number * total_of_ranks).all(), f"sum {number} is wrong"
    is_enough = comm.bcast(os.path.exists("enough"))
    if comm.rank == 0 and number % 20 == 0:
        print("sum", number, "is right")
    time.sleep(0.02)  # stands for computation
