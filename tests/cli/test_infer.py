"""`weft infer`, as a user runs it."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest

import weft
from weft.cli import app
from weft.errors import ConfigError

SMALL = ("llama3-8b", "--concurrency", "32")


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    app(["infer", *arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def test_first_screen_is_the_answer_one_table_and_one_line_on_trust(capsys):
    app(["infer", *SMALL])
    answer, title, *rows, trust = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"llama3-8b on 1 × H100 \(1 × dgx-h100\) gives \S+ tokens/s \(90 % band \S+ to \S+\), \S+ tokens/s per GPU, "
        r"TTFT \S+ m?s, TPOT \S+ ms, with 32 users, prompts of 1,024 and answers of 128 tokens\. "
        r"Most of the time: \w+\.",
        answer,
    )
    assert title == "Where the time goes: tp 1"
    assert sum("──" in row for row in rows) == 1
    assert trust.startswith("How far to trust it: assumes vLLM")


def test_parts_add_up_to_the_step_and_options_are_in_the_json(capsys):
    data = json_of(capsys, *SMALL, "--weights", "fp8")
    assert sum(data["parts_s"].values()) == pytest.approx(data["step_s"])
    assert data["options"]["formats"] == {
        "weights": "fp8",
        "dense_weights": "fp8",
        "kv": "bf16",
        "products": "fp8",
    }
    low, high = data["bands"]["tokens_per_s"]
    assert low < data["tokens_per_s"] <= high


def test_python_gives_the_same_as_the_command(capsys):
    run = weft.infer("llama3-8b", concurrency=32)
    assert json_of(capsys, *SMALL)["tokens_per_s"] == pytest.approx(run.tokens_per_s)


def test_fabrics_are_compared_the_fastest_first(capsys):
    runs = json_of(capsys, "llama3-70b", "--tp", "16", "--batch-size", "8", "--fabrics", "eth-100-tcp,ndr")["runs"]
    assert [run["fabric"] for run in runs] == ["ndr", "eth-100-tcp"]


def test_pareto_curve_falls_and_is_drawn(capsys, tmp_path):
    picture = tmp_path / "pareto.svg"
    app(["infer", "llama3-8b", "--gpus", "2", "--pareto", "--csv", "--picture", str(picture)])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    users, gpus = ([float(row[name]) for row in rows] for name in ("tokens_per_s_per_user", "tokens_per_s_per_gpu"))
    assert users == sorted(users, reverse=True)
    assert gpus == sorted(gpus)
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


def test_one_phase_alone_is_predicted(capsys):
    job = ("deepseek-v3", "--server", "dgx-h200", "--dp", "8", "--ep", "8", "--weights", "fp8", "--input-len", "4096")
    decode = json_of(capsys, *job, "--phase", "decode", "--batch-size", "512")
    prefill = json_of(capsys, *job, "--phase", "prefill")
    assert decode["ttft_s"] is None
    assert prefill["tpot_s"] is None
    assert prefill["tokens_per_s"] > decode["tokens_per_s"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "which model"),
        (("llama3-8b", "--pareto", "--gpus", "8", "--tp", "2"), "--pareto tries all layouts"),
        (("llama3-8b", "--pareto"), "--pareto needs --gpus"),
        (("llama3-8b", "--picture", "x.svg"), "--picture draws the curve of --pareto"),
        (("llama3-8b", "--acceptance", "0.5"), "--acceptance is of draft tokens"),
        (("llama3-8b", "--imbalance", "1.2"), "--imbalance is of experts"),
        (("llama3-8b", "--batch-size", "8", "--concurrency", "8"), "not both"),
        (("llama3-8b", "--phase", "decode"), "--phase decode needs --batch-size"),
        (("llama3-8b", "--phase", "prefill", "--batch-size", "8"), "--batch-size changes nothing"),
        (("llama3-8b", "--phase", "decode", "--batch-size", "8", "--output-len", "5"), "need both phases"),
        (("llama3-8b", "--dp", "2"), "--dp and --ep share experts"),
        (("llama3-8b", "--overlap"), "--overlap hides dispatch and combine"),
        (("llama3-8b", "--input-len", "4000000"), "needs more KV cache than a replica has"),
        (("llama3-8b", "--network", "tcp"), "--network changes nothing"),
        (("llama3-8b", "--gpus", "16", "--tp", "8", "--engine", "packet"), "--engine changes nothing"),
        (("llama3-8b", "--kv", "fp3"), "--kv format"),
    ],
)
def test_wrong_options_are_refused_with_the_flag(arguments, message):
    with pytest.raises(ConfigError, match=message):
        app(["infer", *arguments])
