"""`weft run`: run a program as ranks on the hosts of a lab."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.errors import ConfigError, UnknownName, WeftError

if TYPE_CHECKING:
    from types import FrameType

    from weft.cli.output import Cell
    from weft.fabric.model import Fabric
    from weft.jobs.job import Job, Outcome
    from weft.lab.registry import Entry

_USAGE = """weft run -n RANKS [--lab NAME|SPEC] [options] PROGRAM [ARGUMENTS...]

Run a program as many ranks on the hosts of a lab, as torchrun does: weft run -n 8 train.py --epochs 3
A PROGRAM that ends in .py is run with this Python, any other directly: weft run -n 4 python -m module

-n RANKS          number of ranks
--lab NAME|SPEC   a running lab by its name; or a topology or a file: a new lab of it with weft's subnet manager,
                  which ends with the job. [the smallest fat tree with enough hosts]
--hosts h3,h[7-9] use these hosts, in this order [all]
--per-host N      ranks per host [one per GPU; one per adapter if there are no GPUs]
--mpi[=MPIRUN]    start the ranks with mpirun, of Open MPI or MPICH
--no-prefix       do not print [RANK] before the lines of ranks
-q, --quiet       print only the output of the ranks, and errors
--json FILE       write the summary as JSON, with every port; - is standard output
--csv FILE        write the summary as CSV: one row per host
--record FOLDER   record the calls of weft.collectives.live as a trace: weft replay FOLDER --fabric SPEC;
                  and as a schedule for other simulators, FOLDER/job.goal
--predict         with --record: predict the time on real hardware of the fabric
--grace SECONDS   time between SIGTERM and SIGKILL when ranks must end [5]"""
_VALUES = ("-n", "--lab", "--hosts", "--per-host", "--json", "--csv", "--grace", "--record")
_SWITCHES = {"--no-prefix": "--no-prefix", "-q": "--quiet", "--quiet": "--quiet", "--predict": "--predict"}
_COLUMNS = ("ranks", "sent_bytes", "received_bytes", "sent_packets", "received_packets")
_SHOWN = 16  # hosts of a summary
_NOTICE_S = 2.0


def run(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Run a program as many ranks in a lab, like torchrun."""
    if not arguments or arguments[0] in ("--help", "-h"):
        print(_USAGE)
        return
    options, command = _read(arguments)
    from weft.jobs import job as jobs
    from weft.jobs.signals import SignalHandler, StopRequested

    job = _job(options, command)
    _check_files(options)
    is_quiet = "--quiet" in options
    with SignalHandler() as signals, _Notice(is_quiet) as notice:
        try:
            lab = _lab(options.get("--lab", ""), job)
            _check_record(options, job, lab)
            outcome = jobs.run(job, lab, signals, notice.stop)
        except StopRequested as stop:
            _say(f"{stop}: all ranks were ended")
            raise SystemExit(128 + stop.number) from None
    _write(options, job, outcome)
    if outcome.hosts and not is_quiet:
        _summarise(job, outcome)
    if job.record:
        try:
            _report_recording(job, lab, is_predicted="--predict" in options)
        except WeftError as error:
            if not outcome.failure:
                raise
            _say(str(error))  # before the failure of the job, which is its cause
    if outcome.failure:
        last = "".join(f"\n  {line}" for line in outcome.last_errors)
        _say(f"{outcome.failure}, and so all ended{'; its last lines of errors:' if last else ''}{last}")
    raise SystemExit(outcome.status)


def _say(text: str) -> None:
    print(f"weft: {text}", file=sys.stderr, flush=True)


# -- options ----------------------------------------------------------------------------------------------------------


