"""Implement completion queues and their events."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from weft.verbs.enums import ibv_wc_status
from weft.verbs.shm import layout
from weft.verbs.shm.layout import ARMED_FOR_ALL, ARMED_FOR_SOLICITED, CompletionQueueRecord, CompletionRecord
from weft.verbs.shm.memory import MemoryFault, write
from weft.verbs.shm.native import Numbers, taker
from weft.verbs.shm.queue_memory import Block, QueueMemory, of_process, publish, published

Take = Callable[[Any], Numbers | None]
_QP_NUM, _POSTED = (CompletionRecord.names.index(name) for name in ("qp_num", "posted"))


class CompletionQueue:
    """A completion queue of `capacity`. On overflow `on_overflow` is called once, and nothing more is added.

    Adding needs the adapter's lock, taking does not. `at` is the offset of its record.
    """

    def __init__(self, capacity: int, memory: QueueMemory | None = None) -> None:
        self.on_event: Callable[[], None] = lambda: None  # an event was requested
        self.on_overflow: Callable[[], None] = lambda: None
        self._memory = memory or of_process()
        self._taking = threading.Lock()
        self._make(capacity)

    def _make(self, capacity: int) -> None:
        self.capacity = capacity
        self._block = Block(self._memory, layout.RING + max(1, capacity) * layout.COMPLETION_BYTES)
        self.at = self._block.at
        self.record = CompletionQueueRecord.from_buffer(self._memory.bytes, self.at)
        self.record.capacity = max(1, capacity)
        self._take: Take | None = None  # out of `_box`, once others have the ring too

    def __len__(self) -> int:
        return self.record.head - self.record.tail

    def add(self, done: CompletionRecord) -> bool:
        """Add a completion; return False if the queue is full."""
        record = self.record
        if record.is_broken:
            return False
        if len(self) >= self.capacity:
            record.is_broken = 1
            self.on_overflow()
            return False
        if record.stamps:
            done.time_ns = time.monotonic_ns()
        self._put(bytes(done))
        armed = record.armed
        failed = done.status != ibv_wc_status.IBV_WC_SUCCESS
        if armed == ARMED_FOR_ALL or (armed == ARMED_FOR_SOLICITED and (done.solicited or failed)):
            record.armed = 0
            self.on_event()
        return True

    def _put(self, done: bytes) -> None:
        memory, head = self._memory, self.record.head
        at = self._entry(head)
        memory.bytes[at : at + len(done)] = done
        if memory.is_shared:
            publish(self.record, "head", head + 1)
        else:
            self.record.head = head + 1

    def poll_one(self) -> Numbers | None:
        """Take and return the oldest completion: most programs poll for one."""
        if self._memory.is_shared:
            return (self._take or self._find_take())(self._box)
        found = self.poll(1)
        return found[0] if found else None

    def poll(self, most: int) -> list[Numbers]:
        """Take and return the oldest completions; free the places of their send requests and of all before them."""
        memory = self._memory
        if self.record.head == self.record.tail:
            return []
        if memory.is_shared:
            take = self._take or self._find_take()
            return _all(take, self._box, most)
        found = self._remove(most)
        for numbers in found:
            if numbers[_POSTED] and numbers[_QP_NUM] in memory.queue_pairs:
                memory.queue_pairs[numbers[_QP_NUM]].polled = numbers[_POSTED]
        return found

    def _find_take(self) -> Take:
        with self._taking:  # calls that began without the kernel have ended
            self._box, self._take = taker(self._memory.address, self.at, frees=True)
        return self._take

    def _remove(self, most: int) -> list[Numbers]:
        """Take the oldest completions without freeing the places of their send requests."""
        memory = self._memory
        with self._taking:
            if memory.is_shared:
                box, take = taker(memory.address, self.at, frees=False)
                return _all(take, box, most)
            tail = self.record.tail
            head = published(self.record, "head") if memory.is_shared else self.record.head  # it may be by now
            count = min(most, head - tail)
            found = [CompletionRecord.form.unpack_from(memory.bytes, self._entry(tail + n)) for n in range(count)]
            if memory.is_shared:
                publish(self.record, "tail", tail + count)
            else:
                self.record.tail = tail + count
        return found

    def arm(self, *, solicited_only: bool) -> None:
        """Request one event for the next completion. A request for all completions overrides one for solicited ones."""
        only = solicited_only and self.record.armed != ARMED_FOR_ALL
        self.record.armed = ARMED_FOR_SOLICITED if only else ARMED_FOR_ALL

    def on_bell(self) -> None:
        """Raise the event if another process has added a completion for it."""
        if self.record.bell:
            self.record.bell = 0
            self.on_event()

    def forget(self, qp_num: int) -> None:
        """Remove the completions of a queue pair that is reset or destroyed."""
        self._put_in_place(but=qp_num)
        self._refill([numbers for numbers in self._remove(len(self)) if numbers[_QP_NUM] != qp_num])

    def resize(self, capacity: int) -> None:
        """Change the capacity and keep the contents. The queue moves, so its new address must be published."""
        before = self.record
        self._put_in_place()
        waiting = self._remove(len(self))
        self._make(capacity)
        for name in ("armed", "is_broken", "stamps", "bell"):
            setattr(self.record, name, getattr(before, name))
        self._refill(waiting)

    def _put_in_place(self, but: int = 0) -> None:
        """Copy the bytes behind completions that will move to their buffers, except for a destroyed queue pair."""
        for count in range(self.record.tail, self.record.head):
            at = self._entry(count)
            done = CompletionRecord.from_buffer(self._memory.bytes, at)
            if done.place and done.qp_num != but:
                begin = at + CompletionRecord.size
                with contextlib.suppress(MemoryFault):  # the program has unmapped its buffer
                    write(done.place, self._memory.bytes[begin : begin + done.byte_len])
                done.place = 0

    def _refill(self, completions: list[Numbers]) -> None:
        for numbers in completions:
            self._put(CompletionRecord.form.pack(*numbers))

    def _entry(self, count: int) -> int:
        return self.at + layout.RING + count % max(1, self.capacity) * layout.COMPLETION_BYTES


def _all(take: Take, box: Any, most: int) -> list[Numbers]:
    found: list[Numbers] = []
    while len(found) < most and (one := take(box)) is not None:
        found.append(one)
    return found
