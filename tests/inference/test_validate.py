"""Predictions beside published figures, as `weft infer --validate` prints them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from weft.calibration.groups import GroupErrors
from weft.cli import app
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.inference.accuracy import class_errors, source_errors
from weft.inference.band import band_of, pace_band
from weft.inference.deployment import find_deployment
from weft.inference.load import Load, serve
from weft.inference.replay import replay
from weft.inference.step import Step
from weft.inference.validate import published, validate


@pytest.fixture(scope="module")
def classes() -> dict[str, GroupErrors]:
    return {row.name: row for row in class_errors()}


@pytest.fixture(scope="module")
def sources() -> dict[str, GroupErrors]:
    return {row.name: row for row in source_errors()}


def test_the_calibration_page_has_every_source_and_class(classes, sources):
    document = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text(encoding="utf-8")
    for row in (*classes.values(), *sources.values()):
        assert " | ".join(row.left_out_cells) in document, row.name


def test_every_published_row_is_predicted():
    metrics = sum(len({"tokens_per_s", "ttft_s", "tpot_s"} & {*run.columns}) * len(run.rows) for run in published())
    assert len(validate()) == metrics > 450


def test_static_batches_are_within_fifteen_percent(classes):
    assert classes["throughput, static batch"].left_out.mean_error < 0.15


def test_the_published_gain_by_kernels_of_grouped_queries_is_predicted():
    after, before = (
        next(f.predicted for f in validate() if f.source == "xqa" and f.load.output == 2048 and suffix in f.run)
        for suffix in ("dgx-h200", "without XQA")
    )
    assert after / before == pytest.approx(2_941 / 1_227, rel=0.02)


def test_static_batches_of_preliminary_h200s_are_explained_by_the_memory_rate_of_an_h100():
    """Decision 152: with it all rows of this source are within 11 %, and up to 38 % too fast without."""
    errors = []
    for run in published():
        if run.file != "xqa":
            continue
        deployment = find_deployment(run.model, server=run.server, framework=run.framework, **run.deployment)
        entry = msgspec.structs.replace(deployment.gpu.entry, memory_gbyte_s=catalog.gpu("H100").memory_gbyte_s)
        vars(deployment)["gpu"] = replace(deployment.gpu, entry=entry)
        for prompt, answer, batch, measured in run.rows:
            load = Load(input=int(prompt), output=int(answer), batch=int(batch))
            errors.append(serve(Step(deployment), load).output_tokens_per_s / measured - 1)
    assert [round(error, 2) for error in errors] == [0.01, 0.10, 0.03, 0.02]
    without = [figure.error for figure in validate() if figure.source == "xqa"]
    assert [round(error, 2) for error in without] == [0.09, 0.38, 0.35, 0.38]


def test_throughput_offline_is_within_fifteen_percent_with_its_source_left_out(classes):
    offline = classes["throughput, offline"]
    assert offline.figures > 300
    assert offline.left_out.mean_error < 0.15
    assert offline.in_bands / offline.figures > 0.85


@pytest.mark.parametrize(
    ("source", "most"),
    [("trtllm", 0.14), ("mlperf", 0.14), ("deepseek", 0.2), ("mooncake", 0.15), ("llmservingsim", 0.15)],
)
def test_sources_with_mature_software_are_as_accurate_as_documented(sources, source, most):
    assert sources[source].left_out.mean_error < most


@pytest.mark.parametrize("metric", ["TTFT", "TPOT"])
def test_means_of_requests_in_time_are_within_twenty_percent(classes, metric):
    assert classes[f"{metric}, requests in time"].left_out.mean_error < 0.2


def test_one_card_serves_a_recorded_load_as_vllm_does_without_a_constant_of_the_run():
    errors = [figure.error for figure in validate() if figure.source == "llmservingsim" and "1 ×" in figure.run]
    assert len(errors) == 4
    assert max(map(abs, errors)) < 0.08


def test_measured_latencies_on_one_card_lie_in_the_range_of_bands_and_on_two_within_a_twentieth_above():
    """`weft infer --bands`: no latency in time, and no figure of this source, makes the band of the steps."""
    for run in (each for each in published() if each.trace):
        deployment = find_deployment(
            run.model, server=run.server, gpus=run.gpus, framework=run.framework, **run.deployment
        )
        band = pace_band(deployment)
        least, most = (replay(deployment, run.trace, pace=pace) for pace in (band.low, band.high))
        for metric, measured in zip(run.columns, run.rows[0], strict=True):
            assert least[metric] < measured < (1.06 if deployment.tp > 1 else 1) * most[metric]


def test_mlperf_server_is_compared_at_the_highest_rate_within_its_limits(classes):
    assert classes["throughput, rate within limits"].figures == 22
    assert classes["throughput, rate within limits"].left_out.mean_error < 0.2


def test_trials_make_no_bands_and_are_counted_apart(sources):
    trials = {run.file for run in published() if run.trial}
    assert trials == {"inferencex"}
    assert sources["all but trials"].figures == sources["all"].figures - sources["inferencex"].figures
    assert sources["all but trials"].in_bands / sources["all but trials"].figures > 0.85
    wide = band_of(("throughput, closed loop", "Hopper", "experts"))
    assert wide.high < 3  # with the trial about 7


def test_validation_prints_the_worst_class_first(capsys):
    app(["infer", "--validate"])
    printed = capsys.readouterr().out
    assert printed.index("throughput, trial") < printed.index("throughput, offline")
    assert "KV hand-offs: 9 figures of one source" in printed


def test_data_has_every_figure_and_every_source(capsys):
    app(["infer", "--validate", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert len(data["rows"]) == len(validate())
    assert data["handoffs"]["mean_error"] < 0.1
    assert {row["name"] for row in data["sources"]} == {*(run.file for run in published()), "all but trials", "all"}


def test_validation_takes_no_model():
    with pytest.raises(ConfigError, match="--validate prints published figures and runs nothing"):
        app(["infer", "llama3-8b", "--validate"])
