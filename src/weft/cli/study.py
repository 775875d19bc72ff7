"""`weft study`: very many runs of a command, in one table."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import CycloptsError, Parameter

from weft.cli.arguments import Whole
from weft.cli.output import collect_rows, progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.study.grid import Study

_CALL = f"{__name__}:run_one"
_INTERRUPTED = 130  # as shells say it


def study(
    *words: Annotated[str, Parameter(allow_leading_hyphen=True)],
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
    words
        A command and its flags, `sim fat-tree:hosts={hosts} --engine flow`; or a file, .toml or .json, that has them
        as `run`, and lists as `grid`.
    output
        The table, .csv or .parquet. Beside it stands a journal: the same command again goes on where it was ended.
    grid
        Values in turn: size=64K,1M or seed=1..10, of a flag or of a place in braces; every list with every other.
        With ; between values that have commas. Names that change together: "tp,pp=8,1;4,2".
    workers
        So many runs at a time. [the cores]
    ray
        Run on the Ray cluster at this address: auto, 10.0.0.1:6379 or ray://10.0.0.1:10001.
    restart
        Begin anew: forget what has run.
    """
    from weft.study.conduct import conduct, journal_path
    from weft.study.grid import read
    from weft.study.worker import OK

    asked = read(words, grid)
    _check(asked)
    try:
        with progress_bar("starting") as change:
            outcomes = conduct(
                asked,
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
    print(f"{output}: written, {len(asked):,} runs, {len(failed):,} failed")
    if failed:
        raise SystemExit(f"{len(failed):,} of {len(asked):,} runs failed, the first by: {failed[0].error}")


def _check(asked: Study) -> None:
    """Does the command take the values that it will be given? As far as can be said without running it."""
    from weft.cli import COMMANDS, app
    from weft.errors import ConfigError, UnknownName

    os.environ["WEFT_DEFAULTS"] = ""  # here and in workers: a study says all itself, and is the same everywhere
    for run in asked.samples():
        if run.words[0] not in app:
            raise UnknownName("command", run.words[0], COMMANDS)
        try:
            _parse(run.words)
        except ConfigError:
            arguments = app.parse_commands(run.words)[1][-1].assemble_argument_collection()
            if any("--json" in one.names for one in arguments):
                raise
            raise ConfigError(
                f"weft {run.words[0]} has no --json, and a study makes its table of that: sim, nccl, compare have"
            ) from None


def _parse(words: Sequence[str]) -> tuple[Any, Any]:
    """The function of a command and its arguments, with --json."""
    from weft.cli import app
    from weft.errors import ConfigError

    try:
        return app.parse_args([*words, "--json"], exit_on_error=False, print_error=False)[:2]
    except CycloptsError as error:
        raise ConfigError(f"weft {' '.join(words)}: {str(error).splitlines()[-1]}") from None


def run_one(words: list[str]) -> list[dict[str, Any]]:
    """What a worker does: run a command, and give the rows that it would print as CSV."""
    from weft.errors import WeftError

    function, arguments = _parse(words)
    with collect_rows() as rows:
        try:
            function(*arguments.args, **arguments.kwargs)
        except SystemExit as end:
            if not rows:
                raise WeftError(f"ended with status {end.code}, and no rows") from None
    return rows
