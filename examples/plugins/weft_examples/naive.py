"""A collective algorithm: all-reduce as one would first write it. All send to rank 0, which adds and sends back.

Two rounds of n - 1 sends of the whole buffer, all through the port of rank 0: compare it with `ring`. weft proves the
result of a
program before it runs it: leave out the second round and see.
"""

from __future__ import annotations

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.schedules.program import Program, Sends


def all_reduce(nodes: int, gpus: int, root: int) -> Program:
    """Return a program after which every rank has the sum of all buffers. `root` is for collectives that have one."""
    rest = np.arange(1, nodes * gpus)

    def make_round(number: int) -> Sends:
        if number == 0:
            return Sends.make(rest, 0, 0, add=True)
        return Sends.make(np.zeros_like(rest), rest, 0, add=False)

    return Program.of("naive all-reduce", Collective.ALL_REDUCE, nodes * gpus, (1, 1), make_round, n_chunks=1)


NAIVE = {"all_reduce": all_reduce}
ENTRY_POINTS = {
    "weft.collectives": {"naive": NAIVE}
}  # for weft --plugin naive.py; a package has them in pyproject.toml
