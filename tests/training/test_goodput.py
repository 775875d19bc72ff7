"""How much of its time a job trains: the closed form against a simulation, the published figures, and its limits."""

import numpy as np
import pytest

from weft.errors import ConfigError, UnknownName
from weft.training.goodput import Goodput, best_interval_s, find_rate, rates

HOUR_S = 3600


def goodput(**given) -> Goodput:
    return Goodput(**{"nodes": 2048, "rate": find_rate("llama3"), "blocks_s": 60.0, **given})


def simulate(one: Goodput, turns: int, seed: int) -> tuple[float, float]:
    """Simulate the job interval by interval; return the fraction of time spent training, and its standard error."""
    random = np.random.default_rng(seed)
    took_s = np.zeros(turns)
    for turn in range(turns):
        while (fails_s := random.exponential(one.mttf_s)) < one.interval_s + one.blocks_s:
            took_s[turn] += fails_s
            while (again_s := random.exponential(one.mttf_s)) < one.restart_s:
                took_s[turn] += again_s
            took_s[turn] += one.restart_s
        took_s[turn] += one.interval_s + one.blocks_s
    mean_s, error_s = took_s.mean(), took_s.std() / np.sqrt(turns)
    return one.interval_s / mean_s, one.interval_s * error_s / mean_s**2


@pytest.mark.parametrize("nodes", [128, 2048, 16384])
@pytest.mark.parametrize("interval_s", [0.0, HOUR_S])
def test_a_simulation_agrees_within_its_error(nodes, interval_s):
    item = goodput(nodes=nodes, interval_s=interval_s)
    mean, error = simulate(item, turns=4000, seed=1)
    assert error < 0.02
    assert item.ettr == pytest.approx(mean, abs=3 * error)


@pytest.mark.parametrize("nodes", [128, 2048, 16384])
def test_all_time_goes_somewhere(nodes):
    parts = goodput(nodes=nodes).parts
    assert sum(parts.values()) == pytest.approx(1)
    assert all(part > 0 for part in parts.values())


def test_metas_closed_form_is_the_limit_of_rare_failures():
    rare, often = goodput(nodes=16, interval_s=HOUR_S), goodput(nodes=16384, interval_s=HOUR_S)
    assert rare.ettr_of_few == pytest.approx(rare.ettr, abs=1e-4)
    assert often.ettr_of_few < 0 < often.ettr


@pytest.mark.parametrize("mttf_s", [600.0, HOUR_S, 100 * HOUR_S])
def test_no_interval_is_better_than_the_best(mttf_s):
    nodes = round(86_400 / mttf_s / rates()["rsc-1"].per_node_day)
    best = goodput(nodes=nodes, rate=find_rate("rsc-1"))
    for times in (0.8, 0.95, 1.05, 1.25):
        assert goodput(nodes=nodes, rate=best.rate, interval_s=times * best.interval_s).ettr < best.ettr


def test_the_best_interval_is_youngs_where_failures_are_rare_and_shorter_where_not():
    """Young, 1974: the square root of twice the blocking time times the MTTF."""
    assert best_interval_s(1e8, 10) == pytest.approx((2 * 10 * 1e8) ** 0.5, rel=1e-3)
    assert best_interval_s(1000, 200) < 0.9 * (2 * 200 * 1000) ** 0.5


def test_rates_are_the_published_ones():
    """Llama 3: a failure every 3.09 hours. Meta projects RSC-1's rate to 1.8 hours on 16,384 GPUs, 0.23 on 131,072."""
    assert goodput().mttf_s / HOUR_S == pytest.approx(3.09, abs=0.01)
    assert goodput(rate=find_rate("rsc-1")).mttf_s / HOUR_S == pytest.approx(1.8, abs=0.01)
    assert goodput(rate=find_rate("rsc-1"), nodes=16384).mttf_s / HOUR_S == pytest.approx(0.23, abs=0.01)
    assert find_rate("llama3").network_share == pytest.approx(0.1, abs=0.005)


def test_llama_3_trained_more_than_nine_tenths_of_its_time():
    """From its paper; a checkpoint of up to 4 GB per GPU blocks for seconds."""
    assert goodput(blocks_s=10).ettr > 0.9
    assert goodput(blocks_s=600).ettr < 0.9


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"nodes": 0}, "0 servers"),
        ({"blocks_s": -1.0}, "blocks_s = -1"),
        ({"restart_s": float("inf")}, "restart_s = inf"),
        ({"blocks_s": 0.0}, "no best interval"),
    ],
)
def test_invalid_input_is_refused(given, why):
    with pytest.raises(ConfigError, match=why):
        goodput(**given)
    with pytest.raises(UnknownName, match="llama3"):
        find_rate("lama3")
