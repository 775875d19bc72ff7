"""`weft study`: run a command with many options and seeds, and write one table."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import CycloptsError, Parameter

from weft.cli.arguments import Whole
from weft.cli.output import collect_rows, progress_bar
from weft.errors import ConfigError, UnknownName, WeftError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.study.grid import Study

_CALL = f"{__name__}:run_one"
_INTERRUPTED = 130  # the exit status of shells after SIGINT


def study(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    grid: tuple[str, ...] = (),
    workers: Whole | None = None,
    ray: str | None = None,
    restart: bool = False,
) -> None:
    """Run a command for many options and seeds.

    Writes one table. Runs on all cores of this machine, or on a Ray cluster.

    Parameters
    ----------
    command
        A command and its flags, `sim fat-tree:hosts={hosts} --engine flow`; or a file, .toml or .json, with the command
        as `run` and the lists of values as `grid`.
    output
        The file to write, a table, .csv or .parquet. A journal beside it lets the same command continue
        after an interruption.
    grid
        Values of a flag or of a name in braces: size=64K,1M or seed=1..10; several lists are combined with each other.
        Separate values that contain commas with `;`. Names that change together: "tp,pp=8,1;4,2".
    workers
        Runs at the same time. [the number of cores]
    ray
        Run on the Ray cluster at this address: auto, 10.0.0.1:6379 or ray://10.0.0.1:10001.
    restart
        Discard the results of earlier runs and start again.
    """
    from weft.study.conduct import conduct, journal_path
    from weft.study.grid import read
    from weft.study.worker import OK

    plan = read(command, grid)
    _check(plan)
    try:
        with progress_bar("starting") as change:
            outcomes = conduct(
                plan,
                _CALL,
                output,
                workers=workers,
                ray=ray,
                restart=restart,
                progress=lambda done, of: change(description=f"{done:,} of {of:,} runs", completed=done, total=of),
            )
    except KeyboardInterrupt:
        print(f"weft: stopped. What has run is in {journal_path(output)}: the same command goes on.", file=sys.stderr)
        raise SystemExit(_INTERRUPTED) from None
    failed = [outcomes[place] for place in sorted(outcomes) if outcomes[place].status != OK]
    print(f"{output}: written, {len(plan):,} runs, {len(failed):,} failed")
    if failed:
        raise SystemExit(f"{len(failed):,} of {len(plan):,} runs failed, the first by: {failed[0].error}")


def _check(plan: Study) -> None:
    """Refuse commands and options that can be recognized as wrong without running them."""
    from weft.cli import COMMANDS, app

    os.environ["WEFT_DEFAULTS"] = ""  # here and in workers: results must not depend on a file of defaults
    for run in plan.samples():
        if run.words[0] not in app:
            raise UnknownName("command", run.words[0], COMMANDS)
        try:
            _parse(run.words)
        except ConfigError:
            arguments = app.parse_commands(run.words)[1][-1].assemble_argument_collection()
            if any("--json" in argument.names for argument in arguments):
                raise
            raise ConfigError(
                f"weft {run.words[0]} has no --json, and a study makes its table of that: sim, nccl, compare have"
            ) from None


def _parse(words: Sequence[str]) -> tuple[Any, Any]:
    """Return the function of a command and its arguments, with --json."""
    from weft.cli import app

    try:
        return app.parse_args([*words, "--json"], exit_on_error=False, print_error=False)[:2]
    except CycloptsError as error:
        raise ConfigError(f"weft {' '.join(words)}: {str(error).splitlines()[-1]}") from None


def run_one(words: list[str]) -> list[dict[str, Any]]:
    """Run a command in a worker, and return the rows that it would print as CSV."""
    function, arguments = _parse(words)
    with collect_rows() as rows:
        try:
            function(*arguments.args, **arguments.kwargs)
        except SystemExit as end:
            if not rows:
                raise WeftError(f"ended with status {end.code}, and no rows") from None
    return rows
