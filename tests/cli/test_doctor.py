"""`weft doctor`, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import without_notices
from tests.warm import WARM

from weft.cli import app
from weft.cli.arguments import Form
from weft.cli.doctor import doctor
from weft.errors import WeftError
from weft.lab import precompile


@pytest.fixture
def run(tmp_path):
    def run(**environment: str) -> tuple[int, dict[str, dict[str, str]]]:
        """Run it, in a new Python if that has to see another environment from the start."""
        own = {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        weft = [sys.executable, "-m", "weft"] if environment else [os.environ[WARM]]
        env = os.environ | own | environment
        done = subprocess.run([*weft, "doctor", "--json"], env=env, capture_output=True, text=True, check=False)
        return done.returncode, {load["what"]: load for load in json.loads(done.stdout)}

    tmp_path.chmod(0o700)
    return run


def test_a_machine_in_order_is_good(run):
    status, result = run()
    assert status == 0
    assert result["numba"]["state"] == result["kernel cache"]["state"] == result["runtime folder"]["state"] == "good"


def test_compile_runs_every_step_in_turn_and_names_it(monkeypatch, capsys):
    monkeypatch.setattr(precompile, "STEPS", (precompile.Step("links", ("links", "topologies")),))
    monkeypatch.setattr(precompile.build, "folder", lambda: None)
    doctor(compile_=True, form=Form(json=True))
    printed = capsys.readouterr()
    steps = [line.removeprefix("weft: compiling kernels: ") for line in without_notices(printed.err).splitlines()]
    assert steps[:4] == ["links", "adaptive routing", "answers of a lab's switches", "copies between ranks"]
    assert json.loads(printed.out)


def test_a_command_that_fails_ends_the_compilation_with_its_message(monkeypatch):
    monkeypatch.setattr(precompile, "STEPS", (precompile.Step("nothing", ("show no-such-fabric",)),))
    with pytest.raises(WeftError, match=r"`weft show no-such-fabric` failed with status 2\n.*no-such-fabric"):
        list(precompile.compile_all())


@pytest.mark.parametrize("words", [words for step in precompile.STEPS for words in step.commands])
def test_commands_that_compile_have_the_flags_of_today(words):
    app.parse_args(words.split(), exit_on_error=False, print_error=False)


def test_a_program_that_is_not_installed_is_missing_and_nothing_is_bad(run, monkeypatch):
    monkeypatch.setattr("weft.lab.doctor.PEERS", (("no-such-program", "nothing"),))
    from weft.lab.doctor import findings

    assert findings()[-1].state == "missing"
    assert "make peers" in findings()[-1].words


def test_another_project_named_weft_in_the_environment_is_bad(run, tmp_path):
    assert "another weft" not in run()[1]
    metadata = tmp_path / "weft-0.9.118.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: weft\nVersion: 0.9.118\n")
    status, result = run(PYTHONPATH=str(tmp_path))
    assert (status, result["another weft"]["state"]) == (1, "bad")
    assert "weft 0.9.118" in result["another weft"]["words"]
    assert "pip uninstall weft" in result["another weft"]["words"]


def test_a_cache_that_cannot_be_written_is_bad(run):
    status, result = run(XDG_CACHE_HOME="/proc")
    assert (status, result["kernel cache"]["state"]) == (1, "bad")
    assert "XDG_CACHE_HOME" in result["kernel cache"]["words"]


def test_a_folder_that_others_may_enter_is_bad(run, tmp_path):
    (tmp_path / "weft").mkdir(mode=0o755)
    status, result = run()
    assert (status, result["runtime folder"]["state"]) == (1, "bad")


def test_remains_of_a_killed_lab_are_named(run, tmp_path):
    (tmp_path / "weft").mkdir(mode=0o700)
    for name in ("gone.lock", "gone.sock"):
        Path(tmp_path / "weft" / name).touch()
    status, result = run()
    assert (status, result["lab gone"]["state"]) == (0, "missing")


def test_where_programs_can_have_no_sysfs_of_their_own_the_reason_is_said(monkeypatch):
    from weft.lab import doctor

    output = "weft: --sysfs needs mounts of its own\n  As root ..."
    monkeypatch.setattr("weft.lab.programs.run", lambda *_: subprocess.CompletedProcess([], 2, "", output))
    (result,) = [finding for finding in doctor.findings() if finding.what == "a /sys for hosts"]
    assert (result.state, result.words) == ("missing", "--sysfs needs mounts of its own")
