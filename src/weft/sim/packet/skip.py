"""Skip steady state: when consecutive windows are equal, many windows become one sum.

Long messages that share a network reach a steady state: in each window every message sends as many packets as in the
one
before. Once two consecutive windows agree for every active message, within the tolerance, the run jumps ahead by as
many
windows as leave each message at least two. The packets in the network stay as they are; counters, and packets sent and
received, grow by those of a window. A rate that is off by the tolerance stays off for the skipped time: that is the
error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.sim.packet.plan import PacketPlan
from weft.sim.packet.state import CHUNK_EVENTS, DELAY_LINE_BITS, EMPTY, PacketEvent, State

_STARTS = (PacketEvent.READY, PacketEvent.POSTED)
_COUNTED = (("ports", "xmit_bytes"), ("ports", "xmit_packets"), ("plugs", "wait_ps"))


class SteadyStateSkip:
    """A detector of steady state that examines a run at the end of each window and moves it ahead."""

    def __init__(self, packet_plan: PacketPlan) -> None:
        self.tolerance = packet_plan.options.skip_tolerance
        run = packet_plan.state.run[0]
        if self.tolerance and (
            packet_plan.options.congestion_control != "none" or run.losses or len(packet_plan.state.branches)
        ):
            raise ConfigError(
                f"skip_tolerance {self.tolerance} needs a network with a steady state: no congestion control, no bit "
                f"errors, not TCP, no multicast. Leave it out"
            )
        self.window_ps = int(packet_plan.state.serial_ps.max() * np.ceil(2 / self.tolerance)) if self.tolerance else 0
        self.skipped_ps = 0
        self.next_window_ps = self.window_ps if self.tolerance else 1 << 52
        self._active = np.zeros(0, np.int64)
        self._sent = self._grown = np.zeros(0, np.int64)
        self._counted: list[NDArray[np.int64]] = []
        self._packets = 0

    def end_window(self, state: State) -> None:
        """Compare the window that has ended with the one before, and jump ahead if they agree."""
        messages, run = state.messages, state.run[0]
        active = np.flatnonzero((messages.sent > 0) & (messages.received < messages.packets))
        sent = messages.sent[active].astype(np.int64)
        same = np.array_equal(active, self._active)
        grown = sent - self._sent if same else np.zeros(0, np.int64)
        if same and len(grown) == len(self._grown) and len(active):
            if self._steady(grown):
                self._jump(state, active, grown)
                grown = np.zeros(0, np.int64)  # measure again
            elif grown.any() and grown[grown > 0].min() < 1 / self.tolerance:
                self.window_ps *= 2  # one packet is too coarse a unit
                grown = np.zeros(0, np.int64)
        self._active, self._sent, self._grown = active, messages.sent[active].astype(np.int64), grown
        self._counted = [getattr(state, table)[name].copy() for table, name in _COUNTED]
        self._packets = int(run.packets)
        self.next_window_ps += self.window_ps

    def _steady(self, grown: NDArray[np.int64]) -> bool:
        """Return whether the growth is within the tolerance of the window before, up to one packet."""
        change = np.abs(grown - self._grown)
        busy = grown[grown > 0]
        return bool((change <= 1 + self.tolerance * grown).all() and len(busy) and busy.min() >= 1 / self.tolerance)

    def _jump(self, state: State, active: NDArray[np.int64], grown: NDArray[np.int64]) -> None:
        messages, run = state.messages, state.run[0]
        remaining = messages.packets[active] - messages.sent[active]
        busy = grown > 0
        windows = int((remaining[busy] // grown[busy]).min()) - 2
        next_start_ps = _next_start_ps(state)
        windows = min(windows, (next_start_ps - self.next_window_ps) // self.window_ps - 1)
        if windows < 1:
            return
        messages.sent[active] += grown * windows
        messages.received[active] += grown * windows
        for (table, name), before in zip(_COUNTED, self._counted, strict=True):
            column = getattr(state, table)[name]
            column += (column - before) * windows
        run.packets += (run.packets - self._packets) * windows
        by_ps = windows * self.window_ps
        _shift(state, by_ps)
        self.next_window_ps += by_ps
        self.skipped_ps += by_ps


def _ready_line(state: State) -> int:
    return int(np.flatnonzero(state.lines.kind == PacketEvent.READY)[0])


def _next_start_ps(state: State) -> int:
    """Return when the next message becomes ready by its start time, not by another message."""
    line = state.lines[_ready_line(state)]
    times = [int(state.events[line.head].time_ps)] if line.head != line.tail else []
    agenda = state.agenda[: int(state.run[0].agenda)]
    times += agenda.time_ps[np.isin(agenda.kind, _STARTS)].tolist()
    return min(times, default=1 << 52)


def _shift(state: State, by_ps: int) -> None:
    """Delay all pending events; messages with a start time keep it."""
    ready = _ready_line(state)
    for index, line in enumerate(state.lines):
        if index == ready:
            continue
        begin, tail = int(line.head), int(line.tail)
        while begin != tail:
            chunk = begin // CHUNK_EVENTS
            end = tail if chunk == tail // CHUNK_EVENTS else (chunk + 1) * CHUNK_EVENTS
            state.events.time_ps[begin:end] += by_ps
            begin = end if end == tail else int(state.next_chunk[chunk]) * CHUNK_EVENTS
    tree, width = state.tree, len(state.tree) >> 1
    moved = tree[width:] != EMPTY
    moved[ready] = False
    tree[width:][moved] += by_ps << DELAY_LINE_BITS
    for node in range(width - 1, 0, -1):
        tree[node] = min(tree[2 * node], tree[2 * node + 1])
    agenda = state.agenda[: int(state.run[0].agenda)]
    agenda.time_ps[~np.isin(agenda.kind, _STARTS)] += by_ps  # starting messages are later than all of these
    state.run.now_ps += by_ps
    state.qps.clock_ps += by_ps
    state.qps.paced_ps += by_ps
    state.hosts.clock_ps += by_ps
    state.hosts.receive_clock_ps += by_ps
    state.plugs.wait_since_ps += by_ps
    state.stuck_ps[:] += by_ps