def _read(arguments: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the options by name, and the program with its arguments."""
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        argument = rest.pop(0)
        if argument == "--":
            break
        name, equals, value = argument.partition("=")
        if name == "--mpi":
            options[name] = value or "mpirun"
        elif name in _SWITCHES and not equals:
            options[_SWITCHES[name]] = ""
        elif name in _VALUES:
            if not equals and not rest:
                raise ConfigError(f"{name} has no value: {_USAGE.splitlines()[0]}")
            options[name] = value if equals else rest.pop(0)
        else:
            option_names = [*_VALUES, *_SWITCHES, "--mpi"]
            raise UnknownName("option", argument, option_names, "Options of the program come after it; weft run --help")
    if "-n" not in options:
        raise ConfigError(f"-n is missing: {_USAGE.splitlines()[0]}")
    return options, tuple(rest)


def _check_record(options: dict[str, str], job: Job, lab: Fabric | Entry) -> None:
    """Check --predict and create the folder of --record, before anything runs."""
    from weft.fabric.model import Fabric

    if "--predict" in options:
        if not job.record:
            raise ConfigError("--predict needs a recording: add --record FOLDER")
        if not isinstance(lab, Fabric):
            raise ConfigError("--predict needs --lab SPEC; for a running lab use weft replay FOLDER --fabric SPEC")
        if job.per_host is not None:
            raise ConfigError("--predict places one rank per GPU, or per host without GPUs: leave out --per-host")
    if job.record:
        try:
            Path(job.record).mkdir(parents=True, exist_ok=True)
            for pattern in ("calls.*.jsonl", "job.*.et", "job.goal"):
                for old in Path(job.record).glob(pattern):
                    old.unlink()
        except OSError as error:
            raise ConfigError(f"--record {job.record}: cannot write to this folder: {error.strerror}") from None


def _report_recording(job: Job, lab: Fabric | Entry, *, is_predicted: bool) -> None:
    from weft.fabric.model import Fabric
    from weft.jobs.recorded import GOAL, collect, predict, write_schedule

    folder = Path(job.record)
    recording = collect(folder, job.n)
    also = f"as GOAL {folder / GOAL}" if write_schedule(recording.trace, folder) else f"too many messages for {GOAL}"
    _say(f"{recording.calls:,} calls are recorded: weft replay {job.record} --fabric SPEC; {also}")
    if is_predicted and isinstance(lab, Fabric):
        seconds = predict(folder, lab, job.hosts)
        _say(
            f"here a rank was up to {recording.talked_s:.3g} s in calls; on real hardware of {lab.spec} it would be "
            f"{seconds:.3g} s, by the flow engine: the network, and ranks that wait for each other; no launches, no "
            "copies (docs/trust.md)"
        )


def _job(options: dict[str, str], command: tuple[str, ...]) -> Job:
    from weft.fabric.files.hostlist import expand
    from weft.jobs.job import GRACE_S, Job

    try:
        grace_s = float(options.get("--grace", GRACE_S))
    except ValueError:
        raise ConfigError(f"--grace {options['--grace']}: give seconds") from None
    return Job(
        command=command,
        n=_whole("-n", options["-n"]),
        per_host=_whole("--per-host", options["--per-host"]) if "--per-host" in options else None,
        hosts=tuple(expand(options["--hosts"])) if "--hosts" in options else (),
        has_prefix="--no-prefix" not in options,
        grace_s=grace_s,
        mpirun=options.get("--mpi", ""),
        record=os.path.abspath(options["--record"]) if "--record" in options else "",
    )


def _whole(name: str, text: str) -> int:
    if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdecimal():
        raise ConfigError(f"{name} {text}: give a whole number")
    return int(text)


def _lab(text: str, job: Job) -> Fabric | Entry:
    """Return the running lab of this name, or the fabric of a new lab."""
    from weft.fabric.spec import is_topology, load
    from weft.lab import registry

    if not text:
        if job.hosts:
            raise ConfigError(f"--hosts {','.join(job.hosts)} needs a lab: add --lab NAME or --lab SPEC")
        return load(f"fat-tree:hosts={-(-job.n // (job.per_host or 1))}")
    running = {entry.name: entry for entry in registry.running()}
    if text in running:
        return running[text]
    if is_topology(text) or os.path.exists(text) or text == "-":
        return load(text)
    hint = "--lab takes the name of a lab (`weft ps`), a topology with its parameters, or the path of a file."
    raise UnknownName("lab, topology or file", text, running, hint)


class _Notice:
    """A notice on standard error if the lab starts slowly, by a timer: no thread may exist when a lab forks."""

    def __init__(self, is_quiet: bool) -> None:
        self._is_quiet = is_quiet

    def __enter__(self) -> _Notice:
        signal.signal(signal.SIGALRM, self._say)
        signal.setitimer(signal.ITIMER_REAL, 0 if self._is_quiet else _NOTICE_S)
        return self

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def __exit__(self, *raised: object) -> None:
        self.stop()

    @staticmethod
    def _say(number: int, frame: FrameType | None) -> None:
        _say("the lab is coming up; the first time on a machine, parts of weft are compiled")


# -- results ----------------------------------------------------------------------------------------------------------


def _check_files(options: dict[str, str]) -> None:
    """Refuse unwritable reports before the job runs."""
    for name in ("--json", "--csv"):
        path = Path(options.get(name, "-"))
        if str(path) == "-":
            continue
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise ConfigError(f"{name} {path}: cannot write this file; name another")


def _write(options: dict[str, str], job: Job, outcome: Outcome) -> None:
    import csv

    facts: dict[str, Any] = {"command": job.command, "ranks": job.n} | asdict(outcome)
    if "--json" in options:
        _put(options["--json"], json.dumps(facts, indent=2) + "\n")
    if "--csv" in options:
        text = io.StringIO()
        table = csv.DictWriter(text, ["host", *_COLUMNS], extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows({"host": host} | counters for host, counters in facts["hosts"].items())
        _put(options["--csv"], text.getvalue())


def _put(path: str, text: str) -> None:
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")


def _summarise(job: Job, outcome: Outcome) -> None:
    from weft.cli.output import console, table

    rows: list[tuple[Cell, ...]] = [
        (host, *(getattr(traffic, name) for name in _COLUMNS)) for host, traffic in outcome.hosts.items()
    ]
    more = f"{len(rows) - _SHOWN} more hosts are in --json FILE" if len(rows) > _SHOWN else ""
    heads = ("host", "ranks", "bytes sent", "received", "packets sent", "received")
    ranks = f"{job.n} rank{'s' * (job.n > 1)} on {len(rows)} host{'s' * (len(rows) > 1)}"
    console(stderr=True).print(table(f"{ranks}, {outcome.seconds:.1f} s", heads, rows[:_SHOWN], more))
