"""A partition for each Slurm job: created when its nodes are allocated, deleted when the job ends.

The P_Key is the job id modulo 32766, as in UFM's plugin for Slurm. There are more jobs than P_Keys: if the P_Key is
taken, the next free one is used. The partition is found again by its name, slurm-<job>.

    prolog      PrologSlurmctld    first deletes the partition of an earlier try: a requeued job has other nodes
    epilog      EpilogSlurmctld    does nothing if the job has no partition
    tidy        cron               deletes partitions of jobs that have ended without their epilog
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from weft.clouds.partitions import Partition, PKeyTakenError, claim, release
from weft.errors import ConfigError, SubnetError
from weft.tenants.drivers.ufm_rest import UfmClient, UfmError

_KEYS = 0x7FFE  # 0x0001 to 0x7ffe; 0x7fff is Default's
_NAME = re.compile(r"slurm-(\d+)")


@dataclass(frozen=True, slots=True)
class Job:
    """A Slurm job and its nodes."""

    number: int
    nodes: str  # h[1-4], as Slurm lists them

    @property
    def name(self) -> str:
        return f"slurm-{self.number}"


def read_job(environment: Mapping[str, str]) -> Job:
    """Read the job from the environment of slurmctld's prolog. Each task of a job array has its own id."""
    number, nodes = (environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST"))
    if not number.isdecimal() or not nodes:
        raise ConfigError(
            f"SLURM_JOB_ID is {number!r} and SLURM_JOB_NODELIST is {nodes!r}: run this as PrologSlurmctld or "
            "EpilogSlurmctld, for which slurmctld sets both"
        )
    return Job(int(number), nodes)


def prolog(ufm: UfmClient, job: Job, *, ip_over_ib: bool = True, index0: bool = False) -> int:
    """Create the partition of a job with its nodes as only members; return the P_Key. If this fails, undo it."""
    epilog(ufm, job)
    for p_key in _candidates(job, ufm.pkeys()):
        partition = Partition(p_key=p_key, name=job.name, ip_over_ib=ip_over_ib, index0=index0)
        try:
            claim(ufm, partition)
        except PKeyTakenError:
            continue  # another client was faster
        try:
            ufm.add_hosts(p_key, job.nodes, ip_over_ib=ip_over_ib, index0=index0)
        except UfmError:
            release(ufm, partition)
            raise
        return p_key
    raise SubnetError(f"job {job.number}: all P_Keys are taken at UFM {ufm.url}\n  Run `weft slurm tidy`.")


def epilog(ufm: UfmClient, job: Job) -> None:
    """Delete the job's partition."""
    for p_key, partition in ufm.pkeys().items():
        if partition.partition == job.name:
            release(ufm, Partition(p_key=p_key, name=job.name))


def tidy(ufm: UfmClient, running: Callable[[], Collection[int]]) -> list[int]:
    """Delete the partitions of jobs that have ended; return these jobs.

    `running` is called after the partitions are read: a job that starts in between keeps its partition.
    """
    partitions = ufm.pkeys()
    running_jobs, ended_jobs = running(), []
    for p_key, partition in partitions.items():
        match = _NAME.fullmatch(partition.partition)
        if match and int(match[1]) not in running_jobs:
            release(ufm, Partition(p_key=p_key, name=partition.partition))
            ended_jobs.append(int(match[1]))
    return sorted(ended_jobs)


def ask_squeue() -> set[int]:
    """Return the ids of the jobs that squeue lists."""
    try:
        done = subprocess.run(["squeue", "-h", "-o", "%A"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"cannot run squeue: {error.strerror}; it must be in the PATH") from None
    if done.returncode:
        raise SubnetError(f"squeue failed: {done.stderr.strip()}")
    return {int(word) for word in done.stdout.split()}


def _candidates(job: Job, used: Collection[int]) -> Iterator[int]:
    """Yield free P_Keys for a job: first the one of UFM's plugin, then the following ones, cyclically."""
    first = job.number % _KEYS or 1
    return (p_key for p_key in ((first - 1 + step) % _KEYS + 1 for step in range(_KEYS)) if p_key not in used)
