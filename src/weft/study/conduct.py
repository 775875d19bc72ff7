"""A study from its first run to its table."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path

from weft.errors import ConfigError
from weft.study import table
from weft.study.grid import Run, Study
from weft.study.journal import Journal
from weft.study.pools import run_locally, run_on_ray
from weft.study.worker import OK, Outcome
from weft.version import __version__


def journal_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.journal")


def conduct(
    study: Study,
    call: str,
    output: Path,
    *,
    workers: int | None = None,
    ray: str | None = None,
    restart: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[int, Outcome]:
    """Perform the runs that have not succeeded yet, write the table, and return all outcomes by place.

    `call` names the function that a worker calls with the words of a run. An interrupted study is resumed. `ray` is the
    address of a cluster.
    """
    table.check_path(output)
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {workers}")
    journal = Journal(journal_path(output), {"weft": __version__} | study.describe(), restart=restart)
    with closing(journal):
        done = {place for place, outcome in journal.outcomes.items() if outcome.status == OK}
        progress(len(done), len(study))
        left = (run for run in study.runs() if run.place not in done)
        if len(done) < len(study):
            with closing(_execute(call, left, workers, ray)) as ended:
                for count, (run, outcome) in enumerate(ended, len(done) + 1):
                    journal.add(run.place, outcome)
                    progress(count, len(study))
        table.write(output, *table.rows_of(study, journal.outcomes))
        return journal.outcomes


def _execute(call: str, left: Iterator[Run], workers: int | None, ray: str | None) -> Generator[tuple[Run, Outcome]]:
    if ray is not None:
        return run_on_ray(call, left, ray, workers)
    return run_locally(call, left, workers or _cores())


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
