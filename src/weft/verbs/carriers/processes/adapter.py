"""The adapter of this process: with those of other processes of this machine it makes one device.

Like an adapter in hardware it answers others while the program does something else: a thread takes what other
processes send, and repeats what they did not answer. A process that is a copy of this one, by fork, has an adapter of
its own; what it has inherited of this one's is dead.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading

from weft.verbs.carriers.loopback import Loopback
from weft.verbs.carriers.processes.carrier import ProcessCarrier
from weft.verbs.hca.adapter import Adapter
from weft.verbs.shm.queue_memory import Lock, QueueMemory


class Nowhere(Loopback):
    """A carrier of what is left behind."""

    def __init__(self) -> None:
        super().__init__(())

    def send(self, segment: object, to: object, mtu_bytes: int) -> None:
        """Lost."""


@functools.cache
def open_adapter(gids: tuple[int, ...], device: str) -> Adapter:
    """The one of this process."""
    if sys.platform != "linux":
        return Adapter(Loopback(gids))
    carrier = ProcessCarrier(gids, device)
    adapter = Adapter(carrier, memory=QueueMemory(can_be_shared=True))
    carrier.open(adapter)
    _opened.append((adapter, carrier))
    threading.Thread(target=_work, args=(adapter, carrier), name=f"{device} of weft", daemon=True).start()
    return adapter


_opened: list[tuple[Adapter, ProcessCarrier]] = []


def _work(adapter: Adapter, carrier: ProcessCarrier) -> None:
    """What the hardware does of itself."""
    adapter.background = threading.get_ident()
    while True:
        carrier.wait_for_others(adapter.rest_s())
        adapter.progress()


def leave_behind(adapter: Adapter) -> None:
    """In a process that was forked, which has closed its copy of the carrier: the adapter is dead."""
    adapter.memory.leave()
    adapter.lock = adapter.regions.lock = Lock(adapter.memory)  # the thread that may have held it is not here
    for qp in adapter.queue_pairs.values():
        qp.shm_path = None
    adapter.carrier = Nowhere()


def _after_fork() -> None:
    for adapter, carrier in _opened:
        carrier.close()
        leave_behind(adapter)
    _opened.clear()
    open_adapter.cache_clear()
    Loopback.forget_all()


@atexit.register
def _at_end() -> None:
    """Others notice at once."""
    for adapter, _ in _opened:
        adapter.memory.close()


os.register_at_fork(after_in_child=_after_fork)
