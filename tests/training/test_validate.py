"""Published steps: nothing is fitted to a row, and the misses are in docs/training.md."""

from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean

import msgspec
import pytest

from weft.training.accuracy import class_errors, report, source_errors, source_fits
from weft.training.validate import SOURCES, leave_out, predict, published, validate


@pytest.fixture(scope="module")
def rows():
    return {row.published.name: row for row in validate()}


@pytest.fixture(scope="module")
def by_source():
    return {row.name: row for row in source_errors()}


def test_a_step_is_within_ten_percent_in_the_mean(by_source):
    assert by_source["all"].figures == len(published()) > 200
    assert by_source["all"].known.mean_error < 0.07
    assert abs(by_source["all"].known.bias) < 0.05


@pytest.mark.parametrize("source", SOURCES)
def test_so_is_each_source(by_source, source):
    assert by_source[source].known.mean_error < 0.10


def test_left_out_sources_are_within_ten_percent_in_the_mean(by_source):
    assert by_source["all"].left_out.mean_error < 0.10


def test_nine_of_ten_bands_hold_with_their_source_left_out(by_source):
    for row in by_source.values():
        assert row.in_bands / row.figures >= 0.85, row.name
    assert by_source["all"].in_bands / by_source["all"].figures <= 0.98


def test_the_calibration_page_has_every_source_and_class(by_source):
    document = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text(encoding="utf-8")
    for row in (*by_source.values(), *class_errors()):
        assert " | ".join(row.left_out_cells) in document, row.name


def test_a_source_is_left_out_with_the_constants_that_it_was_used_for():
    bloom = next(job for job in published() if job.cluster == "bloom")
    assert predict(bloom, left_out=True).step_s < 0.95 * predict(bloom).step_s
    unused = [(row, left_out) for row, left_out in zip(validate(), leave_out(), strict=True) if row.source == "dgxc"]
    assert all(row.predicted == left_out.predicted for row, left_out in unused)


@pytest.mark.parametrize(("gpus", "slower"), [(8, False), (16, True)])
def test_a_fabric_that_is_not_of_the_adapters_matters_beyond_a_server(gpus, slower):
    job = next(job for job in published() if job.name == "llama3-8b, 8 H100, BF16, 24.11.1")
    job = msgspec.structs.replace(job, layout={**job.layout, "gpus": gpus})
    steps = [predict(msgspec.structs.replace(job, fabric=fabric)) for fabric in ("", "eth-100-tcp")]
    assert (steps[1].step_s > 1.01 * steps[0].step_s) == slower


def test_data_has_every_step_and_every_source():
    data = report()
    assert len(data["rows"]) == len(published())
    assert [row["name"] for row in data["sources"]][-1] == "all"
    assert sum(row["figures"] for row in data["classes"]) == len(published())
    assert {row["name"] for row in data["classes"]} >= {"experts, Blackwell", "no experts, Hopper"}


def test_every_published_step_fits_into_memory_by_its_recipe():
    fits = source_fits()
    assert [row.source for row in fits] == list(SOURCES)
    assert [row.others for row in fits] == [()] * len(SOURCES)
    assert sum(row.fit for row in fits) == len(published())
    assert report()["memory"] == [asdict(row) for row in fits]


def test_a_step_that_does_not_fit_is_named(rows, monkeypatch):
    name = "llama3-70b, 64 H100, FP8, 26.02.01"
    figure = rows[name]
    layout = replace(figure.step.layout, pp=1, vp=1)
    large = replace(figure, step=replace(figure.step, layout=layout))
    monkeypatch.setattr("weft.training.accuracy.validate", lambda: (large,))
    bridge = next(row for row in source_fits() if row.source == "bridge")
    assert (bridge.fit, bridge.steps, bridge.others) == (0, 1, (name,))


@pytest.mark.parametrize("model", ["gpt3-175b", "llama3-8b", "nemotron4-15b", "llama3-405b"])
def test_so_is_each_family(rows, model):
    errors = [row.error for row in rows.values() if row.published.model == model]
    assert mean(map(abs, errors)) < 0.10


def test_gpt3_is_within_ten_percent_on_every_number_of_gpus(rows):
    assert all(abs(row.error) < 0.10 for row in rows.values() if row.published.model == "gpt3-175b")


@pytest.mark.parametrize("release", ["24.11.1", "25.02"])
def test_scaling_loss_from_128_to_2048_gpus_is_within_two_points(rows, release):
    few, many = (rows[f"gpt3-175b, {gpus} H100, BF16, {release}"] for gpus in (128, 2048))
    measured = many.published.step_s / few.published.step_s - 1
    predicted = many.step.step_s / few.step.step_s - 1
    assert abs(predicted - measured) < 0.02
    assert predicted > 0
