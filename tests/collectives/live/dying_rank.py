"""Two ranks that add; one is killed after its first sum. Arguments: a folder, the rank, the number of items."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from weft.collectives.live.arrays import Array
from weft.collectives.live.group import Group
from weft.collectives.live.link import Endpoint
from weft.collectives.schedules.writers import program
from weft.errors import SubnetError


class Folder:
    """A store in files."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self, key: str, value: bytes) -> None:
        (new := self._path / f"new {os.getpid()}").write_bytes(value)
        new.rename(self._path / key.replace("/", "-"))

    def get(self, key: str, timeout_s: float) -> bytes:
        file, end_s = self._path / key.replace("/", "-"), time.monotonic() + timeout_s
        while not file.exists():
            if time.monotonic() > end_s:
                raise TimeoutError(key)
            time.sleep(0.001)
        return file.read_bytes()


if __name__ == "__main__":
    rank = int(sys.argv[2])
    group = Group(Endpoint(), Folder(Path(sys.argv[1])), "two", rank, 2, timeout_s=300)
    ring, data = program("all_reduce", "ring", nodes=2), np.ones(int(sys.argv[3]))
    group.run(ring, Array(data), "the first sum")
    assert np.all(data == 2)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in range(20):  # the slots of the killed rank still accept some
            group.run(ring, Array(data), "another sum")
    except SubnetError as error:
        print(error)
