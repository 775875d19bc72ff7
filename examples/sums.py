"""Add arrays on all ranks repeatedly and check every sum: `weft run -n 2 examples/sums.py`, while its fabric breaks.

It ends when a file `enough` exists.
"""

import os
import time

import numpy as np

from weft.collectives.live.world import join_world

world, number, is_enough = join_world(), 0, np.zeros(1, bool)
total_of_ranks = world.size * (world.size + 1) // 2
while not is_enough[0]:
    number += 1
    total = np.full(20_000, number * (world.rank + 1))
    world.all_reduce(total)
    assert (total == number * total_of_ranks).all(), f"sum {number} is wrong"
    is_enough[0] = os.path.exists("enough")
    world.broadcast(is_enough)
    if world.rank == 0 and number % 20 == 0:
        print("sum", number, "is right")
    time.sleep(0.02)  # stands for computation
