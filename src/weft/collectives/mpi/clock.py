"""The time of a program of MPI: every rank has a clock, which the rounds advance.

In a round a rank sends what it has to send, one message after the other, and then takes what comes, in the order of
arrival; what is added costs it the addition. An eager message leaves without asking; a rendezvous begins when both have
come, and the sender waits for its end. Ranks wait for no others: clocks drift apart, and OSU's programs print their
mean.

Repeating rounds are run until the delays have passed through a node; of very many different rounds, a regular sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.mpi.interconnect import Interconnect
from weft.collectives.mpi.message import Cost, Messages
from weft.collectives.mpi.times import times
from weft.collectives.schedules.program import Program, Sends

_MOST_DIFFERENT = 64  # rounds that are run of those that differ
_FEWEST_REPEATED = 16

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A sequence of rounds of a program, inside the nodes or between them."""

    n_rounds: int
    inside: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A program and its size.

    overlapped: all sends of all rounds are active at once.
    segments: repetitions, with parts between the nodes and inside them at the same time.
    by_level: ranks are numbered node by node, whatever their layout.
    """

    program: Program
    size_bytes: int
    overlapped: bool = False
    segments: int = 1
    parts: tuple[Part, ...] = ()
    by_level: bool = False


def run(steps: tuple[Step, ...], messages: Messages, begun: Floats | None = None) -> Floats:
    """Return the microseconds of each rank for all steps in sequence; all begin at 0, or at `begun`."""
    clock = np.zeros(messages.interconnect.n_ranks) if begun is None else begun
    for step in steps:
        way = _overlapped if step.overlapped else _in_segments if step.segments > 1 else _in_order
        clock = way(step, messages, clock)
    return clock


def _in_segments(step: Step, messages: Messages, clock: Floats) -> Floats:
    """Run segments: each follows the previous one inside the nodes and on the network."""
    inside_us, between_us, first = 0.0, 0.0, 0
    for part in step.parts:
        begun_us = float(clock.max())
        for number in range(first, first + part.n_rounds):
            clock = _round(step, number, messages, clock)
        took_us = float(clock.max()) - begun_us
        inside_us, between_us = inside_us + took_us * part.inside, max(between_us, took_us * (not part.inside))
        first += part.n_rounds
    return clock + (step.segments - 1) * max(inside_us, between_us)


def _in_order(step: Step, messages: Messages, clock: Floats) -> Floats:
    program, ppn = step.program, messages.interconnect.ppn
    if len(program.runs) > 2 * _MOST_DIFFERENT and len(program.runs) == program.n_rounds:
        numbers = np.unique(np.linspace(0, program.n_rounds - 1, _MOST_DIFFERENT).astype(int))
        begun = clock.copy()
        for number in numbers.tolist():
            clock = _round(step, number, messages, clock)
        return begun + (clock - begun) * (program.n_rounds / len(numbers))
    for run in program.runs:
        window = max(2 * ppn, _FEWEST_REPEATED)
        n_exact = min(run.n_rounds, 2 * window)
        ends = []
        for number in range(run.first, run.first + n_exact):
            clock = _round(step, number, messages, clock)
            ends.append(float(clock.max()))
        if n_exact < run.n_rounds:
            clock = clock + (run.n_rounds - n_exact) * (ends[-1] - ends[-1 - window]) / window
    return clock


def _round(step: Step, number: int, messages: Messages, clock: Floats) -> Floats:
    src, dst, size_bytes, add = _messages(step, number, messages.interconnect)
    cost = _cost(messages, src, dst, size_bytes, add)
    order = np.argsort(src, kind="stable")
    sent = np.empty(len(src))
    sent[order] = clock[src[order]] + _running_sum(cost.send[order], src[order])
    after = clock.copy()
    np.maximum.at(after, src, sent)  # when each rank has sent all of this round
    asks = cost.request > 0
    arrived = np.where(asks, np.maximum(sent + cost.request, after[dst]) + cost.ready, sent) + cost.flight
    order = np.lexsort((arrived, dst))
    to, work = dst[order], cost.receive[order]
    done = _running_sum(work, to)
    # Lindley's recursion: each is begun when it has come and the one before it is done.
    done += _running_max(np.maximum(arrived[order], after[to]) - (done - work), to)
    now = after.copy()
    np.maximum.at(now, to, done)
    np.maximum.at(now, src[asks], arrived[asks])
    return now


def _overlapped(step: Step, messages: Messages, clock: Floats) -> Floats:
    """Run overlapped sends: the longer of a rank's work and the network's, and one latency."""
    program = step.program
    numbers = np.unique(np.linspace(0, program.n_rounds - 1, min(program.n_rounds, _MOST_DIFFERENT)).astype(int))
    busy, link_us, flight = np.zeros(len(clock)), np.zeros(len(clock)), np.zeros(len(clock))
    for number in numbers.tolist():
        src, dst, size_bytes, add = _messages(step, number, messages.interconnect)
        cost = _cost(messages, src, dst, size_bytes, add)
        least = _cost(messages, src, dst, np.zeros_like(size_bytes), np.zeros_like(add))
        np.add.at(busy, src, cost.send)
        np.add.at(busy, dst, cost.receive)
        np.add.at(link_us, src, cost.flight - least.flight)
        np.maximum.at(flight, dst, least.flight + cost.request + cost.ready)
    scale = program.n_rounds / len(numbers)
    return clock + np.maximum(busy, link_us) * scale + flight


def _messages(step: Step, number: int, interconnect: Interconnect) -> tuple[Ints, Ints, Floats, NDArray[np.bool_]]:
    """Return senders and receivers as slots, bytes, and whether they are added."""
    program = step.program
    sends = program.make_round(number)
    chunk_bytes = 0 if program.collective is Collective.BARRIER else program.chunk_bytes(step.size_bytes)
    if program.aggregated:
        sends = _joined(sends, program.n_ranks)
    size = np.minimum(sends.n_chunks.astype(np.float64) * chunk_bytes, max(step.size_bytes, 0))
    src, dst = (
        end.astype(np.int64) if step.by_level else interconnect.slot(end.astype(np.int64))
        for end in (sends.src, sends.dst)
    )
    return src, dst, size, sends.add


def _joined(sends: Sends, n_ranks: int) -> Sends:
    """Merge the sends between two ranks into one message."""
    key = sends.src.astype(np.int64) * n_ranks + sends.dst
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    merged = Sends(**{name: getattr(sends, name)[first] for name in Sends.__slots__})
    return replace(merged, n_chunks=np.bincount(group, sends.n_chunks).astype(np.int32))


def _cost(messages: Messages, src: Ints, dst: Ints, size_bytes: Floats, add: NDArray[np.bool_]) -> Cost:
    interconnect, n = messages.interconnect, len(src)
    server = src // interconnect.ppn
    inside = server == dst // interconnect.ppn
    parts = {name: np.zeros(n) for name in Cost.__slots__}
    by_server = partial(np.bincount, minlength=interconnect.n_servers)
    within = by_server(server[inside])
    leaving = by_server(server if messages.loopback else server[~inside])
    if inside.any():
        of = server[inside]
        if messages.loopback:
            crowd_us = np.maximum(leaving[of] / interconnect.rails - 1, 0.0) * interconnect.crowd_us
            shared = np.maximum(within[of] / interconnect.rails - 1, 0.0) * interconnect.us_per_byte
            _fill(parts, inside, messages.between(size_bytes[inside], crowd_us, shared))
        else:
            _fill(parts, inside, messages.inside(size_bytes[inside], within[of]))
    if not inside.all():
        of = server[~inside]
        extra = interconnect.together(src[~inside], dst[~inside])
        crowd_us = np.maximum(leaving[of] / interconnect.rails - 1, 0.0) * interconnect.crowd_us
        shared = extra.us_per_byte + (
            within[of] / interconnect.rails * interconnect.us_per_byte if messages.loopback else 0.0
        )
        _fill(parts, ~inside, messages.between(size_bytes[~inside], extra.more_us + crowd_us, shared))
    parts["receive"] += np.where(add, size_bytes, 0.0) / times().shared.reduce_gbyte_s / 1e3
    return Cost(**parts)


def _fill(parts: dict[str, Floats], rows: NDArray[np.bool_], cost: Cost) -> None:
    for name, column in parts.items():
        column[rows] = getattr(cost, name)


def _running_sum(values: Floats, group: Ints) -> Floats:
    """Return the running sum in each group; rows of a group are adjacent."""
    total = np.cumsum(values)
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    before = total[begins] - values[begins]
    summed: Floats = total - np.repeat(before, np.diff(np.append(begins, len(group))))
    return summed


def _running_max(values: Floats, group: Ints) -> Floats:
    """Return the running maximum in each group, by doubling steps."""
    highest = values
    step, longest = 1, int(np.diff(np.append(np.flatnonzero(np.diff(group, prepend=-1)), len(group))).max())
    while step < longest:
        same = group[step:] == group[:-step]
        highest = np.concatenate(
            (highest[:step], np.where(same, np.maximum(highest[step:], highest[:-step]), highest[step:]))
        )
        step *= 2
    return highest
