"""Ranks that train: weights, and each step a sum of all gradients. Arguments: a folder, and how patient links are.

Each rank writes its process into `process.RANK`, and after each step a line with a digest of its weights into
`steps.RANK`; all end after the step at which there is a file `stop`. A rank that cannot go on writes why into
`error.RANK`, and then ends: whoever is told to end by the launcher meanwhile writes that first.
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

from weft import mpi as MPI  # noqa: N812 - as programs import it
from weft.collectives.live import link
from weft.mpi.communicator import Communicator

_ITEMS = 4000
_PAUSE_S = 0.01  # after a step: others need the processor, and those who look wait for steps, not for many


def gradient(step: int, rank: int) -> NDArray[np.float32]:
    return np.random.default_rng([step, rank]).standard_normal(_ITEMS, np.float32)


class Model:
    def __init__(self) -> None:
        self._weights = np.zeros(_ITEMS, np.float32)

    def learn(self, gradients: NDArray[np.float32]) -> str:
        """Its digest after a step."""
        self._weights -= np.float32(0.01) * gradients
        return hashlib.sha256(self._weights.tobytes()).hexdigest()


def _train(comm: Communicator, folder: Path, steps: TextIO) -> None:
    model, goes_on = Model(), np.ones(1, np.int32)
    for step in itertools.count():
        gradients = gradient(step, comm.rank)
        comm.Allreduce(MPI.IN_PLACE, gradients)
        print(model.learn(gradients), file=steps)
        time.sleep(_PAUSE_S)
        goes_on[0] = not (folder / "stop").exists()
        comm.Bcast(goes_on)
        if not goes_on[0]:
            return


def _main(folder: Path, timeout: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    link._TIMEOUT_IN_LAB = timeout
    comm = MPI.COMM_WORLD
    (folder / f"process.{comm.rank}").write_text(str(os.getpid()))
    with (folder / f"steps.{comm.rank}").open("w", buffering=1) as steps:
        try:
            _train(comm, folder, steps)
        except MPI.Exception as error:
            (folder / f"error.{comm.rank}").write_text(str(error))
            sys.exit(3)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
