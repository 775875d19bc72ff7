"""Deadlock: output queues that wait for buffers which only they themselves could empty, and since when.

A queue is blocked if its first packet has no credits. It waits for the buffer at the far end of its link, and what that
holds waits in queues of the far switch. Blocked queues are *closed* if all that fills their buffers waits in queues
among them: no packet and no credit is under way there. Then none of them moves, ever, whatever else the network does;
so the search can be made at any time after, and finds the same. The circle closed when the last of its queues was
blocked: of all closed sets the earliest is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.sim.layout.records import NONE, Flow
from weft.sim.layout.wiring import whole_blocks
from weft.sim.packet.multicast import HELD_BY_PACKET
from weft.sim.packet.state import State


class Circle(NamedTuple):
    since_ps: int
    queues: tuple[int, ...]  # each waits for the buffer that packets of the next one fill


class _Queued(NamedTuple):
    """Packets in output queues."""

    queue: NDArray[np.int64]
    holder: NDArray[np.int64]  # the packet whose bytes are in that: itself, or what it is a copy of
    buffer: NDArray[np.int64]  # that holds its bytes, -1 at its source
    size_bytes: NDArray[np.int64]  # of that buffer


def blocked_queues(state: State, before_ps: int) -> NDArray[np.bool_]:
    """[queue] -> it has had no credits for its first packet since before this time."""
    n_vls = int(state.run[0].n_vls)
    bits = (state.ports.blocked[:, None] >> np.arange(n_vls)) & 1
    blocked: NDArray[np.bool_] = (bits.ravel() == 1) & (state.queues.head >= 0) & (state.stuck_ps < before_ps)
    return blocked


def find_circle(state: State) -> Circle | None:
    """The circle that closed first, if there is one."""
    queued = _queued(state)
    dead = _closed(state, queued, blocked_queues(state, int(state.run[0].now_ps) + 1))
    if not dead.any():
        return None
    times_ps = np.unique(state.stuck_ps[dead])
    low, high = 0, len(times_ps) - 1
    while low < high:  # the more time, the more is closed
        middle = (low + high) // 2
        if _closed(state, queued, dead & (state.stuck_ps <= times_ps[middle])).any():
            high = middle
        else:
            low = middle + 1
    first = _closed(state, queued, dead & (state.stuck_ps <= times_ps[low]))
    return Circle(int(times_ps[low]), _walk(state, queued, first))


def _queued(state: State) -> _Queued:
    queue = np.flatnonzero(state.queues.head >= 0)
    packet = state.queues.head[queue].astype(np.int64)
    queues, packets = [queue], [packet]
    while len(packet):
        following = state.packets.next[packet].astype(np.int64)
        queue, packet = queue[following >= 0], following[following >= 0]
        queues.append(queue)
        packets.append(packet)
    index = np.concatenate(packets)
    copied = state.packets.held_in[index] <= HELD_BY_PACKET
    holder = np.where(copied, HELD_BY_PACKET - state.packets.held_in[index], index)
    rows = state.packets[holder]
    return _Queued(np.concatenate(queues), holder, rows.held_in.astype(np.int64), whole_blocks(rows.bytes))


def _closed(state: State, queued: _Queued, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[queue] -> of the largest closed set among these."""
    buffers, queues = state.buffers, state.queues
    far = buffers.upstream  # of a queue: the buffer it sends to
    if state.run[0].flow == Flow.CREDITS:
        filled = buffers.room[far] - queues.credits  # and what is under way
    else:
        filled = np.where(buffers.pausing[far] == 1, buffers.held[far], -1)
    first = np.zeros(len(queues), np.int64)
    heads = np.flatnonzero(queues.head >= 0)
    first[heads] = whole_blocks(state.packets.bytes[queues.head[heads]])
    dead = among & (first > queues.credits)
    while True:
        _, waits = np.unique(np.where(dead[queued.queue], queued.holder, NONE), return_index=True)
        waits = waits[dead[queued.queue[waits]] & (queued.buffer[waits] >= 0)]  # a copy that stays holds for all
        held = np.bincount(queued.buffer[waits], queued.size_bytes[waits], minlength=len(queues))
        still: NDArray[np.bool_] = dead & (held[far] == filled)
        if still.sum() == dead.sum():
            return still
        dead = still


def _walk(state: State, queued: _Queued, closed: NDArray[np.bool_]) -> tuple[int, ...]:
    """From one queue of a closed set to the next, until one comes again."""
    inside = closed[queued.queue]
    fills = {int(buffer): int(queue) for queue, buffer in zip(queued.queue[inside], queued.buffer[inside], strict=True)}
    path: list[int] = []
    queue = int(np.argmax(closed))
    while queue not in path:
        path.append(queue)
        queue = fills[int(state.buffers[queue].upstream)]
    return tuple(path[path.index(queue) :])
