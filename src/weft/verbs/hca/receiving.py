"""Receive queues: of one queue pair, or shared by many."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.hca.work import ReceiveWork, Refused
from weft.verbs.shm import layout
from weft.verbs.shm.layout import PLACE_FORM, RECEIVE_FORM, RQ_ENTRIES, RQ_HEAD, RQ_TAIL, WORD_BYTES
from weft.verbs.shm.memory import Place
from weft.verbs.shm.queue_memory import Block, QueueMemory, of_process

Kernel = Callable[..., Any]


class ReceiveQueue:
    """First in, first out. A shared one tells once when fewer than `limit` are left. `at` is the word of its ring."""

    def __init__(
        self, capacity: int, places_max: int, *, shared: bool = False, memory: QueueMemory | None = None
    ) -> None:
        self.places_max, self.is_shared = places_max, shared
        self.pd: object = None  # of a shared one
        self.number = 0  # of one for XRC: what a sender calls it,
        self.domain: object = None  # who may use it,
        self.cq: CompletionQueue | None = None  # and who is told
        self.on_limit: Callable[[], None] = lambda: None
        self._memory = memory or of_process()
        self._returned: list[ReceiveWork] = []  # the next first
        self._entry_words = 2 + 3 * places_max
        self._entry_bytes = self._entry_words * WORD_BYTES
        self._make(capacity)

    def _make(self, capacity: int) -> None:
        self.capacity = capacity
        words = layout.RQ_ENTRIES + max(1, capacity) * self._entry_words
        self._block = Block(self._memory, words * WORD_BYTES)
        self.at = self._block.word
        self._add: Kernel | None = None  # to `_ring`, where others see it in order
        ring = self._memory.words
        ring[self.at + layout.RQ_CAPACITY], ring[self.at + layout.RQ_PLACES_MAX] = capacity, self.places_max

    @property
    def limit(self) -> int:
        return self._memory.words[self.at + layout.RQ_LIMIT]

    @limit.setter
    def limit(self, value: int) -> None:
        self._memory.words[self.at + layout.RQ_LIMIT] = value

    def __len__(self) -> int:
        words, at = self._memory.words, self.at
        return words[at + layout.RQ_HEAD] - words[at + layout.RQ_TAIL] + len(self._returned)

    def post(self, work: ReceiveWork) -> None:
        if len(work.places) > self.places_max:
            raise Refused(errno.EINVAL, f"{len(work.places)} elements are more than the {self.places_max} allowed")
        elements = [PLACE_FORM.pack(place.address, place.length, place.lkey) for place in work.places]
        if not self.put(RECEIVE_FORM.pack(work.wr_id, len(elements)) + b"".join(elements)):
            raise Refused(errno.ENOMEM, f"the receive queue is full: it holds {self.capacity}")

    def put(self, request: bytes) -> bool:
        """What a program has packed (`layout.RECEIVE_FORM`); False if it is too long or has no place.

        Nobody else adds, so of the locks that of the threads is enough.
        """
        memory, size = self._memory, len(request)
        if memory.is_shared:
            return (self._add or self._find_add())(self._ring, request)  # type: ignore[no-any-return]
        words, at, capacity, entry_bytes = memory.words, self.at, self.capacity, self._entry_bytes
        head = words[at + RQ_HEAD]
        if head - words[at + RQ_TAIL] + len(self._returned) >= capacity or size > entry_bytes:
            return False
        begin = (at + RQ_ENTRIES) * WORD_BYTES + head % capacity * entry_bytes
        memory.bytes[begin : begin + size] = request
        words[at + RQ_HEAD] = head + 1
        return True

    def _find_add(self) -> Kernel:
        from weft.verbs.shm import rings

        self._ring, self._add = rings.ring_at(self._memory.bytes, self.at)
        return self._add

    def take(self) -> ReceiveWork | None:
        """The next; None if there is none."""
        if not len(self):
            return None
        words = self._memory.words
        if self._returned:
            work = self._returned.pop(0)
            words[self.at + layout.RQ_RETURNED] = len(self._returned)
        else:
            tail = words[self.at + layout.RQ_TAIL]
            at = self.at + RQ_ENTRIES + tail % max(1, self.capacity) * self._entry_words
            ends = range(at + 2, at + 2 + 3 * words[at + 1], 3)
            places = tuple(Place(words[one], words[one + 1], words[one + 2]) for one in ends)
            work = ReceiveWork(wr_id=words[at], places=places)
            words[self.at + layout.RQ_TAIL] = tail + 1
        if self.limit and len(self) < self.limit:
            self.limit = 0
            self.on_limit()
        return work

    def put_back(self, work: ReceiveWork) -> None:
        """One that was taken and not used."""
        self._returned.insert(0, work)
        self._memory.words[self.at + layout.RQ_RETURNED] = len(self._returned)

    def clear(self) -> None:
        words, at = self._memory.words, self.at
        self._returned.clear()
        words[at + layout.RQ_RETURNED], words[at + layout.RQ_TAIL] = 0, words[at + layout.RQ_HEAD]

    def resize(self, capacity: int) -> None:
        """What is in it stays; it moves, so those who know where it is must be told."""
        limit, self.limit = self.limit, 0
        waiting = [work for work in iter(self.take, None) if work is not None]
        self._make(capacity)
        for work in waiting:
            self.post(work)
        self.limit = limit
