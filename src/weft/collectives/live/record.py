"""The calls of a rank in its groups, as lines of JSON: `weft run --record`.

    {"call": "all_reduce", "group": "world", "as": 1, "of": 4, "bytes": 8000, "root": 0, "begin_s": ..., ...}
    {"call": "send", "group": "world", "as": 1, "of": 4, "peer": 2, "tag": 7, "bytes": 64, ...}

`as`, `peer` and `root` are ranks of the group; whose they are in the job the lines of all ranks say together.
`compute_s` is the processor's time since the call before, and no more than went by: ranks share the cores of a machine.
It is 0 for the first call of a process: what comes before that is its start.
"""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path
from typing import Any

VARIABLE = "WEFT_RECORD"  # the folder of the lines, if there is to be a record
RECEIVE, SEND = "recv", "send"


def lines_of(folder: Path, rank: int) -> Path:
    return folder / f"calls.{rank}.jsonl"


class Recorder:
    """A recorder of one process; it writes each line at once, so that none is lost."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._end_s, self._processor_s, self._compute_s = time.monotonic(), time.process_time(), 0.0
        self._has_begun = False

    def begin(self) -> float:
        """Mark the begin of a call in its group."""
        now_s = time.monotonic()
        if self._has_begun:
            self._compute_s = max(0.0, min(now_s - self._end_s, time.process_time() - self._processor_s))
        self._has_begun = True
        return now_s

    def end(self, begin_s: float, **facts: Any) -> None:
        times = {"begin_s": begin_s, "end_s": time.monotonic(), "compute_s": self._compute_s}
        self._file.write(json.dumps(facts | times) + "\n")
        self._end_s, self._processor_s = time.monotonic(), time.process_time()  # without the writing of the record
        self._compute_s = 0.0


class GroupRecord:
    """The record of one group."""

    def __init__(self, recorder: Recorder, name: str, rank: int, size: int) -> None:
        self.begin = recorder.begin
        self._recorder, self._about = recorder, {"group": name, "as": rank, "of": size}

    def collective(self, begin_s: float, kind: str, size_bytes: int, item_bytes: int, root: int, words: str) -> None:
        facts = {"bytes": size_bytes, "item_bytes": item_bytes, "root": root, "words": words}
        self._recorder.end(begin_s, call=kind, **self._about, **facts)

    def message(self, begin_s: float, way: str, peer: int, tag: int, size_bytes: int) -> None:
        self._recorder.end(begin_s, call=way, **self._about, peer=peer, tag=tag, bytes=size_bytes)


def record_of(name: str, rank: int, size: int) -> GroupRecord | None:
    """Return the record of a group if this process is recorded."""
    folder, own = os.environ.get(VARIABLE), os.environ.get("RANK", "")
    if not folder or not own.isdecimal():
        return None
    return GroupRecord(_recorder(lines_of(Path(folder), int(own))), name, rank, size)


@cache
def _recorder(path: Path) -> Recorder:
    return Recorder(path)
