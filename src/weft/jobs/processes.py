"""The processes of a job: forward their output, and end all of them when the first one fails.

Each process leads its own session: a signal reaches its children too, and signals of the terminal do not reach it.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO, BinaryIO

from weft.errors import ConfigError

_LONGEST_BYTES = 1 << 16  # longer lines are written in parts
_REMEMBERED = 20
Mark = Callable[[bytes], bytes]  # adds the prefix to a line


def prefixed(prefix: str) -> Mark:
    head = prefix.encode()
    return lambda line: head + line


class Lines:
    """The output lines of one stream of a rank; `last` has the newest ones."""

    def __init__(self, out: BinaryIO, mark: Mark) -> None:
        self._out, self._mark = out, mark
        self._rest = b""
        self.last: deque[str] = deque(maxlen=_REMEMBERED)

    def take(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_BYTES:
            whole, self._rest = [*whole, self._rest], b""
        self._put(whole)

    def close(self) -> None:
        """Write the last line, which may lack its newline."""
        if self._rest:
            self._put([self._rest])
        self._rest = b""

    def _put(self, lines: list[bytes]) -> None:
        if lines:
            self.last.extend(line.decode(errors="replace").rstrip("\r") for line in lines)
            self._out.write(b"".join(self._mark(line) + b"\n" for line in lines))
            self._out.flush()


_READ_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20  # largest size of a pipe that users may set
_LOOK_S = 0.1
_LAST_WORDS_S = 1.0  # ranks notice within half of it that a peer failed, and print why


@dataclass(slots=True, eq=False, kw_only=True)
class Process:
    """A running process of a job."""

    name: str  # for messages
    process: subprocess.Popen[bytes]
    pipes: dict[IO[bytes], Lines] = field(default_factory=dict)
    last_errors: Sequence[str] = ()

    @property
    def status(self) -> int | None:
        """The exit status as in `subprocess`: None while it runs, negative for a signal."""
        return self.process.returncode


class Processes:
    """The processes of a job."""

    def __init__(self) -> None:
        self._events = selectors.DefaultSelector()
        self._running: dict[int, Process] = {}  # by pidfd, which becomes readable when the process ends
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
            raise ConfigError(f"cannot run {command[0]}: {error.strerror}") from None
        assert started.stdout is not None
        assert started.stderr is not None
        new = Process(name=name, process=started)
        errors = Lines(sys.stderr.buffer, mark)
        new.pipes = {started.stdout: Lines(sys.stdout.buffer, mark), started.stderr: errors}
        new.last_errors = errors.last
        ended = os.pidfd_open(started.pid)
        self._running[ended] = new
        self._events.register(ended, selectors.EVENT_READ, partial(self._on_end, ended))
        for pipe in new.pipes:
            os.set_blocking(pipe.fileno(), False)
            self._events.register(pipe, selectors.EVENT_READ, partial(self._read, new, pipe))

    def wait(self) -> Process | None:
        """Wait until all processes succeed or one fails; return the failed one.

        After a failure the others have a moment to print what they know about it.
        """
        while self._running and self.first_failed is None:
            self._turn(None)
        until_s = time.monotonic() + _LAST_WORDS_S
        while self._running and time.monotonic() < until_s:
            self._turn(_LOOK_S)
        return self.first_failed

    def end(self, grace_s: float, should_hurry: Callable[[], bool]) -> None:
        """End running processes and their children: SIGTERM, then SIGKILL after the grace period."""
        self._signal(signal.SIGTERM)
        until_s = time.monotonic() + grace_s
        while self._running and time.monotonic() < until_s and not should_hurry():
            self._turn(_LOOK_S)
        self._signal(signal.SIGKILL)
        while self._running:
            self._turn(_LOOK_S)
        self._events.close()

    def _signal(self, number: signal.Signals) -> None:
        for running in self._running.values():
            with suppress(ProcessLookupError):
                os.killpg(running.process.pid, number)

    # -- events -------------------------------------------------------------------------------------------------------

    def _turn(self, most_s: float | None) -> None:
        for key, _ in self._events.select(most_s):
            if key.fd in self._events.get_map():  # an earlier event may have closed it
                key.data()

    def _on_end(self, ended: int) -> None:
        process = self._running[ended]
        if process.process.poll() is None:
            return
        self._events.unregister(ended)
        os.close(ended)
        del self._running[ended]
        if process.status and self.first_failed is None:
            self.first_failed = process
        for pipe in list(process.pipes):  # its children may hold them open
            for _ in range(_PIPE_BYTES // _READ_BYTES):
                self._read(process, pipe)
            self._close(process, pipe)

    def _read(self, process: Process, pipe: IO[bytes]) -> None:
        with suppress(BlockingIOError):
            data = os.read(pipe.fileno(), _READ_BYTES) if pipe in process.pipes else b""
            if data:
                process.pipes[pipe].take(data)
            else:
                self._close(process, pipe)

    def _close(self, process: Process, pipe: IO[bytes]) -> None:
        if pipe in process.pipes:
            self._events.unregister(pipe)
            process.pipes.pop(pipe).close()
            pipe.close()
