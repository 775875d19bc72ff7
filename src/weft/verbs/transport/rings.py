"""What a process does to its own rings when others have them too: kernels.

Python writes words with plain stores, which other processors may see in another order. One call of a kernel does what
must be seen in order; no other thread of the process runs meanwhile.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from weft.jit import Kernel, entry, part, quick_kernel
from weft.verbs.transport import layout
from weft.verbs.transport.atomic import acquire, move, peek, poke, release, where
from weft.verbs.transport.layout import (
    C_POSTED,
    C_QP_NUM,
    CQ_CAPACITY,
    CQ_ENTRIES,
    CQ_ENTRY_WORDS,
    CQ_HEAD,
    CQ_TAIL,
    PLACE_FORM,
    Q_NUMBER,
    Q_POLLED,
    RECEIVE_FORM,
    RQ_CAPACITY,
    RQ_ENTRIES,
    RQ_HEAD,
    RQ_PLACES_MAX,
    RQ_RETURNED,
    RQ_TAIL,
)

Array = np.ndarray[Any, Any]
RING, MEMORY = range(2)  # of `take`: addresses of a ring of completions, and of the adapter's memory
_WORD = layout.WORD_BYTES
_HEAD_BYTES, _PLACE_BYTES = RECEIVE_FORM.size, PLACE_FORM.size
_QUEUE_PAIRS, _QUEUE_PAIRS_MAX, _QP_WORDS = layout.QUEUE_PAIRS, layout.QUEUE_PAIRS_MAX, layout.QUEUE_PAIR_WORDS


@part
def _four(at: int):  # type: ignore[no-untyped-def]
    second, third, fourth = peek(at + _WORD), peek(at + 2 * _WORD), peek(at + 3 * _WORD)
    return np.uint64(peek(at)), np.uint64(second), np.uint64(third), np.uint64(fourth)


@part
def _free_places(memory: int, at: int) -> None:
    """Of the send request that a completion is of, and of all before it. Only who posts it needs to know, some time."""
    posted, number = peek(at + C_POSTED * _WORD), peek(at + C_QP_NUM * _WORD)
    qp = memory + (_QUEUE_PAIRS + number % _QUEUE_PAIRS_MAX * _QP_WORDS) * _WORD
    if posted != 0 and peek(qp + Q_NUMBER * _WORD) == number:
        poke(qp + Q_POLLED * _WORD, posted)


@quick_kernel
def take(box):  # type: ignore[no-untyped-def]
    """The numbers of the oldest completion, or None."""
    ring = box[RING]
    tail = peek(ring + CQ_TAIL * _WORD)
    if acquire(ring + CQ_HEAD * _WORD) == tail:
        return None
    at = ring + (CQ_ENTRIES + tail % peek(ring + CQ_CAPACITY * _WORD) * CQ_ENTRY_WORDS) * _WORD
    numbers = _four(at) + _four(at + 4 * _WORD) + _four(at + 8 * _WORD) + _four(at + 12 * _WORD)
    if box[MEMORY] != 0:
        _free_places(box[MEMORY], at)
    release(ring + CQ_TAIL * _WORD, tail + 1)
    return numbers


@quick_kernel
def add(ring, request) -> bool:  # type: ignore[no-untyped-def]
    """A receive request (`layout.RECEIVE_FORM`) behind the last one; False if it is too long or has no place."""
    head, size = ring[RQ_HEAD], len(request)
    entry_bytes = _HEAD_BYTES + ring[RQ_PLACES_MAX] * _PLACE_BYTES
    waiting = head - acquire(where(ring) + RQ_TAIL * _WORD) + ring[RQ_RETURNED]
    if size > entry_bytes or waiting >= ring[RQ_CAPACITY]:
        return False
    at = where(ring) + RQ_ENTRIES * _WORD + head % ring[RQ_CAPACITY] * entry_bytes
    move(at, where(request), size)
    release(where(ring) + RQ_HEAD * _WORD, head + 1)
    return True


def ring_at(memory: mmap.mmap, word: int) -> tuple[Array, Kernel]:
    """The counters of a ring of receive requests, and what adds to it."""
    ring = np.frombuffer(memory, np.int64, RQ_ENTRIES, word * _WORD)
    return ring, entry(add, ring, b"")


def box_of(memory_address: int, ring_word: int, *, frees: bool) -> tuple[Array, Kernel]:
    """What takes completions out of a ring, and its argument. `frees`: the places of their send requests as well."""
    box = np.array((memory_address + ring_word * _WORD, memory_address if frees else 0), np.int64)
    return box, entry(take, box)


def load() -> None:
    """All of it, now: later somebody waits."""
    entry(take, np.zeros(2, np.int64))
    entry(add, np.zeros(RQ_ENTRIES, np.int64), b"")
