"""A Slurm job's own partition: made when its nodes are allocated, deleted when it ends.

The P_Key is the one that UFM's plugin for Slurm gives, the job's number modulo 32766. There are more jobs than P_Keys:
one that is taken, by a job that runs still or by anybody else, is left alone, and the next free one is taken. So it is
by its name, slurm-<job>, that a partition is found again.

    prolog      PrologSlurmctld    whatever was left of an earlier try goes first: a requeued job has other nodes
    epilog      EpilogSlurmctld    nothing is left to do if there is no such partition
    tidy        by cron            partitions of jobs that run no longer: their epilog failed, or was never run
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from weft.clouds.partitions import Partition, Taken, claim, release
from weft.errors import ConfigError, SubnetError
from weft.tenants.drivers.ufm_rest import UfmClient, UfmError

_KEYS = 0x7FFE  # 0x0001 to 0x7ffe; 0x7fff is Default's
_NAME = re.compile(r"slurm-(\d+)")


@dataclass(frozen=True, slots=True)
class Job:
    number: int
    nodes: str  # h[1-4], as Slurm lists them

    @property
    def name(self) -> str:
        return f"slurm-{self.number}"


def read_job(environment: Mapping[str, str]) -> Job:
    """What slurmctld tells its prologs. Each task of an array is a job with a number of its own."""
    number, nodes = (environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST"))
    if not number.isdecimal() or not nodes:
        raise ConfigError(
            f"SLURM_JOB_ID is {number!r} and SLURM_JOB_NODELIST is {nodes!r}: both are set by slurmctld for "
            "PrologSlurmctld and EpilogSlurmctld, which this is for"
        )
    return Job(int(number), nodes)


def prolog(ufm: UfmClient, job: Job, *, ip_over_ib: bool = True, index0: bool = False) -> int:
    """The job's P_Key, when its nodes and no others are members. All or nothing."""
    epilog(ufm, job)
    for p_key in _candidates(job, ufm.pkeys()):
        partition = Partition(p_key=p_key, name=job.name, ip_over_ib=ip_over_ib, index0=index0)
        try:
            claim(ufm, partition)
        except Taken:
            continue  # since a moment ago
        try:
            ufm.add_hosts(p_key, job.nodes, ip_over_ib=ip_over_ib, index0=index0)
        except UfmError:
            release(ufm, partition)
            raise
        return p_key
    raise SubnetError(f"job {job.number} gets no partition: all P_Keys are taken at UFM {ufm.url}\n  weft slurm tidy")


def epilog(ufm: UfmClient, job: Job) -> None:
    """The job's partition is there no longer."""
    for p_key, found in ufm.pkeys().items():
        if found.partition == job.name:
            release(ufm, Partition(p_key=p_key, name=job.name))


def tidy(ufm: UfmClient, running: Callable[[], Collection[int]]) -> list[int]:
    """The jobs whose partitions went, since they run no longer.

    Who runs is asked when the partitions are read: one that starts meanwhile is not among those that could go.
    """
    found = ufm.pkeys()
    there, gone = running(), []
    for p_key, one in found.items():
        match = _NAME.fullmatch(one.partition)
        if match and int(match[1]) not in there:
            release(ufm, Partition(p_key=p_key, name=one.partition))
            gone.append(int(match[1]))
    return sorted(gone)


def ask_squeue() -> set[int]:
    """The jobs that Slurm knows of, by its own program."""
    try:
        done = subprocess.run(["squeue", "-h", "-o", "%A"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"squeue cannot be run: {error.strerror}; it must be in the PATH") from None
    if done.returncode:
        raise SubnetError(f"squeue does not say which jobs run: {done.stderr.strip()}")
    return {int(word) for word in done.stdout.split()}


def _candidates(job: Job, taken: Collection[int]) -> Iterator[int]:
    """First UFM's own for this job, then those behind it, and round."""
    first = job.number % _KEYS or 1
    return (p_key for p_key in ((first - 1 + step) % _KEYS + 1 for step in range(_KEYS)) if p_key not in taken)
