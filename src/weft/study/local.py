"""Runs on processes of this machine.

A pool of the standard library ends with the first process that is killed, as one is that takes too much memory; here
that is the error of one run, and a new process takes the next.
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
    """A process, and the run that it is at."""

    def __init__(self, call: str, run: Run) -> None:
        self.has_ended = False
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "weft.study.worker", call],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,  # no terminal: runs draw no bars of their own
            env=os.environ | settings(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asks, self._answers = self._process.stdin, self._process.stdout
        self.start(run)

    def fileno(self) -> int:
        return self._answers.fileno()

    def start(self, run: Run) -> None:
        self.run = run
        with suppress(BrokenPipeError):  # it has ended: `finish` says so
            self._asks.write(json.dumps(run.words).encode() + b"\n")
            self._asks.flush()

    def finish(self) -> Outcome:
        answer = self._answers.readline()
        self.has_ended = not answer.endswith(b"\n")
        return Outcome(status=ERROR, error=self._why()) if self.has_ended else Outcome(**json.loads(answer))

    def _why(self) -> str:
        status = self._process.wait()
        self._said.seek(0)
        last = self._said.read().decode(errors="replace").strip().rpartition("\n")[2]
        if status == -signal.SIGKILL:
            last = "most likely memory ran out; with fewer --workers each has more"
        by = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"its process ended by {by}" + (f": {last}" if last else "")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._asks.close()
        self._answers.close()
        self._said.close()


def run_locally(call: str, runs: Iterator[Run], workers: int) -> Generator[tuple[Run, Outcome]]:
    """As they end."""
    crew = [_Worker(call, run) for run in islice(runs, workers)]
    try:
        while crew:
            ready = wait([worker.fileno() for worker in crew])
            for worker in [one for one in crew if one.fileno() in ready]:
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
