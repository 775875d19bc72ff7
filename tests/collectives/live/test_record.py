"""A record: the time that ranks compute between calls, without the time of calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.collectives.live import record
from weft.collectives.live.record import GroupRecord, Recorder


class Clock:
    """A clock of the wall and of a processor without other work."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    process_time = monotonic


def test_calls_and_the_lines_of_a_record_are_no_computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(record, "time", clock)
    dumps = json.dumps

    def slow(facts: object) -> str:
        clock.now_s += 1000  # to write a line
        return dumps(facts)

    monkeypatch.setattr(record.json, "dumps", slow)
    recorder = Recorder(tmp_path / "calls")
    group = GroupRecord(recorder, "world", 0, 2)

    for compute_s in (3, 4, 0):
        clock.now_s += compute_s
        begin_s = group.begin()
        clock.now_s += 10  # it talks
        group.message(begin_s, record.SEND, 1, 0, 8)
    recorder._file.close()
    lines = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert [(line["compute_s"], line["end_s"] - line["begin_s"]) for line in lines] == [
        (0, 10),  # the start of the program
        (4, 10),
        (0, 10),
    ]
