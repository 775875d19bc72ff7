"""Receive queues: of one queue pair, or shared by many."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.hca.work import ReceiveWork, Refused
from weft.verbs.shm import layout
from weft.verbs.shm.layout import ReceiveQueueRecord, ReceiveRequest, SgeRecord
from weft.verbs.shm.memory import Place
from weft.verbs.shm.native import adder
from weft.verbs.shm.queue_memory import Block, QueueMemory, of_process

Kernel = Callable[..., Any]


class ReceiveQueue:
    """A queue of receive requests. A shared one reports once when fewer than `limit` are left. `at`: its record."""

    def __init__(
        self, capacity: int, places_max: int, *, shared: bool = False, memory: QueueMemory | None = None
    ) -> None:
        self.places_max, self.is_shared = places_max, shared
        self.pd: object = None  # shared queues
        self.number = 0  # XRC: its number,
        self.domain: object = None  # its domain,
        self.cq: CompletionQueue | None = None  # and its completion queue
        self.on_limit: Callable[[], None] = lambda: None
        self._memory = memory or of_process()
        self._returned: list[ReceiveWork] = []  # the next first
        self._entry_bytes = ReceiveRequest.size + places_max * SgeRecord.size
        self._make(capacity)

    def _make(self, capacity: int) -> None:
        self.capacity = capacity
        self._block = Block(self._memory, layout.RING + max(1, capacity) * self._entry_bytes)
        self.at = self._block.at
        self._add: Kernel | None = None  # to `_ring`, where others see it in order
        self.record = ReceiveQueueRecord.from_buffer(self._memory.bytes, self.at)
        self.record.capacity, self.record.max_sge = capacity, self.places_max

    def __len__(self) -> int:
        return self.record.head - self.record.tail + len(self._returned)

    def post(self, work: ReceiveWork) -> None:
        if len(work.places) > self.places_max:
            raise Refused(errno.EINVAL, f"{len(work.places)} elements are more than the {self.places_max} allowed")
        elements = [SgeRecord.form.pack(place.address, place.length, place.lkey) for place in work.places]
        if not self.put(ReceiveRequest.form.pack(work.wr_id, len(elements)) + b"".join(elements)):
            raise Refused(errno.ENOMEM, f"the receive queue is full: it holds {self.capacity}")

    def put(self, request: bytes) -> bool:
        """Add a packed request (`layout.ReceiveRequest`); return False if it is too long or the queue is full.

        Only this process adds, so the lock of its threads suffices.
        """
        memory, size = self._memory, len(request)
        if memory.is_shared:
            return (self._add or self._find_add())(self._ring, request)  # type: ignore[no-any-return]
        record = self.record
        head = record.head
        if head - record.tail + len(self._returned) >= self.capacity or size > self._entry_bytes:
            return False
        begin = self._entry(head)
        memory.bytes[begin : begin + size] = request
        record.head = head + 1
        return True

    def _entry(self, count: int) -> int:
        return self.at + layout.RING + count % max(1, self.capacity) * self._entry_bytes

    def _find_add(self) -> Kernel:
        self._ring, self._add = adder(self._memory.bytes, self._memory.address, self.at)
        return self._add

    def take(self) -> ReceiveWork | None:
        """Take and return the next request; None if there is none."""
        if not len(self):
            return None
        if self._returned:
            work = self._returned.pop(0)
            self.record.returned = len(self._returned)
        else:
            data, at = self._memory.bytes, self._entry(self.record.tail)
            wr_id, count = ReceiveRequest.form.unpack_from(data, at)
            begin = at + ReceiveRequest.size
            places = SgeRecord.form.iter_unpack(data[begin : begin + count * SgeRecord.size])
            work = ReceiveWork(wr_id=wr_id, places=tuple(Place(*numbers) for numbers in places))
            self.record.tail += 1
        if self.record.limit and len(self) < self.record.limit:
            self.record.limit = 0
            self.on_limit()
        return work

    def put_back(self, work: ReceiveWork) -> None:
        """Return a request that was taken and not used."""
        self._returned.insert(0, work)
        self.record.returned = len(self._returned)

    def clear(self) -> None:
        self._returned.clear()
        self.record.returned, self.record.tail = 0, self.record.head

    def resize(self, capacity: int) -> None:
        """Change the capacity and keep the contents. The queue moves, so its new address must be published."""
        limit, self.record.limit = self.record.limit, 0
        waiting = [work for work in iter(self.take, None) if work is not None]
        self._make(capacity)
        for work in waiting:
            self.post(work)
        self.record.limit = limit
