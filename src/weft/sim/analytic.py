"""The analytic engine: closed forms, one wave of messages at a time, without a clock.

    arrival = ready + alpha + bytes × beta + delay by sharing

Alpha and beta are those of an idle network, as in the flow engine: posting, every hop of the path, the slowest link. A
message alone therefore arrives exactly when it does in the packet engine, to the picosecond.

A wave is all messages of one dependency depth. On each link a wave forms busy periods: a message that is ready while
the
link is busy joins the current period, a later one starts the next. The queue pairs of a period share the link
equally, and
each sends one message after the other. While one of them sends x bytes, another with B bytes in total sends at most
min(x, B); so x bytes are sent after the sum of min(x, B) over the period, divided by the rate, and at the latest when
the
period ends (processor sharing: Kleinrock, Queueing Systems, volume 2, chapter 4). For a single link this is exact if
all
messages are ready at the same time, whatever their sizes. The slowest link of the path decides.

Simplifications beyond those of the flow engine:

- Capacity that a flow leaves unused because another link limits it is not redistributed. On a link that n queue pairs
  share, a message may be charged up to n times its own time, where max-min fair rates would need less. The last of
  equal messages that start together is exact nevertheless.
- A message that joins a period late is treated as if it had been present from the start: its time is an upper bound.
- Messages of different depths do not share. A message that is ready while a link serves an earlier wave is served after
  it; one that was ready earlier and is still sending when that work begins is not slowed by it.
- Messages that wait for the `outstanding` limit of their queue pair are ordered by depth, start and number.

`events` counts the waves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.sim.engine import Options, Progress
from weft.sim.flow.idle import list_idle
from weft.sim.flow.outcome import collect
from weft.sim.flow.plan import FlowPlan, plan
from weft.sim.layout.posting import ranges, waves
from weft.sim.planes import run_over_planes
from weft.sim.result import NEVER, Result
from weft.sim.traffic import Traffic

LONG_AGO_PS = -(1 << 60)
TOUCH_PS = 0.5  # a message that is ready this close to the end of a busy period does not join it

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class AnalyticEngine:
    """The analytic engine: sums in closed form, no event loop."""

    name = "analytic"

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        """Compute the arrival of every message. Raise ConfigError before it starts if the input is invalid."""
        return run_over_planes(self._run, fabric, traffic, options, progress)

    def _run(self, fabric: Fabric, traffic: Traffic, options: Options, progress: Progress | None) -> Result:
        flow_plan = plan(fabric, traffic, options)
        sums = _Sums(flow_plan)
        begin = time.perf_counter()
        events = delivered = 0
        for wave, reached, counts in waves(sums.arcs.first, sums.arcs.to, sums.waits_for):
            sums.send(wave)
            sums.release(wave, reached, counts)
            events, delivered = events + 1, delivered + len(wave)
            if progress is not None:
                progress(delivered, len(sums.qp))
        sums.write(flow_plan)
        return collect(flow_plan, traffic, self.name, events, time.perf_counter() - begin)


# -- waves ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _Arcs:
    """The dependencies between messages, in CSR form."""

    first: Ints  # [message + 1] -> index of its first arc
    to: Ints  # [arc] -> the message that waits
    by_ack: NDArray[np.bool_]  # [arc] -> the arc is a place under the `outstanding` limit, not a dependency


def _arcs(flow_plan: FlowPlan) -> tuple[_Arcs, Ints]:
    """Return the dependencies with those from the `outstanding` limit, and the number of arcs that each message waits
    for.
    """
    messages, window = flow_plan.state.messages, flow_plan.state.qps.window
    arcs = _Arcs(
        first=flow_plan.posting.successor_first,
        to=flow_plan.posting.successors.astype(np.int64),
        by_ack=np.zeros(len(flow_plan.posting.successors), np.bool_),
    )
    waits_for = messages.waits_for.astype(np.int64)
    if not window.any():
        return arcs, waits_for
    depth = np.zeros(len(messages), np.int64)
    for number, (wave, _, _) in enumerate(waves(arcs.first, arcs.to, waits_for)):
        depth[wave] = number
    order = np.lexsort((messages.start_ps, depth, messages.qp))
    place = np.arange(len(order))
    qp = messages.qp[order]
    behind = place + window[qp]  # position of the message that this one makes room for
    fits = (behind > place) & (behind < np.searchsorted(qp, qp, side="right"))
    room, waiting = order[fits], order[behind[fits]]
    source = np.concatenate((np.repeat(np.arange(len(messages)), np.diff(arcs.first)), room))
    sort = np.argsort(source, kind="stable")
    counts = np.bincount(source, minlength=len(messages))
    merged = _Arcs(
        first=np.concatenate(([0], np.cumsum(counts))),
        to=np.concatenate((arcs.to, waiting))[sort],
        by_ack=np.concatenate((arcs.by_ack, np.ones(len(room), np.bool_)))[sort],
    )
    return merged, waits_for + np.bincount(waiting, minlength=len(messages))


# -- times ------------------------------------------------------------------------------------------------------------


class _Sums:
    """The columns of the messages, and the work that earlier waves have left to queue pairs and links."""

    def __init__(self, flow_plan: FlowPlan) -> None:
        state = flow_plan.state
        messages, qps, flows = state.messages, state.qps, state.flows
        n = len(messages)
        self.arcs, self.waits_for = _arcs(flow_plan)
        self.bytes, self.idle_ps = np.zeros(n), np.zeros(n, np.int64)
        list_idle(state, self.bytes, self.idle_ps)
        self.qp = messages.qp.astype(np.int64)
        self.lead_ps, self.delay_ps = messages.lead_ps.copy(), messages.delay_ps.copy()
        read_ps = qps.setup_ps[self.qp] + ((messages.bytes * qps.ps_per_kib[self.qp]) >> 10)
        # time until the next message can be ready
        self.gap_ps = np.maximum(qps.gap_ps[self.qp], read_ps).astype(np.float64)
        self.alone, self.receive_ps, self.ack_ps = flows.alone.copy(), flows.receive_ps.copy(), flows.ack_ps.copy()
        self.acked = qps.acked.astype(np.bool_)
        self.link_first, self.link, self.share = state.node_first, state.node_class.astype(np.int64), state.node_share
        self.capacity = state.classes.capacity.copy()
        self.start_ps, self.free_ps = messages.start_ps.copy(), np.full(n, LONG_AGO_PS)
        self.allowed_ps = np.full(n, LONG_AGO_PS)  # by the `outstanding` limit
        self.finish_ps, self.acked_ps = np.full(n, NEVER), np.full(n, NEVER)
        self.begin_ps, self.end_ps = np.zeros(n), np.zeros(n)  # while sending
        self.readers, self.links = _Servers(), _Servers()

    def send(self, wave: Ints) -> None:
        """Compute when the messages of a wave are sent and delivered."""
        self.start_ps[wave] = np.maximum(self.start_ps[wave], self.free_ps[wave] + self.delay_ps[wave])
        rows = wave[np.lexsort((self.start_ps[wave], self.qp[wave]))]
        qp, row_bytes = self.qp[rows], self.bytes[rows]
        posted_ps = (self.start_ps[rows] + self.lead_ps[rows]).astype(np.float64)
        # a queue pair reads its messages one after the other
        ready = self.readers.serve(qp, posted_ps, self.gap_ps[rows])
        ready_ps = np.maximum(ready.begun_ps, self.allowed_ps[rows])
        end_ps = self._shared_ps(qp, row_bytes, ready_ps)
        self.begin_ps[rows] = np.maximum(ready_ps, _before(end_ps, qp, LONG_AGO_PS))
        self.end_ps[rows] = end_ps
        sent_ps = np.floor(end_ps - row_bytes / self.alone[qp] + 0.5).astype(np.int64)
        arrival_ps = sent_ps + self.idle_ps[rows]
        self.finish_ps[rows] = arrival_ps + self.receive_ps[qp]
        self.acked_ps[rows] = np.where(self.acked[qp], arrival_ps + self.ack_ps[qp], NEVER)

    def release(self, wave: Ints, arcs: Ints, counts: Ints) -> None:
        """Release the messages that waited for those of a wave."""
        to, by_ack = self.arcs.to[arcs], self.arcs.by_ack[arcs]
        sender = np.repeat(wave, counts)
        np.maximum.at(self.free_ps, to[~by_ack], self.finish_ps[sender[~by_ack]])
        np.maximum.at(self.allowed_ps, to[by_ack], self.acked_ps[sender[by_ack]])

    def _shared_ps(self, qp: Ints, row_bytes: Floats, ready_ps: Floats) -> Floats:
        """Return when the last byte of each message has left, limited by the slowest link of its path."""
        at, counts = ranges(self.link_first, qp)
        row = np.repeat(np.arange(len(qp)), counts)
        order = np.lexsort((qp[row], ready_ps[row], self.link[at]))
        at, row = at[order], row[order]
        link, share, each_bytes = self.link[at], self.share[at], row_bytes[row]
        served = self.links.serve(link, ready_ps[row], each_bytes * share / self.capacity[link])
        flows = _Flows(served.stretch, qp[row], share, self.capacity[link])
        done_ps = np.minimum(flows.end_ps(each_bytes, served.come_ps), served.until_ps)
        last_ps: Floats = np.full(len(qp), float(LONG_AGO_PS))
        np.maximum.at(last_ps, row, done_ps)
        return last_ps

    def write(self, flow_plan: FlowPlan) -> None:
        """Write the times into the plan, up to the time at which the run stops."""
        state, stop_ps = flow_plan.state, flow_plan.options.stop_at_ps
        messages, flows, n_qps = state.messages, state.flows, len(state.qps)
        sent_bytes, sent_packets = self.bytes, messages.packets.astype(np.float64)
        if stop_ps:
            self.finish_ps[self.finish_ps - self.receive_ps[self.qp] > stop_ps] = NEVER
            self.acked_ps[self.acked_ps > stop_ps] = NEVER
            part = np.clip((stop_ps - self.begin_ps) / np.maximum(self.end_ps - self.begin_ps, 1), 0, 1)
            sent_bytes, sent_packets = np.floor(part * sent_bytes), np.ceil(part * sent_packets)
        messages.start_ps, messages.finish_ps, messages.acked_ps = self.start_ps, self.finish_ps, self.acked_ps
        flows.sent_bytes = np.bincount(self.qp, sent_bytes, minlength=n_qps).astype(np.int64)
        flows.sent_packets = np.bincount(self.qp, sent_packets, minlength=n_qps).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Served:
    """The work of one wave, with a row for each piece."""

    come_ps: Floats  # when it could begin if it were alone in its wave
    begun_ps: Floats  # start, if the pieces are done one after the other
    stretch: Ints  # busy period
    until_ps: Floats  # end of that period


class _Servers:
    """A set of links or queue pairs that do one piece of work at a time, with the times at which they were busy."""

    def __init__(self) -> None:
        # sorted by server and time
        self.server, self.from_ps, self.until_ps = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)

    def serve(self, server: Ints, ready_ps: Floats, work_ps: Floats) -> _Served:
        """Schedule rows sorted by server and time.

        Work that is ready while a server is busy with an earlier wave follows it.
        """
        come_ps = np.maximum(ready_ps, self._busy_until_ps(server, ready_ps))
        of_server = _number(server)
        begun_ps = _queue(come_ps, work_ps, of_server)
        end_ps = begun_ps + work_ps
        opens = come_ps >= _before(end_ps, of_server, LONG_AGO_PS) - TOUCH_PS
        stretch = np.cumsum(opens) - 1
        until_ps = end_ps[_last(stretch)]
        self._remember(server[opens], come_ps[opens], until_ps, ready_ps.min())
        return _Served(come_ps=come_ps, begun_ps=begun_ps, stretch=stretch, until_ps=until_ps[stretch])

    def _busy_until_ps(self, server: Ints, ready_ps: Floats) -> Floats:
        """Return the end of the last work of earlier waves that its server began before each row is ready ([row])."""
        # Complex numbers are ordered by their real part, then by the imaginary part.
        at = np.searchsorted(self.server + 1j * self.from_ps, server + 1j * ready_ps, side="right") - 1
        busy = np.flatnonzero(at >= 0)
        busy = busy[self.server[at[busy]] == server[busy]]
        until_ps = np.full(len(server), float(LONG_AGO_PS))
        until_ps[busy] = self.until_ps[at[busy]]
        return until_ps

    def _remember(self, server: Ints, from_ps: Floats, until_ps: Floats, now_ps: float) -> None:
        """Add busy times, merging those that meet, and forget those that ended before any work that can still come."""
        current = self.until_ps > now_ps
        server = np.concatenate((self.server[current], server))
        from_ps = np.concatenate((self.from_ps[current], from_ps))
        order = np.lexsort((from_ps, server))
        server, from_ps = server[order], from_ps[order]
        of_server = _number(server)
        until_ps = _running_max(np.concatenate((self.until_ps[current], until_ps))[order], of_server)
        apart = from_ps > _before(until_ps, of_server, LONG_AGO_PS) + TOUCH_PS
        self.server, self.from_ps = server[apart], from_ps[apart]
        self.until_ps = until_ps[_last(np.cumsum(apart))]


class _Flows:
    """The busy periods of links shared by queue pairs: a row for each message, sorted by period and time."""

    def __init__(self, stretch: Ints, qp: Ints, share: Floats, capacity: Floats) -> None:
        self.order = np.lexsort((qp, stretch))  # the messages of a queue pair within a period form one flow
        self.stretch = stretch[self.order]
        self.flow = _number(self.stretch, qp[self.order])
        self.share, self.capacity = share[self.order], capacity[self.order]

    def end_ps(self, row_bytes: Floats, begin_ps: Floats) -> Floats:
        """Return when each row has been sent by its flow ([row]):

        once it is ready and the earlier messages are sent.
        """
        sent_bytes = _running_sum(row_bytes[self.order], self.flow)
        through_ps = self._through_ps(sent_bytes)
        work_ps = through_ps - _before(through_ps, self.flow, 0)
        end_ps: Floats = np.empty(len(begin_ps))
        end_ps[self.order] = _queue(begin_ps[self.order], work_ps, self.flow) + work_ps
        return end_ps

    def _through_ps(self, sent_bytes: Floats) -> Floats:
        """Return the time that a flow needs for so many bytes ([row]).

        While one flow sends x bytes, a flow with B bytes in total sends min(x, B).
        """
        order = np.lexsort((sent_bytes, self.stretch))
        stretch, x = self.stretch[order], sent_bytes[order]
        ends = np.zeros(len(order))
        last = _last(self.flow)
        ends[last] = self.share[last]
        ended = ends[order]
        present = np.bincount(stretch, ended)[stretch] - (_running_sum(ended, stretch) - ended)
        more = x - _before(x, stretch, 0)
        through_ps: Floats = np.empty(len(order))
        through_ps[order] = _running_sum(more * present, stretch) / self.capacity[order]
        return through_ps


# -- columns in segments ----------------------------------------------------------------------------------------------


def _begins(*sorted_columns: Ints) -> NDArray[np.bool_]:
    """Return where a segment begins ([row]): any column differs from the row before."""
    begins = np.zeros(len(sorted_columns[0]), np.bool_)
    begins[:1] = True
    for column in sorted_columns:
        begins[1:] |= column[1:] != column[:-1]
    return begins


def _number(*sorted_columns: Ints) -> Ints:
    """Return the segment number of each row."""
    return np.cumsum(_begins(*sorted_columns)) - 1


def _last(segment: Ints) -> Ints:
    """Return the last row of each segment."""
    return np.append(np.flatnonzero(segment[1:] != segment[:-1]), len(segment) - 1)


def _before(values: Floats, segment: Ints, none: float) -> Floats:
    """Return the value of the previous row in the same segment ([row]), or `none` for the first."""
    return np.where(_begins(segment), none, np.roll(values, 1))


def _queue(come_ps: Floats, work_ps: Floats, segment: Ints) -> Floats:
    """Return when each piece begins if a segment is served in order, one piece at a time (Lindley's recursion)."""
    before_ps = _running_sum(work_ps, segment) - work_ps
    begun_ps: Floats = before_ps + _running_max(come_ps - before_ps, segment)
    return begun_ps


def _running_sum(values: Floats, segment: Ints) -> Floats:
    total = np.cumsum(values)
    ends = total[_last(segment)]
    summed: Floats = total - np.concatenate((ends[:1] * 0, ends[:-1]))[segment]
    return summed


def _running_max(values: Floats, segment: Ints) -> Floats:
    """Return the running maximum within each segment, in steps that double."""
    largest = values
    longest, step = int(np.bincount(segment).max()), 1
    while step < longest:
        same = segment[step:] == segment[:-step]
        largest = np.concatenate(
            (largest[:step], np.where(same, np.maximum(largest[step:], largest[:-step]), largest[step:]))
        )
        step *= 2
    return largest
