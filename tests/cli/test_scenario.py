"""`weft scenario`, as a user runs it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

import weft
from weft.cli import app
from weft.cli import scenario as command
from weft.cli.arguments import Form
from weft.errors import ConfigError, UnknownName
from weft.scenarios import SCENARIOS

SMALL = ("--messages", "60", "--servers", "3")


def test_the_list_has_every_scenario(capsys):
    app(["scenario"])
    printed = capsys.readouterr().out
    for name, item in SCENARIOS.items():
        assert name in printed
        assert item.question in printed


def test_every_scenario_is_a_command_with_its_question_as_help():
    for name, item in SCENARIOS.items():
        assert (app["scenario"][name].default_command.__doc__ or "").splitlines()[0] == item.question


def test_a_scenario_prints_claim_finding_and_trust_and_draws(capsys, tmp_path):
    """docs/scenarios.md runs all of them."""
    path = tmp_path / "picture.png"
    app(["scenario", "qos", *SMALL, "--picture", str(path)])
    printed = capsys.readouterr().out
    for words in ("Claim: ", "Runs: ", "seed 1", "Result: ", "How far to trust it: ", "written"):
        assert words in printed
    assert path.read_bytes().startswith(b"\x89PNG")


def test_json_has_the_same_with_seed_options_and_version(capsys):
    app(["scenario", "qos", *SMALL, "--seed", "7", "--json"])
    output = json.loads(capsys.readouterr().out)
    assert (output["weft"], output["seed"], output["options"]["servers"]) == (weft.__version__, 7, 3)
    assert output["rows"][1]["p50 µs"] == output["figures"]["p50_us"]["one lane"]
    assert output["claim"]
    assert output["finding"]


def test_an_unknown_scenario_names_a_near_one():
    with pytest.raises(UnknownName, match="did you mean incast"):
        app(["scenario", "incats"])


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match=r"\.png, \.svg, \.pdf"):
        app(["scenario", "qos", "--messages", "100000000", "--picture", str(tmp_path / "x.bmp")])


def test_a_long_scenario_shows_the_part_that_it_has_reached(monkeypatch):
    """A scenario that takes a `progress` calls it with the parts done, their number and a name."""
    shown = []
    monkeypatch.setattr(command, "progress_bar", lambda text: nullcontext(lambda **state: shown.append(state)))

    def run(progress):
        progress(1, 3, "leaf1")
        return SimpleNamespace(report=lambda: {"rows": []})

    command._run(SimpleNamespace(run=run), None, Form(json=True), {})
    assert shown == [{"description": "leaf1", "completed": 1, "total": 3}]
