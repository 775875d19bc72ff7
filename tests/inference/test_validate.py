"""Predictions beside published figures, as `weft infer --validate` prints them."""

from __future__ import annotations

import json

import pytest

from weft.calibration.groups import GroupErrors
from weft.cli import app
from weft.errors import ConfigError
from weft.inference.accuracy import class_errors, source_errors
from weft.inference.validate import published, validate


@pytest.fixture(scope="module")
def classes() -> dict[str, GroupErrors]:
    return {row.name: row for row in class_errors()}


@pytest.fixture(scope="module")
def sources() -> dict[str, GroupErrors]:
    return {row.name: row for row in source_errors()}


def test_every_published_row_is_predicted():
    metrics = sum(len({"tokens_per_s", "ttft_s", "tpot_s"} & {*run.columns}) * len(run.rows) for run in published())
    assert len(validate()) == metrics > 450


def test_throughput_offline_is_within_fifteen_percent_with_its_source_left_out(classes):
    offline = classes["throughput, offline"]
    assert offline.figures > 300
    assert offline.left_out.mean_error < 0.15
    assert offline.in_bands / offline.figures > 0.85


@pytest.mark.parametrize(("source", "most"), [("trtllm", 0.14), ("mlperf", 0.1), ("deepseek", 0.2)])
def test_sources_with_mature_software_are_as_accurate_as_documented(sources, source, most):
    assert sources[source].left_out.mean_error < most


def test_validation_prints_the_worst_class_first(capsys):
    app(["infer", "--validate"])
    printed = capsys.readouterr().out
    assert printed.index("throughput, closed loop") < printed.index("throughput, offline")


def test_data_has_every_figure_and_every_source(capsys):
    app(["infer", "--validate", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert len(data["rows"]) == len(validate())
    assert {row["name"] for row in data["sources"]} == {*(run.file for run in published()), "all"}


def test_validation_takes_no_model():
    with pytest.raises(ConfigError, match="--validate prints published figures and runs nothing"):
        app(["infer", "llama3-8b", "--validate"])
