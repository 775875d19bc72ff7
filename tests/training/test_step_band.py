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


def made(fabric: str, model: str = "llama3-8b", server: str = "dgx-h100", **sizes: object) -> Run:
    site = find_site(fabric, gpus=16, server=server)
    layout = Layout(**{"gpus": 16, "tp": 2, "global_batch": 32, "seq": 4096, **sizes})
    return run_job(find(model), layout, site, AnalyticEngine())


def test_published_steps_are_in_the_band_of_their_kind() -> None:
    """Which is made of them: so all are. It is not wider than they ask for, and a k-th more."""
    for figure in bands._published():
        band = bands._compute_band(figure.kind)
        assert abs(log(figure.slowdown)) * (1 + 1 / band.clusters) <= log(band.high) * 1.000001
        assert band.high < 1.4


def test_a_kind_of_one_model_is_taken_wider() -> None:
    """Mixtures of experts are published of one model alone: all steps together say how far they may be off."""
    band = bands._compute_band(("experts", "bf16", "H100"))
    assert (band.kind, band.clusters) == ("anything", len({figure.cluster for figure in bands._published()}))
    assert bands._compute_band(("no experts", "bf16", "B200")).kind == "no experts, bf16"


def test_a_network_that_is_less_known_makes_a_wider_band() -> None:
    """By what is not hidden of it: TCP's steps wait for it, InfiniBand's do not."""
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
    run = made("ndr", server="dgx-b200")
    assert "no steps are published for B200" in run.band.far
    assert re.fullmatch(
        r"Bands are from published steps of \d models with no experts, bf16\. Beware: .*for B200.*",
        describe_trust([run]),
    )
