"""Commands to a running lab."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from weft import json_lines
from weft.errors import SimulationBug, SubnetError
from weft.lab.registry import Entry

_TIMEOUT_S = 60


def ask(
    entry: Entry,
    do: str,
    timeout_s: float | None = _TIMEOUT_S,
    progress: Callable[[int, int], None] = lambda done, of: None,
    /,
    **words: Any,
) -> Any:
    """Send one command to a lab and return its answer.

    Raise ConfigError if the lab refuses the command, SubnetError if the fabric cannot do it or the lab does not answer,
    and SimulationBug if the command failed in the lab.
    """
    try:
        return json_lines.request(entry.socket, do, timeout_s, progress, **words)
    except SimulationBug as error:
        raise SimulationBug(f"{error}; see {entry.log}") from None
    except (OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise SubnetError(f"the lab {entry.name} does not answer: {reason}; its log is {entry.log}") from None


def states(entries: Sequence[Entry], timeout_s: float = 1.5) -> list[dict[str, Any]]:
    """Return the state of each lab; of one that does not answer in time, its name, process and `"answers": False`."""

    def state(entry: Entry) -> dict[str, Any]:
        try:
            return {**ask(entry, "state", timeout_s), "answers": True}
        except SubnetError:
            return {"name": entry.name, "pid": entry.process(), "answers": False}

    if not entries:
        return []
    with ThreadPoolExecutor(len(entries)) as threads:  # one that is stopped keeps no other waiting
        return list(threads.map(state, entries))


def end(entry: Entry, timeout_s: float = 10) -> None:
    """Tell a lab to end, and wait until its name is free."""
    process = entry.process()
    with suppress(SubnetError):  # it may be gone before it has answered
        ask(entry, "down", timeout_s)
    for _ in range(int(timeout_s * 50)):
        if entry.is_free():
            return
        time.sleep(0.02)
    raise SubnetError(f"the lab {entry.name} did not end: see {entry.log}, or end it with `kill -9 {process}`")
