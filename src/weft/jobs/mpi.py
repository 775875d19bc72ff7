"""Start MPI ranks with mpirun (Open MPI, or MPICH's Hydra), each on its host of the lab.

mpirun ... -n 1 env RANK=0 ... ./ring : -n 1 env RANK=1 ... ./ring
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from weft.errors import ConfigError
from weft.lab import programs

_TAG = re.compile(rb"^\[\d+,(\d+)\]<std(?:out|err)>:")  # added by Open MPI's --tag-output
_TIMEOUT_S = 60.0
# There may be more ranks than cores: waiting ranks yield. UCX uses verbs.
_OPEN_MPI = ("--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ucx")
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Without this, MPICH uses shared memory between ranks of one machine.
_HYDRA = ("-genv", "MPIR_CVAR_NOLOCAL", "1")


def mpirun(starter: str, *, has_prefix: bool) -> list[str]:
    """Return the first words of mpirun's command line. `starter`: its name or path."""
    program = programs.resolve([starter], programs.tools())[0]
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"--mpi={starter}: {program} --version failed: {error}") from None
    if "Open MPI" in done.stdout or "OpenRTE" in done.stdout:  # printed under names other than mpirun
        return [program, *_OPEN_MPI, *(("--tag-output",) if has_prefix else ())]
    if "HYDRA" in done.stdout:
        return [program, *_HYDRA, *(("-prepend-rank",) if has_prefix else ())]
    raise ConfigError(f"--mpi={starter}: {program} is neither Open MPI's mpirun nor MPICH's; give one of these")


def joined(words: Sequence[str], variables: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the part of the command line with all ranks, each with its own variables."""
    if ":" in words:
        raise ConfigError("mpirun uses the argument `:` to separate programs; a rank cannot have it")
    result: list[str] = []
    for own in variables:
        result += [":"] * bool(result) + [
            "-n",
            "1",
            "env",
            *(f"{name}={value}" for name, value in own.items()),
            *words,
        ]
    return result


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of mpirun itself, which runs outside the lab."""
    return dict(variables) | _AS_ROOT


def rank_before(line: bytes) -> bytes:
    """Replace Open MPI's tag of a line by `[3] `."""
    return _TAG.sub(rb"[\1] ", line)
