"""Real programs on two fabrics: each run here, and then its trace replayed on simulated hardware.

    here         ranks are processes on the hosts of a lab; their data goes over TCP sockets, or weft's queue pairs
    predicted    the recorded runs (`weft run --record`) on NDR InfiniBand and on 100G TCP, by the flow engine

Both are speed-ups of the same programs on the same machine's cores; their absolute times are not comparable.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np

from weft.collectives.interconnect import options_of, respec
from weft.draw.chart import titled_chart
from weft.errors import ConfigError, SimulationBug, SubnetError
from weft.fabric import catalog
from weft.fabric.spec import load
from weft.jobs.job import Job
from weft.jobs.job import run as run_job
from weft.jobs.recorded import collect
from weft.jobs.signals import SignalHandler, StopRequested
from weft.scenarios.finding import Cell, Finding
from weft.scenarios.workloads.programs import WORKLOADS, Workload
from weft.scenarios.workloads.rank import TIMES
from weft.sim.engine import Memory
from weft.sim.perftest import prepare
from weft.training.traces.replay import Replay, replay
from weft.training.traces.trace import Trace

CLAIM = (
    "Test with real workloads, not benchmarks. [...] I've seen workloads with 10x speedup and workloads with 1.2x "
    "speedup on the same fabric. Run your actual MPI codes and measure wall clock time."
)
SOURCE = "InfiniBand Is Not Magic. Here's What It Actually Does."
FAST, SLOW = "ndr", "eth-100-tcp"
# TCP on a tuned machine without hypervisor, 12 µs and 40 Gb/s, relative to the model: timing.toml, [tcp].
TUNED = 0.375
LITTLE, MUCH = 1.25, 8.0  # limits for "1.2 times" and "10 times"
COLUMNS = (
    "workload",
    "here: times as fast",
    "repeats",
    "predicted: times as fast",
    "if TCP is tuned",
    "waits, NDR %",
    "waits, TCP %",
    "it needs InfiniBand, says the document",
)


def run(
    *,
    ranks: Annotated[int, "Ranks of each program, each on its own host."] = 8,
    repeats: Annotated[int, "Runs of each program on each carrier."] = 3,
    small: Annotated[bool, "Run a tenth of the iterations: quick, but less accurate."] = False,
    seed: Annotated[int, "Random seed for the programs' data and for ECMP hashing."] = 1,
) -> Finding:
    """Run all programs in one job on a lab; then replay their traces."""
    if not 2 <= ranks <= 64:
        raise ConfigError(f"--ranks must be 2 to 64, got {ranks}")
    if not 1 <= repeats <= 1000:
        raise ConfigError(f"--repeats must be 1 to 1,000, got {repeats}")
    with tempfile.TemporaryDirectory(prefix="weft-workloads-") as name:
        folder = Path(name)
        times = _run_here(folder, ranks, repeats, 10 if small else 100, seed)
        traces = {workload.name: collect(folder / workload.name, ranks).trace for workload in WORKLOADS}
    figures = {
        workload.name: _measure(workload, times[workload.name], traces[workload.name], ranks, seed)
        for workload in WORKLOADS
    }
    labels = [catalog.interconnect(name).label for name in (FAST, SLOW)]
    return Finding(
        scenario="real-workloads",
        claim=CLAIM,
        source=SOURCE,
        ran=f"five programs as {ranks} ranks on {ranks} hosts of a lab, by TCP sockets and by weft's queue pairs; the "
        f"recorded runs on {labels[0]} and with {labels[1]}, {ranks} hosts on one switch",
        columns=COLUMNS,
        rows=tuple(_row(workload, figures[workload.name]) for workload in WORKLOADS),
        finding=_sentence(figures),
        trust="Here: both carriers are software on the same cores, so it is wall-clock time of this machine under "
        "whatever else it does (see repeats): it says whom the carrier matters to, not what hardware gives. A message "
        "by queue pairs costs more Python than one by sockets, whose bytes the kernel copies and which never leave the "
        "machine; large messages cost less. "
        "Predicted: sends and waits by the flow engine, whose TCP is one connection of a cloud machine, 35 µs and "
        "15 Gbit/s; a tuned one makes Ethernet better, the column beside it. Computing is this machine's, Python "
        "included: faster cores make every speed-up larger. That a rank adds what it received takes no time there. "
        "No congestion of others, no loss.",
        options={"ranks": ranks, "repeats": repeats, "small": small, "seed": seed},
        figures=figures,
    )


# -- running ----------------------------------------------------------------------------------------------------------


def _run_here(folder: Path, ranks: int, repeats: int, percent: int, seed: int) -> dict[str, Any]:
    """Run all programs on a lab; return their times and results, and record their operations."""
    for workload in WORKLOADS:
        (folder / workload.name).mkdir()
    module = "weft.scenarios.workloads.rank"
    command = [str(argument) for argument in (sys.executable, "-m", module, folder, repeats, percent, seed)]
    interconnect = catalog.interconnect(FAST)
    lab = load(respec(f"fat-tree:hosts={ranks}", interconnect, catalog.server("host"), ranks))
    with SignalHandler() as signals:
        try:
            outcome = run_job(Job(command=tuple(command), n=ranks), lab, signals)
        except StopRequested as stop:
            raise SystemExit(128 + stop.number) from None
    if outcome.failure:
        raise SubnetError(f"real-workloads: {outcome.failure}:\n  " + "\n  ".join(outcome.last_errors))
    times: dict[str, Any] = json.loads((folder / TIMES).read_text(encoding="utf-8"))
    return times


def _measure(workload: Workload, times: dict[str, Any], trace: Trace, ranks: int, seed: int) -> dict[str, Any]:
    results = set(times["tcp_result"] + times["rdma_result"])
    if len(results) != 1:
        raise SimulationBug(f"{workload.name}: its result depends on the carrier: {sorted(results)}")
    fast, slow = (_replay(trace, name, ranks, seed) for name in (FAST, SLOW))
    compute_s = max(rank.compute_s for rank in fast.ranks)
    tuned_s = compute_s + TUNED * (slow.total_s - compute_s)
    pairs = sorted(tcp / rdma for tcp, rdma in zip(times["tcp_s"], times["rdma_s"], strict=True))
    return {
        "here": {
            "tcp_s": times["tcp_s"],
            "rdma_s": times["rdma_s"],
            "speedup": median(pairs),
            "least": pairs[0],
            "most": pairs[-1],
            "result": results.pop(),
        },
        "predicted": {
            "fast_s": fast.total_s,
            "slow_s": slow.total_s,
            "compute_s": compute_s,
            "speedup": slow.total_s / fast.total_s,
            "speedup_tuned": max(1.0, tuned_s / fast.total_s),
            "fast_waits": 1 - compute_s / fast.total_s,
            "slow_waits": 1 - compute_s / slow.total_s,
        },
        "says": workload.says,
    }


def _replay(trace: Trace, name: str, ranks: int, seed: int) -> Replay:
    interconnect = catalog.interconnect(name)
    fabric = prepare(load(respec(f"fat-tree:hosts={ranks}", interconnect, catalog.server("host"), ranks)))
    return replay(trace, fabric, options=replace(options_of(interconnect, seed), memory=Memory.HOST))


# -- reporting --------------------------------------------------------------------------------------------------------


def _row(workload: Workload, figures: dict[str, Any]) -> tuple[Cell, ...]:
    measured, predicted = figures["here"], figures["predicted"]
    return (
        workload.name,
        round(measured["speedup"], 2),
        f"{measured['least']:.2f} to {measured['most']:.2f}",
        round(predicted["speedup"], 2),
        round(predicted["speedup_tuned"], 2),
        round(100 * predicted["fast_waits"], 1),
        round(100 * predicted["slow_waits"], 1),
        verdict(workload, predicted["speedup"], predicted["speedup_tuned"]),
    )


def verdict(workload: Workload, speedup: float, tuned: float) -> str:
    """Return whether the document's statement holds, at both ends of TCP's range."""
    meets = [(value >= LITTLE) == workload.needs for value in (speedup, tuned)]
    holds = "holds" if all(meets) else "does not hold"
    if meets[0] != meets[1]:
        holds = f"holds {'unless' if meets[0] else 'if'} TCP is tuned"
    size = "10x" if speedup >= MUCH else "1.2x or less" if speedup < LITTLE else "between 1.2x and 10x"
    return f"{'yes' if workload.needs else 'no'}: {holds}, {size}"


def _sentence(figures: dict[str, Any]) -> str:
    times = {name: each["predicted"]["speedup"] for name, each in figures.items()}
    least, most = min(times, key=lambda name: times[name]), max(times, key=lambda name: times[name])
    measured = {name: each["here"]["speedup"] for name, each in figures.items()}
    gain = max(measured, key=lambda name: measured[name])
    tuned = max(each["predicted"]["speedup_tuned"] for each in figures.values())
    is_whole = times[least] < LITTLE and times[most] >= MUCH
    return (
        f"{'The whole' if is_whole else 'A part of the'} range of the document is in five programs on one fabric: "
        f"{times[least]:.2f}x ({least}) to {times[most]:.1f}x ({most}) predicted, up to {tuned:.1f}x if TCP is tuned. "
        "The share of the time on TCP that a program waits decides. Run here in software, the same programs "
        f"gain from {min(measured.values()):.2f}x to {measured[gain]:.1f}x ({gain}) by queue pairs instead of sockets, "
        "and every result is the same to the last bit."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw speed-ups here and predicted, by program."""
    names, places = list(finding.figures), -np.arange(len(finding.figures))
    with titled_chart(path, "Real programs on InfiniBand and on Ethernet", finding.ran, panels=2) as (
        measured,
        predicted,
    ):
        for axes, part, colour in ((measured, "here", "#7b8794"), (predicted, "predicted", "#0b6fb8")):
            figures = [each[part] for each in finding.figures.values()]
            times = [each["speedup"] for each in figures]
            bars = axes.barh(places, times, color=colour, height=0.6)
            axes.bar_label(bars, [f"{value:.2f}" for value in times], fontsize=8.5, padding=14)
            low, high = ("least", "most") if part == "here" else ("speedup_tuned", "speedup")
            axes.hlines(
                places,
                [each[low] for each in figures],
                [each[high] for each in figures],
                color="#1f2933",
                linewidth=1.5,
            )
            axes.set_yticks(places, names if part == "here" else [])
            axes.set_xscale("log")
            axes.set_xlim(min(0.5, *times) * 0.8, max(2.0, *times) * 2)
            axes.set_xticks([1, 1.2, 2, 5, 10], ["1", "1.2", "2", "5", "10"])
            axes.minorticks_off()
            axes.grid(axis="y", visible=False)
        measured.set_xlabel("run here: times as fast by queue pairs")
        predicted.set_xlabel("predicted: times as fast on NDR; the line begins where TCP is tuned")
