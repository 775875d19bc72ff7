"""Ranks of MPI: mpirun starts them and joins them, each as its host. Open MPI's, or one with MPICH's Hydra.

mpirun ... -n 1 env RANK=0 ... ./ring : -n 1 env RANK=1 ... ./ring
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from weft.errors import ConfigError
from weft.lab import programs

_TAG = re.compile(rb"^\[\d+,(\d+)\]<std(?:out|err)>:")  # of Open MPI's --tag-output
_PATIENCE_S = 60.0
# More ranks than cores, which give the processor away while they wait; over UCX, which knows verbs.
_OPEN_MPI = ("--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ucx")
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# MPICH takes ranks of one machine for neighbours in memory unless it is told.
_HYDRA = ("-genv", "MPIR_CVAR_NOLOCAL", "1")


def mpirun(starter: str, *, has_prefix: bool) -> list[str]:
    """The words before those of the ranks; `starter` is mpirun by its name or path."""
    found = programs.resolve([starter], programs.tools())[0]
    try:
        done = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"--mpi={starter}: {found} does not say what it is: {error}") from None
    if "Open MPI" in done.stdout or "OpenRTE" in done.stdout:  # by another name than mpirun it says that
        return [found, *_OPEN_MPI, *(("--tag-output",) if has_prefix else ())]
    if "HYDRA" in done.stdout:
        return [found, *_HYDRA, *(("-prepend-rank",) if has_prefix else ())]
    raise ConfigError(f"--mpi={starter}: {found} is neither Open MPI's mpirun nor MPICH's; name one of these")


def joined(words: Sequence[str], variables: Sequence[Mapping[str, str]]) -> list[str]:
    """The words of all ranks, each of which has its variables beside mpirun's."""
    if ":" in words:
        raise ConfigError("an argument `:` divides programs for mpirun, and cannot be one of a rank's: write another")
    made: list[str] = []
    for own in variables:
        made += [":"] * bool(made) + ["-n", "1", "env", *(f"{name}={value}" for name, value in own.items()), *words]
    return made


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Of mpirun itself, which is on no host."""
    return dict(variables) | _AS_ROOT


def rank_before(line: bytes) -> bytes:
    """`[3] ` in the place of Open MPI's tag."""
    return _TAG.sub(rb"[\1] ", line)
