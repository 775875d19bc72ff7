"""The user's cache folder: compiled kernels, libraries and helper programs that weft builds once.

Each entry is a folder or a file with a hash of its sources in its name, so another version of weft, or an edit, makes a
new entry beside the old one. Users of an entry call `mark_used`; entries unused for a month are removed when a new
entry of the same kind is made.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_DAY_S = 24 * 3600
_LONGEST_S = 30 * _DAY_S
_SILENT_S, _AGAIN_S = 2.0, 10.0
_NAME = re.compile(r"(.+)-[0-9a-f]{16}(\..+)?")  # with a suffix: a file, or left by a process that was killed


def root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


class Announcer:
    """A progress notice on stderr: printed once the work has taken two seconds in total, then every ten seconds."""

    def __init__(self, what: str) -> None:
        self._what, self._depth = what, 0
        self._spent_s, self._next_s = 0.0, _SILENT_S  # work before the current `begin`; time of the next notice

    def begin(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._began_s, self._is_over = time.monotonic(), threading.Event()
            self._speaker = threading.Thread(target=self._speak, daemon=True)
            self._speaker.start()

    def end(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._is_over.set()
            self._speaker.join()
            self._spent_s = self._elapsed_s()

    def _elapsed_s(self) -> float:
        return self._spent_s + time.monotonic() - self._began_s

    def _speak(self) -> None:
        while not self._is_over.wait(max(0.0, self._next_s - self._elapsed_s())):
            elapsed_s = self._elapsed_s()
            print(f"weft: {self._what}, once per machine: {elapsed_s:.0f} s so far", file=sys.stderr, flush=True)
            self._next_s = elapsed_s + _AGAIN_S


def mark_used(entry: Path) -> Path:
    """Record that an entry is in use, so that it is not removed; return it."""
    with suppress(OSError):  # removed meanwhile, or owned by another user
        if time.time() - entry.stat().st_mtime > _DAY_S:
            os.utime(entry)
    return entry


def remove_unused(entry: Path) -> None:
    """Remove entries of the same kind that were not used for a month."""
    kind = _kind(entry)
    assert kind is not None
    with suppress(OSError):
        for other in entry.parent.iterdir():
            if _kind(other) != kind or time.time() - other.lstat().st_mtime < _LONGEST_S:
                continue
            if other.is_dir():
                shutil.rmtree(other, ignore_errors=True)
            else:
                other.unlink(missing_ok=True)


def _kind(entry: Path) -> str | None:
    match = _NAME.fullmatch(entry.name)
    return match[1] if match is not None else None
