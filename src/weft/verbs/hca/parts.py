"""What the parts of an adapter are to each other, so that no file of one has to import that of another.

An adapter has queue pairs, and a queue pair its two sides. A side knows its queue pair as it is; a queue pair knows its
sides, and its adapter, by what is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from weft.verbs.hca.carrier import Carrier
from weft.verbs.hca.receiving import ReceiveQueue
from weft.verbs.hca.regions import Regions
from weft.verbs.hca.segment import Segment
from weft.verbs.shm.queue_memory import Lock, QueueMemory


class Sending(Protocol):
    """A requester: of a queue pair, or of an EE context."""

    def reset(self) -> None: ...

    def resume(self) -> None: ...

    def run(self) -> None: ...

    def next_s(self) -> float | None: ...

    def on_time(self, now_s: float) -> None: ...

    def on_response(self, segment: Segment) -> None: ...


class Receiving(Protocol):
    """A responder."""

    def reset(self) -> None: ...

    def abandon(self) -> None: ...

    def on_request(self, segment: Segment) -> None: ...


class Unconnected(Protocol):
    """Both sides of a queue pair for datagrams."""

    def reset(self) -> None: ...

    def run(self) -> None: ...

    def on_request(self, segment: Segment, grh: bytes, slid: int, sl: int) -> None: ...


class Host(Protocol):
    """The adapter that queue pairs and EE contexts are of."""

    carrier: Carrier
    mtu_bytes: int
    clock: Callable[[], float]
    memory: QueueMemory
    lock: Lock
    regions: Regions
    counters: Counter[str]
    queue_pairs: dict[int, Any]
    ee_contexts: dict[int, Any]
    shared: dict[int, ReceiveQueue]

    def p_key(self, index: int) -> int: ...

    def send(self, qp: Any, segment: Segment, to: object = None) -> None: ...

    def wake(self, qp: Any) -> None: ...

    def note_time(self, qp: Any) -> None: ...

    def progress(self) -> bool: ...
