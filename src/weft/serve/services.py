"""The running services of this user on this machine, and their databases.

    runtime.folder()/FABRIC.PID.serve       the database's URL; locked while the service runs

So `weft serve token add` finds the database of the right service.
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
    """Publish the database of a service to other programs of this user, until the service ends or is killed."""
    path = runtime.folder() / f"{fabric}.{os.getpid()}{_SUFFIX}"
    new = path.with_suffix(".new")
    handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, database.encode())
        new.replace(path)  # locked before it has its name: readers remove unlocked files
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def databases(fabric: str = "") -> dict[str, list[str]]:
    """Return the databases of running services by fabric, or those of one fabric."""
    by_fabric: dict[str, set[str]] = {}
    for path in runtime.folder().glob(f"*{_SUFFIX}"):
        name = path.name.removesuffix(_SUFFIX).rpartition(".")[0]
        if fabric in ("", name) and (database := _read(path)):
            by_fabric.setdefault(name, set()).add(database)
    return {name: sorted(urls) for name, urls in sorted(by_fabric.items())}


def _read(path: Path) -> str:
    """Return the contents of a running service's file; remove the file of an ended one."""
    with suppress(FileNotFoundError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read()
        path.unlink(missing_ok=True)
    return ""
