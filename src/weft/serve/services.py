"""The services of this user that run on this machine, and the database of each.

    runtime.folder()/FABRIC.PID.serve       the database's URL; locked by the service for as long as it lives

So `weft serve token add` finds the database of the service that it is meant for, wherever that is.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from weft import runtime

_SUFFIX = ".serve"


@contextmanager
def announced(fabric: str, database: str) -> Iterator[None]:
    """Name the database of a service of a fabric to other programs of this user, until it ends or is killed."""
    path = runtime.folder() / f"{fabric}.{os.getpid()}{_SUFFIX}"
    new = path.with_suffix(".new")
    handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, database.encode())
        new.replace(path)  # with its lock: who reads it takes an unlocked one for a dead service's
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def databases(fabric: str = "") -> dict[str, list[str]]:
    """Return the databases of running services by fabric, or those of one fabric."""
    found: dict[str, set[str]] = {}
    for path in runtime.folder().glob(f"*{_SUFFIX}"):
        name = path.name.removesuffix(_SUFFIX).rpartition(".")[0]
        if fabric in ("", name) and (database := _read(path)):
            found.setdefault(name, set()).add(database)
    return {name: sorted(those) for name, those in sorted(found.items())}


def _read(path: Path) -> str:
    """Return what a service that lives has written; remove the file of a dead one."""
    with suppress(FileNotFoundError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read()
        path.unlink(missing_ok=True)
    return ""
