"""Define asynchronous events of queue pairs, shared receive queues, completion queues and ports.

    ctx.raise_event(IBV_EVENT_CQ_ERR, cq)       the adapter's side
    ctx.get_async_event()                       the program's: waits for one

Each context has its own queue, `ctx.events`. A thread that waits, here or at a completion channel, drives the adapter
meanwhile: see `wait_for`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from weft.verbs.attributes.objects import PyverbsObject
from weft.verbs.enums import ibv_event_type
from weft.verbs.hca.adapter import Adapter

_SLICE_S = 0.002  # poll interval: the carrier does not report progress by other threads
T = TypeVar("T")


class AsyncEvent(PyverbsObject):
    """An event. `element` is its queue pair, shared receive queue, completion queue, or port number.

    `ack()` acknowledges it; acknowledging it twice is no error.
    """

    def __init__(self, event_type: ibv_event_type = ibv_event_type.IBV_EVENT_CQ_ERR, element: object = None) -> None:
        self.event_type, self.element = event_type, element
        self.is_acked = False

    def ack(self) -> None:
        self.is_acked = True

    def __str__(self) -> str:
        return f"{ibv_event_type(self.event_type).name} {self.element if isinstance(self.element, int) else ''}".strip()


def wait_for(adapter: Adapter, poll: Callable[[], T | None]) -> T:
    """Drive the adapter until `poll` returns a result. Signals interrupt it, as any wait in Python."""
    adapter.progress()
    while (result := poll()) is None:
        adapter.carrier.wait(_SLICE_S)
        adapter.progress()
    return result
