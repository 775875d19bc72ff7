"""Framework profiles against steps that benchmarks/gpu_step.py measured on an H200: nothing was fitted to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weft.cli import app

LINES = (Path(__file__).parent / "gpu_steps.jsonl").read_text().splitlines()
ROWS: list[dict[str, Any]] = [json.loads(line) for line in LINES]
MODELS = [row for row in ROWS if "hidden" in row]
WAYS = {  # framework -> compiled, attention, weights in float32: of compute, and of the optimizer
    "megatron": ((True, "cudnn", False), (True, "cudnn", False)),
    "torchtitan": ((True, "flash", True), (True, "flash", True)),
    "fsdp-2025": ((False, "flash", False), (False, "flash", True)),  # FSDP casts its shards before it gathers them
}


def predict_ms(capsys: pytest.CaptureFixture[str], model: dict[str, Any], framework: str) -> float:
    flags = {name: model[name] for name in ("layers", "hidden", "ffn", "heads", "vocab", "seq")}
    flags |= {"kv-heads": model["kv_heads"], "micro-batch": model["batch"], "global-batch": model["batch"], "gpus": 1}
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    preset = "llama3-8b" if model["is_gated"] else "gpt3-175b"
    app(["train", preset, *words, "--server", "dgx-h200", "--framework", framework, "--json"])
    return 1e3 * float(json.loads(capsys.readouterr().out)["step_s"])


def measured_ms(model: dict[str, Any], framework: str) -> float:
    """Return the milliseconds of forward, backward and the optimizer."""

    def row_of(way: tuple[bool, str, bool]) -> dict[str, Any]:
        rows = (row for row in ROWS if row.get("model") == model["name"])
        return next(row for row in rows if (row["compiled"], row["attention"], row["autocast"]) == way)

    compute, update = map(row_of, WAYS[framework])
    return float(compute["compute_ms"] + update["update_ms"])


def test_predicted_steps_are_within_a_seventh_of_measured_ones_and_5_percent_in_the_mean(capsys):
    errors = [
        predict_ms(capsys, model, framework) / measured_ms(model, framework) - 1
        for model in MODELS
        for framework in WAYS
    ]
    assert len(errors) == 18
    assert max(map(abs, errors)) < 1 / 7
    assert sum(map(abs, errors)) / len(errors) < 0.055
    assert abs(sum(errors)) / len(errors) < 0.03
