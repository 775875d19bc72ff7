"""Find deadlocks: output queues that wait for buffers which only they themselves could empty, and since when.

A queue is blocked if its first packet has no credits. It waits for the buffer at the far end of its link, whose
packets wait
in queues of the far switch. A set of blocked queues is *closed* if everything in their buffers waits in queues of the
set,
with no packet and no credit in flight. Then none of them ever moves again, whatever else the network does; so the
search
gives the same result at any later time. A cycle exists since the last of its queues was blocked: of all closed sets the
earliest is returned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.sim.layout.records import NONE, FlowControl
from weft.sim.layout.wiring import whole_blocks
from weft.sim.packet.multicast import HELD_BY_PACKET
from weft.sim.packet.state import State


class Cycle(NamedTuple):
    since_ps: int
    queues: tuple[int, ...]  # each waits for the buffer that is filled by packets of the next


class _Queued(NamedTuple):
    """The packets in output queues."""

    queue: NDArray[np.int64]
    holder: NDArray[np.int64]  # the packet whose bytes occupy the buffer: itself, or the one it is a copy of
    buffer: NDArray[np.int64]  # buffer that holds its bytes, -1 at its source
    size_bytes: NDArray[np.int64]  # space in that buffer


def blocked_queues(state: State, before_ps: int) -> NDArray[np.bool_]:
    """Return the queues without credits for their first packet since before a time ([queue])."""
    n_vls = int(state.run[0].n_vls)
    bits = (state.ports.blocked[:, None] >> np.arange(n_vls)) & 1
    blocked: NDArray[np.bool_] = (bits.ravel() == 1) & (state.queues.head >= 0) & (state.stuck_ps < before_ps)
    return blocked


def find_cycle(state: State) -> Cycle | None:
    """Return the cycle that formed first, or None."""
    queued = _queued(state)
    dead = _closed(state, queued, blocked_queues(state, int(state.run[0].now_ps) + 1))
    if not dead.any():
        return None
    times_ps = np.unique(state.stuck_ps[dead])
    low, high = 0, len(times_ps) - 1
    while low < high:  # the closed set grows with time
        middle = (low + high) // 2
        if _closed(state, queued, dead & (state.stuck_ps <= times_ps[middle])).any():
            high = middle
        else:
            low = middle + 1
    first = _closed(state, queued, dead & (state.stuck_ps <= times_ps[low]))
    return Cycle(int(times_ps[low]), _walk(state, queued, first))


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


def far_buffers(state: State) -> NDArray[np.int64]:
    """Return the input buffer to which each queue sends ([queue])."""
    n_vls = int(state.run[0].n_vls)
    far: NDArray[np.int64] = (state.buffers.peer.astype(np.int64)[:, None] * n_vls + np.arange(n_vls)).ravel()
    return far


def _closed(state: State, queued: _Queued, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the largest closed set among these queues ([queue])."""
    queues, buffers = state.queues, state.buffers
    far = far_buffers(state)
    port, vl = np.divmod(far, int(state.run[0].n_vls))
    if state.run[0].flow == FlowControl.CREDITS:
        filled = buffers.room[port] - queues.credits  # including bytes in flight
    else:
        filled = np.where((buffers.pausing[port] >> vl) & 1, state.held[port, vl], -1)
    first = np.zeros(len(queues), np.int64)
    heads = np.flatnonzero(queues.head >= 0)
    first[heads] = whole_blocks(state.packets.bytes[queues.head[heads]])
    dead = among & (first > queues.credits)
    while True:
        _, waits = np.unique(np.where(dead[queued.queue], queued.holder, NONE), return_index=True)
        # one remaining copy holds the buffer for all
        waits = waits[dead[queued.queue[waits]] & (queued.buffer[waits] >= 0)]
        held = np.bincount(queued.buffer[waits], queued.size_bytes[waits], minlength=len(queues))
        still: NDArray[np.bool_] = dead & (held[far] == filled)
        if still.sum() == dead.sum():
            return still
        dead = still


def _walk(state: State, queued: _Queued, closed: NDArray[np.bool_]) -> tuple[int, ...]:
    """Follow a closed set from queue to queue until one repeats."""
    inside = closed[queued.queue]
    fills = {int(buffer): int(queue) for queue, buffer in zip(queued.queue[inside], queued.buffer[inside], strict=True)}
    path: list[int] = []
    far = far_buffers(state)
    queue = int(np.argmax(closed))
    while queue not in path:
        path.append(queue)
        queue = fills[int(far[queue])]
    return tuple(path[path.index(queue) :])
