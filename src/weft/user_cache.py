"""The user's cache folder: compiled kernels, libraries and helper programs that weft builds once.

Each entry is a folder or a file with a hash of its sources in its name, so another version of weft, or an edit, makes a
new entry beside the old one. Users of an entry call `mark_used`; entries unused for a month are removed when a new
entry of the same kind is made.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_DAY_S = 24 * 3600
_LONGEST_S = 30 * _DAY_S
_SILENT_S, _AGAIN_S = 1.0, 1.0
NOTICE = "once per machine"  # in the text of every announcement
_NAME = re.compile(r"(.+)-[0-9a-f]{16}(\..+)?")  # with a suffix: a file, or left by a process that was killed


def root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


class Announcer:
    """A notice on stderr that something is compiled, once the work has taken a second in total.

    On a terminal it is a line that counts the seconds and is cleared in the end; elsewhere it is printed once.
    """

    def __init__(self, what: str) -> None:
        self._what, self._depth = what, 0
        self._spent_s = 0.0  # work before the current `begin`
        self._is_printed = False

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
        if self._is_over.wait(max(0.0, _SILENT_S - self._elapsed_s())):
            return
        if sys.stderr is not None and sys.stderr.isatty():
            self._count()
        elif not self._is_printed:
            self._is_printed = True
            hint = "`weft doctor --compile` does it for all commands"
            print(f"weft: {self._what}, {NOTICE}; {hint}", file=sys.stderr, flush=True)

    def _count(self) -> None:
        """Show the seconds until the work ends."""
        while True:
            text = f"\rweft: {self._what}, {NOTICE}: {self._elapsed_s():.0f} s\x1b[K"
            print(text, end="", file=sys.stderr, flush=True)
            if self._is_over.wait(_AGAIN_S):
                break
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def lock(entry: Path) -> Iterator[None]:
    """Hold the lock of an entry: one process makes it while the others wait."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    with open(entry.with_name(f"{entry.name}.lock"), "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
