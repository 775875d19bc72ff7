"""Studies of artificial runs, defined by a module that workers import."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from weft.errors import ConfigError
from weft.study.conduct import _cores, conduct
from weft.study.grid import Study, read
from weft.study.journal import Journal

CALL = "runs_of_a_test:run_one"
MODULE = """
import os, signal, sys, time
from pathlib import Path
from weft.errors import ConfigError, SimulationBug

def run_one(words):
    with open("ran", "a") as log:
        log.write(words[-1] + "\\n")
    match words[-1]:
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "leaves":
            sys.exit("with these words")
        case "refused":
            raise ConfigError("this is wrong\\n  That is the way out.")
        case "bug":
            raise SimulationBug("one and one are three")
        case "broken":
            return {}["key"]
        case "waits":
            Path("pid").write_text(str(os.getpid()))
            while not Path("go").exists():
                time.sleep(0.01)
        case "follows":
            while not Path("pid").exists():
                time.sleep(0.01)
        case "goes":
            Path("go").touch()
        case "prints":
            print("this is no answer", flush=True)
    return [{"word": words[-1], "wall_s": time.time(), "pid.wall_s": os.getpid()}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "runs_of_a_test.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def study(values: str) -> Study:
    return read(["x"], [f"a={values}"])


def table(folder) -> list[dict[str, str]]:
    with (folder / "out.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_failed_run_is_reported_in_its_row_and_others_continue(folder):
    conduct(study("dies,leaves,refused,bug,broken,prints,fine"), CALL, folder / "out.csv", workers=1)
    rows = {row["a"]: row for row in table(folder)}
    assert [name for name, row in rows.items() if row["status"] == "ok"] == ["prints", "fine"]
    assert rows["fine"]["word"] == "fine"
    assert rows["dies"]["error"].startswith("worker ended with SIGKILL: probably out of memory")
    assert rows["leaves"]["error"] == "worker ended with status 1: with these words"
    assert rows["refused"]["error"] == "this is wrong That is the way out."
    assert rows["bug"]["error"] == "SimulationBug: one and one are three"
    assert rows["broken"]["error"] == "KeyError: 'key'"


def test_rows_stand_in_the_order_of_the_grid_whatever_order_runs_end_in(folder):
    """The first waits for the last."""
    conduct(study("waits,b,c,goes"), CALL, folder / "out.csv", workers=2)
    ended = [json.loads(line)["place"] for line in (folder / "out.csv.journal").read_text().splitlines()[1:]]
    assert ended.index(0) >= 2
    assert [row["a"] for row in table(folder)] == ["waits", "b", "c", "goes"]


def test_workers_end_with_their_study(folder):
    def give_up(done: int, of: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conduct(study("follows,waits"), CALL, folder / "out.csv", workers=2, progress=give_up)
    assert not Path(f"/proc/{(folder / 'pid').read_text()}").exists()


def test_one_process_runs_many_runs(folder):
    outcomes = conduct(study("1..9"), CALL, folder / "out.csv", workers=1)
    assert len({outcome.rows[0]["pid.wall_s"] for outcome in outcomes.values()}) == 1


def test_a_repeated_study_runs_only_failed_runs(folder):
    conduct(study("fine,refused"), CALL, folder / "out.csv", workers=1)
    first = (folder / "out.csv").read_bytes()
    conduct(study("fine,refused"), CALL, folder / "out.csv", workers=1)
    assert (folder / "ran").read_text().split() == ["fine", "refused", "refused"]
    assert (folder / "out.csv").read_bytes() == first
    conduct(study("fine,refused"), CALL, folder / "out.csv", workers=1, restart=True)
    assert (folder / "ran").read_text().split().count("fine") == 2


def test_a_complete_study_starts_no_worker(folder, monkeypatch):
    conduct(study("fine"), CALL, folder / "out.csv", workers=1)
    monkeypatch.setattr("weft.study.conduct._execute", lambda *_: pytest.fail("started"))
    assert len(conduct(study("fine"), CALL, folder / "out.csv")) == 1


def test_workers_are_as_many_as_the_cores_of_this_process(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 5} if pid == 0 else set(range(8)))
    assert _cores() == 2


def test_half_a_line_at_the_end_of_a_journal_is_a_run_that_has_not_been(folder):
    """A power failure leaves such a line."""
    conduct(study("b,c"), CALL, folder / "out.csv", workers=1)
    journal, whole = folder / "out.csv.journal", (folder / "out.csv").read_bytes()
    journal.write_bytes(journal.read_bytes()[:-20])
    conduct(study("b,c"), CALL, folder / "out.csv", workers=1)
    assert (folder / "ran").read_text().split() == ["b", "c", "c"]
    assert (folder / "out.csv").read_bytes() == whole
    assert [json.loads(line).get("place") for line in journal.read_text().splitlines()] == [None, 0, 1]


@pytest.mark.parametrize(
    ("words", "grid", "said"),
    [
        (["x"], ["a=b,c"], "a was b,c,d, is b,c"),
        (["y"], ["a=b,c,d"], "run was x, is y"),
        (["x"], ["a=b,c,d", "e=1"], "e was absent, is 1"),
    ],
)
def test_a_changed_study_does_not_go_on_with_the_journal_of_another(words, grid, said, folder):
    conduct(study("b,c,d"), CALL, folder / "out.csv", workers=1)
    with pytest.raises(ConfigError, match=f"belongs to another study: {said}\n  Use --restart"):
        conduct(read(words, grid), CALL, folder / "out.csv", workers=1)


def test_long_values_of_another_study_are_shortened(tmp_path):
    path = tmp_path / "j"
    Journal(path, {"run": "x" * 60, "grid": {"a": [1, 2]}}, restart=False).close()
    with pytest.raises(ConfigError, match=rf"run was {'x' * 60}, is {'y' * 57}\.\.\.; a was 1,2, is absent\n"):
        Journal(path, {"run": "y" * 61, "grid": {}}, restart=False)
    Journal(path, {"run": "y" * 61, "grid": {}}, restart=True).close()
    assert path.read_text().count("\n") == 1


def test_lists_in_another_order_are_another_study(folder):
    """Places of runs would differ."""
    conduct(read(["x"], ["a=1,2", "b=3,4"]), CALL, folder / "out.csv", workers=1)
    with pytest.raises(ConfigError, match="its lists had another order"):
        conduct(read(["x"], ["b=3,4", "a=1,2"]), CALL, folder / "out.csv", workers=1)


def test_results_of_another_weft_are_not_mixed_in(folder, monkeypatch):
    conduct(study("b"), CALL, folder / "out.csv", workers=1)
    monkeypatch.setattr("weft.study.conduct.__version__", "99.0")
    with pytest.raises(ConfigError, match=r"weft was .*, is 99\.0"):
        conduct(study("b"), CALL, folder / "out.csv", workers=1)


@pytest.mark.parametrize("text", ["my diary", "my diary\n", "[1]\n"])
def test_a_file_that_is_no_journal_is_left_alone(text, folder):
    (folder / "out.csv.journal").write_text(text)
    with pytest.raises(ConfigError, match="is not a study's journal: remove it"):
        conduct(study("b"), CALL, folder / "out.csv", workers=1)
    assert (folder / "out.csv.journal").read_text() == text


def test_two_studies_do_not_write_one_journal(folder):
    def again(done: int, of: int) -> None:
        with pytest.raises(ConfigError, match="in use by a running study"):
            conduct(study("b"), CALL, folder / "out.csv", workers=1)

    conduct(study("b"), CALL, folder / "out.csv", workers=1, progress=again)


@pytest.mark.parametrize(
    ("name", "workers", "said"),
    [
        ("out.xlsx", 1, "there is no table format '.xlsx'"),
        ("no/out.csv", 1, "cannot write .*no/out.csv.journal"),
        ("out.csv", 0, "--workers must be at least 1, got 0"),
    ],
)
def test_unwritable_outputs_are_refused_before_any_run(name, workers, said, folder):
    with pytest.raises(ConfigError, match=said):
        conduct(study("b"), CALL, folder / name, workers=workers)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("module", "name", "ray", "said"),
    [
        ("ray", "out.csv", "auto", "--ray needs Ray: pip install 'weft-fabric[ray]'"),
        ("pyarrow", "out.parquet", None, "Parquet needs pyarrow: pip install 'weft-fabric[parquet]'; or write .csv"),
    ],
)
def test_missing_extras_are_named(module, name, ray, said, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError) as refused:
        conduct(study("b"), CALL, folder / name, workers=1, ray=ray)
    assert said in str(refused.value)
    assert not (folder / "ran").exists()
