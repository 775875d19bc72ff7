"""Runs on processes of this machine.

A pool of the standard library breaks if one process is killed, for example for taking too much memory; here only that
run fails, and a new process takes the next.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import wait

from weft.study.grid import Run
from weft.study.worker import ERROR, Outcome, settings


class _Worker:
    """A process, and its current run."""

    def __init__(self, call: str, run: Run) -> None:
        self.has_ended = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "weft.study.worker", call],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,  # not a terminal, so runs draw no progress bars
            env=os.environ | settings(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self.start(run)

    def fileno(self) -> int:
        return self._answers.fileno()

    def start(self, run: Run) -> None:
        self.run = run
        with suppress(BrokenPipeError):  # the process has ended: `finish` reports it
            self._requests.write(json.dumps(run.words).encode() + b"\n")
            self._requests.flush()

    def finish(self) -> Outcome:
        answer = self._answers.readline()
        self.has_ended = not answer.endswith(b"\n")
        return Outcome(status=ERROR, error=self._failure()) if self.has_ended else Outcome(**json.loads(answer))

    def _failure(self) -> str:
        status = self._process.wait()
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        if status == -signal.SIGKILL:
            last = "probably out of memory; use fewer --workers"
        by = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"worker ended with {by}" + (f": {last}" if last else "")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._requests.close()
        self._answers.close()
        self._stderr.close()


def run_locally(call: str, runs: Iterator[Run], workers: int) -> Generator[tuple[Run, Outcome]]:
    """Yield runs as they end."""
    crew = [_Worker(call, run) for run in islice(runs, workers)]
    try:
        while crew:
            ready = wait([worker.fileno() for worker in crew])
            for worker in [each for each in crew if each.fileno() in ready]:
                run, outcome = worker.run, worker.finish()
                following = next(runs, None)
                if following is None or worker.has_ended:
                    crew.remove(worker)
                    worker.stop()
                if following is not None and worker.has_ended:
                    crew.append(_Worker(call, following))
                elif following is not None:
                    worker.start(following)
                yield run, outcome
    finally:
        for worker in crew:
            worker.stop()
