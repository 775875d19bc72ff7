"""The processes of a job: what they print is passed on, the first that fails ends all.

Each is the leader of a session of its own, so that a signal reaches what it has started, and none of the terminal's
reaches it.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO

from weft.errors import ConfigError
from weft.jobs.lines import Lines, Mark

_READ_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20  # the most that one holds, unless root has said more
_LOOK_S = 0.1
_LAST_WORDS_S = 1.0  # a rank that waits for one that failed finds out in half of that, if it can


@dataclass(slots=True, eq=False, kw_only=True)
class Process:
    name: str  # as messages call it
    process: subprocess.Popen[bytes]
    pipes: dict[IO[bytes], Lines] = field(default_factory=dict)
    last_errors: Sequence[str] = ()

    @property
    def status(self) -> int | None:
        """As subprocess has it: None while it runs, below 0 for a signal."""
        return self.process.returncode


class Processes:
    """All of a job."""

    def __init__(self) -> None:
        self._events = selectors.DefaultSelector()
        self._running: dict[int, Process] = {}  # by the file that is ready when it ends
        self.first_failed: Process | None = None

    def start(self, name: str, command: Sequence[str], variables: Mapping[str, str], mark: Mark) -> None:
        try:
            started = subprocess.Popen(
                command,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be run: {error.strerror}") from None
        assert started.stdout is not None
        assert started.stderr is not None
        made = Process(name=name, process=started)
        errors = Lines(sys.stderr.buffer, mark)
        made.pipes = {started.stdout: Lines(sys.stdout.buffer, mark), started.stderr: errors}
        made.last_errors = errors.last
        ended = os.pidfd_open(started.pid)
        self._running[ended] = made
        self._events.register(ended, selectors.EVENT_READ, partial(self._on_end, ended))
        for pipe in made.pipes:
            os.set_blocking(pipe.fileno(), False)
            self._events.register(pipe, selectors.EVENT_READ, partial(self._read, made, pipe))

    def wait(self) -> Process | None:
        """Until all have ended well, or one has not: that one. Others may still say what they know of it."""
        while self._running and self.first_failed is None:
            self._turn(None)
        until_s = time.monotonic() + _LAST_WORDS_S
        while self._running and time.monotonic() < until_s:
            self._turn(_LOOK_S)
        return self.first_failed

    def end(self, grace_s: float, should_hurry: Callable[[], bool]) -> None:
        """Those that still run, and what they have started: SIGTERM, and SIGKILL when they had their time."""
        self._signal(signal.SIGTERM)
        until_s = time.monotonic() + grace_s
        while self._running and time.monotonic() < until_s and not should_hurry():
            self._turn(_LOOK_S)
        self._signal(signal.SIGKILL)
        while self._running:
            self._turn(_LOOK_S)
        self._events.close()

    def _signal(self, number: signal.Signals) -> None:
        for one in self._running.values():
            with suppress(ProcessLookupError):
                os.killpg(one.process.pid, number)

    # -- what happens -------------------------------------------------------------------------------------------------

    def _turn(self, most_s: float | None) -> None:
        for key, _ in self._events.select(most_s):
            if key.fd in self._events.get_map():  # one before it may have ended this
                key.data()

    def _on_end(self, ended: int) -> None:
        one = self._running[ended]
        if one.process.poll() is None:
            return
        self._events.unregister(ended)
        os.close(ended)
        del self._running[ended]
        if one.status and self.first_failed is None:
            self.first_failed = one
        for pipe in list(one.pipes):  # what it has started may hold them open
            for _ in range(_PIPE_BYTES // _READ_BYTES):
                self._read(one, pipe)
            self._close(one, pipe)

    def _read(self, one: Process, pipe: IO[bytes]) -> None:
        with suppress(BlockingIOError):
            data = os.read(pipe.fileno(), _READ_BYTES) if pipe in one.pipes else b""
            if data:
                one.pipes[pipe].take(data)
            else:
                self._close(one, pipe)

    def _close(self, one: Process, pipe: IO[bytes]) -> None:
        if pipe in one.pipes:
            self._events.unregister(pipe)
            one.pipes.pop(pipe).close()
            pipe.close()
