"""Steady state, carried forward: when nothing changes from one window to the next, many windows are one sum.

Long messages that share a network settle: in window after window each sends as many packets as before. Once two windows
in a row agree for every message under way, within the tolerance, the run jumps over as many more as leave each message
at least two windows to its end. What was in the network stays as it is; counters, and the packets sent and received,
grow by what a window brought. A rate that is off by the tolerance stays off for the time skipped: that is the error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.sim.packet.plan import PacketPlan
from weft.sim.packet.state import CHUNK_EVENTS, DELAY_LINE_BITS, EMPTY, Kind, State

_STARTS = (Kind.READY, Kind.POSTED)
_COUNTED = (("ports", "xmit_bytes"), ("ports", "xmit_packets"), ("plugs", "wait_ps"))


class Skipper:
    """Looks at a run at the end of each window, and moves it on."""

    def __init__(self, made: PacketPlan) -> None:
        self.tolerance = made.options.skip_tolerance
        run = made.state.run[0]
        if self.tolerance and (made.options.congestion_control != "none" or run.losses or len(made.state.branches)):
            raise ConfigError(
                f"skip_tolerance {self.tolerance} needs a network that settles: no congestion control, no bit errors, "
                f"not TCP, no multicast. Leave it out"
            )
        self.window_ps = int(made.state.serial_ps.max() * np.ceil(2 / self.tolerance)) if self.tolerance else 0
        self.skipped_ps = 0
        self.next_look_ps = self.window_ps if self.tolerance else 1 << 52
        self._active = np.zeros(0, np.int64)
        self._sent = self._grown = np.zeros(0, np.int64)
        self._counted: list[NDArray[np.int64]] = []
        self._packets = 0

    def look(self, state: State) -> None:
        """A window has ended."""
        messages, run = state.messages, state.run[0]
        active = np.flatnonzero((messages.sent > 0) & (messages.received < messages.packets))
        sent = messages.sent[active].astype(np.int64)
        same = np.array_equal(active, self._active)
        grown = sent - self._sent if same else np.zeros(0, np.int64)
        if same and len(grown) == len(self._grown) and len(active):
            if self._steady(grown):
                self._jump(state, active, grown)
                grown = np.zeros(0, np.int64)  # measure anew
            elif grown.any() and grown[grown > 0].min() < 1 / self.tolerance:
                self.window_ps *= 2  # a packet is too coarse a measure
                grown = np.zeros(0, np.int64)
        self._active, self._sent, self._grown = active, messages.sent[active].astype(np.int64), grown
        self._counted = [getattr(state, of)[name].copy() for of, name in _COUNTED]
        self._packets = int(run.packets)
        self.next_look_ps += self.window_ps

    def _steady(self, grown: NDArray[np.int64]) -> bool:
        """Within the tolerance of the window before; a packet more or less is the grain of the count."""
        change = np.abs(grown - self._grown)
        busy = grown[grown > 0]
        return bool((change <= 1 + self.tolerance * grown).all() and len(busy) and busy.min() >= 1 / self.tolerance)

    def _jump(self, state: State, active: NDArray[np.int64], grown: NDArray[np.int64]) -> None:
        messages, run = state.messages, state.run[0]
        remaining = messages.packets[active] - messages.sent[active]
        busy = grown > 0
        windows = int((remaining[busy] // grown[busy]).min()) - 2
        next_start_ps = _next_start_ps(state)
        windows = min(windows, (next_start_ps - self.next_look_ps) // self.window_ps - 1)
        if windows < 1:
            return
        messages.sent[active] += grown * windows
        messages.received[active] += grown * windows
        for (of, name), before in zip(_COUNTED, self._counted, strict=True):
            column = getattr(state, of)[name]
            column += (column - before) * windows
        run.packets += (run.packets - self._packets) * windows
        by_ps = windows * self.window_ps
        _shift(state, by_ps)
        self.next_look_ps += by_ps
        self.skipped_ps += by_ps


def _ready_line(state: State) -> int:
    return int(np.flatnonzero(state.lines.kind == Kind.READY)[0])


def _next_start_ps(state: State) -> int:
    """When the next message becomes ready by the clock, not by another message."""
    line = state.lines[_ready_line(state)]
    times = [int(state.events[line.head].time_ps)] if line.head != line.tail else []
    agenda = state.agenda[: int(state.run[0].agenda)]
    times += agenda.time_ps[np.isin(agenda.kind, _STARTS)].tolist()
    return min(times, default=1 << 52)


def _shift(state: State, by_ps: int) -> None:
    """Everything that is under way happens later; the messages that start by the clock do not."""
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
    agenda.time_ps[~np.isin(agenda.kind, _STARTS)] += by_ps  # messages that start are later than all of these
    state.run.now_ps += by_ps
    state.qps.clock_ps += by_ps
    state.qps.paced_ps += by_ps
    state.hosts.clock_ps += by_ps
    state.hosts.receive_clock_ps += by_ps
    state.plugs.wait_since_ps += by_ps
    state.stuck_ps[:] += by_ps
