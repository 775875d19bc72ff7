"""Groups of switches for a run on several cores (`windows`): chosen by the fabric alone, and laid out in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.jit.threads import WORD
from weft.sim.engine import CongestionControl
from weft.sim.layout.records import NONE, FlowControl, Records, distinct_rows, records
from weft.sim.layout.wiring import Wiring
from weft.sim.packet.plan import PacketPlan
from weft.sim.packet.state import (
    CHUNK_EVENTS,
    DELAY_LINE,
    DELAY_LINE_BITS,
    DELAY_LINES,
    EMPTY,
    ENTRY,
    EVENT,
    ROOM,
    RUN,
    PacketEvent,
    State,
)
from weft.sim.packet.windows import BEGIN_PS, COLLECTED_PS, FAILED, MANY, PHASE, TURN, WINDOW_PS, WORDS, Groups
from weft.sim.packet.windows import COLLECT as FIRST_PHASE

LEAST_HOSTS = 256  # smaller fabrics are one group
HOSTS_OF_A_GROUP = 64  # with half as many, a packet crosses so often that one core is a quarter slower
MOST_GROUPS = 32
LEAST_WINDOW_PS = 10_000
_FULL = 1.05  # of the mean weight: a group that gets no further switches
_FREE_CHUNKS = 3 * ROOM  # of each group
_COLLECTED = 4096  # events; more space is made when needed


def assign_groups(wiring: Wiring) -> NDArray[np.int16]:
    """Return the group of each port: that of its switch, or at a host of the switch that it is connected to.

    Switches with hosts are divided in order of their numbers; each of the others joins a group that has most of its
    cables.
    """
    ports, n_switches = wiring.ports, len(wiring.switch_nodes)
    peer = np.maximum(ports.peer, 0)
    owner, far_owner = ports.owner, np.where(ports.peer >= 0, ports.owner[peer], NONE)
    is_cable = (owner >= 0) & (ports.peer >= 0)
    hosts = np.bincount(owner[is_cable & (far_owner < 0)], minlength=n_switches)
    weight = np.bincount(owner[is_cable], minlength=n_switches) + 2 * hosts
    leaves = np.flatnonzero(hosts)
    n_groups = min(MOST_GROUPS, len(wiring.host_ports) // HOSTS_OF_A_GROUP, len(leaves))
    if len(wiring.host_ports) < LEAST_HOSTS or n_groups < 2:
        return np.zeros(len(ports), np.int16)
    group = np.full(n_switches, NONE, np.int64)
    middle = np.cumsum(weight[leaves]) - weight[leaves] / 2
    group[leaves] = middle * n_groups // weight[leaves].sum()
    between = is_cable & (far_owner >= 0)
    _join_others(group, owner[between], far_owner[between], weight, n_groups)
    switch = np.where(owner >= 0, owner, far_owner)
    return np.where(switch >= 0, group[np.maximum(switch, 0)], 0).astype(np.int16)


def _join_others(
    group: NDArray[np.int64], near: NDArray[np.int32], far: NDArray[np.int32], weight: NDArray[np.int64], n_groups: int
) -> None:
    """Assign the switches without hosts, those next to assigned ones first."""
    order = np.argsort(near, kind="stable")
    first = np.searchsorted(near[order], np.arange(len(group) + 1))
    neighbours = far[order]
    filled = np.bincount(group[group >= 0], weight[group >= 0], minlength=n_groups)
    limit = _FULL * weight.sum() / n_groups
    while (left := np.flatnonzero(group < 0)).size:
        near_groups = [group[neighbours[first[switch] : first[switch + 1]]] for switch in left]
        reached = [at for at, groups in enumerate(near_groups) if (groups >= 0).any()] or list(range(len(left)))
        for at in reached:
            assigned = near_groups[at][near_groups[at] >= 0]
            cables = np.where(filled < limit, np.bincount(assigned, minlength=n_groups), -1)
            best = np.flatnonzero(cables == cables.max())
            chosen = best[np.argmin(filled[best])]
            group[left[at]] = chosen
            filled[chosen] += weight[left[at]]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The groups of a run, and the shortest time in which something gets from one to another."""

    port_group: NDArray[np.int16]
    window_ps: int
    reason: str = ""  # why there is one group, if the fabric is large enough for several

    @property
    def n_groups(self) -> int:
        return int(self.port_group.max(initial=0)) + 1


def cut(packet_plan: PacketPlan) -> Cut:
    """Divide the fabric of a run."""
    port_group = assign_groups(packet_plan.wiring)
    zeros = np.zeros_like(port_group)
    if not port_group.any():
        return Cut(port_group=zeros, window_ps=0)
    if reason := _needs_one(packet_plan):
        return Cut(port_group=zeros, window_ps=0, reason=reason)
    state = packet_plan.state
    crossing = _crossing(state, port_group)
    delay_ps = state.lines.delay_ps
    delays = [delay_ps[state.ports.wire_line[crossing]], delay_ps[state.buffers.credit_line[crossing]]]
    delays.append(_release_ps(packet_plan, port_group))
    window_ps = int(np.concatenate(delays).min(initial=1 << 40))
    if window_ps < LEAST_WINDOW_PS:
        return Cut(port_group=zeros, window_ps=0, reason="a fabric with short cables between all switches")
    n_lines = len(state.lines) + sum(len(np.unique(each)) for each in delays[:2]) + 2
    if n_lines > DELAY_LINES:
        return Cut(port_group=zeros, window_ps=0, reason="a fabric with cables of so many different lengths")
    return Cut(port_group=port_group, window_ps=window_ps)


