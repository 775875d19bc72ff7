"""Run programs for pyverbs or libibverbs with weft's: `weft verbs python app.py`.

The environment of the program is changed, so that scripts, `-m`, `-c` and all child processes work: weft's pyverbs is
first in the Python path, its RDMA tools are first in PATH, and its libibverbs comes before the system's. The program
replaces this process, with its exit status, signals and terminal.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import signal
import stat
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from weft.errors import ConfigError
from weft.verbs import hardware
from weft.verbs.c import build
from weft.verbs.perftest.programs import program_folder

_FRONT = Path(__file__).parent / "front"
_LIBRARIES = "LD_LIBRARY_PATH"
_PRELOAD = "LD_PRELOAD"
_ELF_64 = b"\x7fELF\x02"
_PT_INTERP = 3
# UCX: the size from which messages use RDMA instead of copies; its default is for adapters in hardware. NCCL: memory of
# GPUs that has a handle for other processes, as the adapter needs it.
_DEFAULTS = {"UCX_RNDV_THRESH": "32k", "NCCL_CUMEM_ENABLE": "0"}
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")


def environment() -> dict[str, str]:
    """Return the environment variables that differ from those of this process."""
    variables = {"PYTHONPATH": _first(_FRONT, "PYTHONPATH"), "PATH": _first(program_folder(), "PATH")}
    if (libraries := build.folder()) is not None:
        variables[_LIBRARIES] = _first(libraries, _LIBRARIES)
        # Wheels contain a libibverbs with another name.
        preloaded = f"{libraries / build.PRELOAD}:{libraries / build.NAME}"
        variables[_PRELOAD] = _first(preloaded, _PRELOAD)
        variables |= {name: value for name, value in _DEFAULTS.items() if name not in os.environ}
    return variables


def warn_if_unusable(program: str, variables: Mapping[str, str]) -> None:
    """Warn that a program cannot use weft's devices, because it cannot load weft's library or there is no compiler."""
    path = Path(program)
    if sys.platform != "linux" or not path.is_file():
        return
    why, content = "", path.read_bytes()
    if build.NAME.encode() in content:
        if _LIBRARIES not in variables:
            why = f"uses {build.NAME}, and there is no C compiler to build weft's. Install gcc, or set CC"
        elif path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
            why = "is setuid or setgid, so it cannot load weft's libraries. Run a copy without these bits"
    elif b"ibv_get_device_list" in content and _is_static(content):
        why = f"is linked statically with libibverbs. Link it with {build.NAME}"
    if why:
        print(f"weft: {program} cannot use weft's devices: it {why}", file=sys.stderr)


def _is_static(content: bytes) -> bool:
    """Return whether a program is a 64-bit ELF file without a dynamic loader."""
    if not content.startswith(_ELF_64):
        return False
    begin, (length, count) = struct.unpack_from("<Q", content, 32)[0], struct.unpack_from("<HH", content, 54)
    kinds = {struct.unpack_from("<I", content, begin + length * nth)[0] for nth in range(count)}
    return _PT_INTERP not in kinds


def _first(folder: Path | str, name: str) -> str:
    """Return a variable's list of folders with this folder first."""
    before = os.environ.get(name)
    return f"{folder}:{before}" if before else str(folder)


def roce_environment(address: str) -> dict[str, str]:
    """Return the variables of a program that uses RoCE v2 at an address; none without an address."""
    if not address:
        return {}
    try:
        return {hardware.ROCE: str(ipaddress.ip_address(address))}
    except ValueError:
        raise ConfigError(
            f"--roce {address} is not an IP address: give one of this machine, `ip addr` lists them"
        ) from None


def become(command: Sequence[str], *, roce: str = "") -> NoReturn:
    """Replace this process by a program; with `roce` its adapter uses RoCE v2 at that address."""
    variables = environment() | roce_environment(roce)
    program = shutil.which(command[0], path=variables["PATH"])
    if program is None:
        hint = f"; weft verbs python {command[0]}" if command[0].endswith(".py") else ""
        raise ConfigError(f"there is no program {command[0]!r} in the PATH{hint}")
    warn_if_unusable(program, variables)
    for name in _IGNORED_BY_PYTHON:  # programs would inherit that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execve(program, list(command), os.environ | variables)
    except OSError as error:
        raise ConfigError(f"{program} cannot be run: {error.strerror}") from error
