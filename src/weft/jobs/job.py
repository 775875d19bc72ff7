"""Run a job: place its ranks on a lab, start them, wait for them, end them, and count their traffic.

    with SignalHandler() as signals:
        outcome = run(Job(command=("train.py",), n=8), weft.load("fat-tree:hosts=8"), signals)
    outcome.hosts["h3"].sent_bytes

The lab is a running one, or the job's own: weft then starts it with a subnet manager, and both end with the job.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import runtime
from weft.collectives.live import record
from weft.collectives.live.store import VARIABLE
from weft.errors import ConfigError, SubnetError, WeftError
from weft.fabric.model import Fabric
from weft.jobs import mpi
from weft.jobs.janitor import Janitor
from weft.jobs.placement import Place, Placement, check, place
from weft.jobs.processes import Process, Processes, prefixed
from weft.jobs.signals import SignalHandler
from weft.jobs.store import Store
from weft.lab import programs, registry
from weft.lab.control import ask
from weft.lab.rank_hosts import PortCounts, RankHost
from weft.lab.registry import Entry
from weft.verbs.perftest.exchange import free_port

GRACE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job to run. `per_host` None: a rank for each GPU; `hosts` empty: all; `has_prefix`: [rank] before lines."""

    command: tuple[str, ...]
    n: int
    per_host: int | None = None
    hosts: tuple[str, ...] = ()
    has_prefix: bool = True
    grace_s: float = GRACE_S  # from SIGTERM to SIGKILL
    mpirun: str = ""  # the mpirun that starts the ranks, if they use MPI
    record: str = ""  # the folder for recorded collective calls

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ConfigError(f"-n must be at least 1, got {self.n}")
        if self.per_host is not None and self.per_host < 1:
            raise ConfigError(f"--per-host must be at least 1, got {self.per_host}")
        if not 0 <= self.grace_s < 1e9:
            raise ConfigError(f"--grace must be 0 or more seconds from SIGTERM to SIGKILL, got {self.grace_s:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a job."""

    seconds: float  # since the first rank started
    status: int  # exit status (as a shell reports it) of the first rank that failed
    failure: str  # the rank that failed first, and how; empty: none failed
    last_errors: tuple[str, ...]  # its last lines on stderr
    hosts: Mapping[str, HostCounts]  # empty if the lab ended before the job


def command_line(command: tuple[str, ...]) -> list[str]:
    """Return the command line of a rank. This Python runs `.py` files; other commands are not changed."""
    if not command:
        raise ConfigError("no program to run; example: weft run -n 4 train.py")
    if not command[0].endswith(".py"):
        return programs.resolve(command, programs.tools())
    if not Path(command[0]).is_file():
        raise ConfigError(f"{command[0]}: no such file")
    return [sys.executable, *command]


def run(
    job: Job, lab: Fabric | registry.Entry, signals: SignalHandler, on_up: Callable[[], None] = lambda: None
) -> Outcome:
    """Run a job to its end and return its outcome. Call `on_up` when the lab is up.

    Raise `StopRequested` if a signal ended the job; no process, file or lab of the job is left then either.
    """
    words = command_line(job.command)
    starter = mpi.mpirun(job.mpirun, has_prefix=job.has_prefix) if job.mpirun else []
    if isinstance(lab, Fabric):
        check(lab, job.n, per_host=job.per_host, chosen=job.hosts)
    name = f"run-{secrets.token_hex(4)}"
    own = registry.entry(name) if isinstance(lab, Fabric) else None
    address = runtime.folder() / f"{name}.store"
    janitor = Janitor(address, min(job.grace_s, GRACE_S), own)  # for leftover processes; ranks get job.grace_s first
    has_lab = False
    try:
        with ExitStack() as opened:
            entry = opened.enter_context(_own_lab(lab, name)) if isinstance(lab, Fabric) else lab
            has_lab = True
            on_up()
            hosts = [RankHost(**host) for host in ask(entry, "rank_hosts")]
            placement = place(hosts, job.n, per_host=job.per_host, chosen=job.hosts)
            before = counts(entry)
            store = opened.enter_context(Store(address))
            processes = Processes()
            opened.callback(processes.end, job.grace_s, signals.should_hurry)
            begun_s = time.monotonic()
            job_environment = JobEnvironment(name=name, store=store.address, port=free_port())
            own_variables = _variables(entry, placement, job_environment)
            if job.record:
                own_variables = [own | {record.VARIABLE: job.record} for own in own_variables]
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
        janitor.dismiss(keep_logs=not has_lab)  # the message names the log files
        raise
    except BaseException:
        janitor.dismiss()
        raise
    janitor.dismiss()
    return Outcome(
        seconds=seconds,
        status=programs.shell_status(failed.status or 0) if failed else 0,
        failure=_describe(failed) if failed else "",
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
        return {}  # the rank failed because its lab ended: report the rank


@contextmanager
def _own_lab(fabric: Fabric, name: str) -> Iterator[registry.Entry]:
    from weft.lab.own_lab import own_lab  # slow import (subnet manager), not needed for a running lab

    with own_lab(fabric, name) as lab:
        yield lab.entry


def _variables(entry: registry.Entry, placement: Placement, job_environment: JobEnvironment) -> list[dict[str, str]]:
    """Return the variables of each rank."""
    of_host = {host: programs.environment(ask(entry, "host", name=host), entry.cache) for host in placement.hosts}
    return [
        variables(rank_place, placement, job_environment, of_host[rank_place.host]) for rank_place in placement.places
    ]


def _start(
    job: Job, words: list[str], placement: Placement, own_variables: list[dict[str, str]], processes: Processes
) -> None:
    for rank_place, own in zip(placement.places, own_variables, strict=True):
        prefix = f"[{rank_place.rank}] " if job.has_prefix else ""
        processes.start(f"rank {rank_place.rank} on {rank_place.host}", words, os.environ | own, prefixed(prefix))


def _describe(failed: Process) -> str:
    status = failed.status or 0
    if status > 0:
        return f"{failed.name} ended with status {status}"
    try:
        return f"{failed.name} was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"{failed.name} was killed by signal {-status}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCounts:
    """The traffic of one host: totals, and counters by port."""

    ranks: int
    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int
    ports: tuple[PortCounts, ...]


def counts(entry: Entry) -> dict[str, list[PortCounts]]:
    """Return the current counters of all hosts of a lab."""
    by_host: dict[str, list[dict[str, Any]]] = ask(entry, "port_counts")
    return {host: [PortCounts(**port) for port in ports] for host, ports in by_host.items()}


def difference(
    placement: Placement, before: dict[str, list[PortCounts]], after: dict[str, list[PortCounts]]
) -> dict[str, HostCounts]:
    """Return the traffic of each host of a job. A counter that was reset during the run counts from the reset."""
    by_host = {}
    for host in placement.hosts:
        ports = tuple(map(_since, before[host], after[host]))
        by_host[host] = HostCounts(
            ranks=placement.on(host),
            sent_bytes=_total(ports, "sent_bytes"),
            received_bytes=_total(ports, "received_bytes"),
            sent_packets=_total(ports, "sent_packets"),
            received_packets=_total(ports, "received_packets"),
            ports=ports,
        )
    return by_host


def _since(before: PortCounts, after: PortCounts) -> PortCounts:
    def more(name: str) -> int:
        then, now = getattr(before, name), getattr(after, name)
        return int(now - then if now >= then else now)

    return PortCounts(
        port=after.port,
        sent_bytes=more("sent_bytes"),
        received_bytes=more("received_bytes"),
        sent_packets=more("sent_packets"),
        received_packets=more("received_packets"),
    )


def _total(ports: Sequence[PortCounts], name: str) -> int:
    return sum(getattr(port, name) for port in ports)


ADAPTER = "WEFT_ADAPTER"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironment:
    """The values that all ranks of a job share."""

    name: str
    store: str  # address of the job's store
    port: int  # TCP port of rank 0 (MASTER_PORT)

    @property
    def mark(self) -> dict[str, str]:
        """The variable by which the janitor recognises processes of the job."""
        return {VARIABLE: self.store}


def variables(
    place: Place, placement: Placement, job_environment: JobEnvironment, host: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of a rank, without those of the launcher. `host`: the variables of its host."""
    world, local, hosts = len(placement.places), placement.on(place.host), placement.hosts
    torchrun = {
        "RANK": place.rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": place.local_rank,
        "LOCAL_WORLD_SIZE": local,
        "GROUP_RANK": hosts.index(place.host),
        "GROUP_WORLD_SIZE": len(hosts),
        "ROLE_RANK": place.rank,
        "ROLE_WORLD_SIZE": world,
        "ROLE_NAME": "default",
        "MASTER_ADDR": placement.address,
        "MASTER_PORT": job_environment.port,
        "TORCHELASTIC_RUN_ID": job_environment.name,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_USE_AGENT_STORE": False,  # rank 0 serves PyTorch's store
    }
    adapter = {
        ADAPTER: place.adapter,
        "UCX_NET_DEVICES": f"{place.adapter}:1",
        "NCCL_IB_HCA": f"={place.adapter}:1",  # `=` matches exactly; else mlx5_1 also matches mlx5_10
    }
    unless_set = {
        "PYTHONUNBUFFERED": "1",  # print lines without delay
        "UCX_TLS": "rc_v,self",  # no shared memory, which would bypass the lab
    }
    if world > 1:
        unless_set["OMP_NUM_THREADS"] = "1"
    result = dict(host) | {name: str(value) for name, value in torchrun.items()} | adapter | job_environment.mark
    return result | {name: value for name, value in unless_set.items() if name not in os.environ}
