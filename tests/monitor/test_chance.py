"""Poisson's law and the fabric's own background."""

from __future__ import annotations

from math import exp, factorial, log10

import numpy as np
import pytest

from weft.monitor.chance import FAMILY_WISE, background, is_chance, log10_tail


@pytest.mark.parametrize(("count", "mean"), [(1, 0.04), (3, 0.04), (9, 2.0), (30, 12.5)])
def test_the_chance_of_a_count_is_poissons_tail_and_never_below_it(count: int, mean: float) -> None:
    exact = log10(1 - sum(exp(-mean) * mean**n / factorial(n) for n in range(count)))
    bound = float(log10_tail(np.array([count]), np.array([mean]))[0])
    assert exact - 1e-9 <= bound < exact + 0.1


def test_expected_counts_and_unexamined_counts_are_chance() -> None:
    assert not log10_tail(np.array([0, 3, 5]), np.array([0.0, 4.0, 0.0])).any()


def test_a_link_as_bad_as_the_limit_allows_is_rarely_called_bad() -> None:
    """A hundred fabrics of 4,000 ports, each with exactly the allowed error rate, give about one alarm."""
    rng, bits, limit = np.random.default_rng(1), np.full(4000, 8e12), 1e-14
    alarms = 0
    for _ in range(100):
        counts = rng.poisson(bits * limit)
        rate = max(background(counts, bits, limit), limit)
        alarms += int((~is_chance(log10_tail(counts, bits * rate), len(bits))).any())
    assert alarms <= 3


@pytest.mark.parametrize("ber", [1e-15, 1e-13, 1e-11])
def test_less_than_half_of_the_links_do_not_change_the_background(ber: float) -> None:
    rng, bits = np.random.default_rng(2), np.full(1000, 8e12)
    counts = rng.poisson(bits * ber)
    counts[:300] += 1_000_000
    assert background(counts, bits, 1e-14) == pytest.approx(ber, rel=0.4)


def test_the_family_is_one_in_a_hundred() -> None:
    at_the_edge = np.log10(FAMILY_WISE / 100) + np.array([0.01, -0.01])
    assert is_chance(at_the_edge, 100).tolist() == [True, False]
    assert is_chance(at_the_edge + 2, 1).tolist() == is_chance(at_the_edge + 2, 0).tolist() == [True, False]
