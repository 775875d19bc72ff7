"""Advance a run: one group of switches by one thread, or several groups by several threads (`windows`)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numba
import numpy as np

from weft.errors import ConfigError, SimulationBug
from weft.jit import kernel_address
from weft.jit.threads import ABORTED
from weft.sim.layout.records import Records, records
from weft.sim.packet.groups import Cut, cut, lay_out
from weft.sim.packet.loop import run_events
from weft.sim.packet.plan import PacketPlan, make_hops
from weft.sim.packet.state import State, Stop
from weft.sim.packet.windows import (
    FAILED,
    GOING,
    KERNEL,
    LACKS,
    LAST_EVENT,
    MANY,
    PLACE_BITS,
    STOP,
    UNTIL_PS,
    run_windows,
)

SLICE_EVENTS = 200_000  # between two returns to Python
_SUMS = ("events", "packets", "alive", "delivered")  # of the groups


class Runner(Protocol):
    """The state of a run, and its next slice."""

    state: State
    threads: int
    note: str  # why one thread runs a large fabric

    def advance(self, until_ps: int) -> Stop:
        """Run a slice of events, up to a time, and return the reason for stopping."""


def make_runner(packet_plan: PacketPlan) -> Runner:
    """Return the runner for a plan. It compiles the kernels, or loads them from the cache."""
    division = cut(packet_plan)
    threads = packet_plan.options.threads
    if division.n_groups == 1:
        if threads > 1:
            why = division.reason or "a fabric of fewer than 256 hosts or of one leaf switch"
            raise ConfigError(f"--threads {threads}: {why} runs on one thread; leave --threads out")
        return _OneGroup(packet_plan.state, division.reason)
    return _SeveralGroups(packet_plan, division, threads or default_threads(division.n_groups))


def default_threads(n_groups: int) -> int:
    """Return the number of threads to use: the cores of this process, or one in the workers of a study."""
    return min(int(numba.config.NUMBA_NUM_THREADS), n_groups)  # type: ignore[attr-defined]


class _OneGroup:
    """A run by one thread."""

    threads = 1

    def __init__(self, state: State, reason: str) -> None:
        self.state, self.note = state, f"on one thread: {reason}" if reason else ""
        run_events(state, 0)

    def advance(self, until_ps: int) -> Stop:
        self.state.run.until_ps[0] = until_ps
        why = Stop(run_events(self.state, SLICE_EVENTS))
        if why is Stop.ROOM:
            self.state = grow_pools(self.state)
        return why


class _SeveralGroups:
    """A run of several groups of switches. `state.run` has the sums of all groups."""

    note = ""

    def __init__(self, packet_plan: PacketPlan, division: Cut, threads: int) -> None:
        self.groups = lay_out(packet_plan, division)
        self.threads = 1 if numba.config.DISABLE_JIT else min(threads, division.n_groups)  # type: ignore[attr-defined]
        self.state = self.groups.common
        runs, lines, trees, agendas = (getattr(self.groups, name) for name in ("runs", "lines", "trees", "agendas"))
        first = self.state._replace(run=runs[0], lines=lines[0], tree=trees[0], agenda=agendas[0])
        self.groups.words[KERNEL] = kernel_address(run_events, first, 0)
        self._pool = ThreadPoolExecutor(max(self.threads - 1, 1))
        self.advance(-1)  # no event: compiles the other kernel

    def advance(self, until_ps: int) -> Stop:
        words = self.groups.words
        words[STOP], words[UNTIL_PS] = GOING, until_ps
        words[LAST_EVENT] = self.state.run.events[0] + SLICE_EVENTS * self.threads
        started = [self._pool.submit(self._work, thread) for thread in range(1, self.threads)]
        self._work(0)
        for future in started:
            future.result()
        self._add_up()
        why = Stop(int(words[STOP]))
        if why is Stop.ROOM:
            self._make_room()
        return why

    def _work(self, thread: int) -> None:
        try:
            run_windows(self.groups, thread, self.threads)
        except BaseException:
            self.groups.words[ABORTED] = 1  # the other threads would wait forever
            raise

    def _add_up(self) -> None:
        """Write the sums of the groups to the run, and what a failed group reports."""
        runs, run = self.groups.runs[:, 0], self.state.run[0]
        for name in _SUMS:
            run[name] = runs[name].sum()
        run.left = (runs.left - MANY).sum()
        run.now_ps = runs.now_ps.max()
        failed = int(self.groups.words[FAILED])
        if failed >= 0:
            run.stop_a, run.stop_b = runs[failed].stop_a, runs[failed].stop_b

    def _make_room(self) -> None:
        """Extend the pools that are too small to twice their size."""
        groups, runs = self.groups, self.groups.runs[:, 0]
        common, lacks = groups.common, bool(groups.status[:, LACKS].any())
        if (runs.free_packets < runs.room).any():
            n = len(common.packets)
            common = _with_packets(common)
            _share(runs, "packet", common.packets.next, n)
        if lacks or (runs.free_chunks < runs.room).any():
            n = len(common.next_chunk)
            common = _with_chunks(common)
            _share(runs, "chunk", common.next_chunk, n)
        if lacks:
            places = np.zeros((len(runs), 2 * groups.places.shape[1]), np.int32)
            if places.shape[1] > 1 << PLACE_BITS:
                raise SimulationBug("too many events cross between two groups of switches in one window")
            keys = np.zeros((len(runs), 2, places.shape[1]), np.int64)
            groups = groups._replace(places=places, keys=keys)
        if (groups.agendas.shape[1] - runs.agenda < runs.agenda_room).any():
            n = groups.agendas.shape[1]
            agendas = records(2 * groups.agendas.size, groups.agendas.dtype).reshape(len(runs), 2 * n)
            agendas[:, :n] = groups.agendas
            groups = groups._replace(agendas=agendas)
        self.groups, self.state = groups._replace(common=common), common


def _share(runs: Records, kind: str, following: np.ndarray, begin: int) -> None:
    """Divide a pool's new entries, from `begin` on, among the groups. `following` links them."""
    first, count = f"free_{kind}", f"free_{kind}s"
    parts = np.linspace(begin, len(following), len(runs) + 1).astype(np.int64)
    for run, start, end in zip(runs, parts[:-1], parts[1:], strict=True):
        following[end - 1] = run[first]
        run[first] = start
        run[count] += end - start


