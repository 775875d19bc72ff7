"""`weft train`, as a user runs it."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest

import weft
from weft.cli import app
from weft.errors import ConfigError, FileError, UnknownName

SMALL = ("llama3-8b", "--gpus", "16", "--tp", "2")


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    app(["train", *arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def test_first_screen_is_the_answer_one_table_and_one_line_on_trust(capsys):
    app(["train", *SMALL, "--tokens", "1.5T"])
    answer, title, *rows, trust = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"A step of llama3-8b takes \S+ s \(90 % band \S+ to \S+\) on 16 × H100 \(2 × dgx-h100, ndr\): \S+ tokens/s, "
        r"MFU \S+ %\. 1\.5T tokens take \S+ days \(\S+ to \S+\), without failures\.",
        answer,
    )
    assert title == "Where the time goes: tp 2, dp 8; micro-batch 1 × 4; ZeRO 1"
    assert sum("──" in row for row in rows) == 1
    assert any("matrix products" in row for row in rows)
    assert re.fullmatch(
        r"How far to trust it: Assumes Megatron Core .*; see --framework\. Bands are from published steps of \d "
        r"sources with no experts, Hopper, megatron\. "
        r"Not included: .* More: --explain",
        trust,
    )


def test_explain_adds_memory_rates_engine_and_seed(capsys):
    app(["train", *SMALL, "--explain"])
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("of 80 GB on each GPU, fits with ", "TFLOP/s per GPU", "flow engine over superpod:su=1", "seed 1"):
        assert words in printed
    assert "--explain" not in printed


def test_faults_replace_the_parts_of_the_step(capsys):
    app(["train", *SMALL, "--engine", "analytic", "--fault", "slow:leaf1/1=4xHDR"])
    printed = capsys.readouterr().out
    assert printed.startswith("A step of llama3-8b takes ")
    assert "\nFaults\n" in printed
    assert "Where the time goes" not in printed


def test_json_has_the_figures_the_parts_the_options_the_seed_and_the_version(capsys):
    output = json_of(capsys, *SMALL, "--seed", "7", "--tokens", "300B")
    assert (output["weft"], output["seed"], output["model"], output["gpus"]) == (weft.__version__, 7, "llama3-8b", 16)
    assert sum(output["parts"].values()) == pytest.approx(output["step_s"])
    assert output["tokens_per_s"] == pytest.approx(32 * 8192 / output["step_s"])
    assert 0.2 < output["mfu"] < 0.7
    assert output["days"] == pytest.approx(300e9 / output["tokens_per_s"] / 86_400)
    memory = output["memory"]
    assert sum(memory["parts_bytes"].values()) == memory["total_bytes"] == 80 * 2**30 - memory["free_bytes"]
    options = output["options"]
    assert options.keys() == {"layout", "transformer", "site", "engine", "slowest"}
    assert (options["layout"]["tp"], options["layout"]["dp"], options["layout"]["micro_batches"]) == (2, 8, 4)
    assert options["site"]["spec"] == "superpod:su=1,servers=2,leaves=1,switch=QM9700"
    assert options["engine"] == "flow"


def test_csv_has_one_row(capsys):
    app(["train", *SMALL, "--csv"])
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert float(row["step_s"]) > 0
    assert float(row["parts.products"]) > 0
    assert row["options.layout.tp"] == "2"


def test_without_a_layout_the_fastest_is_taken(capsys):
    result = json_of(capsys, "llama3-8b", "--gpus", "8", "--seq", "2048")
    arguments = json_of(capsys, "llama3-8b", "--gpus", "8", "--seq", "2048", "--tp", "2")
    assert result["step_s"] <= arguments["step_s"]


def test_copies_say_how_many_gpus(capsys):
    output = json_of(capsys, "llama3-8b", "--dp", "4", "--tp", "4", "--engine", "analytic")
    assert output["gpus"] == 16


def test_flags_make_another_shape(capsys):
    output = json_of(capsys, *SMALL, "--layers", "16", "--vocab", "32000", "--engine", "analytic")
    shape = output["options"]["transformer"]
    assert (shape["layers"], shape["vocab"], shape["hidden"]) == (16, 32000, 4096)


def test_a_fabric_of_ones_own_is_trained_on(capsys):
    spec = "fat-tree:hosts=4,server=dgx-a100"
    whole = json_of(capsys, "llama3-8b", "--tp", "2", "--fabric", spec, "--engine", "analytic")
    assert (whole["gpus"], whole["options"]["site"]["gpu"]) == (32, "A100")
    part = json_of(capsys, *SMALL, "--fabric", spec, "--engine", "analytic")
    assert (part["gpus"], part["options"]["site"]["servers"]) == (16, 2)


def test_a_dump_is_trained_on_by_the_servers_that_are_named(capsys, tmp_path):
    """`weft nccl` and `weft compare` do the same."""
    path = tmp_path / "dump.txt"
    app(["export", "star:hosts=3,server=dgx-a100", "-f", "ibnetdiscover", "-o", str(path)])
    capsys.readouterr()
    flags = ("llama3-8b", "--tp", "2", "--fabric", str(path), "--as", "dgx*=dgx-a100", "--engine", "analytic")
    output = json_of(capsys, *flags, "--servers", "dgx2..3")
    assert (output["gpus"], output["options"]["site"]["gpu"]) == (16, "A100")
    assert output["options"]["site"]["names"] == ["dgx2", "dgx3"]
    with pytest.raises(ConfigError, match="--scale stands instead of --servers"):
        app(["train", *flags, "--servers", "2", "--scale", "8,16"])


def test_exposed_communication_takes_longer(capsys):
    hidden = json_of(capsys, *SMALL, "--engine", "analytic")
    output = json_of(capsys, *SMALL, "--engine", "analytic", "--no-overlap-grad-reduce", "--no-overlap-param-gather")
    assert output["parts"]["dp"] > hidden["parts"]["dp"]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("llama3-70c", "--gpus", "8"), UnknownName, "did you mean llama3-70b"),
        (("no/config.json", "--gpus", "8"), FileError, "no such file"),
        (("llama3-8b",), ConfigError, "give --gpus, as in --gpus 1024"),
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
        (("llama3-8b", "--gpus", "16", "--precision", "fp4"), UnknownName, "no precision 'fp4'; did you mean"),
        (("llama3-8b", "--gpus", "16", "--dp", "4"), ConfigError, "leave out --dp"),
        (
            ("llama3-8b", "--gpus", "16", "--fabric", "ndr", "--as", "x=dgx-a100"),
            ConfigError,
            "servers of a file: give",
        ),
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


def test_fabrics_side_by_side(capsys, tmp_path):
    path = tmp_path / "bars.svg"
    flags = (*SMALL, "--engine", "analytic", "--fabrics", "eth-100-tcp,ndr")
    runs = json_of(capsys, *flags)["runs"]
    assert [run["fabric"] for run in runs] == ["eth-100-tcp", "ndr"]
    assert runs[1]["slower"] == 1.0 < runs[0]["slower"] == pytest.approx(runs[0]["step_s"] / runs[1]["step_s"])
    app(["train", *flags, "--picture", str(path), "--tokens", "1T"])
    answer, layout, *rows = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"A step of llama3-8b on 16 × H100 takes \S+ s over ndr, the fastest \(MFU \S+ %\)\. "
        r"Over eth-100-tcp, the slowest, it takes \S+ times as long\.",
        answer,
    )
    assert layout == "tp 2; micro-batch 1; ZeRO 1"
    heads = next(row for row in rows if "fabric" in row)
    assert " ".join(heads.split()) == "fabric step s 90 % band ratio MFU % days waits %"
    assert [row.split()[0] for row in rows if row.startswith((" ndr", " eth"))] == ["ndr", "eth-100-tcp"]
    assert rows[-1] == f"{path}: written"
    assert "MFU" in path.read_text()


def test_a_scaling_curve(capsys, tmp_path):
    path = tmp_path / "scale.svg"
    flags = ("llama3-8b", "--tp", "2", "--engine", "analytic", "--scale", "8..32")
    weak = json_of(capsys, *flags)["runs"]
    assert [run["gpus"] for run in weak] == [8, 16, 32]
    assert [run["options"]["layout"]["global_batch"] for run in weak] == [16, 32, 64]
    assert weak[0]["efficiency"] == 1.0 >= weak[-1]["efficiency"] > 0.9
    strong = json_of(capsys, *flags, "--global-batch", "64", "--strong")["runs"]
    assert {run["options"]["layout"]["global_batch"] for run in strong} == {64}
    assert strong[0]["step_s"] > 3 * strong[-1]["step_s"]
    app(["train", *flags, "--picture", str(path)])
    printed = capsys.readouterr().out
    assert printed.startswith("From 8 to 32 GPUs over ndr, llama3-8b keeps ")
    assert "scaling %" in printed
    assert "weak scaling" in path.read_text()


def test_the_best_layouts(capsys):
    flags = ("llama3-8b", "--gpus", "8", "--search", "--micro-batch", "1", "--vp", "1")
    messages = json_of(capsys, *flags)
    assert (messages["seed"], messages["server"]) == (1, "dgx-h100")
    assert messages["spec"] == "superpod:su=1,servers=1,leaves=1,switch=QM9700"
    result = messages["layouts"]
    times = [item["step_s"] for item in result]
    assert times == sorted(times)
    assert {item["micro_batch"] for item in result} == {1}
    app(["train", *flags])
    printed = capsys.readouterr().out
    assert re.match(rf"The fastest of {len(result)} layouts of llama3-8b .* MFU \S+ %: --\S+ \d", printed)


def test_a_timeline_and_a_trace(capsys, tmp_path):
    picture, trace = tmp_path / "step.svg", tmp_path / "step.json"
    app(
        [
            "train",
            "llama3-8b",
            "--gpus",
            "8",
            "--tp",
            "2",
            "--pp",
            "2",
            "--timeline",
            str(picture),
            "--trace",
            str(trace),
        ]
    )
    assert capsys.readouterr().out.endswith(f"{picture}: written\n{trace}: written\n")
    for words in ("stage 0", "stage 1", "forward", "backward", "gradients summed"):
        assert words in picture.read_text()
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"forward 1", "backward 8", "gradients", "parameters", "optimizer"} <= names


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "which model"),
        (("llama3-8b", "--scale", "64..8"), "not a growing list of numbers of GPUs"),
        (("llama3-8b", "--scale", "8..x"), "write 8..16384"),
        (("llama3-8b", "--scale", "8,16", "--gpus", "8"), "--scale stands instead of --gpus"),
        (("llama3-8b", "--fabrics", "ndr,hdr", "--fabric", "ndr"), "--fabrics stands instead of --fabric"),
        (("llama3-8b", "--gpus", "8", "--fabrics", "ndr,ndr"), "each once"),
        (("llama3-8b", "--gpus", "8", "--search", "--fabrics", "ndr"), "leave out one of them"),
        (("llama3-8b", "--gpus", "8", "--picture", "x.png"), "add one of them"),
        (("llama3-8b", "--gpus", "8", "--strong"), "add --scale"),
        (("llama3-8b", "--gpus", "8", "--timeline", "x.gif"), "use a suffix of"),
        (("llama3-8b", "--gpus", "8", "--trace", "x.png"), "use a suffix of .json"),
        (
            ("llama3-8b", "--scale", "8,16384", "--tp", "2", "--fabrics", "ndr,eth-100-tcp"),
            "eth-100-tcp cannot be cabled",
        ),
        (("llama3-8b", "--scale", "8..32", "--tp", "2", "--pp", "16"), "is not a multiple of"),
    ],
)
def test_contradicting_options_are_refused(arguments, says):
    with pytest.raises(ConfigError, match=says):
        app(["train", *arguments])


def test_validate_prints_published_steps_beside_wefts(capsys):
    messages = json_of(capsys, "--validate")
    assert len(messages["rows"]) > 40
    assert messages["mean_error"] < 0.1
    row = next(row for row in messages["rows"] if row["name"] == "gpt3-175b, 128 H100, BF16, 25.02")
    assert row["error"] == pytest.approx(row["step_s"] / 8.309 - 1)
    app(["train", "--validate"])
    printed = capsys.readouterr().out
    assert "gpt3-175b, 128 H100, BF16, 25.02" in printed
    assert "Errors by source" in printed
    assert f"{len(messages['rows'])} of {len(messages['rows'])} steps fit into their GPUs" in " ".join(printed.split())


def test_all_wait_for_a_slow_gpu(capsys):
    flags = (*SMALL, "--engine", "analytic")
    usual, slow = (json_of(capsys, *flags, "--slowest", times) for times in ("1", "1.3"))
    assert slow["step_s"] / usual["step_s"] == pytest.approx(1.3, abs=0.02)
    assert slow["options"]["slowest"] == 1.3
    with pytest.raises(ConfigError, match=r"--slowest 0\.9 must be 1 or more"):
        app(["train", *flags, "--slowest", "0.9"])
