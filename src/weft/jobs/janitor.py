"""Clean up after a job, even if its launcher was killed: a separate process that waits for a pipe to close.

Processes that a rank starts inherit its environment, which has the address of the job's store; no other job has this
address. So detached children are found as well. Finally the files of the job and of its own lab are removed.
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
_TIMEOUT_S = 10.0  # for killed processes, and for a lab that ends with its launcher
_KEEP = b"k"


class Janitor:
    """A process that cleans up after a job. Create it before any thread. `lab`: the job's own lab, if it has one."""

    def __init__(self, address: Path, grace_s: float, lab: Entry | None) -> None:
        read_end, self._pipe = os.pipe()
        daemon.followed.append(self._pipe)  # labs must not inherit it
        self._process = os.fork()
        if self._process == 0:
            _work(read_end, address, grace_s, lab)
        os.close(read_end)

    def dismiss(self, *, keep_logs: bool = False) -> None:
        """Let the janitor clean up now, and wait for it."""
        if keep_logs:
            os.write(self._pipe, _KEEP)
        daemon.followed.remove(self._pipe)
        os.close(self._pipe)
        with suppress(ChildProcessError):
            os.waitpid(self._process, 0)


def _work(pipe: int, address: Path, grace_s: float, lab: Entry | None) -> NoReturn:
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends after the clean-up only
            signal.signal(number, signal.SIG_IGN)
        daemon.unfollow()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        keep_logs = os.read(pipe, 1) == _KEEP
        _end_marked(f"{VARIABLE}={address}".encode(), grace_s)
        address.unlink(missing_ok=True)
        if lab is not None and not keep_logs:
            _clear(lab)
    finally:
        os._exit(0)


def _end_marked(mark: bytes, grace_s: float) -> None:
    """End all processes with `mark` in their environment: SIGTERM, then SIGKILL after the grace period."""
    late_s = time.monotonic() + grace_s
    terminated: set[int] = set()
    while (marked := _marked(mark)) and time.monotonic() < late_s + _TIMEOUT_S:
        is_late = time.monotonic() > late_s
        for process in marked if is_late else marked - terminated:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL if is_late else signal.SIGTERM)
        terminated |= marked
        time.sleep(_LOOK_S)


def _marked(mark: bytes) -> set[int]:
    processes = set()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if mark in (place / "environ").read_bytes().split(b"\0"):
                processes.add(int(place.name))
    return processes


def _clear(lab: Entry) -> None:
    until_s = time.monotonic() + _TIMEOUT_S
    while not lab.is_free() and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    for path in lab.folder.glob(f"{lab.name}.*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
