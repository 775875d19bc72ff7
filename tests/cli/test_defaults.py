"""A user's file of default options."""

from __future__ import annotations

import json
import os
import subprocess

import pytest


@pytest.fixture
def run(tmp_path):
    def run(toml: str, *words: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "weft").mkdir(exist_ok=True)
        (tmp_path / "weft" / "defaults.toml").write_text(toml)
        env = os.environ | {"XDG_CONFIG_HOME": str(tmp_path)}
        env.pop("WEFT_DEFAULTS")
        return subprocess.run([os.environ["WEFT_WARM"], *words], env=env, capture_output=True, text=True, check=False)

    return run


def test_flags_come_from_the_file_unless_they_are_given(run):
    file = "[sim]\nseed = 7\njson = true\n"
    assert json.loads(run(file, "sim", "star:hosts=2").stdout)["seed"] == 7
    assert json.loads(run(file, "sim", "star:hosts=2", "--seed", "8").stdout)["seed"] == 8
    assert run(file, "sim", "star:hosts=2", "--json=false").stdout.startswith("star:hosts=2")


def test_a_command_below_a_command_has_its_section(run):
    done = run("[scenario]\njson = true\n[scenario.qos]\nseed = 1.5\n", "scenario")
    assert json.loads(done.stdout)[0]["scenario"] == "qos"
    assert "'1.5' is not a whole number" in run("[scenario.qos]\nseed = 1.5\n", "scenario", "qos").stderr


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[route]\nsed = 3\n", ("there is no flag 'sed'; did you mean", "seed", "[route]")),
        ("[route]\nseed = 1.9\n", ("[route]", "[seed]: '1.9' is not a whole number")),
        ("[rout]\nseed = 3\n", ("there is no command 'rout'; did you mean route",)),
        ("seed = 3\n", ("there is no command 'seed'", "below the name of their command")),
        ("seed = \n", ("expected TOML", "line 1")),
    ],
)
def test_errors_of_the_file_have_a_remedy(run, tmp_path, toml, words):
    done = run(toml, "route", "star:hosts=2")
    assert done.returncode == 2, done
    for word in (*words, str(tmp_path / "weft" / "defaults.toml"), "WEFT_DEFAULTS= weft"):
        assert word in done.stderr


def test_help_does_not_look_at_the_file(run):
    assert run("[rout]\n", "--help").returncode == 0


def test_the_doctor_names_the_file(run, tmp_path):
    assert f"{tmp_path}/weft/defaults.toml" in run("", "doctor").stdout


def test_a_file_that_was_named_and_is_not_there_is_an_error():
    env = os.environ | {"WEFT_DEFAULTS": "/no/such.toml"}
    done = subprocess.run([os.environ["WEFT_WARM"], "links"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cannot read /no/such.toml" in done.stderr
