"""Run both ends of a test: a server, and, when it waits, a client on the caller's terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from weft.errors import ConfigError, SubnetError
from weft.verbs.perftest.perftest import WAITING


def run_pair(server: Sequence[str], client: Sequence[str]) -> int:
    """Run both ends and return the client's exit status, or the server's if it ends before the client starts."""
    if sys.platform != "linux":
        raise ConfigError("--live needs Linux")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # end both processes then too
    own, others = _halves()
    with _start(server, others, stdout=subprocess.PIPE) as first:
        try:
            assert first.stdout is not None
            for line in first.stdout:
                if line.strip() == WAITING:
                    break
            else:
                return first.wait() or 1
            with _start(client, own, stdout=None) as second:
                try:
                    status = second.wait()
                finally:
                    _end(second)
            if status != 0:
                return status
            first.communicate(timeout=10)  # only its output is left
            if first.returncode != 0:
                raise SubnetError(f"the client is done, but the server ended with status {first.returncode}")
            return 0
        finally:
            _end(first)


def _halves() -> tuple[set[int], set[int]]:
    """Return the processors for each end: two ends that poll on the same processor would wait for each other."""
    cpus = sorted(os.sched_getaffinity(0))
    half = len(cpus) // 2
    return set(cpus[half:]), set(cpus[:half] or cpus)


def _start(command: Sequence[str], cpus: set[int], stdout: int | None) -> subprocess.Popen[str]:
    """Start a process in a session of its own, so that its children end with it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)  # a child inherits it
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, text=True, start_new_session=True)
    finally:
        os.sched_setaffinity(0, before)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
