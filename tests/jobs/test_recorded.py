"""Calls of ranks are recorded as a trace that can be replayed on any fabric."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S
from tests.training.traces.made import program_bytes, routed, sent_bytes, talk
from tests.training.traces.made import trace as trace_of
from tests.warm import WARM

from weft.collectives.kinds import Collective
from weft.collectives.live.record import lines_of
from weft.errors import ConfigError
from weft.jobs.recorded import collect, write_schedule
from weft.training.traces.read import read
from weft.training.traces.replay import replay
from weft.training.traces.trace import Kind, Trace

pytestmark = pytest.mark.usefixtures("warm")
PROGRAM = """
import numpy as np
from weft.collectives.live.world import join_world
world = join_world()
with world:
    world.all_reduce(np.ones(1000))
    world.all_gather(np.ones(8, np.int32), np.empty(8 * world.size, np.int32))
    world.broadcast(np.ones(50), root=2)
    world.exchange(np.ones(7), (world.rank + 1) % 3, np.ones(7), (world.rank - 1) % 3)
    if world.rank == 0:
        world.send(np.ones(1), 1)  # never received
"""


def test_a_job_is_recorded_and_replayed(tmp_path: Path) -> None:
    program, folder = tmp_path / "program.py", tmp_path / "job"
    program.write_text(PROGRAM)
    words = ["run", "-n", "3", "--lab", "star:hosts=3", "--record", str(folder), "--predict", str(program)]
    done = subprocess.run([os.environ[WARM], *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "star:hosts=3" in done.stderr
    assert "on real hardware" in done.stderr
    trace = read([folder])
    for rank, nodes in enumerate(trace.ranks):
        calls = [node for node in nodes if node.kind is Kind.COLLECTIVE]
        expected = [
            (Collective.ALL_REDUCE, 8000, 0),
            (Collective.ALL_GATHER, 96, 0),
            (Collective.BROADCAST, 400, 2),
            (Collective.BARRIER, 0, 0),  # at the end
        ]
        assert [(item.collective, item.size_bytes, item.root) for item in calls] == expected
        messages = {(item.kind, item.peer, item.size_bytes) for item in nodes if item.kind in (Kind.SEND, Kind.RECV)}
        assert messages == {(Kind.SEND, (rank + 1) % 3, 56), (Kind.RECV, (rank - 1) % 3, 56)}
    result = replay(trace, routed("fat-tree:hosts=4"))
    assert result.total_s > max(item.compute_s for item in result.ranks) > 0
    schedule = read([folder / "job.goal"])
    assert sent_bytes(schedule, Kind.SEND) == sent_bytes(schedule, Kind.RECV) == program_bytes(trace)
    again = replay(schedule, routed("fat-tree:hosts=4"))
    for item, other in zip(result.ranks, again.ranks, strict=True):  # in whole microseconds, and in whole nanoseconds
        assert other.compute_s == pytest.approx(item.compute_s, abs=1e-6)
    times = [replay(_without_computing(item), routed("fat-tree:hosts=4")).total_s for item in (trace, schedule)]
    assert times[1] == pytest.approx(times[0], rel=0.1)


def _without_computing(trace: Trace) -> Trace:
    return replace(trace, ranks=tuple(tuple(replace(node, duration_ps=0) for node in own) for own in trace.ranks))


def test_no_schedule_is_written_beyond_the_message_limit(tmp_path: Path) -> None:
    call = talk(0, 1 << 20, what=Collective.ALL_TO_ALL)
    assert write_schedule(trace_of(*[[call]] * 30), tmp_path)
    (tmp_path / "job.goal").unlink()
    assert not write_schedule(trace_of(*[[call]] * 500), tmp_path)
    assert not list(tmp_path.iterdir())


def test_calls_that_not_all_ranks_made_are_left_out(tmp_path: Path) -> None:
    """An incomplete last line is left out as well."""
    line = '{"call": "barrier", "group": "g", "as": %d, "of": 2, "bytes": 0, "root": 0, "words": "Barrier", '
    line += '"begin_s": 1.0, "end_s": 1.5, "compute_s": 0.25}\n'
    lines_of(tmp_path, 0).write_text(line % 0 * 2)
    lines_of(tmp_path, 1).write_text(line % 1 + '{"call": "bar')
    recorded = collect(tmp_path, 2)
    assert [[node.kind for node in own][:2] for own in read([tmp_path]).ranks] == [[Kind.COMPUTE, Kind.COLLECTIVE]] * 2
    assert sum(node.kind is Kind.COLLECTIVE for node in recorded.trace.ranks[0]) == 1
    assert (recorded.calls, recorded.talked_s, recorded.computed_s) == (3, 1.0, 0.5)


def test_a_job_without_records_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing was recorded"):
        collect(tmp_path, 2)


def test_a_failed_job_keeps_its_exit_status(tmp_path: Path) -> None:
    words = ["run", "-n", "1", "--lab", "star:hosts=2", "--record", str(tmp_path), "sh", "-c", "exit 3"]
    done = subprocess.run([os.environ[WARM], *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 3
    assert "nothing was recorded" in done.stderr
    assert "ended with status 3" in done.stderr
