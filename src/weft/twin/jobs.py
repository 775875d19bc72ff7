"""Running jobs as facts of a history: those of a lab's load, of Slurm, or of a file.

read_slurm()                 {("job", "4711"): "train of ada on dgx[1-4]"}
read_file(path)              lines as SQUEUE prints them, written by another scheduler
read_load(descriptions)      {("job", "train"): "all-to-all on h[1-16]"}
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.errors import ConfigError, FileError, SubnetError
from weft.fabric.files.hostlist import compress, expand
from weft.fabric.files.text import read_text
from weft.twin.facts import Facts

SQUEUE = ("squeue", "-h", "-t", "RUNNING", "-o", "%A %u %N %j")
_EXPECTED = "a job: number, user, node list and name, such as 4711 ada dgx[1-4] train"
_TIMEOUT_S = 30


def read_slurm() -> Facts:
    """Return the jobs that Slurm runs now."""
    try:
        done = subprocess.run(SQUEUE, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except OSError as error:
        raise ConfigError(f"cannot run squeue: {error.strerror}; it must be in the PATH") from None
    except subprocess.TimeoutExpired:
        raise SubnetError(f"squeue did not answer within {_TIMEOUT_S} seconds") from None
    if done.returncode:
        raise SubnetError(f"squeue failed: {done.stderr.strip()}")
    return _parse(Path("squeue"), done.stdout)


def read_file(path: Path) -> Facts:
    """Return the jobs of a file; raise FileError with the line if it is invalid."""
    return _parse(path, read_text(path))


def _parse(path: Path, text: str) -> Facts:
    facts = Facts()
    for line, row in enumerate(text.splitlines(), 1):
        words = row.split(maxsplit=3)
        if not words or row.startswith("#"):
            continue
        if len(words) != 4 or ("job", words[0]) in facts:
            raise FileError(path, line, row, _EXPECTED if len(words) != 4 else "each job once")
        number, user, nodes, name = words
        try:
            hosts = compress(expand(nodes))
        except ConfigError as error:
            raise FileError(path, line, row, f"a node list: {error}") from None
        facts["job", number] = f"{name} of {user} on {hosts}"
    return facts


def read_load(descriptions: Sequence[Mapping[str, Any]]) -> Facts:
    """Return the jobs of a lab's load."""
    return {
        ("job", str(job["name"])): f"{job['pattern']} on {compress(map(str, job['hosts']))}" for job in descriptions
    }
