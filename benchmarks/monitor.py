"""How well `weft diagnose` finds one bad cable of a loaded fabric, and how often it cries wolf.

    python benchmarks/monitor.py [--hosts 1024] [--seeds 100] [--polls 3] [--every 300] [--workers 2] [--json]

For each seed two runs on a lab with weft's subnet manager, both under a mixed load that chance makes: rings,
permutations, storage, all-to-all, and many that send to one, so that hundreds of ports wait. In one run a cable is
bad, by turns with bit errors both ways (1e-12 to 1e-8), one way, flaps (60 to 240 an hour) and fewer lanes; in the
other all are good. In both some cable was bad before and left its counts, and two hosts are unplugged and plugged in
again meanwhile.

    found     the bad cable is the first suspect after at most so many polls
    alarms    runs without a bad cable that have a suspect

Polls are so many seconds of the lab's clock apart: 300, as NVIDIA's PDR plugin asks its telemetry. Workers are
processes with a lab each.
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

from weft.scenarios.bad_cable import ILLS, Ill, Ward, ward


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    seed: int
    ill: str  # empty: none
    told: str
    found_at: int | None  # poll
    suspects: tuple[str, ...]  # of the last poll: kind and link
    waiting: str


def mixed_load(ward: Ward, rng: np.random.Generator) -> None:
    hosts = [host.name for host in ward.lab.fabric.hcas]
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
    ward.lab.seed_history(seed)
    ward.lab.load(*jobs, seed=seed, speed=0)


def leave_old_counts(ward: Ward, rng: np.random.Generator) -> None:
    bad = ward.make_ill("errors", rng)
    ward.lab.advance(3600)
    ward.lab.fix(bad.port)


def replug(ward: Ward, rng: np.random.Generator) -> None:
    """As an operator does it: a link goes down once, and both ends count that."""
    for host in rng.choice([host.name for host in ward.lab.fabric.hcas[1:-1]], 2, replace=False):
        ward.lab.break_cable(str(host))
        ward.lab.fix(str(host))


def one_run(ward: Ward, seed: int, ill: str, polls: int, every_s: float) -> Outcome:
    rng = np.random.default_rng([seed, len(ill)])
    mixed_load(ward, rng)
    leave_old_counts(ward, rng)
    bad = ward.make_ill(ill, rng) if ill else None
    found_at, last = None, None
    for poll, last in enumerate(ward.diagnoses(polls, every_s), 2):
        if poll == 2:
            replug(ward, rng)
        if bad is not None and found_at is None and last.suspects and is_it(last.suspects[0].ends, bad):
            found_at = poll
    ward.lab.fix()
    ward.sweep()
    assert last is not None
    return Outcome(
        seed=seed,
        ill=ill,
        told="" if bad is None else f"{' - '.join(sorted(bad.ends))}: {bad.told}",
        found_at=found_at,
        suspects=tuple(f"{one.kind} {one.name}" for one in last.suspects),
        waiting=next((note for note in last.notes if note.startswith("Congestion")), ""),
    )


def is_it(ends: tuple[str, str], bad: Ill) -> bool:
    return frozenset(ends) == bad.ends


def many_runs(spec: str, seeds: list[int], polls: int, every_s: float) -> Iterator[Outcome]:
    with ward(spec) as patient:
        for seed in seeds:
            yield one_run(patient, seed, ILLS[seed % len(ILLS)], polls, every_s)
            yield one_run(patient, seed, "", polls, every_s)


def _share(spec: str, seeds: list[int], polls: int, every_s: float) -> list[Outcome]:
    return list(many_runs(spec, seeds, polls, every_s))


def report(outcomes: list[Outcome]) -> dict[str, Any]:
    by_kind = {}
    for kind in ILLS:
        runs = [one for one in outcomes if one.ill == kind]
        at = [one.found_at for one in runs if one.found_at is not None]
        by_kind[kind] = {"runs": len(runs), "found": len(at), "after_2_polls": at.count(2)}
    ill, well = [one for one in outcomes if one.ill], [one for one in outcomes if not one.ill]
    return {
        "runs": len(ill),
        "found": sum(one.found_at is not None for one in ill),
        "by_kind": by_kind,
        "healthy": len(well),
        "alarms": sum(bool(one.suspects) for one in well),
        "misses": [asdict(one) for one in ill if one.found_at is None],
        "false": [asdict(one) for one in well if one.suspects],
        "congested": sum(bool(one.waiting) for one in well),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1024)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--polls", type=int, default=3)
    parser.add_argument("--every", type=float, default=300.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    spec, began_s = f"fat-tree:hosts={asked.hosts},switch=QM9700", time.perf_counter()
    packs = [list(range(begin, min(begin + 4, asked.seeds + 1))) for begin in range(1, asked.seeds + 1, 4)]
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_share, spec, pack, asked.polls, asked.every) for pack in packs]):
            outcomes += done.result()
            now = report(outcomes)
            print(
                f"\r{now['runs']} of {asked.seeds} seeds: {now['found']} found, {now['alarms']} alarms, "
                f"{time.perf_counter() - began_s:.0f} s",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
    figures = report(outcomes) | {"spec": spec, "polls": asked.polls, "every_s": asked.every}
    if asked.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"{spec}, {asked.polls} polls every {asked.every:g} s")
    for kind, of in figures["by_kind"].items():
        print(
            f"{kind:<10} {of['found']:>4} of {of['runs']:>4} first suspect, {of['after_2_polls']} of them after 2 polls"
        )
    print(f"{'all':<10} {figures['found']:>4} of {figures['runs']:>4}")
    print(
        f"alarms     {figures['alarms']:>4} of {figures['healthy']:>4} healthy runs, {figures['congested']} congested"
    )
    for one in (*figures["misses"], *figures["false"]):
        print(f"  seed {one['seed']}: {one['told'] or 'healthy'}; suspects: {', '.join(one['suspects']) or 'none'}")


if __name__ == "__main__":
    main()
