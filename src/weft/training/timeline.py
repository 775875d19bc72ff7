"""Spans of a timeline, as profilers show them, and the file that Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.fabric.files.atomic import write_atomically


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A named interval on a track."""

    track: str  # `rank 3`
    lane: str  # stream of the track
    name: str
    kind: str  # compute, collective, send, recv, wait: one colour each
    start_s: float
    end_s: float


def write_chrome(spans: Iterable[Span], path: Path | str) -> None:
    """Write spans in Chrome's Trace Event Format: a process for each track, a thread for each lane."""
    spans = list(spans)
    events: list[dict[str, Any]] = []
    processes = {track: pid for pid, track in enumerate(dict.fromkeys(span.track for span in spans))}
    free_s: dict[tuple[str, str], list[float]] = {}  # when each thread of a lane is free
    threads: dict[tuple[str, str, int], int] = {}
    for span in sorted(spans, key=lambda span: (span.start_s, -span.end_s)):
        pid = processes[span.track]
        nth = _place(free_s.setdefault((span.track, span.lane), []), span)
        tid = threads.setdefault((span.track, span.lane, nth), len(threads))
        times = {"ts": span.start_s * 1e6, "dur": (span.end_s - span.start_s) * 1e6}
        events.append({"ph": "X", "name": span.name, "cat": span.kind, "pid": pid, "tid": tid, **times})
    for track, pid in processes.items():
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": track}})
    for (track, lane, nth), tid in threads.items():
        name = lane if nth == 0 else f"{lane} ({nth + 1})"
        events.append({"ph": "M", "name": "thread_name", "pid": processes[track], "tid": tid, "args": {"name": name}})
    write_atomically(path, json.dumps({"displayTimeUnit": "ms", "traceEvents": events}))


def _place(free_s: list[float], span: Span) -> int:
    """Return the first free thread of a lane: spans of a thread must not overlap."""
    for nth, until_s in enumerate(free_s):
        if until_s <= span.start_s:
            free_s[nth] = span.end_s
            return nth
    free_s.append(span.end_s)
    return len(free_s) - 1
