"""Change the rings of this process that other processes share: kernels.

Python writes words with plain stores, which other processors may see in another order. Writes that must be seen in
order are done by one call of a kernel, during which no other thread of the process runs.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from weft.jit import Kernel, overload_for, part, quick_kernel
from weft.verbs.shm import layout
from weft.verbs.shm.atomic import acquire, move, numbers, release, view, where

Array = np.ndarray[Any, Any]


completion_queue, completion = view(layout.CompletionQueueRecord), view(layout.CompletionRecord)
receive_queue, queue_pair = view(layout.ReceiveQueueRecord), view(layout.QueuePairRecord)
_box = view(layout.Box)
_COMPLETION_RECORD_BYTES = layout.CompletionRecord.size
_REQUEST_BYTES, _SGE_BYTES = layout.ReceiveRequest.size, layout.SgeRecord.size
_queue_pair_at = part(layout.queue_pair_at)


@part
def completion_at(address: int, queue, count: int):
    """Return a completion of the queue at an address by its number."""
    return completion(_completion_place(address, queue, count))


@part
def _completion_place(address: int, queue, count: int) -> int:
    return address + layout.RING + count % queue.capacity * layout.COMPLETION_BYTES


@part
def bytes_behind(address: int, queue, count: int) -> int:
    """Return the address of a short message behind its completion."""
    return _completion_place(address, queue, count) + _COMPLETION_RECORD_BYTES


@part
def put_in_place(address: int, queue, count: int) -> None:
    """Copy the bytes behind a completion to their buffer."""
    done = completion_at(address, queue, count)
    if done.place != 0:
        move(done.place, bytes_behind(address, queue, count), done.byte_len)
        done.place = 0


@part
def receive_at(address: int, queue, count: int) -> int:
    """Return the address of a receive request by its number."""
    entry_bytes = _REQUEST_BYTES + queue.max_sge * _SGE_BYTES
    return address + layout.RING + count % queue.capacity * entry_bytes


@part
def _free_places(memory: int, done) -> None:
    """Free the places of a completed send request and of all before it."""
    qp = queue_pair(memory + _queue_pair_at(done.qp_num))
    if done.posted != 0 and qp.number == done.qp_num:
        qp.polled = done.posted


@part
def _remove(box, queue, done) -> None:
    """Remove the oldest completion."""
    if box.memory != 0:
        _free_places(box.memory, done)
        put_in_place(box.queue, queue, queue.tail)
    release(queue, "tail", queue.tail + 1)


@quick_kernel
def take(words):
    """Return the numbers of the oldest completion, or None."""
    box = _box(where(words))
    queue = completion_queue(box.queue)
    if acquire(queue, "head") == queue.tail:
        return None
    done = completion_at(box.queue, queue, queue.tail)
    found = numbers(done)
    _remove(box, queue, done)
    return found


@quick_kernel
def take_at(address: int, to: int) -> int:
    """Write the oldest completion of the box at an address to another; return 0 if there is none."""
    box = _box(address)
    queue = completion_queue(box.queue)
    if acquire(queue, "head") == queue.tail:
        return 0
    move(to, _completion_place(box.queue, queue, queue.tail), _COMPLETION_RECORD_BYTES)
    _remove(box, queue, completion_at(box.queue, queue, queue.tail))
    return 1


@part
def _add(address: int, request: int, size: int) -> bool:
    queue = receive_queue(address)
    head = queue.head
    waiting = head - acquire(queue, "tail") + queue.returned
    if size > _REQUEST_BYTES + queue.max_sge * _SGE_BYTES or waiting >= queue.capacity:
        return False
    move(receive_at(address, queue, head), request, size)
    release(queue, "head", head + 1)
    return True


@quick_kernel
def add(words, request) -> bool:
    """Add a receive request (`layout.ReceiveRequest`); return False if it is too long or the queue is full."""
    return _add(where(words), where(request), len(request))


@quick_kernel
def add_at(address: int, request: int, size: int) -> int:
    """Do the same to the queue at an address."""
    return 1 if _add(address, request, size) else 0


def adder(memory: mmap.mmap, at: int) -> tuple[Array, Kernel]:
    """Return the words of a receive queue, and the kernel that adds to it."""
    queue = np.frombuffer(memory, np.int64, len(layout.ReceiveQueueRecord.names), at)
    return queue, overload_for(add, queue, b"")


def taker(memory_address: int, at: int, *, frees: bool) -> tuple[Array, Kernel]:
    """Return the kernel that takes completions, and its argument. `frees`: free the places of send requests too."""
    box = np.frombuffer(bytearray(layout.Box(memory_address + at, memory_address if frees else 0)), np.int64)
    return box, overload_for(take, box)


def load() -> None:
    """Load the kernels before they are needed."""
    none = np.zeros(len(layout.ReceiveQueueRecord.names), np.int64)
    overload_for(take, none)
    overload_for(add, none, b"")
