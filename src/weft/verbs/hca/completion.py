"""Completion queues: what came of work, in order, and who is told when something comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any

from weft.verbs.enums import ibv_wc_status
from weft.verbs.hca.work import Completion
from weft.verbs.shm import layout
from weft.verbs.shm.layout import (
    ARMED_FOR_ALL,
    ARMED_FOR_SOLICITED,
    C_POSTED,
    C_QP_NUM,
    CQ_ENTRIES,
    CQ_ENTRY_WORDS,
    ENTRY_FORM,
    WORD_BYTES,
)
from weft.verbs.shm.queue_memory import Block, QueueMemory, of_process

Numbers = tuple[int, ...]  # of a completion, in the order of `layout`
Take = Callable[[Any], Numbers | None]
_numbers = attrgetter(*(field.name for field in fields(Completion)))  # in the same order


class CompletionQueue:
    """Holds up to `capacity`; one more is an overflow, after which it takes nothing: `on_overflow` says so, once.

    Completions are added by who has the adapter's lock, and taken by anybody. `at` is the word of its ring.
    """

    def __init__(self, capacity: int, memory: QueueMemory | None = None) -> None:
        self.on_event: Callable[[], None] = lambda: None  # somebody asked to be told of the next
        self.on_overflow: Callable[[], None] = lambda: None
        self._memory = memory or of_process()
        self._taking = threading.Lock()
        self._make(capacity)

    def _make(self, capacity: int) -> None:
        self.capacity = capacity
        self._block = Block(self._memory, (CQ_ENTRIES + max(1, capacity) * CQ_ENTRY_WORDS) * WORD_BYTES)
        self.at = self._block.word
        self._head, self._tail = self.at + layout.CQ_HEAD, self.at + layout.CQ_TAIL
        self._memory.words[self.at + layout.CQ_CAPACITY] = max(1, capacity)
        self._take: Take | None = None  # out of `_box`, once others have the ring too

    def __len__(self) -> int:
        words = self._memory.words
        return words[self._head] - words[self._tail]

    @property
    def stamps(self) -> bool:
        """Whether completions get the time when they came."""
        return bool(self._memory.words[self.at + layout.CQ_STAMPS])

    @stamps.setter
    def stamps(self, value: bool) -> None:
        self._memory.words[self.at + layout.CQ_STAMPS] = value

    def add(self, done: Completion) -> bool:
        """False if there is no room."""
        words, at = self._memory.words, self.at
        if words[at + layout.CQ_IS_BROKEN]:
            return False
        if len(self) >= self.capacity:
            words[at + layout.CQ_IS_BROKEN] = 1
            self.on_overflow()
            return False
        if words[at + layout.CQ_STAMPS]:
            done.time_ns = time.monotonic_ns()
        self._put(_numbers(done))
        armed = words[at + layout.CQ_ARMED]
        failed = done.status != ibv_wc_status.IBV_WC_SUCCESS
        if armed == ARMED_FOR_ALL or (armed == ARMED_FOR_SOLICITED and (done.solicited or failed)):
            words[at + layout.CQ_ARMED] = 0
            self.on_event()
        return True

    def _put(self, numbers: Numbers) -> None:
        memory, head = self._memory, self._memory.words[self._head]
        at = self._entry(head) * WORD_BYTES
        memory.bytes[at : at + ENTRY_FORM.size] = ENTRY_FORM.pack(*numbers)
        memory.publish(self._head, head + 1)

    def poll_one(self) -> Numbers | None:
        """The oldest, as `poll` gives it: most programs ask for one."""
        if self._memory.is_shared:
            return (self._take or self._find_take())(self._box)
        found = self.poll(1)
        return found[0] if found else None

    def poll(self, most: int) -> list[Numbers]:
        """The oldest. The places of their send requests, and of all before them, are free again."""
        memory = self._memory
        words = memory.words
        if words[self._head] == words[self._tail]:
            return []
        if memory.is_shared:
            take = self._take or self._find_take()
            return _all(take, self._box, most)
        found = self._remove(most)
        for numbers in found:
            qp = layout.queue_pair_at(numbers[C_QP_NUM])
            if numbers[C_POSTED] and words[qp + layout.Q_NUMBER] == numbers[C_QP_NUM]:
                words[qp + layout.Q_POLLED] = numbers[C_POSTED]
        return found

    def _find_take(self) -> Take:
        from weft.verbs.shm.rings import box_of

        with self._taking:  # whoever began without the kernel is done
            self._box, self._take = box_of(self._memory.address, self.at, frees=True)
        return self._take

    def _remove(self, most: int) -> list[Numbers]:
        """The oldest; their send requests keep their places."""
        memory = self._memory
        with self._taking:
            if memory.is_shared:
                from weft.verbs.shm.rings import box_of

                box, take = box_of(memory.address, self.at, frees=False)
                return _all(take, box, most)
            tail = memory.words[self._tail]
            count = min(most, memory.published(self._head) - tail)
            entries = [self._entry(tail + n) * WORD_BYTES for n in range(count)]
            found = [ENTRY_FORM.unpack_from(memory.bytes, at) for at in entries]
            memory.publish(self._tail, tail + count)
        return found

    def arm(self, *, solicited_only: bool) -> None:
        """One event, at the next that comes; a request for all goes before one for solicited ones."""
        words, at = self._memory.words, self.at + layout.CQ_ARMED
        words[at] = ARMED_FOR_SOLICITED if solicited_only and words[at] != ARMED_FOR_ALL else ARMED_FOR_ALL

    def was_rung(self) -> None:
        """Another process may have added what somebody waits for."""
        words, at = self._memory.words, self.at + layout.CQ_BELL
        if words[at]:
            words[at] = 0
            self.on_event()

    def forget(self, qp_num: int) -> None:
        """What belongs to a queue pair that is reset or gone."""
        self._refill([numbers for numbers in self._remove(len(self)) if numbers[C_QP_NUM] != qp_num])

    def resize(self, capacity: int) -> None:
        """What is in it stays; it moves, so those who know where it is must be told."""
        words, before = self._memory.words, self.at
        waiting = self._remove(len(self))
        self._make(capacity)
        for word in (layout.CQ_ARMED, layout.CQ_IS_BROKEN, layout.CQ_STAMPS, layout.CQ_BELL):
            words[self.at + word] = words[before + word]
        self._refill(waiting)

    def _refill(self, completions: list[Numbers]) -> None:
        for numbers in completions:
            self._put(numbers)

    def _entry(self, count: int) -> int:
        return self.at + CQ_ENTRIES + count % max(1, self.capacity) * CQ_ENTRY_WORDS


def _all(take: Take, box: Any, most: int) -> list[Numbers]:
    found: list[Numbers] = []
    while len(found) < most and (one := take(box)) is not None:
        found.append(one)
    return found
