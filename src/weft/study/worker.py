"""What happens in a process that runs runs: `python -m weft.study.worker module:function`.

It is asked by lines of JSON, the words of a command line each, and answers each by a line. It lives as long as it may
be asked: everything that runs need is imported and compiled once.
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
    """How a run ended."""

    status: str = OK
    error: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    wall_s: float = 0.0


def settings() -> dict[str, str]:
    """Variables of every worker: it is one of as many as there are cores, and knows plugins and defaults of here."""
    alone = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return alone | {name: os.environ.get(name, "") for name in ("WEFT_DEFAULTS", "WEFT_PLUGINS")}


def perform(call: str, words: list[str]) -> Outcome:
    """One run, by the function that is named; whatever goes wrong in it is its outcome."""
    began_s = time.perf_counter()
    rows: list[dict[str, Any]] = []
    try:
        module, _, name = call.partition(":")
        rows, error = getattr(import_module(module), name)(words), ""
    except ConfigError as refused:
        error = str(refused)
    except WeftError as failed:
        error = f"{type(failed).__name__}: {failed}"
    except Exception as broken:  # of one run, and no reason to end the others
        error = f"{type(broken).__name__}: {broken}"
    wall_s = time.perf_counter() - began_s
    return Outcome(status=ERROR if error else OK, error=" ".join(error.split()), rows=rows, wall_s=wall_s)


def perform_elsewhere(call: str, words: list[str], folder: str, variables: dict[str, str], version: str) -> Outcome:
    """The same on another machine, from the same folder if that is there."""
    if version != __version__:
        return Outcome(status=ERROR, error=f"weft {__version__} is on this worker, and the study is of {version}")
    os.environ.update(variables)
    if os.path.isdir(folder):
        os.chdir(folder)
    return perform(call, words)


def main() -> None:
    """Standard input and output are the study's: runs get none of them."""
    asks, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    asked: SimpleQueue[list[str]] = SimpleQueue()

    def listen() -> None:
        for line in asks:
            asked.put(json.loads(line))
        os._exit(0)  # the study has ended, if need be by kill -9: so does a run that nobody will hear of

    threading.Thread(target=listen, daemon=True).start()
    while True:
        print(json.dumps(asdict(perform(sys.argv[1], asked.get()))), file=answers, flush=True)


if __name__ == "__main__":
    main()
