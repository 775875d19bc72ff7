"""Open the adapters of this process on first use; outside of labs there is one, `open_adapter`.

Like hardware, an adapter responds to others while the program does something else: a thread receives packets and
retransmits. A forked process opens an adapter of its own; the inherited one is unusable.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from weft.verbs.carriers.loopback import Loopback
from weft.verbs.carriers.processes.carrier import ProcessCarrier
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.carrier import Carrier
from weft.verbs.shm.queue_memory import Lock, QueueMemory

C = TypeVar("C", bound=Carrier)


class Nowhere(Loopback):
    """A carrier for the inherited adapter of a forked process."""

    def __init__(self) -> None:
        super().__init__(())

    def send(self, segment: object, to: object, mtu_bytes: int) -> None:
        """Drop the segment."""


class Opening(Generic[C]):
    """The adapter of a device, opened on first use. `work` runs in a background thread."""

    def __init__(self, device: str, make: Callable[[], tuple[Adapter, C]], work: Callable[[Adapter, C], None]) -> None:
        self._device, self._make, self._work = device, make, work
        self._opened: tuple[Adapter, C] | None = None
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._after_fork)
        atexit.register(self._at_end)

    def opened(self) -> tuple[Adapter, C]:
        with self._lock:
            if self._opened is None:
                self._opened = self._make()
                name = f"{self._device} of weft"
                threading.Thread(target=self._work, args=self._opened, name=name, daemon=True).start()
            return self._opened

    def _after_fork(self) -> None:
        """Disable the inherited adapter: its sockets are the parent's, and its thread is gone, maybe with a lock."""
        self._lock = threading.Lock()
        if self._opened is not None:
            adapter, carrier = self._opened
            carrier.close()
            adapter.memory.leave()
            adapter.lock = adapter.regions.lock = Lock(adapter.memory)
            for qp in adapter.queue_pairs.values():
                qp.shm_path = None
            adapter.carrier = Nowhere()
            self._opened = None

    def _at_end(self) -> None:
        """Close the memory, so that peers notice the end at once."""
        if self._opened is not None:
            self._opened[0].memory.close()


def open_adapter(gids: tuple[int, ...], device: str) -> Adapter:
    """Return the adapter of this process; all processes of this machine share one device."""
    return _opening(gids, device).opened()[0]


@functools.cache
def _opening(gids: tuple[int, ...], device: str) -> Opening[Loopback]:
    return Opening(device, lambda: _open(gids, device), _work)


def _open(gids: tuple[int, ...], device: str) -> tuple[Adapter, Loopback]:
    if sys.platform != "linux":
        alone = Loopback(gids)
        return Adapter(alone), alone
    carrier = ProcessCarrier(gids, device)
    adapter = Adapter(carrier, memory=QueueMemory(can_be_shared=True))
    carrier.open(adapter)
    return adapter, carrier


def _work(adapter: Adapter, carrier: Loopback) -> None:
    adapter.background = threading.get_ident()
    while isinstance(carrier, ProcessCarrier):
        carrier.wait_for_others(adapter.rest_s())
        adapter.progress()


os.register_at_fork(after_in_child=Loopback.forget_all)
