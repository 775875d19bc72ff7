"""A job on a site."""

import pytest

from weft.errors import ConfigError
from weft.sim.engines import ENGINES
from weft.training.job import run_job
from weft.training.parallel import Layout
from weft.training.site import find_site
from weft.training.transformer import find


@pytest.mark.parametrize("fabric", ["ndr", "roce-400"])
def test_engines_agree_where_nothing_is_in_the_way(fabric):
    """Below one leaf for each rail no two flows share a cable."""
    layout = Layout(gpus=16, tp=2, pp=2, global_batch=32, seq=4096)
    site = find_site(fabric, gpus=16)
    steps = [run_job(find("llama3-8b"), layout, site, engine).step.step_s for engine in ENGINES.values()]
    assert steps == pytest.approx([steps[0]] * 3, rel=0.01)


def test_a_slower_fabric_takes_longer():
    layout = Layout(gpus=64, tp=8, global_batch=64, seq=8192, zero=2)
    times = [
        run_job(find("llama3-70b"), layout, find_site(name, gpus=64)).step.parts["dp"]
        for name in ("ndr", "hdr", "eth-100-tcp")
    ]
    assert times[0] < times[1] < times[2]


def test_a_model_that_does_not_fit_is_refused_by_how_much():
    with pytest.raises(ConfigError, match="GB too many"):
        run_job(find("gpt3-175b"), Layout(gpus=16, tp=8, global_batch=16, seq=2048), find_site("ndr", gpus=16))


@pytest.mark.slow
def test_eight_thousand_gpus_by_flows():
    layout = Layout(gpus=8_192, tp=4, pp=8, vp=6, global_batch=16_384, seq=2048)
    run = run_job(find("gpt3-175b"), layout, find_site("ndr", gpus=8_192))
    assert 0.3 < run.step.mfu < 0.6
    assert run.step.parts["dp"] < 0.1 * run.step.step_s