def _with_packets(state: State) -> State:
    """Return the state with twice the packets; each new one is linked to the next."""
    n = len(state.packets)
    packets = records(2 * n, state.packets.dtype)
    packets[:n] = state.packets
    packets.next[n:] = np.arange(n + 1, 2 * n + 1)
    if state.run[0].uet != 0:
        notes = records(2 * n, state.notes.dtype)
        notes[:n] = state.notes
        return state._replace(packets=packets, notes=notes)
    if not state.run[0].traced:
        return state._replace(packets=packets)
    traces, hops = records(2 * n, state.traces.dtype), make_hops(2 * n)
    traces[:n], hops[:n] = state.traces, state.hops
    return state._replace(packets=packets, traces=traces, hops=hops)


def _with_chunks(state: State) -> State:
    """Return the state with twice the chunks of delay lines; each new one is linked to the next."""
    n = len(state.next_chunk)
    events = records(2 * len(state.events), state.events.dtype)
    events[: len(state.events)] = state.events
    return state._replace(
        events=events, next_chunk=np.concatenate((state.next_chunk, np.arange(n + 1, 2 * n + 1, dtype=np.int32)))
    )


def grow_pools(state: State) -> State:
    """Return the state with the exhausted pool doubled."""
    run = state.run[0]
    if run.free_packets < run.room:
        n, state = len(state.packets), _with_packets(state)
        _share(state.run, "packet", state.packets.next, n)
    elif run.free_chunks < run.room:
        n, state = len(state.next_chunk), _with_chunks(state)
        _share(state.run, "chunk", state.next_chunk, n)
    else:
        agenda = records(2 * len(state.agenda), state.agenda.dtype)
        agenda[: len(state.agenda)] = state.agenda
        state = state._replace(agenda=agenda)
    return state
