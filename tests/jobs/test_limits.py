"""Rules of a job that need no lab: limits of its options, names of failures, signals, versions of mpirun, records."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.collectives.kinds import Collective
from weft.collectives.live.record import RECEIVE, SEND, lines_of
from weft.errors import ConfigError
from weft.jobs import janitor, mpi
from weft.jobs.job import Job, _describe
from weft.jobs.recorded import collect
from weft.jobs.signals import SignalHandler, StopRequested
from weft.training.traces.trace import Kind


def test_a_job_has_a_rank_and_a_grace_period():
    job = Job(command=("true",), n=1, per_host=1, grace_s=0)
    assert (job.has_prefix, job.hosts, job.mpirun, job.record) == (True, (), "", "")
    for wrong, flag in (({"n": 0}, "-n"), ({"per_host": 0}, "--per-host"), ({"grace_s": 1e9}, "--grace")):
        with pytest.raises(ConfigError, match=flag):
            Job(**{"command": ("true",), "n": 1} | wrong)


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (1, "rank 3 on h2 ended with status 1"),
        (-signal.SIGKILL, "rank 3 on h2 was killed by SIGKILL"),
        (-99, "rank 3 on h2 was killed by signal 99"),
    ],
)
def test_a_failed_rank_is_named_with_its_status_or_signal(status, failure):
    assert _describe(SimpleNamespace(name="rank 3 on h2", status=status)) == failure


def test_the_first_signal_stops_a_job_the_second_skips_its_grace_period_and_ignored_ones_stay_ignored():
    before, terminate = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)
    try:
        with SignalHandler() as handler:
            os.kill(os.getpid(), signal.SIGHUP)
            with pytest.raises(StopRequested, match="SIGTERM"):
                signal.raise_signal(signal.SIGTERM)
            assert not handler.should_hurry()
            signal.raise_signal(signal.SIGTERM)
            assert handler.should_hurry()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == terminate
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("mpirun (Open MPI) 4.1.6", {True: "--tag-output", False: "ucx"}),
        ("prterun (OpenRTE) 4.1.6", {True: "--tag-output", False: "ucx"}),
        ("HYDRA build details:", {True: "-prepend-rank", False: "1"}),
    ],
)
def test_mpirun_is_recognised_by_its_version(tmp_path, version, words):
    program = _program(tmp_path, f"#!/bin/sh\necho '{version}'\n")
    for has_prefix, last in words.items():
        assert mpi.mpirun(str(program), has_prefix=has_prefix)[-1] == last


@pytest.mark.parametrize(
    ("text", "error"),
    [("#!/bin/sh\necho srun 23.11\n", "neither Open MPI's mpirun nor MPICH's"), ("#!/no/such\n", "--version failed")],
)
def test_another_program_is_not_mpirun(tmp_path, text, error):
    with pytest.raises(ConfigError, match=error):
        mpi.mpirun(str(_program(tmp_path, text)), has_prefix=True)


def _program(folder: Path, text: str) -> Path:
    program = folder / "mpirun"
    program.write_text(text)
    program.chmod(0o755)
    return program


# -- records -----------------------------------------------------------------------------------------------------------


def _record(folder: Path, rank: int, *lines: dict[str, object]) -> None:
    usual = {"group": "g", "as": rank, "of": 2, "bytes": 8, "root": 0, "begin_s": 1.0, "end_s": 2.0, "compute_s": 0.0}
    lines_of(folder, rank).write_text("".join(json.dumps(usual | {"words": ""} | line) + "\n" for line in lines))


def test_messages_count_by_sender_receiver_and_tag_and_only_a_receive_blocks_the_next_step(tmp_path):
    """The second message with tag 7 is not received, and the one with tag 9 is not sent."""
    send, receive = ({"call": call, "peer": peer, "tag": 7} for call, peer in ((SEND, 1), (RECEIVE, 0)))
    back = {"call": SEND, "peer": 0, "tag": 5}
    _record(tmp_path, 0, send | {"compute_s": 1e-6}, send, back | {"call": RECEIVE, "peer": 1}, {"call": "barrier"})
    _record(tmp_path, 1, receive, receive | {"tag": 9}, back, {"call": "barrier"})
    first, second = collect(tmp_path, 2).trace.ranks
    assert [(node.kind, node.peer, node.after) for node in first[:3]] == [
        (Kind.COMPUTE, first[0].peer, ()),
        (Kind.SEND, 1, (0,)),
        (Kind.RECV, 1, (0,)),
    ]
    assert [(node.collective, node.after) for node in first[3:]] == [(Collective.BARRIER, (2,))]
    assert [(node.kind, node.after) for node in second] == [
        (Kind.RECV, ()),
        (Kind.SEND, (0,)),
        (Kind.COLLECTIVE, (0,)),
    ]
    assert first[1].tag == second[0].tag != first[2].tag == second[1].tag


def test_collectives_of_a_group_without_all_its_ranks_are_left_out(tmp_path):
    _record(tmp_path, 0, {"call": "barrier"}, {"call": "barrier", "group": "three", "of": 3})
    _record(tmp_path, 1, {"call": "barrier", "begin_s": 0.5}, {"call": "barrier", "group": "three", "of": 3})
    recorded = collect(tmp_path, 2)
    assert [len(nodes) for nodes in recorded.trace.ranks] == [1, 1]
    assert [len(groups) for groups in recorded.trace.groups.values()] == [1]
    assert (recorded.calls, recorded.talked_s) == (4, 2.5)


def test_the_janitor_waits_for_no_process_if_none_is_left(monkeypatch):
    monkeypatch.setattr(janitor.time, "sleep", pytest.fail)
    janitor._end_marked(b"WEFT_MARK_OF_NO_PROCESS=1", 5.0)
