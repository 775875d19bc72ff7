"""The key-value store of a job, served by its launcher; `weft.collectives.live.store` is the client of the ranks."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from weft.collectives.live.store import LATE, LONGEST_BYTES
from weft.json_lines import CommandRefused, CommandServer

_LINE_BYTES = 2 * LONGEST_BYTES  # a value in base64, its key, and the JSON around them


class Store:
    """A key-value store at a Unix socket that only its user can open."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()
        self._commands = CommandServer(path, {"set": self._set, "get": self._get}, longest_bytes=_LINE_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._commands.server_close()

    def _set(self, key: str, value: str) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def _get(self, key: str, timeout_s: float) -> str:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout_s):
                raise CommandRefused(f"no rank has set {key!r} in the job's store in {timeout_s:g} s", LATE)
            return self._values[key]
