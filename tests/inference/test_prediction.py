"""Predictions of a deployment on several fabrics."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.inference.deployment import find_deployment
from weft.inference.load import Load
from weft.inference.prediction import compare_fabrics, find_pareto, layouts

LOAD = Load(input=256, output=16, concurrency=2)


@pytest.mark.parametrize("fabrics", [(), ("ndr", "ndr"), ("ndr", "roce-400", "ndr")])
def test_fabrics_to_compare_are_named_once_each(fabrics):
    with pytest.raises(ConfigError, match="name at least one fabric, and each once"):
        compare_fabrics("llama3-8b", fabrics, LOAD)


def test_the_fastest_fabric_comes_first():
    runs = compare_fabrics("llama3-70b", ("eth-100-tcp", "ndr"), LOAD, server="dgx-h100", gpus=16, tp=16)
    assert [run.deployment.site.interconnect.name for run in runs] == ["ndr", "eth-100-tcp"]
    assert runs[0].tokens_per_s > runs[1].tokens_per_s


@pytest.mark.parametrize(("gpus", "most"), [(1, 1), (7, 4), (8, 8)])
def test_layouts_are_powers_of_two_up_to_the_gpus(gpus, most):
    assert max(sizes.get("tp", 1) for sizes in layouts(gpus)) == most
    assert max(sizes.get("dp", 1) for sizes in layouts(gpus)) == most


def test_runs_of_a_pareto_front_are_better_in_one_rate_each():
    front = find_pareto(lambda sizes: find_deployment("llama3-8b", server="dgx-h100", **sizes), 2, LOAD)
    assert len(front) > 1
    assert front == sorted(front, key=lambda run: -run.tokens_per_s_per_user)
    assert front == sorted(front, key=lambda run: run.tokens_per_s_per_gpu)


def test_a_model_that_fits_no_layout_has_no_pareto_front():
    with pytest.raises(ConfigError, match="no layout of up to 2 GPUs for each replica fits"):
        find_pareto(lambda sizes: find_deployment("llama3-405b", server="dgx-h100", **sizes), 2, LOAD)
