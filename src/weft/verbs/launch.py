"""Programs that were written for pyverbs or libibverbs, run with weft's: `weft verbs python app.py`.

What they need is in their environment, so scripts, `-m`, `-c` and all their children have it: a pyverbs in front of the
Python path, the tools of RDMA in front of the PATH, and a libibverbs before the system's. The program takes the place
of this process: its status, its signals and its terminal are its own.
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
# Messages from here on go by RDMA and not in pieces through buffers: UCX knows what that costs real adapters only
_OF_UCX = {"UCX_RNDV_THRESH": "32k"}
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")


def environment() -> dict[str, str]:
    """The variables that differ from this process' own."""
    made = {"PYTHONPATH": _first(_FRONT, "PYTHONPATH"), "PATH": _first(program_folder(), "PATH")}
    if (libraries := build.folder()) is not None:
        made[_LIBRARIES] = _first(libraries, _LIBRARIES)
        preloaded = f"{libraries / build.PRELOAD}:{libraries / build.NAME}"  # wheels bring a libibverbs by another name
        made[_PRELOAD] = _first(preloaded, _PRELOAD)
        made |= {name: value for name, value in _OF_UCX.items() if name not in os.environ}
    return made


def say_if_blind(program: str, variables: Mapping[str, str]) -> None:
    """A program in C that sees no device of weft's: nothing to compile the library with, or none that it would load."""
    path = Path(program)
    if sys.platform != "linux" or not path.is_file():
        return
    why, content = "", path.read_bytes()
    if build.NAME.encode() in content:
        if _LIBRARIES not in variables:
            why = f"uses {build.NAME}, and there is no C compiler to make weft's. Install gcc, or set CC"
        elif path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
            why = "is setuid or setgid, so the system does not let it load weft's libraries. Run a copy of it without"
    elif b"ibv_get_device_list" in content and _is_static(content):
        why = f"has libibverbs linked into it, and loads no other. Link it with {build.NAME}"
    if why:
        print(f"weft: {program} sees no device of weft's: it {why}", file=sys.stderr)


def _is_static(content: bytes) -> bool:
    """A program of 64 bits that names no loader of libraries."""
    if not content.startswith(_ELF_64):
        return False
    begin, (length, count) = struct.unpack_from("<Q", content, 32)[0], struct.unpack_from("<HH", content, 54)
    kinds = {struct.unpack_from("<I", content, begin + length * nth)[0] for nth in range(count)}
    return _PT_INTERP not in kinds


def _first(folder: Path | str, name: str) -> str:
    """A list of folders of the environment, with this one before the others."""
    before = os.environ.get(name)
    return f"{folder}:{before}" if before else str(folder)


def roce_environment(address: str) -> dict[str, str]:
    """Of a program whose adapter speaks RoCE v2 at this address; none if there is none."""
    if not address:
        return {}
    try:
        return {hardware.ROCE: str(ipaddress.ip_address(address))}
    except ValueError:
        raise ConfigError(
            f"--roce {address}: that is no IP address; one of this machine, `ip addr` lists them"
        ) from None


def become(command: Sequence[str], *, roce: str = "") -> NoReturn:
    """Run a program in place of this process; with `roce` its adapter speaks RoCE v2 at that address."""
    variables = environment() | roce_environment(roce)
    found = shutil.which(command[0], path=variables["PATH"])
    if found is None:
        hint = f"; weft verbs python {command[0]}" if command[0].endswith(".py") else ""
        raise ConfigError(f"there is no program {command[0]!r} in the PATH{hint}")
    say_if_blind(found, variables)
    for name in _IGNORED_BY_PYTHON:  # which programs would inherit
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execve(found, list(command), os.environ | variables)
    except OSError as error:
        raise ConfigError(f"{found} cannot be run: {error.strerror}") from error
