"""The journal of a study: a line of JSON on disk for each completed run, so that an interrupted study can be resumed.

{"weft": "0.1.0", "run": "sim star:hosts=8", "grid": {"size": ["64K", "1M"], "seed": [1, 2]}}
{"place": 0, "status": "ok", "error": "", "rows": [{"seed": 1, ...}], "wall_s": 0.41}
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from weft.errors import ConfigError
from weft.study.worker import Outcome


class Journal:
    """A journal file, locked by one study at a time, and the outcomes of its runs by place in the grid."""

    def __init__(self, path: Path, head: dict[str, Any], *, restart: bool) -> None:
        self.path = path
        self.outcomes: dict[int, Outcome] = {}
        try:
            self._file = path.open("a+b")  # writes append, wherever the file was read
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None
        try:
            self._lock()
            self._resume(head, restart)
        except BaseException:
            self.close()
            raise

    def add(self, place: int, outcome: Outcome) -> None:
        self._append({"place": place} | asdict(outcome))
        self.outcomes[place] = outcome

    def close(self) -> None:
        with suppress(OSError):  # a full disk, which `_append` has reported
            self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{self.path}: in use by a running study: wait, or choose another -o") from None

    def _resume(self, head: dict[str, Any], restart: bool) -> None:
        self._file.seek(0)
        text = b"" if restart else self._file.read()
        whole = text[: text.rfind(b"\n") + 1]  # the last line may be incomplete
        lines = [self._read(line) for line in (whole or text).splitlines()]
        if lines:
            self._compare(lines[0], head)
        for line in lines[1:]:
            place = line.pop("place")
            self.outcomes[place] = Outcome(**line)
        self._file.truncate(len(whole))
        if not whole:
            self._append(head)

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise ConfigError(f"{self.path} is not a study's journal: remove it, or choose another -o")
        return entry

    def _compare(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        if json.dumps(old) == json.dumps(new):  # another order of lists changes the places of runs
            return
        raise ConfigError(
            f"{self.path} belongs to another study: {'; '.join(_differences(old, new))}\n"
            f"  Use --restart to discard the completed runs, or choose another -o."
        )

    def _append(self, facts: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(facts).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file)
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {error.strerror}") from None


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    before, after = (head | head.get("grid", {}) for head in (old, new))
    keys = [key for key in before | after if key != "grid" and before.get(key) != after.get(key)]
    return [f"{key} was {_show(before.get(key))}, is {_show(after.get(key))}" for key in keys] or [
        "its lists had another order"
    ]


def _show(value: Any) -> str:
    if value is None:
        return "absent"
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
