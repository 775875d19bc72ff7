"""Commands to a running lab."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from weft import json_lines
from weft.errors import ConfigError, SubnetError
from weft.lab.registry import Entry

_PATIENCE_S = 60


def ask(
    entry: Entry,
    do: str,
    patience_s: float | None = _PATIENCE_S,
    progress: Callable[[int, int], None] = lambda done, of: None,
    /,
    **words: Any,
) -> Any:
    """Send one command to a lab; ConfigError if it refuses."""
    try:
        found = json_lines.ask(entry.socket, do, patience_s, progress, **words)
    except (OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise SubnetError(f"the lab {entry.name} does not answer: {reason}; its log is {entry.log}") from None
    if "error" in found:
        raise ConfigError(found["error"])
    return found["ok"]


def end(entry: Entry, patience_s: float = 10) -> None:
    """Tell a lab to end, and wait until its name is free."""
    with suppress(SubnetError):  # it may be gone before it has answered
        ask(entry, "down")
    for _ in range(int(patience_s * 50)):
        if entry.is_free():
            return
        time.sleep(0.02)
    raise ConfigError(f"the lab {entry.name} was told to end but has not: see {entry.log}")
