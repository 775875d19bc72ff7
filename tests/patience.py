"""Waiting in tests: the limit is long, so that only a hang exceeds it, also on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 300.0
PAUSE_S = 0.0005  # after a poll without a completion: the other end needs the processor
T = TypeVar("T")


def wait_until(
    happened: Callable[[], T], what: str | Callable[[], str] = "it", going: Callable[[], bool] = lambda: True
) -> T:
    """Return the first true result of `happened`; fail after PATIENCE_S, or when `going` is false."""
    until_s = time.monotonic() + PATIENCE_S
    while not (result := happened()):
        # Check once more: the cause may have completed just before it ended.
        if time.monotonic() > until_s or (not going() and not (result := happened())):
            raise AssertionError(f"{what if isinstance(what, str) else what()} did not happen")
        time.sleep(0.01)
    return result


def without_notices(printed: str) -> str:
    """Return the output of a program without notices about compilation."""
    return "".join(line for line in printed.splitlines(keepends=True) if "once per machine" not in line)
