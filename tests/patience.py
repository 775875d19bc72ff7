"""Tests wait for what must happen, on however busy a machine: patience ends only what would hang for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 300.0
T = TypeVar("T")


def wait_until(
    happened: Callable[[], T], what: str | Callable[[], str] = "it", going: Callable[[], bool] = lambda: True
) -> T:
    """What `happened` returns when that is true; waits as long as what should bring it about is going on."""
    until_s = time.monotonic() + PATIENCE_S
    while not (result := happened()):
        # Asked once more: what is at its end may have done it as its last deed.
        if time.monotonic() > until_s or (not going() and not (result := happened())):
            raise AssertionError(f"{what if isinstance(what, str) else what()} did not happen")
        time.sleep(0.01)
    return result


def errors_in(stderr: str) -> str:
    """Return what a program said on stderr, without announcements of what it compiled on first use."""
    return "".join(line for line in stderr.splitlines(keepends=True) if "once per machine" not in line)
