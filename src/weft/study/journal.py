"""What has run already, a line of JSON each on the disk as soon as a run has ended: nothing that ends a study loses it.

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
    """A file that one study at a time has, and how its runs have ended by their places in the grid."""

    def __init__(self, path: Path, head: dict[str, Any], *, restart: bool) -> None:
        self.path = path
        self.outcomes: dict[int, Outcome] = {}
        try:
            self._file = path.open("a+b")  # what is written comes last, wherever was read
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
        with suppress(OSError):  # of a full disk, which `_append` has told
            self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{self.path}: a study is running that writes it: wait, or choose another -o") from None

    def _resume(self, head: dict[str, Any], restart: bool) -> None:
        self._file.seek(0)
        text = b"" if restart else self._file.read()
        whole = text[: text.rfind(b"\n") + 1]  # the last line may be half of one
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
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConfigError(f"{self.path} is no journal of a study: remove it, or choose another -o")
        return found

    def _compare(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        if json.dumps(old) == json.dumps(new):  # lists in another order give runs other places
            return
        raise ConfigError(
            f"{self.path} is of another study: {'; '.join(_differences(old, new))}\n"
            f"  --restart begins anew and forgets what has run; or choose another -o."
        )

    def _append(self, facts: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(facts).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file)
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {error.strerror}") from None


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    before, after = (one | one.get("grid", {}) for one in (old, new))
    keys = [key for key in before | after if key != "grid" and before.get(key) != after.get(key)]
    return [f"{key} was {_show(before.get(key))}, and is {_show(after.get(key))}" for key in keys] or [
        "its lists were in another order"
    ]


def _show(value: Any) -> str:
    if value is None:
        return "absent"
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
