"""Timelines that Perfetto and chrome://tracing open."""

from __future__ import annotations

import itertools
import json

from weft.training.timeline import Span, write_chrome


def span(track: str, lane: str, start_s: float, end_s: float) -> Span:
    return Span(track=track, lane=lane, name="work", kind="compute", start_s=start_s, end_s=end_s)


def test_tracks_are_processes_and_lanes_are_threads(tmp_path):
    spans = [span("rank 1", "stream 7", 1e-3, 3e-3), span("rank 0", "stream 7", 0, 1e-3), span("rank 1", "nccl", 0, 1)]
    write_chrome(spans, tmp_path / "out.json")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    lanes = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    drawn = [
        (names[event["pid"]], lanes[event["pid"], event["tid"]], event["ts"], event["dur"])
        for event in events
        if event["ph"] == "X"
    ]
    assert names == {0: "rank 1", 1: "rank 0"}
    assert sorted(drawn) == [
        ("rank 0", "stream 7", 0, 1e3),
        ("rank 1", "nccl", 0, 1e6),
        ("rank 1", "stream 7", 1e3, 2e3),
    ]


def test_overlapping_events_of_a_lane_have_separate_threads(tmp_path):
    """Events of a thread do not overlap: viewers would nest unrelated ones."""
    write_chrome([span("rank 0", "send", start, start + 2) for start in range(4)], tmp_path / "out.json")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {"send", "send (2)"}
    for tid in {event["tid"] for event in events if event["ph"] == "X"}:
        own = sorted(
            (event["ts"], event["ts"] + event["dur"]) for event in events if event["ph"] == "X" and event["tid"] == tid
        )
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(own))