def _needs_one(packet_plan: PacketPlan) -> str:
    """Return the part of the input that needs the state of all groups at once; empty if there is none."""
    options, state = packet_plan.options, packet_plan.state
    if state.run.flow[0] == FlowControl.DROP:
        return "TCP"
    if len(state.branches):
        return (
            "multicast"
            if state.vertex_of_switch[0, 0] == NONE and len(state.vertices) == 1
            else "a reduction in switches"
        )
    if options.capture:
        return "a capture"
    if options.skip_tolerance:
        return "a skip tolerance"
    if options.congestion_control not in list(CongestionControl):
        return f"the congestion control {options.congestion_control} of a plugin"
    return ""


def _crossing(state: State, port_group: NDArray[np.int16]) -> NDArray[np.bool_]:
    peer = state.ports.peer
    crossing: NDArray[np.bool_] = (peer >= 0) & (port_group != port_group[np.maximum(peer, 0)])
    return crossing


def _release_ps(packet_plan: PacketPlan, port_group: NDArray[np.int16]) -> NDArray[np.int64]:
    """Return the processing times of receivers whose messages release others in another group."""
    posting, messages = packet_plan.posting, packet_plan.posting.messages
    before = np.repeat(np.arange(len(messages)), np.diff(posting.successor_first))
    crosses = port_group[messages.dst[before]] != port_group[messages.src[posting.successors]]
    host = packet_plan.wiring.host[messages.dst[before[crosses]]]
    release_ps: NDArray[np.int64] = posting.hosts.receive_ps[host]
    return release_ps


def lay_out(packet_plan: PacketPlan, cut: Cut) -> Groups:
    """Return the groups of a run at its start. Change the lines in the records of ports, buffers and hosts."""
    state, n = packet_plan.state, cut.n_groups
    state.port_group[:] = cut.port_group
    layout = _Lines(packet_plan, cut)
    runs = records(2 * n, RUN).reshape(n, 2)
    runs[:] = state.run[0]
    width = layout.width
    trees = np.full((n, 2 * width), EMPTY, np.int64)
    events, next_chunk = layout.fill(packet_plan.posting.messages, runs, trees)
    per_group = len(state.packets) // n
    for at in range(n):
        run = runs[at, 0]
        run.groups, run.group = n, at
        run.left = MANY + (run.left if at == 0 else 0)  # groups only count messages down: their sum is what is left
        run.random = np.random.default_rng((packet_plan.options.seed, at)).integers(1, 1 << 31)
        run.free_packet, run.free_packets = at * per_group, per_group
        run.lost_line = layout.first_odd_line(PacketEvent.LOST)
        run.release_line = layout.first_odd_line(PacketEvent.RELEASE)
    sources = layout.sources()
    words = np.zeros(WORDS, np.int64)
    words[PHASE], words[TURN], words[BEGIN_PS], words[FAILED] = FIRST_PHASE, 1, NONE, NONE
    words[WINDOW_PS] = cut.window_ps
    status = np.zeros((n, WORD), np.int64)
    status[:, COLLECTED_PS] = -2
    entries = max(1024, 4 * int(state.run.agenda_room[0]))
    return Groups(
        common=state._replace(events=events, next_chunk=next_chunk),
        runs=runs,
        lines=layout.lines,
        trees=trees,
        agendas=records(n * entries, ENTRY).reshape(n, entries),
        source_first=np.searchsorted(sources[:, 0], np.arange(n + 1)),
        source_group=sources[:, 2].astype(np.int32),
        source_line=sources[:, 3].astype(np.int32),
        source_to=sources[:, 1].astype(np.int32),
        keys=np.zeros((n, 2, _COLLECTED), np.int64),
        places=np.zeros((n, _COLLECTED), np.int32),
        words=words,
        claims=np.zeros(n * WORD, np.int64),
        status=status,
    )


