"""A job on several fabrics and at several sizes, from Python."""

import pytest

from weft.errors import ConfigError
from weft.sim.engines import find_engine
from weft.training.prediction import find_layouts, find_sites, predict
from weft.training.transformer import find

TP = {"tp": 2}


@pytest.fixture(scope="module")
def prediction():
    sites = find_sites(["ndr", "eth-100-tcp"], [8, 16], layout=TP)
    return predict(find("llama3-8b"), sites, TP, engine=find_engine("analytic"))


def test_runs_are_by_fabric_then_by_size(prediction):
    assert [(run.site.name, run.site.gpus) for run in prediction.runs] == [
        ("ndr", 8),
        ("ndr", 16),
        ("eth-100-tcp", 8),
        ("eth-100-tcp", 16),
    ]
    assert [run.layout.global_batch for run in prediction.curves[0].runs] == [16, 32]


def test_slowdown_is_relative_to_the_fastest_fabric_of_the_same_size(prediction):
    ndr, tcp = (curve.runs[1] for curve in prediction.curves)
    assert prediction.slowdown(ndr) == 1
    assert prediction.slowdown(tcp) == pytest.approx(tcp.step.step_s / ndr.step.step_s)


def test_report_has_a_row_for_each_run(prediction):
    rows = prediction.report(1e12)["runs"]
    assert [row["gpus"] for row in rows] == [8, 16, 8, 16]
    assert rows[0]["days"] == pytest.approx(1e12 / rows[0]["tokens_per_s"] / 86_400)


def test_progress_names_each_run():
    labels = []
    sites = find_sites(gpus=[8], layout=TP)
    predict(find("llama3-8b"), sites, TP, progress=lambda label, *_: labels.append(label))
    assert labels == ["flow engine over superpod:su=1,servers=1,leaves=1,switch=QM9700"]


def test_layouts_keep_the_fields_that_are_set():
    (site,) = find_sites(gpus=[8])[0]
    results = find_layouts(find("llama3-8b"), site, {"tp": 4, "micro_batch": 1, "vp": 1})
    assert {result.layout.tp for result in results} == {4}


def test_number_of_copies_gives_the_number_of_gpus():
    assert find_sites(layout={"tp": 4, "dp": 4})[0][0].gpus == 16
    with pytest.raises(ConfigError, match="there are 8 GPUs: leave out --dp"):
        find_sites(gpus=[8], layout={"tp": 4, "dp": 4})
