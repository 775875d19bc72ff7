"""`weft train`, as a user runs it."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

import weft
from weft.cli import app
from weft.errors import ConfigError, FileError, UnknownName

SMALL = ("llama3-8b", "--gpus", "16", "--tp", "2")


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    app(["train", *arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def test_it_says_how_long_where_the_time_goes_whether_it_fits_and_how_far_to_trust_it(capsys):
    app(["train", *SMALL, "--tokens", "1.5T"])
    lines = capsys.readouterr().out.splitlines()
    heads = [line.split("  ")[0].strip() for line in lines[:8]]
    assert heads[:7] == ["model", "on", "layout", "step", "tokens/s", "MFU", "memory"]
    assert "16 × H100 in 2 × dgx-h100" in lines[1]
    assert "tp 2, dp 8; micro-batch 1 × 4; ZeRO 1" in lines[2]
    assert "of 80 GB on each GPU, fits with " in lines[6]
    assert lines[7].startswith("time to train ")
    assert "days for 1.5T tokens" in lines[7]
    said = "\n".join(lines)
    for words in ("Where the time goes", "matrix products", "docs/training.md", "flow engine over superpod:su=1"):
        assert words in said


def test_json_has_the_figures_the_parts_the_options_the_seed_and_the_version(capsys):
    said = json_of(capsys, *SMALL, "--seed", "7", "--tokens", "300B")
    assert (said["weft"], said["seed"], said["model"], said["gpus"]) == (weft.__version__, 7, "llama3-8b", 16)
    assert sum(said["parts"].values()) == pytest.approx(said["step_s"])
    assert said["tokens_per_s"] == pytest.approx(32 * 8192 / said["step_s"])
    assert 0.2 < said["mfu"] < 0.7
    assert said["days"] == pytest.approx(300e9 / said["tokens_per_s"] / 86_400)
    memory = said["memory"]
    assert sum(memory["parts_bytes"].values()) == memory["total_bytes"] == 80 * 2**30 - memory["free_bytes"]
    options = said["options"]
    assert options.keys() == {"layout", "transformer", "site", "engine"}
    assert (options["layout"]["tp"], options["layout"]["dp"], options["layout"]["micro_batches"]) == (2, 8, 4)
    assert options["site"]["spec"] == "superpod:su=1,servers=2,switch=QM9700"
    assert options["engine"] == "flow"


def test_csv_has_one_row(capsys):
    app(["train", *SMALL, "--csv"])
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert float(row["step_s"]) > 0
    assert float(row["parts.products"]) > 0
    assert row["options.layout.tp"] == "2"


def test_without_a_layout_the_fastest_is_taken(capsys):
    found = json_of(capsys, "llama3-8b", "--gpus", "8")
    given = json_of(capsys, "llama3-8b", "--gpus", "8", "--tp", "2")
    assert found["step_s"] <= given["step_s"]


def test_copies_say_how_many_gpus(capsys):
    said = json_of(capsys, "llama3-8b", "--dp", "4", "--tp", "4", "--engine", "analytic")
    assert said["gpus"] == 16


def test_flags_make_another_shape(capsys):
    said = json_of(capsys, *SMALL, "--layers", "16", "--vocab", "32000", "--engine", "analytic")
    shape = said["options"]["transformer"]
    assert (shape["layers"], shape["vocab"], shape["hidden"]) == (16, 32000, 4096)


def test_a_fabric_of_ones_own_is_trained_on(capsys):
    spec = "fat-tree:hosts=4,server=dgx-a100"
    whole = json_of(capsys, "llama3-8b", "--tp", "2", "--fabric", spec, "--engine", "analytic")
    assert (whole["gpus"], whole["options"]["site"]["gpu"]) == (32, "A100")
    part = json_of(capsys, *SMALL, "--fabric", spec, "--engine", "analytic")
    assert (part["gpus"], part["options"]["site"]["servers"]) == (16, 2)


def test_what_is_not_hidden_takes_longer(capsys):
    hidden = json_of(capsys, *SMALL, "--engine", "analytic")
    shown = json_of(capsys, *SMALL, "--engine", "analytic", "--no-overlap-grad-reduce", "--no-overlap-param-gather")
    assert shown["parts"]["dp"] > hidden["parts"]["dp"]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("llama3-70c", "--gpus", "8"), UnknownName, "did you mean llama3-70b"),
        (("no/config.json", "--gpus", "8"), FileError, "no such file"),
        (("llama3-8b",), ConfigError, "say how many, --gpus 1024"),
        (
            ("llama3-8b", "--gpus", "12"),
            ConfigError,
            "12 is not a multiple of the 8 GPUs of a dgx-h100; nearest: 8 or 16",
        ),
        (("llama3-8b", "--gpus", "16", "--fabric", "ndrr"), UnknownName, "did you mean ndr"),
        (("llama3-8b", "--gpus", "16", "--fabric", "superpd:su=1"), UnknownName, "did you mean superpod"),
        (("llama3-8b", "--gpus", "512", "--fabric", "superpod:su=1"), ConfigError, "32 × dgx-h100 with 256"),
        (("llama3-8b", "--fabric", "fat-tree:hosts=16"), ConfigError, "no servers with GPUs"),
        (("llama3-8b", "--gpus", "16", "--server", "host"), ConfigError, "training runs on dgx-a100"),
        (("llama3-8b", "--gpus", "16", "--tp", "3"), ConfigError, r"not a multiple of tp\*pp\*cp"),
        (("gpt3-175b", "--gpus", "64", "--tp", "8"), ConfigError, r"86\.\d GB too many .*\n.*It fits with zero = 3"),
        (("llama3-70b", "--gpus", "8"), ConfigError, r"in no layout .* GB more than it has"),
        (("llama3-8b", "--gpus", "512", "--tp", "2", "--engine", "packet"), ConfigError, "takes 256 at most"),
        (("llama3-8b", "--gpus", "16", "--engine", "flaw"), UnknownName, "did you mean flow"),
        (("llama3-8b", "--gpus", "16", "--dp", "4"), ConfigError, "leave out --dp"),
        (("llama3-8b", "--gpus", "16", "--tokens", "15X"), ConfigError, "write 500M, 300B or 15T"),
    ],
)
def test_a_wrong_input_is_refused_before_anything_runs(arguments, error, says, monkeypatch):
    def fail(*_args, **_options):
        raise AssertionError("something ran")

    monkeypatch.setattr("weft.training.job.run_step", fail)
    monkeypatch.setattr("weft.training.search.run_step", fail)
    with pytest.raises(error, match=says):
        app(["train", *arguments])
