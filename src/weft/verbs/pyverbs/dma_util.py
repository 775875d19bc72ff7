"""Barriers and register writes of user-space drivers.

The adapter is in the same process, so ordering needs no barrier; registers are ordinary memory.
"""

from __future__ import annotations

from weft.verbs.pyverbs.mem_alloc import write


def udma_to_dev_barrier() -> None:
    pass


def udma_from_dev_barrier() -> None:
    pass


def mmio_write64_as_be(addr: int, val: int) -> None:
    write(addr, val.to_bytes(8, "big"), 8)


def mmio_write32_as_be(addr: int, val: int) -> None:
    write(addr, val.to_bytes(4, "big"), 4)
