"""`weft study`, run as a user runs it."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until

from weft.cli import app
from weft.cli.study import run_one
from weft.errors import ConfigError
from weft.study.table import MACHINE_DEPENDENT

# The shell may have started this process with SIGINT ignored.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from weft.cli import main; main()"
STUDY = ("study", "show", "{spec}", "--grid", "spec=star:hosts=2;star:hosts=3;pipe;star:hosts=4", "--workers", "1")


def start(folder: Path, *words: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MAIN, *words]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
    )


def places(folder: Path) -> list[int]:
    """Return the indexes of the journal's runs, in the order of their ends."""
    journal = folder / "out.csv.journal"
    lines = journal.read_text().split("\n")[1:-1] if journal.exists() else []
    return [json.loads(line)["place"] for line in lines]


@pytest.fixture
def half_way(tmp_path):
    """A study whose third run reads a pipe without a writer, so that it blocks until the study is ended."""
    os.mkfifo(tmp_path / "pipe")
    with start(tmp_path, *STUDY, "-o", "out.csv") as process:
        wait_until(lambda: len(places(tmp_path)) == 2, "two runs", lambda: process.poll() is None)
        (worker,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield tmp_path, process, int(worker)
        process.kill()


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; it may stay a zombie if no init process reaps it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_after_kill_9_the_same_command_goes_on_where_it_was(half_way, monkeypatch, capsys):
    folder, process, worker = half_way
    process.kill()
    process.wait()
    wait_until(lambda: is_gone(worker), "that the worker ends, which nobody would hear")
    before = (folder / "out.csv.journal").read_bytes()
    assert not (folder / "out.csv").exists()
    monkeypatch.chdir(folder)
    (folder / "pipe").unlink()
    app(["export", "star:hosts=5", "-o", "pipe", "--format", "ibnetdiscover"])
    app([*STUDY, "-o", "out.csv"])
    assert capsys.readouterr() == ("pipe: written\nout.csv: written, 4 runs, 0 failed\n", "")
    assert (folder / "out.csv.journal").read_bytes().startswith(before)
    assert places(folder) == [0, 1, 2, 3]
    app([*STUDY, "-o", "whole.csv"])  # for comparison, without an interruption
    assert (folder / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()


def test_ctrl_c_ends_it_with_what_has_run(half_way):
    folder, process, worker = half_way
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
    _, output = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert output == "weft: stopped. What has run is in out.csv.journal: the same command goes on.\n"
    assert is_gone(worker)
    assert places(folder) == [0, 1]


def test_a_run_that_fails_is_a_row_and_the_status_says_so(tmp_path, capsys):
    output = tmp_path / "out.csv"
    with pytest.raises(SystemExit, match=r"1 of 2 runs failed, the first by: .*hsts"):
        app(["study", "show", "{s}", "--grid", "s=star:hosts=2;star:hsts=2", "-o", str(output)])
    assert capsys.readouterr().out == f"{output}: written, 2 runs, 1 failed\n"
    rows = list(csv.DictReader(io.StringIO(output.read_text())))
    assert rows[0]["status"] == "ok"
    assert (rows[-1]["s"], rows[-1]["status"]) == ("star:hsts=2", "error")
    assert "hsts" in rows[-1]["error"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["simm", "--grid", "a=1"], "there is no command 'simm'; did you mean sim"),
        (["up", "star:hosts=4", "--grid", "name=a"], "weft up has no --json"),
        (["study", "--grid", "a=1"], "weft study has no --json"),
        (["sim", "star:hosts=4", "--grid", "sze=1M"], "Unknown option: --sze. Did you mean --size?"),
        (
            ["sim", "star:hosts=4", "--grid", "seed=1,x"],
            "--seed=x: Invalid value for --seed: 'x' is not a whole number",
        ),
        (["sim", "--grid", "seed=1"], "parameter SPEC requires an argument"),
        (["sim", "star:hosts=4", "--seed", "1", "--grid", "seed=1"], "--seed specified multiple times"),
        (["sim", "star:hosts=4", "--csv", "--grid", "seed=1"], "use --json or --csv, not both"),
    ],
)
def test_invalid_options_are_refused_before_anything_runs(words, said, tmp_path):
    with pytest.raises(ConfigError) as refused:
        app(["study", *words, "-o", str(tmp_path / "out.csv")])
    assert said in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        "sim star:hosts=4 --engine analytic",
        "nccl all_reduce superpod:su=1 --servers 2 -b 1M -e 2M",
        "compare superpod:su=1 --servers 2 --fabrics ndr,hdr",
        "perf write_bw h1 h2 star:hosts=2 -s 2,64K",
        "train llama3-8b --gpus 16 --tp 2",
        "show superpod:su=1",
        "scenario",
    ],
)
def test_rows_are_those_of_csv(line, capsys):
    """Numbers have a numeric type; two runs give the same table except for weft's own time."""
    app([*line.split(), "--csv"])
    printed = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    rows = run_one(line.split())
    assert capsys.readouterr().out == ""
    assert len(rows) == len(printed) >= 1
    for row, output in zip(rows, printed, strict=True):
        for name in row.keys() - MACHINE_DEPENDENT:
            assert output[name] == ("" if row[name] is None else str(row[name])), name


def test_terminal_shows_progress(tmp_path):
    shows, terminal = pty.openpty()
    with start(tmp_path, "study", "show", "{s}", "--grid", "s=star:hosts=2", "-o", "out.csv", stderr=terminal):
        os.close(terminal)
        drawn = b""
        with suppress(OSError):  # the end of a terminal is an error
            while some := os.read(shows, 1 << 16):
                drawn += some
        os.close(shows)
    assert "0 of 1 runs" in drawn.decode()
    assert "1 of 1 runs" in drawn.decode()


def test_own_defaults_are_not_in_a_study(tmp_path, monkeypatch, capsys):
    """They would differ between machines. These defaults would make every run fail."""
    (tmp_path / "defaults.toml").write_text("[show]\ncsv = true\n")
    monkeypatch.setenv("WEFT_DEFAULTS", str(tmp_path / "defaults.toml"))
    app(["study", "show", "{s}", "--grid", "s=star:hosts=2", "-o", str(tmp_path / "out.csv")])
    assert "1 runs, 0 failed" in capsys.readouterr().out
