"""Runs on a Ray cluster, whose machines have the same version of weft and all files that command lines name."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

from weft.errors import ConfigError
from weft.study.grid import Run
from weft.study.worker import ERROR, Outcome, perform_elsewhere, settings
from weft.version import __version__

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
