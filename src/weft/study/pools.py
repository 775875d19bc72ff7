"""Processes that perform runs: of this machine, or of a Ray cluster.

A pool of the standard library breaks if one process is killed, for example for taking too much memory; here only that
run fails, and a new process takes the next. The machines of a Ray cluster have the same version of weft and all files
that command lines name.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import wait
from typing import Any

from weft.errors import ConfigError
from weft.study.grid import Run
from weft.study.worker import ERROR, Outcome, perform_elsewhere, settings
from weft.version import __version__


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


_CONNECT_S = 10.0


def run_on_ray(call: str, runs: Iterator[Run], address: str, workers: int | None) -> Generator[tuple[Run, Outcome]]:
    """Yield runs as they end; at most `workers` at a time, by default twice the number of cores, to keep all busy."""
    ray = _connect(address)
    # A run that was killed is not retried: if it takes too much memory it would be killed again.
    task = ray.remote(num_cpus=1, max_retries=0)(perform_elsewhere)
    common = os.getcwd(), settings(), __version__
    at: dict[Any, Run] = {}
    try:
        while True:
            most = workers or 2 * int(ray.cluster_resources().get("CPU", 1))  # a cluster may grow meanwhile
            for run in islice(runs, max(0, most - len(at))):
                at[task.remote(call, list(run.words), *common)] = run
            if not at:
                return
            (ended, *_), _ = ray.wait([*at])
            yield at.pop(ended), _outcome(ray, ended)
    finally:
        ray.shutdown()


def _connect(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError("--ray needs Ray: pip install 'weft-fabric[ray]'; or leave out --ray to run here") from None
    try:
        _check_reachable(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises many kinds
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"cannot use the Ray cluster at {address}: {reason}\n"
            f"  Give auto, 10.0.0.1:6379 or ray://10.0.0.1:10001; start a cluster with ray start --head."
        ) from error
    return ray


def _check_reachable(address: str) -> None:
    """Check that the address accepts connections; Ray itself waits two minutes and then exits."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()


def _outcome(ray: Any, ended: Any) -> Outcome:
    try:
        outcome: Outcome = ray.get(ended)
    except ray.exceptions.RayError as error:
        return Outcome(status=ERROR, error=" ".join(f"{type(error).__name__}: {error}".split()))
    return outcome
