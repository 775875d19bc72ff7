"""A training rank: each step sums the gradients of all ranks. Arguments: a folder, and the timeout of queue pairs.

Each rank writes its process id to `process.RANK`, and after each step a digest of its weights to `steps.RANK`. All
ranks end after the step in which the file `stop` appears. A rank that fails writes the reason to `error.RANK`; SIGTERM
is ignored so that the file is complete.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from weft.collectives.live import link
from weft.collectives.live.world import World, join_world
from weft.errors import WeftError

_ITEMS = 4000
_PAUSE_S = 0.01  # after a step, so that other processes get the CPU


def gradient(step: int, rank: int) -> NDArray[np.float32]:
    return np.random.default_rng([step, rank]).standard_normal(_ITEMS, np.float32)


class Model:
    def __init__(self) -> None:
        self._weights = np.zeros(_ITEMS, np.float32)

    def learn(self, gradients: NDArray[np.float32]) -> str:
        """Update the weights; return their digest."""
        self._weights -= np.float32(0.01) * gradients
        return hashlib.sha256(self._weights.tobytes()).hexdigest()


def _train(world: World, folder: Path, steps: TextIO) -> None:
    model, goes_on = Model(), np.ones(1, np.int32)
    for step in itertools.count():
        gradients = gradient(step, world.rank)
        world.all_reduce(gradients)
        print(model.learn(gradients), file=steps)
        time.sleep(_PAUSE_S)
        goes_on[0] = not (folder / "stop").exists()
        world.broadcast(goes_on)
        if not goes_on[0]:
            return


def _main(folder: Path, timeout: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    link._TIMEOUT_IN_LAB = timeout
    world = join_world()
    (folder / f"process.{world.rank}").write_text(str(os.getpid()))
    with (folder / f"steps.{world.rank}").open("w", buffering=1) as steps:
        try:
            _train(world, folder, steps)
        except WeftError as error:
            (folder / f"error.{world.rank}").write_text(str(error))
            sys.exit(3)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
