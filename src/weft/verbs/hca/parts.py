"""Define the interfaces between the parts of an adapter, so that their modules do not import each other.

An adapter has queue pairs, and a queue pair has a requester and a responder. These use the queue pair directly; a queue
pair uses them, and its adapter, by these interfaces.
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
    """A requester of a queue pair or of an EE context."""

    def reset(self) -> None: ...

    def resume(self) -> None: ...

    def run(self) -> None: ...

    def next_s(self) -> float | None: ...

    def on_timer(self, now_s: float) -> None: ...

    def on_response(self, segment: Segment) -> None: ...


class Receiving(Protocol):
    """A responder."""

    def reset(self) -> None: ...

    def abandon(self) -> None: ...

    def on_request(self, segment: Segment) -> None: ...


class Unconnected(Protocol):
    """A requester and responder for datagrams."""

    def reset(self) -> None: ...

    def run(self) -> None: ...

    def on_request(self, segment: Segment, grh: bytes, slid: int, sl: int) -> None: ...


class Host(Protocol):
    """The adapter of queue pairs and EE contexts."""

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

    def arm_timer(self, qp: Any) -> None: ...

    def on_bad_key(self, *, is_q_key: bool) -> None: ...

    def progress(self) -> bool: ...
