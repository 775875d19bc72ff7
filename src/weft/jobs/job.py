"""A job from its first rank to its last: placed on a lab, started, watched, ended, counted.

    outcome = run(Job(command=("train.py",), n=8), weft.load("fat-tree:hosts=8"))
    outcome.hosts["h3"].sent_bytes

The lab is one that runs, or the job's own: then weft's subnet manager brings it up, and both end with the job.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from weft import runtime
from weft.collectives.live import record
from weft.errors import ConfigError, SubnetError, WeftError
from weft.fabric.model import Fabric
from weft.jobs import mpi
from weft.jobs.counts import HostCounts, counts, difference
from weft.jobs.environment import JobEnvironment, variables
from weft.jobs.janitor import Janitor
from weft.jobs.lines import prefixed
from weft.jobs.placement import Placement, check, place
from weft.jobs.processes import Process, Processes
from weft.jobs.signals import SignalHandler
from weft.jobs.store import Store
from weft.lab import programs, registry
from weft.lab.control import ask
from weft.lab.rank_hosts import PortCounts, RankHost
from weft.verbs.perftest.exchange import free_port

GRACE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to run. `per_host` None: a rank for each GPU; `hosts` empty: all; `has_prefix`: [rank] before lines."""

    command: tuple[str, ...]
    n: int
    per_host: int | None = None
    hosts: tuple[str, ...] = ()
    has_prefix: bool = True
    grace_s: float = GRACE_S  # from SIGTERM to SIGKILL
    mpirun: str = ""  # what starts the ranks, if they are of MPI
    record: str = ""  # the folder for what they do in groups

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ConfigError(f"-n {self.n}: a job has at least one rank")
        if self.per_host is not None and self.per_host < 1:
            raise ConfigError(f"--per-host {self.per_host}: a host takes at least one rank")
        if not 0 <= self.grace_s < 1e9:
            raise ConfigError(f"--grace {self.grace_s:g}: give seconds from SIGTERM to SIGKILL, from 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    seconds: float  # from the first rank's start
    status: int  # as a shell has it: of the first that failed
    failure: str  # which one, and how; empty if none did
    last_errors: tuple[str, ...]  # of that one
    hosts: Mapping[str, HostCounts]  # none if the lab ended before the job


def words_of(command: tuple[str, ...]) -> list[str]:
    """What a rank is started with: a file of Python by this Python, all else as it is."""
    if not command:
        raise ConfigError("there is no program to run: weft run -n 4 train.py")
    if not command[0].endswith(".py"):
        return programs.resolve(command, programs.tools())
    if not Path(command[0]).is_file():
        raise ConfigError(f"there is no file {command[0]!r} to run")
    return [sys.executable, *command]


def run(
    job: Job, lab: Fabric | registry.Entry, signals: SignalHandler, on_up: Callable[[], None] = lambda: None
) -> Outcome:
    """Run a job to its end and return its outcome. Call `on_up` when the lab is up.

    Raise `StopRequested` if a signal ended the job; no process, file or lab of the job is left then either.
    """
    words = words_of(job.command)
    starter = mpi.mpirun(job.mpirun, has_prefix=job.has_prefix) if job.mpirun else []
    if isinstance(lab, Fabric):
        check(lab, job.n, per_host=job.per_host, chosen=job.hosts)
    name = f"run-{secrets.token_hex(4)}"
    own = registry.entry(name) if isinstance(lab, Fabric) else None
    address = runtime.folder() / f"{name}.store"
    janitor = Janitor(address, min(job.grace_s, GRACE_S), own)  # for what is left: ranks have had theirs
    has_lab = False
    try:
        with ExitStack() as opened:
            entry = opened.enter_context(_own_lab(lab, name)) if isinstance(lab, Fabric) else lab
            has_lab = True
            on_up()
            hosts = [RankHost(**one) for one in ask(entry, "rank_hosts")]
            placement = place(hosts, job.n, per_host=job.per_host, chosen=job.hosts)
            before = counts(entry)
            store = opened.enter_context(Store(address))
            processes = Processes()
            opened.callback(processes.end, job.grace_s, signals.should_hurry)
            begun_s = time.monotonic()
            job_environment = JobEnvironment(name=name, store=store.address, port=free_port())
            own_variables = _variables(entry, placement, job_environment)
            if job.record:
                own_variables = [one | {record.VARIABLE: job.record} for one in own_variables]
            if starter:
                command = [*starter, *mpi.joined(words, own_variables)]
                processes.start("mpirun", command, os.environ | mpi.environment(job_environment.mark), mpi.rank_before)
            else:
                _start(job, words, placement, own_variables, processes)
            failed = processes.wait()
            seconds = time.monotonic() - begun_s
            processes.end(job.grace_s, signals.should_hurry)
            counted = _count(placement, before, entry, failed)
    except WeftError:
        janitor.dismiss(keep_logs=not has_lab)  # the message names them
        raise
    except BaseException:
        janitor.dismiss()
        raise
    janitor.dismiss()
    return Outcome(
        seconds=seconds,
        status=programs.shell_status(failed.status or 0) if failed else 0,
        failure=_how(failed) if failed else "",
        last_errors=tuple(failed.last_errors) if failed else (),
        hosts=counted,
    )


def _count(
    placement: Placement, before: dict[str, list[PortCounts]], entry: registry.Entry, failed: Process | None
) -> dict[str, HostCounts]:
    try:
        return difference(placement, before, counts(entry))
    except SubnetError:
        if failed is None:
            raise
        return {}  # the lab is gone, and so the rank failed: that is what one wants to know


@contextmanager
def _own_lab(fabric: Fabric, name: str) -> Iterator[registry.Entry]:
    from weft.lab.own_lab import own_lab  # a subnet manager, which a lab that runs has already

    with own_lab(fabric, name) as lab:
        yield lab.entry


def _variables(entry: registry.Entry, placement: Placement, job_environment: JobEnvironment) -> list[dict[str, str]]:
    """By rank."""
    of_host = {host: programs.environment(ask(entry, "host", name=host), entry.cache) for host in placement.hosts}
    return [variables(one, placement, job_environment, of_host[one.host]) for one in placement.places]


def _start(
    job: Job, words: list[str], placement: Placement, own_variables: list[dict[str, str]], processes: Processes
) -> None:
    for one, own in zip(placement.places, own_variables, strict=True):
        prefix = f"[{one.rank}] " if job.has_prefix else ""
        processes.start(f"rank {one.rank} on {one.host}", words, os.environ | own, prefixed(prefix))


def _how(failed: Process) -> str:
    status = failed.status or 0
    if status > 0:
        return f"{failed.name} ended with status {status}"
    try:
        return f"{failed.name} was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"{failed.name} was killed by signal {-status}"
