"""What weft makes once and keeps in the user's cache: compiled kernels and libraries, little programs.

Each is a folder or a file with a hash in its name, of all that it is made of. Another version of weft, or an edit,
makes another one beside it, and nobody knows when the old one has had its day. So who uses one says so, and what nobody
has used for a month goes when one of its kind is made.
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
_NAME = re.compile(r"(.+)-[0-9a-f]{16}(\..+)?")  # with an ending: a file, or what somebody who was killed has left


def home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


class Announcer:
    """Says on stderr what is made now, once that has taken two seconds in all, and again every ten."""

    def __init__(self, what: str) -> None:
        self._what, self._depth = what, 0
        self._spent_s, self._next_s = 0.0, _SILENT_S  # before this time; when it speaks

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


def use(kept: Path) -> Path:
    """The same; it was wanted today."""
    with suppress(OSError):  # gone meanwhile, or somebody else's
        if time.time() - kept.stat().st_mtime > _DAY_S:
            os.utime(kept)
    return kept


def replace_old(made: Path) -> None:
    """Take away those of its kind that were not used for a month."""
    kind = _kind(made)
    assert kind is not None
    with suppress(OSError):
        for one in made.parent.iterdir():
            if _kind(one) != kind or time.time() - one.lstat().st_mtime < _LONGEST_S:
                continue
            if one.is_dir():
                shutil.rmtree(one, ignore_errors=True)
            else:
                one.unlink(missing_ok=True)


def _kind(kept: Path) -> str | None:
    found = _NAME.fullmatch(kept.name)
    return found[1] if found is not None else None
