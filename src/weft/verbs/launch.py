"""Programs that were written for pyverbs, run with weft's: `weft verbs python app.py`.

What they need is in their environment, so scripts, `-m`, `-c` and all their children have it: a pyverbs in front of the
Python path, and the tools of RDMA in front of the PATH. The program takes the place of this process: its status, its
signals and its terminal are its own.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from weft.errors import ConfigError
from weft.verbs import hardware
from weft.verbs.perftest.programs import program_folder

_FRONT = Path(__file__).parent / "front"
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")


def environment() -> dict[str, str]:
    """The variables that differ from this process' own."""
    return {"PYTHONPATH": _first(_FRONT, "PYTHONPATH"), "PATH": _first(program_folder(), "PATH")}


def _first(folder: Path, name: str) -> str:
    """A list of folders of the environment, with this one before the others."""
    before = os.environ.get(name)
    return f"{folder}:{before}" if before else str(folder)


def become(command: Sequence[str], *, roce: str = "") -> NoReturn:
    """Run a program in place of this process; with `roce` its adapter speaks RoCE v2 at that address."""
    variables = environment()
    if roce:
        try:
            variables[hardware.ROCE] = str(ipaddress.ip_address(roce))
        except ValueError:
            raise ConfigError(
                f"--roce {roce}: that is no IP address; one of this machine, `ip addr` lists them"
            ) from None
    found = shutil.which(command[0], path=variables["PATH"])
    if found is None:
        hint = f"; weft verbs python {command[0]}" if command[0].endswith(".py") else ""
        raise ConfigError(f"there is no program {command[0]!r} in the PATH{hint}")
    for name in _IGNORED_BY_PYTHON:  # which programs would inherit
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execve(found, list(command), os.environ | variables)
    except OSError as error:
        raise ConfigError(f"{found} cannot be run: {error.strerror}") from error
