"""Measure how well `weft diagnose` finds one bad cable of a loaded fabric, and how often it gives a false alarm.

    python benchmarks/monitor.py [--hosts 1024] [--seeds 100] [--polls 3] [--every 300] [--workers 2] [--json]

For each seed two runs on a lab with weft's subnet manager, both under a random mixed load: rings, permutations,
storage,
all-to-all, and incasts, so that hundreds of ports wait. In one run a cable is bad, in turn with bit errors in both
directions
(1e-12 to 1e-8), one direction, flaps (60 to 240 per hour) and fewer lanes; in the other all are good. In both some
cable was bad
before and left its counts, and two hosts are unplugged and plugged in again meanwhile.

    found     the bad cable is the first suspect after at most so many polls
    alarms    runs without a bad cable that have a suspect

Polls are so many seconds of the lab's clock apart: 300, the interval of NVIDIA's PDR plugin. Each worker is a process
with its
own lab.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from weft.scenarios.bad_cable import FAULT_KINDS, InjectedFault, MonitoredLab, monitored_lab


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    seed: int
    fault: str  # empty: none
    description: str
    found_at: int | None  # poll
    suspects: tuple[str, ...]  # kind and link, at the last poll
    waiting: str


def mixed_load(monitored: MonitoredLab, rng: np.random.Generator) -> None:
    hosts = [host.name for host in monitored.lab.fabric.hcas]
    rng.shuffle(hosts)
    coming = iter(hosts)

    def some(part: float) -> list[str]:
        return [next(coming) for _ in range(max(2, int(part * len(hosts))))]

    jobs: list[dict[str, Any]] = [
        {"name": "ring", "pattern": "ring", "hosts": some(0.25), "share": rng.uniform(0.5, 1)},
        {"name": "permutation", "pattern": "permutation", "hosts": some(0.25), "share": rng.uniform(0.5, 1)},
        {"name": "storage", "pattern": "storage", "hosts": some(0.2), "share": rng.uniform(0.3, 1)},
        {"name": "all", "pattern": "all-to-all", "hosts": some(0.03), "share": rng.uniform(0.5, 1)},
    ]
    jobs += [{"name": f"incast{i}", "pattern": "incast", "hosts": some(0.015)} for i in range(8)]
    seed = int(rng.integers(1 << 30))
    monitored.lab.seed_history(seed)
    monitored.lab.load(*jobs, seed=seed, speed=0)


def leave_old_counts(monitored: MonitoredLab, rng: np.random.Generator) -> None:
    bad = monitored.inject("errors", rng)
    monitored.lab.advance(3600)
    monitored.lab.fix(bad.port)


def replug(monitored: MonitoredLab, rng: np.random.Generator) -> None:
    """Unplug and replug a cable as an operator does: a link goes down once, and both ends count it."""
    for host in rng.choice([host.name for host in monitored.lab.fabric.hcas[1:-1]], 2, replace=False):
        monitored.lab.break_cable(str(host))
        monitored.lab.fix(str(host))


def one_run(monitored: MonitoredLab, seed: int, fault: str, polls: int, every_s: float) -> Outcome:
    rng = np.random.default_rng([seed, len(fault)])
    mixed_load(monitored, rng)
    leave_old_counts(monitored, rng)
    bad = monitored.inject(fault, rng) if fault else None
    found_at, last = None, None
    for poll, last in enumerate(monitored.diagnoses(polls, every_s), 2):
        if poll == 2:
            replug(monitored, rng)
        if bad is not None and found_at is None and last.suspects and is_same_cable(last.suspects[0].ends, bad):
            found_at = poll
    monitored.lab.fix()
    monitored.sweep()
    assert last is not None
    return Outcome(
        seed=seed,
        fault=fault,
        description="" if bad is None else f"{' - '.join(sorted(bad.ends))}: {bad.description}",
        found_at=found_at,
        suspects=tuple(f"{suspect.kind} {suspect.name}" for suspect in last.suspects),
        waiting=next((note for note in last.notes if note.startswith("Congestion")), ""),
    )


def is_same_cable(ends: tuple[str, str], bad: InjectedFault) -> bool:
    return frozenset(ends) == bad.ends


def many_runs(spec: str, seeds: list[int], polls: int, every_s: float) -> Iterator[Outcome]:
    with monitored_lab(spec) as monitored:
        for seed in seeds:
            yield one_run(monitored, seed, FAULT_KINDS[seed % len(FAULT_KINDS)], polls, every_s)
            yield one_run(monitored, seed, "", polls, every_s)


def _share(spec: str, seeds: list[int], polls: int, every_s: float) -> list[Outcome]:
    return list(many_runs(spec, seeds, polls, every_s))


def report(outcomes: list[Outcome]) -> dict[str, Any]:
    by_kind = {}
    for kind in FAULT_KINDS:
        runs = [outcome for outcome in outcomes if outcome.fault == kind]
        at = [run.found_at for run in runs if run.found_at is not None]
        by_kind[kind] = {"runs": len(runs), "found": len(at), "after_2_polls": at.count(2)}
    degraded, healthy = ([run for run in outcomes if bool(run.fault) == bad] for bad in (True, False))
    return {
        "runs": len(degraded),
        "found": sum(run.found_at is not None for run in degraded),
        "by_kind": by_kind,
        "healthy": len(healthy),
        "alarms": sum(bool(run.suspects) for run in healthy),
        "misses": [asdict(run) for run in degraded if run.found_at is None],
        "false": [asdict(run) for run in healthy if run.suspects],
        "congested": sum(bool(run.waiting) for run in healthy),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1024)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--polls", type=int, default=3)
    parser.add_argument("--every", type=float, default=300.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    spec, began_s = f"fat-tree:hosts={options.hosts},switch=QM9700", time.perf_counter()
    packs = [list(range(begin, min(begin + 4, options.seeds + 1))) for begin in range(1, options.seeds + 1, 4)]
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_share, spec, pack, options.polls, options.every) for pack in packs]):
            outcomes += done.result()
            now = report(outcomes)
            print(
                f"\r{now['runs']} of {options.seeds} seeds: {now['found']} found, {now['alarms']} alarms, "
                f"{time.perf_counter() - began_s:.0f} s",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
    figures = report(outcomes) | {"spec": spec, "polls": options.polls, "every_s": options.every}
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"{spec}, {options.polls} polls every {options.every:g} s")
    for kind, counts in figures["by_kind"].items():
        print(
            f"{kind:<10} {counts['found']:>4} of {counts['runs']:>4} first suspect, "
            f"{counts['after_2_polls']} of them after 2 polls"
        )
    print(f"{'all':<10} {figures['found']:>4} of {figures['runs']:>4}")
    print(
        f"alarms     {figures['alarms']:>4} of {figures['healthy']:>4} healthy runs, {figures['congested']} congested"
    )
    for run in (*figures["misses"], *figures["false"]):
        print(
            f"  seed {run['seed']}: {run['description'] or 'healthy'}; suspects: {', '.join(run['suspects']) or 'none'}"
        )


if __name__ == "__main__":
    main()
