"""The band around a step."""

from __future__ import annotations

import re
from math import log

import pytest

from weft.collectives.kinds import Collective
from weft.sim.analytic import AnalyticEngine
from weft.training import band as bands
from weft.training.findings import describe_trust
from weft.training.job import Run, run_job
from weft.training.parallel import Layout
from weft.training.site import find_site
from weft.training.transformer import find
from weft.training.validate import leave_out


def made(fabric: str, model: str = "llama3-8b", server: str = "dgx-h100", **sizes: object) -> Run:
    site = find_site(fabric, gpus=16, server=server)
    layout = Layout(**{"gpus": 16, "tp": 2, "global_batch": 32, "seq": 4096, **sizes})
    return run_job(find(model), layout, site, AnalyticEngine())


def test_a_framework_or_generation_without_published_steps_has_a_wider_band() -> None:
    figures = leave_out()
    known = bands.compute_band(("no experts", "Hopper", "megatron"), figures)
    assert known.far == ()
    assert known.high < 1.4
    for kind in (("no experts", "Hopper", "torchtitan"), ("no experts", "Ada", "megatron")):
        band = bands.compute_band(kind, figures)
        assert log(band.high / band.low) > 1.1 * log(known.high / known.low)
        assert any(f"no steps are published for {name}" in band.far for name in kind)


def test_experts_have_wider_bands_than_dense_models() -> None:
    """Their errors are larger, in all sources."""
    figures = leave_out()
    dense, experts = (bands.compute_band((kind, "Hopper", "megatron"), figures) for kind in ("no experts", "experts"))
    assert log(experts.high / experts.low) > 1.3 * log(dense.high / dense.low)


def test_a_network_that_is_less_known_makes_a_wider_band() -> None:
    """The difference is the exposed part: TCP's steps wait for the network, InfiniBand's do not."""
    run, slow = made("ndr"), made("eth-100-tcp")
    near, far = run.band, slow.band
    assert near.low < 1 < near.high
    assert far.low < 1 < far.high > 1.02 * near.high
    assert run.report()["band_s"] == list(run.band_s)


def test_a_stretched_network_takes_as_many_times_as_long() -> None:
    over = made("ndr", pp=2).over
    other = over.stretched(lambda _: 3.0)
    requests = ("dp-cp", Collective.ALL_GATHER, 1 << 20)
    assert other.time_s(*requests) == pytest.approx(3 * over.time_s(*requests))
    assert other.send_s(1 << 20) == pytest.approx(3 * over.send_s(1 << 20))


def test_properties_without_published_steps_are_named() -> None:
    run = made("ndr", framework="torchtitan")
    assert "no steps are published for torchtitan" in run.band.far
    assert re.fullmatch(
        r"Assumes torchtitan.*\. Bands are from published steps of \d sources with no experts, Hopper\. "
        r"Beware: .*for torchtitan.*",
        describe_trust([run]),
    )
