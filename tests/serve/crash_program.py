"""python crash_program.py DATABASE FABRIC NAME: writers that print acknowledged changes until they are killed.

The fabric is a file: it outlives the process, as devices do.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from pathlib import Path

import msgspec

from weft.serve.ledger import Ledger
from weft.serve.store import Store
from weft.tenants.drivers.driver import Observed
from weft.tenants.partitions import Allocation, Inventory, Partition

WRITERS = 4


class FileFabric:
    title = "file"

    def __init__(self, path: Path) -> None:
        self._path = path

    def inventory(self) -> Inventory:
        return Inventory(())

    def read(self) -> Observed:
        present = self._path.exists()
        return Observed(
            allocation=msgspec.json.decode(self._path.read_bytes(), type=Allocation) if present else Allocation()
        )

    def write(self, wanted: Allocation, *, over: Observed) -> None:
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(wanted))
        new.replace(self._path)


def main() -> None:
    database, fabric, name = sys.argv[1:]
    ledger = Ledger(Store(database), FileFabric(Path(fabric)))
    numbers = itertools.count(len(ledger.desired().partitions) + 1)

    def write() -> None:
        for number in numbers:
            ledger.change(name, "make", lambda draft, n=number: draft.put(Partition(name=f"{name}-{n}", p_key=n)))
            os.write(1, f"{number}\n".encode())

    for _ in range(WRITERS):
        threading.Thread(target=write).start()


if __name__ == "__main__":
    main()
