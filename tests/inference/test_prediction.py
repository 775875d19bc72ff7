"""Predictions of a deployment on several fabrics."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.inference.load import Load
from weft.inference.prediction import compare_fabrics

LOAD = Load(input=256, output=16, concurrency=2)


@pytest.mark.parametrize("fabrics", [(), ("ndr", "ndr"), ("ndr", "roce-400", "ndr")])
def test_fabrics_to_compare_are_named_once_each(fabrics):
    with pytest.raises(ConfigError, match="name at least one fabric, and each once"):
        compare_fabrics("llama3-8b", fabrics, LOAD)


def test_the_fastest_fabric_comes_first():
    runs = compare_fabrics("llama3-70b", ("eth-100-tcp", "ndr"), LOAD, server="dgx-h100", gpus=16, tp=16)
    assert [run.deployment.site.interconnect.name for run in runs] == ["ndr", "eth-100-tcp"]
    assert runs[0].tokens_per_s > runs[1].tokens_per_s
