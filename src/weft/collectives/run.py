"""Time a program over a fabric, by any engine, with its network and NVLinks.

    ranks = place(join_nvlinks(route(weft.load("superpod:su=1")).fabric))
    timing = run_program(program, ranks, 1 << 30)
    timing.time_us, timing.bus_gbyte_s

Where rounds repeat (`Program.runs`) and there are too many to run, the first of each run are run, until they take as
long as those before them; the others are counted as these. Where a round crosses servers and also stays inside them, a
ring through all GPUs say, a slow hop comes round only once in as many rounds as a server has ranks: so many are
compared with as many. What a rank does between receiving and sending on, the
kernels and proxies of NCCL, takes `step_ps`, 0 unless given: `weft.collectives.nccl.estimate` knows what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.collectives.ranks import Ranks
from weft.collectives.schedules.program import Program, Schedule, Sends, in_runs, joined
from weft.collectives.traffic import program_traffic, refuse_misfits, whole_schedule
from weft.sim.engine import Options, Progress
from weft.sim.flow.engine import FlowEngine
from weft.sim.result import Engine, Result

MOST_SENDS = 500_000  # in a program that is run whole
_MOST_ROUNDS = 64  # in a run
_STEADY = 1e-3  # rounds take the same, if they differ by no more than this part


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timing:
    """The time of a collective. `result` is the engine's, for the rounds that were run."""

    program: Program
    size_bytes: int
    time_ps: int
    rounds_run: int
    result: Result

    @property
    def time_us(self) -> float:
        return self.time_ps / 1e6

    @property
    def algo_gbyte_s(self) -> float:
        return self.size_bytes * 1000 / self.time_ps

    @property
    def bus_gbyte_s(self) -> float:
        """Return the bus bandwidth that nccl-tests prints for this time."""
        return self.algo_gbyte_s * self.program.collective.bus_factor(self.program.n_ranks)


def run_program(
    program: Program,
    ranks: Ranks,
    size_bytes: int,
    options: Options | None = None,
    *,
    engine: Engine | None = None,
    step_ps: int = 0,
    pxn: bool = True,
    progress: Progress | None = None,
) -> Timing:
    """Time a collective of `size_bytes` at each rank.

    With `pxn`, a message to another rail goes over NVLink to the GPU of that rail first, as NCCL's does; without, it
    crosses rails in the network.
    """
    refuse_misfits(program, ranks, size_bytes)
    clock, options = engine or FlowEngine(), options or Options()
    window = _window(program, ranks)
    keep = program.n_rounds if count_sends(program) <= MOST_SENDS else 2 * window + 1
    while True:
        short = shortened(program, keep)
        schedule = whole_schedule(program) if short is program else _in_rounds(short)
        traffic = program_traffic(program, ranks, size_bytes, schedule, step_ps=step_ps, pxn=pxn)
        result = clock.run(ranks.fabric, traffic, options, progress=progress)
        end_ps = np.zeros(short.n_rounds, np.int64)
        np.maximum.at(end_ps, schedule.round, result.finish_ps[: len(schedule.round)])
        more_ps, steady = _rest(program, short, end_ps, window)
        if steady or keep >= _MOST_ROUNDS:
            break
        keep *= 2
    return Timing(
        program=program,
        size_bytes=size_bytes,
        time_ps=result.last_arrival_ps + more_ps,
        rounds_run=short.n_rounds,
        result=result,
    )


def count_sends(program: Program) -> int:
    """Count the sends of a program, from one round of each run."""
    return sum(len(program.make_round(run.first)) * run.n_rounds for run in program.runs)


def shortened(program: Program, keep: int) -> Program:
    """Return a program with the first `keep` rounds of each run, for timing only."""
    if all(run.n_rounds <= keep for run in program.runs):
        return program
    n_rounds = [min(run.n_rounds, keep) for run in program.runs]
    numbers = np.concatenate([run.first + np.arange(n) for run, n in zip(program.runs, n_rounds, strict=True)])
    return replace(program, runs=in_runs(*n_rounds), make_round=lambda number: program.make_round(int(numbers[number])))


def _window(program: Program, ranks: Ranks) -> int:
    """Return the period of a repeating program in rounds."""
    for run in program.runs:
        first = program.make_round(run.first)
        inside = first.src // ranks.per_server == first.dst // ranks.per_server
        if run.n_rounds > 1 and inside.any() and not inside.all():
            return ranks.per_server
    return 1


def _rest(program: Program, short: Program, end_ps: NDArray[np.int64], window: int) -> tuple[int, bool]:
    """Return the time of the rounds that were not run, and whether it is known."""
    more_ps, steady = 0, True
    for whole, short_run in zip(program.runs, short.runs, strict=True):
        left = whole.n_rounds - short_run.n_rounds
        if left:
            last = short_run.first + short_run.n_rounds - 1
            now_ps, before_ps = (int(end_ps[at] - end_ps[at - window]) for at in (last, last - window))
            steady &= abs(now_ps - before_ps) <= _STEADY * now_ps
            more_ps += left * now_ps // window
    return more_ps, steady


def _in_rounds(program: Program) -> Schedule:
    """Return a schedule in which each send waits for all messages of its sender's last round with any."""
    rounds = list(program.rounds())
    n_ranks = program.n_ranks + program.n_reducers
    begin, count = np.zeros(n_ranks, np.int64), np.zeros(n_ranks, np.int64)  # [rank] -> its part of `arrived`
    arrived, counts, spans, at = [], [], [], 0
    for sends in rounds:
        counts.append(count[sends.src])
        spans.append(begin[sends.src])
        arrived.append(at + np.argsort(sends.dst, kind="stable"))
        received = np.bincount(sends.dst, minlength=n_ranks)
        first = at + np.cumsum(received) - received
        begin, count = np.where(received > 0, first, begin), np.where(received > 0, received, count)
        at += len(sends)
    many, start = np.concatenate(counts), np.concatenate(spans)
    first = np.concatenate(([0], np.cumsum(many)))
    flat = np.repeat(start - first[:-1], many) + np.arange(int(first[-1]))
    schedule = Schedule(
        sends=Sends.join(rounds),
        round=np.repeat(np.arange(len(rounds), dtype=np.int32), [len(sends) for sends in rounds]),
        after_first=first.astype(np.int64),
        after=np.concatenate(arrived)[flat].astype(np.int32),
    )
    return joined(schedule) if program.aggregated else schedule
