"""What a process does to its own rings when others have them too: kernels, each with one array as its argument.

Python writes words with plain stores, which other processors may see in another order. One call of a kernel does what
must be seen in order.
"""

from __future__ import annotations

import mmap
import threading
from typing import Any

import numpy as np

from weft.jit import Kernel, entry, quick_kernel
from weft.verbs.transport import layout
from weft.verbs.transport.atomic import acquire, move, peek, release
from weft.verbs.transport.layout import (
    C_POSTED,
    C_QP_NUM,
    CQ_CAPACITY,
    CQ_ENTRIES,
    CQ_ENTRY_WORDS,
    CQ_HEAD,
    CQ_TAIL,
    ENTRY_FORM,
    Q_NUMBER,
    Q_POLLED,
    RQ_HEAD,
)

Array = np.ndarray[Any, Any]
# Of a box that completions are taken into: addresses of their ring, of the adapter's memory and of the box; how many
RING, MEMORY, SELF, MOST = range(4)
TAKEN, TAKEN_MAX = 4, 16  # where they are, and how many fit
BOX_WORDS = TAKEN + TAKEN_MAX * CQ_ENTRY_WORDS
_WORD = layout.WORD_BYTES
_QUEUE_PAIRS, _QUEUE_PAIRS_MAX, _QP_WORDS = layout.QUEUE_PAIRS, layout.QUEUE_PAIRS_MAX, layout.QUEUE_PAIR_WORDS


@quick_kernel
def take(box) -> int:  # type: ignore[no-untyped-def]
    """Completions, oldest first: how many. The places of their send requests, and of all before, are free again."""
    ring = box[RING]
    tail, capacity = peek(ring + CQ_TAIL * _WORD), peek(ring + CQ_CAPACITY * _WORD)
    count = min(box[MOST], acquire(ring + CQ_HEAD * _WORD) - tail)
    for n in range(count):
        at = ring + (CQ_ENTRIES + (tail + n) % capacity * CQ_ENTRY_WORDS) * _WORD
        move(box[SELF] + (TAKEN + n * CQ_ENTRY_WORDS) * _WORD, at, CQ_ENTRY_WORDS * _WORD)
        posted, number = peek(at + C_POSTED * _WORD), peek(at + C_QP_NUM * _WORD)
        qp = box[MEMORY] + (_QUEUE_PAIRS + number % _QUEUE_PAIRS_MAX * _QP_WORDS) * _WORD
        if posted != 0 and peek(qp + Q_NUMBER * _WORD) == number:
            release(qp + Q_POLLED * _WORD, posted)
    release(ring + CQ_TAIL * _WORD, tail + count)
    return count  # type: ignore[no-any-return]


@quick_kernel
def add(ring) -> None:  # type: ignore[no-untyped-def]
    """A receive request is written behind the last one of a ring, and counts from now on."""
    release(ring.ctypes.data + RQ_HEAD * _WORD, ring[RQ_HEAD] + 1)


def ring_at(memory: mmap.mmap, word: int) -> tuple[Array, Kernel]:
    """The counters of a ring, and what adds to them."""
    ring = np.frombuffer(memory, np.int64, layout.RQ_ENTRIES, word * _WORD)
    return ring, entry(add, ring)


class Box:
    """Takes completions out of a ring; `taking` is of the threads that do."""

    def __init__(self, memory_address: int, ring_word: int, taking: threading.Lock) -> None:
        self._words, self._taking = np.zeros(BOX_WORDS, np.int64), taking
        self._said = self._words.data
        self._said[RING], self._said[MEMORY] = memory_address + ring_word * _WORD, memory_address
        self._said[SELF], self._said[MOST] = self._words.ctypes.data, 1
        self._taken = self._said.cast("B")[TAKEN * _WORD :]
        self._kernel = entry(take, self._words)

    def take_one(self) -> tuple[int, ...] | None:
        taking = self._taking
        taking.acquire()  # `with` takes twice as long
        try:
            return ENTRY_FORM.unpack_from(self._taken) if self._kernel(self._words) else None
        finally:
            taking.release()

    def take(self, most: int) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        with self._taking:
            while most > 0:
                asked = self._said[MOST] = min(most, TAKEN_MAX)
                count = self._kernel(self._words)
                found += ENTRY_FORM.iter_unpack(self._taken[: count * ENTRY_FORM.size])
                most -= count if count == asked else most
            self._said[MOST] = 1
        return found


def load() -> None:
    """All of it, now: later somebody waits."""
    entry(take, np.zeros(BOX_WORDS, np.int64))
    entry(add, np.zeros(layout.RQ_ENTRIES, np.int64))
