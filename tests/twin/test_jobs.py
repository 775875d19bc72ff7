"""Running jobs are facts: of Slurm, of files and of a lab's load."""

from __future__ import annotations

import os

import pytest

import weft
from weft.errors import ConfigError, FileError, SubnetError
from weft.fabric import files
from weft.twin.follow import Follower
from weft.twin.history import History
from weft.twin.jobs import SQUEUE, read_file, read_load, read_slurm
from weft.twin.source import Files


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Replace squeue by a program of this text."""

    def replace(text):
        path = tmp_path / "squeue"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return replace


def test_jobs_of_slurm_are_those_that_run(squeue):
    squeue(
        '[ "$*" = "-h -t RUNNING -o %A %u %N %j" ] || exit 9\necho "7 ada dgx[1-2],dgx3 train me"\necho "8 bob io1 x"'
    )
    assert SQUEUE[0] == "squeue"
    assert read_slurm() == {("job", "7"): "train me of ada on dgx[1-3]", ("job", "8"): "x of bob on io1"}
    squeue("echo no controller >&2; exit 1")
    with pytest.raises(SubnetError, match="squeue failed: no controller"):
        read_slurm()


def test_slurm_must_be_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="cannot run squeue: No such file"):
        read_slurm()


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("7 ada dgx1 train\n\n8 bob dgx2\n", 3, "number, user, node list and name"),
        ("# jobs\n7 ada dgx1 train\n7 ada dgx1 train\n", 3, "each job once"),
        ("7 ada dgx[1- train\n", 1, "a node list"),
    ],
)
def test_damaged_files_of_jobs_are_refused_with_the_line(text, line, reason, tmp_path):
    path = tmp_path / "jobs"
    path.write_text(text)
    with pytest.raises(FileError, match=reason) as refused:
        read_file(path)
    assert refused.value.line == line


def test_jobs_that_begin_and_end_are_changes_of_the_history(tmp_path):
    fabric, jobs = tmp_path / "fabric.db_csv", tmp_path / "jobs"
    files.write(weft.load("star:hosts=3"), fabric)
    jobs.write_text("7 ada h[1-2] train\n")
    follower = Follower(Files(str(fabric)), History("sqlite://"), read_jobs=lambda: read_file(jobs))
    assert follower.poll() == []
    jobs.write_text("7 ada h[1-3] train\n8 bob h3 eval\n")
    assert [str(each) for each in follower.poll()] == [
        "job 7: train of ada on h[1-2] -> train of ada on h[1-3]",
        "job 8: new, eval of bob on h3",
    ]
    jobs.write_text("")
    assert [each.after for each in follower.poll()] == [None, None]


def test_jobs_of_a_load_have_their_pattern_and_hosts():
    job = {"name": "train", "pattern": "all-to-all", "hosts": ["h1", "h2", "h3"], "wanted_gbit_s": 1.0}
    assert read_load([job]) == {("job", "train"): "all-to-all on h[1-3]"}