def _count_up(values: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return 0, 1, 2 … for each value below `n`, as often as it occurs, value after value."""
    counts = np.bincount(values, minlength=n)
    return np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)


class _Lines:
    """The delay lines of all groups: the same ones in the tree of each, then those to other groups."""

    def __init__(self, packet_plan: PacketPlan, cut: Cut) -> None:
        self._n, self._cut = cut.n_groups, cut
        state = packet_plan.state
        crossing = np.flatnonzero(_crossing(state, cut.port_group))
        kind, delay_ps = state.lines.kind, state.lines.delay_ps
        ends = [cut.port_group[crossing], cut.port_group[state.ports.peer[crossing]]]
        used = (state.ports.wire_line[crossing], state.buffers.credit_line[crossing])
        moves = np.concatenate([np.column_stack((line, *ends)).astype(np.int64) for line in used])
        # [line to another group] -> line of one group, this group, the other
        self._moves, move_of_end = distinct_rows(moves)
        incoming = np.unique(self._moves[:, 0])
        order = [(int(kind[old]), 0, old) for old in range(len(kind))]
        order = sorted(order + [(int(kind[old]), 1, old) for old in incoming.tolist()])
        ready = order.pop()[2]  # the last one stays the last
        self._new = {old: at for at, (_, is_incoming, old) in enumerate(order) if not is_incoming}
        self._incoming = {old: at for at, (_, is_incoming, old) in enumerate(order) if is_incoming}
        self._odd = {PacketEvent.LOST: len(order), PacketEvent.RELEASE: len(order) + 1}
        self.ready_line = self._new[ready] = len(order) + 2
        self.width = 1 << (len(order) + 2).bit_length()
        near = self._moves[:, 1]
        rank = np.zeros(len(near), np.int64)
        rank[np.argsort(near, kind="stable")] = _count_up(near, self._n)
        self._out = self.width + 2 * self._n + rank
        n_lines = self.width + 2 * self._n + int(rank.max(initial=0)) + 1
        self.lines = records(self._n * n_lines, DELAY_LINE).reshape(self._n, n_lines)
        for old, new in (*self._new.items(), *self._incoming.items()):
            self.lines.kind[:, new], self.lines.delay_ps[:, new] = kind[old], delay_ps[old]
        for odd, line in self._odd.items():
            self.lines.kind[:, line] = odd
        self.lines.delay_ps[:, self.width : self.width + 2 * self._n] = cut.window_ps
        self.lines.delay_ps[near, self._out] = delay_ps[self._moves[:, 0]]
        self._renumber(state, crossing, self._out[move_of_end])

    def first_odd_line(self, kind: PacketEvent) -> int:
        """Return the first of the lines that take events of a kind to each group."""
        return self.width + (self._n if kind is PacketEvent.RELEASE else 0)

    def _renumber(self, state: State, crossing: NDArray[np.int64], out: NDArray[np.int64]) -> None:
        """Change the line numbers in the state; `out` has those of arrivals, then of credits, at each crossing."""
        new = np.array([self._new[old] for old in range(len(self._new))])
        state.serial_line[:] = np.where(state.serial_line >= 0, new[state.serial_line], NONE)
        state.ports.wire_line = new[state.ports.wire_line]
        state.ports.wire_line[crossing] = out[: len(crossing)]
        state.buffers.credit_line = new[state.buffers.credit_line]
        state.buffers.credit_line[crossing] = out[len(crossing) :]
        state.hosts.ack_line = new[state.hosts.ack_line]

    def sources(self) -> NDArray[np.int64]:
        """Return the sources of each group: rows of group, its line, other group, line there; in order."""
        rows = [
            (far, self._incoming[old], near, line)
            for (old, near, far), line in zip(self._moves.tolist(), self._out.tolist(), strict=True)
        ]
        for kind, to in self._odd.items():
            begin = self.first_odd_line(kind)
            rows += [(far, to, near, begin + far) for near in range(self._n) for far in range(self._n) if near != far]
        return np.array(sorted(rows), np.int64)

    def fill(self, messages: Records, runs: Records, trees: NDArray[np.int64]) -> tuple[Records, NDArray[np.int32]]:
        """Give every line of each group a chunk, and each group its messages; return the events and chunks."""
        ready_ps = messages.start_ps + messages.lead_ps
        free = np.flatnonzero(messages.waits_for == 0)
        free = free[np.argsort(ready_ps[free], kind="stable")]
        group = self._cut.port_group[messages.src[free]]
        counts = np.bincount(group, minlength=self._n)
        n_lines = self.lines.shape[1]
        chunks = n_lines + counts // CHUNK_EVENTS + _FREE_CHUNKS
        begins = np.concatenate(([0], np.cumsum(chunks)))
        events = records(int(begins[-1]) * CHUNK_EVENTS, EVENT)
        next_chunk = np.arange(1, int(begins[-1]) + 1, dtype=np.int32)
        for at in range(self._n):
            mine = free[group == at]
            head = (begins[at] + np.arange(n_lines)) * CHUNK_EVENTS
            # the line of ready messages takes the last chunk, and those after it
            head[[self.ready_line, n_lines - 1]] = head[[n_lines - 1, self.ready_line]]
            self.lines.head[at] = self.lines.tail[at] = head
            begin = int(head[self.ready_line])
            events.time_ps[begin : begin + len(mine)], events.a[begin : begin + len(mine)] = ready_ps[mine], mine
            self.lines.tail[at, self.ready_line] += len(mine)
            runs[at, 0].free_chunk = begins[at] + n_lines + len(mine) // CHUNK_EVENTS
            runs[at, 0].free_chunks = _FREE_CHUNKS
            if len(mine):  # the only busy line wins at every level
                node = self.width + self.ready_line
                while node:
                    trees[at, node] = (int(ready_ps[mine[0]]) << DELAY_LINE_BITS) | self.ready_line
                    node >>= 1
        return events, next_chunk
