"""What a process does to its own rings when others have them too: kernels.

Python writes words with plain stores, which other processors may see in another order. One call of a kernel does what
must be seen in order; no other thread of the process runs meanwhile.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from weft.jit import Kernel, entry, part, quick_kernel
from weft.verbs.shm import layout
from weft.verbs.shm.atomic import acquire, move, peek, poke, release, where

Array = np.ndarray[Any, Any]
RING, MEMORY = range(2)  # of `take`: addresses of a ring of completions, and of the adapter's memory
_WORD = layout.WORD_BYTES
_HEAD_BYTES, _PLACE_BYTES = layout.RECEIVE_FORM.size, layout.PLACE_FORM.size
_queue_pair_at = part(layout.queue_pair_at)


@part
def _four(at: int):
    return np.uint64(peek(at, 0)), np.uint64(peek(at, 1)), np.uint64(peek(at, 2)), np.uint64(peek(at, 3))


@part
def _free_places(memory: int, at: int) -> None:
    """Of the send request that a completion is of, and of all before it. Only who posts it needs to know, some time."""
    posted, number = peek(at, layout.C_POSTED), peek(at, layout.C_QP_NUM)
    qp = memory + _queue_pair_at(number) * _WORD
    if posted != 0 and peek(qp, layout.Q_NUMBER) == number:
        poke(qp, layout.Q_POLLED, posted)


@quick_kernel
def take(box):
    """The numbers of the oldest completion, or None."""
    ring = box[RING]
    tail = peek(ring, layout.CQ_TAIL)
    if acquire(ring, layout.CQ_HEAD) == tail:
        return None
    at = ring + (layout.CQ_ENTRIES + tail % peek(ring, layout.CQ_CAPACITY) * layout.CQ_ENTRY_WORDS) * _WORD
    numbers = _four(at) + _four(at + 4 * _WORD) + _four(at + 8 * _WORD) + _four(at + 12 * _WORD)
    if box[MEMORY] != 0:
        _free_places(box[MEMORY], at)
    release(ring, layout.CQ_TAIL, tail + 1)
    return numbers


@quick_kernel
def add(ring, request) -> bool:
    """A receive request (`layout.RECEIVE_FORM`) behind the last one; False if it is too long or has no place."""
    head, size = ring[layout.RQ_HEAD], len(request)
    entry_bytes = _HEAD_BYTES + ring[layout.RQ_PLACES_MAX] * _PLACE_BYTES
    waiting = head - acquire(where(ring), layout.RQ_TAIL) + ring[layout.RQ_RETURNED]
    if size > entry_bytes or waiting >= ring[layout.RQ_CAPACITY]:
        return False
    at = where(ring) + layout.RQ_ENTRIES * _WORD + head % ring[layout.RQ_CAPACITY] * entry_bytes
    move(at, where(request), size)
    release(where(ring), layout.RQ_HEAD, head + 1)
    return True


def ring_at(memory: mmap.mmap, word: int) -> tuple[Array, Kernel]:
    """The counters of a ring of receive requests, and what adds to it."""
    ring = np.frombuffer(memory, np.int64, layout.RQ_ENTRIES, word * _WORD)
    return ring, entry(add, ring, b"")


def box_of(memory_address: int, ring_word: int, *, frees: bool) -> tuple[Array, Kernel]:
    """What takes completions out of a ring, and its argument. `frees`: the places of their send requests as well."""
    box = np.array((memory_address + ring_word * _WORD, memory_address if frees else 0), np.int64)
    return box, entry(take, box)


def load() -> None:
    """All of it, now: later somebody waits."""
    entry(take, np.zeros(2, np.int64))
    entry(add, np.zeros(layout.RQ_ENTRIES, np.int64), b"")
