"""Completion queues: what came of work, in order, and who is told when something comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from weft.verbs.enums import ibv_wc_opcode, ibv_wc_status
from weft.verbs.transport import layout
from weft.verbs.transport.layout import ARMED_FOR_ALL, ARMED_FOR_SOLICITED, CQ_ENTRIES, CQ_ENTRY_WORDS, WORD_BYTES
from weft.verbs.transport.queue_memory import Block, QueueMemory, of_process
from weft.verbs.transport.work import Completion

_STATUS = {int(status): status for status in ibv_wc_status}
_OPCODES = {int(opcode): opcode for opcode in ibv_wc_opcode}


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
        self._memory.words[self.at + layout.CQ_CAPACITY] = max(1, capacity)

    def __len__(self) -> int:
        words, at = self._memory.words, self.at
        return words[at + layout.CQ_HEAD] - words[at + layout.CQ_TAIL]

    @property
    def is_broken(self) -> bool:
        return bool(self._memory.words[self.at + layout.CQ_IS_BROKEN])

    @property
    def stamps(self) -> bool:
        """Whether completions get the time when they came."""
        return bool(self._memory.words[self.at + layout.CQ_STAMPS])

    @stamps.setter
    def stamps(self, value: bool) -> None:
        self._memory.words[self.at + layout.CQ_STAMPS] = value

    def add(self, completion: Completion) -> bool:
        """False if there is no room."""
        words, at = self._memory.words, self.at
        if words[at + layout.CQ_IS_BROKEN]:
            return False
        if len(self) >= self.capacity:
            words[at + layout.CQ_IS_BROKEN] = 1
            self.on_overflow()
            return False
        if words[at + layout.CQ_STAMPS]:
            completion.time_ns = time.monotonic_ns()
        self._put(completion)
        armed = words[at + layout.CQ_ARMED]
        failed = completion.status != ibv_wc_status.IBV_WC_SUCCESS
        if armed == ARMED_FOR_ALL or (armed == ARMED_FOR_SOLICITED and (completion.solicited or failed)):
            words[at + layout.CQ_ARMED] = 0
            self.on_event()
        return True

    def _put(self, done: Completion) -> None:
        words, head = self._memory.words, self._memory.words[self.at + layout.CQ_HEAD]
        at = self._entry(head)
        words[at], words[at + 1], words[at + 2], words[at + 3] = done.wr_id, done.qp_num, done.status, done.opcode
        words[at + 4], words[at + 5], words[at + 6], words[at + 7] = (
            done.byte_len,
            done.immediate,
            done.wc_flags,
            done.src_qp,
        )
        words[at + 8], words[at + 9], words[at + 10], words[at + 11] = (
            done.slid,
            done.sl,
            done.pkey_index,
            done.dlid_path_bits,
        )
        words[at + 12], words[at + 13], words[at + 14] = done.vendor_err, done.solicited, done.time_ns
        words[at + 15] = done.posted
        self._memory.publish(self.at + layout.CQ_HEAD, head + 1)

    def take(self, most: int) -> list[Completion]:
        """The oldest, for who polls: the places of their send requests, and of all before them, are free again."""
        found = self._remove(most)
        words = self._memory.words
        for done in found:
            if done.posted:
                qp = layout.queue_pair_at(done.qp_num)
                if words[qp + layout.Q_NUMBER] == done.qp_num:
                    words[qp + layout.Q_POLLED] = done.posted
        return found

    def _remove(self, most: int) -> list[Completion]:
        words, at = self._memory.words, self.at
        if words[at + layout.CQ_HEAD] == words[at + layout.CQ_TAIL]:
            return []
        with self._taking:
            tail = words[at + layout.CQ_TAIL]
            count = min(most, self._memory.published(at + layout.CQ_HEAD) - tail)
            found = [self._read(self._entry(tail + n)) for n in range(count)]
            self._memory.publish(at + layout.CQ_TAIL, tail + count)
        return found

    def _read(self, at: int) -> Completion:
        numbers = self._memory.words[at : at + CQ_ENTRY_WORDS].tolist()
        return Completion(
            wr_id=numbers[0],
            qp_num=numbers[1],
            status=_STATUS[numbers[2]],
            opcode=_OPCODES[numbers[3]],
            byte_len=numbers[4],
            immediate=numbers[5],
            wc_flags=numbers[6],
            src_qp=numbers[7],
            slid=numbers[8],
            sl=numbers[9],
            pkey_index=numbers[10],
            dlid_path_bits=numbers[11],
            vendor_err=numbers[12],
            solicited=bool(numbers[13]),
            time_ns=numbers[14],
            posted=numbers[15],
        )

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
        self._refill([done for done in self._remove(len(self)) if done.qp_num != qp_num])

    def resize(self, capacity: int) -> None:
        """What is in it stays; it moves, so those who know where it is must be told."""
        words, before = self._memory.words, self.at
        waiting = self._remove(len(self))
        self._make(capacity)
        for word in (layout.CQ_ARMED, layout.CQ_IS_BROKEN, layout.CQ_STAMPS, layout.CQ_BELL):
            words[self.at + word] = words[before + word]
        self._refill(waiting)

    def _refill(self, completions: list[Completion]) -> None:
        for done in completions:
            self._put(done)

    def _entry(self, count: int) -> int:
        return self.at + CQ_ENTRIES + count % max(1, self.capacity) * CQ_ENTRY_WORDS
