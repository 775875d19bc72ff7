"""The main function of a worker process: `python -m weft.study.worker module:function`.

It reads lines of JSON, each the words of a command line, and answers each with a line. One process performs many runs,
so that imports and compilation are done once.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from weft.errors import ConfigError, WeftError
from weft.version import __version__

OK, ERROR = "ok", "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a run."""

    status: str = OK
    error: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    wall_s: float = 0.0


def settings() -> dict[str, str]:
    """Return the environment of every worker: one thread each, and this process's plugins and defaults."""
    single_thread = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return single_thread | {name: os.environ.get(name, "") for name in ("WEFT_DEFAULTS", "WEFT_PLUGINS")}


def perform(call: str, words: list[str]) -> Outcome:
    """Perform one run by the named function; any exception becomes its outcome."""
    began_s = time.perf_counter()
    rows: list[dict[str, Any]] = []
    try:
        module, _, name = call.partition(":")
        rows, error = getattr(import_module(module), name)(words), ""
    except ConfigError as refused:
        error = str(refused)
    except WeftError as failed:
        error = f"{type(failed).__name__}: {failed}"
    except Exception as broken:  # fails only this run
        error = f"{type(broken).__name__}: {broken}"
    wall_s = time.perf_counter() - began_s
    return Outcome(status=ERROR if error else OK, error=" ".join(error.split()), rows=rows, wall_s=wall_s)


def perform_elsewhere(call: str, words: list[str], folder: str, variables: dict[str, str], version: str) -> Outcome:
    """Perform a run on another machine, in the same folder if it exists there."""
    if version != __version__:
        return Outcome(status=ERROR, error=f"this worker has weft {__version__}, the study {version}")
    os.environ.update(variables)
    if os.path.isdir(folder):
        os.chdir(folder)
    return perform(call, words)


def main() -> None:
    """Serve runs. Standard input and output belong to the study; runs get /dev/null."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 0)
    os.dup2(devnull, 1)
    pending: SimpleQueue[list[str]] = SimpleQueue()

    def listen() -> None:
        for line in requests:
            pending.put(json.loads(line))
        os._exit(0)  # the study has ended, perhaps by kill -9: end a run whose result is not needed

    threading.Thread(target=listen, daemon=True).start()
    while True:
        print(json.dumps(asdict(perform(sys.argv[1], pending.get()))), file=answers, flush=True)


if __name__ == "__main__":
    main()
