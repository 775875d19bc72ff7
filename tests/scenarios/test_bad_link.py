"""A bad cable: its victims, and its identification."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.scenarios import bad_link

RATE = 1e-6


@pytest.fixture(scope="module")
def finding():
    return bad_link.run(hosts=8, size_bytes=4 << 20, steps=2, bit_error_rates=(RATE,), ack_timeout_exponent=6)


def one_run(finding, routing, rate):
    return next(
        each for each in finding.figures["runs"] if (each["routing"], each["bit_error_rate"]) == (routing, rate)
    )


def test_with_static_routes_only_the_job_that_crosses_the_cable_pays(finding):
    bad = one_run(finding, "static", RATE)
    assert bad["slowdown"]["A"] > 1.05
    assert bad["slowdown"]["B"] == 1
    assert bad["sent_again"]["B"] == 0


def test_with_adaptive_routing_both_jobs_pay(finding):
    bad = one_run(finding, "adaptive", RATE)
    assert bad["slowdown"]["A"] > 1.05
    assert bad["slowdown"]["B"] > 1.05


def test_going_back_resends_more_than_was_lost(finding):
    """Static routes: all packets after the lost one go again. Adaptive: the lost ones alone."""
    static, adaptive = (one_run(finding, routing, RATE) for routing in ("static", "adaptive"))
    assert static["sent_again"]["A"] > 5 * sum(static["errors"].values())
    assert sum(adaptive["sent_again"].values()) <= sum(adaptive["errors"].values())


def test_the_counters_name_the_cable_and_nothing_else(finding):
    assert finding.figures["found"]
    assert sorted(finding.figures["ports_with_errors"]) == sorted(finding.figures["cable"])
    assert " and ".join(finding.figures["ports_with_errors"]) in finding.finding


def test_a_good_cable_costs_nothing(finding):
    for routing in ("static", "adaptive"):
        good = one_run(finding, routing, 0)
        assert good["errors"] == {}
        assert good["slowdown"] == {"A": 1, "B": 1}


def test_a_step_is_compute_and_a_ring_of_two_n_minus_two_rounds(finding):
    """4 hosts: 6 rounds of a quarter of the gradients at the payload rate of 4 KiB packets, and some latency."""
    rounds_ms = 6 * (1 << 20) * (4122 / 4096) * 8e-6 / 395
    step_ms = one_run(finding, "static", 0)["step_ms"]["A"]
    assert 0.2 + rounds_ms < step_ms < 0.2 + rounds_ms + 6 * 0.005


def test_every_message_of_a_ring_waits_for_the_one_before_it():
    fabric = weft.load("star:hosts=4")
    traffic, job = bad_link.ring_steps(fabric, [["h1", "h2", "h3", "h4"]], 4096, steps=2)
    assert len(traffic) == 2 * 6 * 4 + 4
    assert (job == -1).sum() == 4
    waits = np.diff(traffic.after_first)
    assert waits[:4].tolist() == [0] * 4
    assert (waits[4:] == 1).all()
    assert (traffic.dst[traffic.after] == traffic.src[4:]).all()


@pytest.mark.parametrize("options", [{"hosts": 10}, {"hosts": 4}, {"bit_error_rates": ()}, {"bit_error_rates": (0.0,)}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        bad_link.run(**options)


def test_without_options_16_hosts_are_run_at_three_rates(monkeypatch):
    """Each of four leaf switches has four hosts; errors get ten times as frequent."""
    measured = []

    def measure(good, cable, paths, rate, arguments):
        assert good.spec == "fat-tree:hosts=16,levels=2,radix=8"
        measured.append((bad_link.ROUTING[paths], rate))
        return bad_link.LinkRun(
            routing=bad_link.ROUTING[paths], bit_error_rate=rate, step_ms=(1, 1), sent_again=(0, 0), errors={}
        )

    monkeypatch.setattr(bad_link, "_measure", measure)
    monkeypatch.setattr(bad_link, "route", lambda fabric, _: SimpleNamespace(fabric=fabric))
    monkeypatch.setattr(bad_link, "find_cable", lambda *_: "leaf1/5")
    options = bad_link.run().options
    assert measured == [(routing, rate) for routing in ("static", "adaptive") for rate in (0.0, 1e-8, 1e-7, 1e-6)]
    assert (options["size_bytes"], options["steps"], options["ack_timeout_exponent"]) == (16 << 20, 4, 14)
