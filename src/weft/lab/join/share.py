"""Share a joined host with the programs of other containers, by a folder that they mount at the same path.

    FOLDER/env      what sets the environment of programs on the host, for a shell: . FOLDER/env
    FOLDER/run      runs one with it: FOLDER/run ibstat
    FOLDER/lib      weft's libibumad, libibverbs and librdmacm
    FOLDER/sys, class, dev    with --sysfs the host's adapters as files: see `device_files`
    FOLDER/LAB.*    the sockets of the host

`env` exists exactly while the host is joined: a probe looks for it. The folder is private; programs run as its user.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from weft import runtime
from weft.errors import ConfigError
from weft.lab import preload
from weft.lab.join import device_files
from weft.lab.join.client import Invitation, JoinClient
from weft.lab.sysfs_tree import Tree
from weft.verbs.c import build

_UMAD = "libweft-umad.so"
_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")  # a program's own entries stay behind weft's


def share(folder: Path, invitation: Invitation, variables: Mapping[str, str]) -> int:
    """Join, share the host in a folder until SIGTERM or SIGINT, and leave. Return 1 if the lab ended it."""
    place = runtime.private_folder(folder.absolute())
    with (place / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{folder} has a joined host: give another folder, or end that `weft join`") from None
        return _share(place, invitation, variables)


def _share(place: Path, invitation: Invitation, variables: Mapping[str, str]) -> int:
    environment = place / "env"
    environment.unlink(missing_ok=True)  # of one that was killed
    client = JoinClient(invitation, place)
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    try:
        text = _script(_moved(client.environment() | dict(variables), place / "lib"))
        if client.sysfs is not None:
            device_files.write(place, Tree(**client.sysfs))
        _write(place / "run", f'#!/bin/sh\n. {shlex.quote(str(environment))}\nexec "$@"\n', 0o700)
        _write(environment, text, 0o600)
        print(f"{client.host} is joined: `{place}/run ibstat` runs a program as this host", flush=True)
        client.serve(lambda: bool(signals) or client.is_over)
        return int(client.is_over)
    finally:
        environment.unlink(missing_ok=True)
        client.close()


def _moved(variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Copy the libraries that variables name, and return the variables with the paths of the copies."""
    folder.mkdir(exist_ok=True)
    umad, verbs = preload.library(), build.folder()
    assert umad is not None  # `JoinClient.environment` requires a compiler
    assert verbs is not None
    names = {_UMAD: umad} | {path.name: path for path in verbs.glob("*.so*")}
    for name, path in names.items():
        partial = folder / f"{name}.new"  # renamed: programs of before may have the old one open
        shutil.copy(path, partial)
        partial.replace(folder / name)
    return {
        name: value.replace(str(umad), str(folder / _UMAD)).replace(str(verbs), str(folder))
        for name, value in variables.items()
    }


def _script(variables: Mapping[str, str]) -> str:
    """Return the commands of a shell that set variables, in front of what lists have already."""
    lines = []
    for name, value in variables.items():
        own = os.environ.get(name, "").split(":")
        if name in _LISTS:
            ours = ":".join(entry for entry in value.split(":") if entry not in own)
            lines.append(f'export {name}={shlex.quote(ours)}"${{{name}:+:${name}}}"\n')
        else:
            lines.append(f"export {name}={shlex.quote(value)}\n")
    return "".join(lines)


def _write(path: Path, text: str, mode: int) -> None:
    """Write a file so that readers see all of it or none."""
    partial = path.with_name(f"{path.name}.new")
    partial.write_text(text, encoding="utf-8")
    partial.chmod(mode)
    partial.replace(path)
