"""`weft replay`, run as a user runs it."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from pathlib import Path

import pytest

GOAL = """num_ranks 2
rank 0 {
a: calc 2000000
b: send 1000000b to 1 tag 0
b requires a
}
rank 1 {
a: recv 1000000b from 0 tag 0
b: calc 1000000
b requires a
}
"""


@pytest.fixture
def message(tmp_path: Path) -> str:
    path = tmp_path / "message.goal"
    path.write_text(GOAL)
    return str(path)


def weft(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [os.environ["WEFT_WARM"], "replay", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_trace_as_json_with_its_timeline(message, tmp_path):
    done = weft(message, "--fabric", "star:hosts=2", "--json", "--trace-out", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["format"], result["engine"], result["method"]) == ("GOAL", "flow", "together")
    assert result["nodes"] == {"compute": 2, "collective": 0, "send": 1, "recv": 1}
    assert 3e-3 < result["total_s"] < 3.1e-3
    assert [item["compute_s"] for item in result["ranks"]] == pytest.approx([2e-3, 1e-3])
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert {item["name"] for item in events if item["ph"] == "X"} >= {"calc a", "send b", "wait: recv a", "recv a"}


def test_ranks_as_csv(message):
    rows = list(csv.DictReader(io.StringIO(weft(message, "--fabric", "star:hosts=2", "--csv").stdout)))
    assert [list(row) for row in rows] == [["rank", "compute_s", "exposed_s", "waiting_s"]] * 2


def test_invalid_traces_end_with_status_2(message):
    done = weft(message, "--fabric", "star:hosts=2", "--servers", "1")
    assert done.returncode == 2
    assert "has 2 ranks, and star:hosts=2 has 1 on these 1 servers" in done.stderr
