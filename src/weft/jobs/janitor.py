"""Ends what a job leaves behind, whatever ended its launcher: a process beside it that waits for the end of a pipe.

Whatever a rank starts has its environment, and in there the address of the job's store, which no other job has: so
children that went their own way are found as well. The files of the job and of its own lab go last.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from weft.collectives.live.store import VARIABLE
from weft.lab import daemon
from weft.lab.registry import Entry

_LOOK_S = 0.05
_PATIENCE_S = 10.0  # for what was killed, and for a lab that follows its launcher
_KEEP = b"k"


class Janitor:
    """Hired before there are threads; `lab` is the job's own."""

    def __init__(self, address: Path, grace_s: float, lab: Entry | None) -> None:
        waits, self._pipe = os.pipe()
        daemon.followed.append(self._pipe)  # no lab holds it
        self._process = os.fork()
        if self._process == 0:
            _work(waits, address, grace_s, lab)
        os.close(waits)

    def dismiss(self, *, keep_logs: bool = False) -> None:
        """Returns when its work is done."""
        if keep_logs:
            os.write(self._pipe, _KEEP)
        daemon.followed.remove(self._pipe)
        os.close(self._pipe)
        with suppress(ChildProcessError):
            os.waitpid(self._process, 0)


def _work(waits: int, address: Path, grace_s: float, lab: Entry | None) -> NoReturn:
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends when its work is done
            signal.signal(number, signal.SIG_IGN)
        daemon.unfollow()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        keeps = os.read(waits, 1) == _KEEP
        _end_marked(f"{VARIABLE}={address}".encode(), grace_s)
        address.unlink(missing_ok=True)
        if lab is not None and not keeps:
            _clear(lab)
    finally:
        os._exit(0)


def _end_marked(mark: bytes, grace_s: float) -> None:
    """All processes that have this in their environment: SIGTERM, and SIGKILL for those that are still there then."""
    late_s = time.monotonic() + grace_s
    told: set[int] = set()
    while (marked := _marked(mark)) and time.monotonic() < late_s + _PATIENCE_S:
        is_late = time.monotonic() > late_s
        for process in marked if is_late else marked - told:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL if is_late else signal.SIGTERM)
        told |= marked
        time.sleep(_LOOK_S)


def _marked(mark: bytes) -> set[int]:
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another's
            if mark in (place / "environ").read_bytes().split(b"\0"):
                found.add(int(place.name))
    return found


def _clear(lab: Entry) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while not lab.is_free() and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    for path in lab.folder.glob(f"{lab.name}.*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
