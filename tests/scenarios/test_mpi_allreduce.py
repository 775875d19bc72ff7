"""MPI_Allreduce thousands of times a second, counted."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.scenarios import mpi_allreduce
from weft.scenarios.mpi_allreduce import IB, ROCE, SHARP, TCP


@pytest.fixture(scope="module")
def finding():
    return mpi_allreduce.run(nodes=24, ppn=8)


def test_latency_dominates_thousands_of_calls_on_tcp_alone(finding):
    share = {name: by_rate[3_000] for name, by_rate in finding.figures["share"].items()}
    assert share[IB] < share[ROCE] < 0.1
    assert share[TCP] > 0.3
    from_calls = finding.figures["dominates_from_calls_s"]
    assert from_calls[TCP] < 10_000 < 40_000 < from_calls[IB]


def test_roce_is_near_and_switches_that_add_are_ahead(finding):
    us = {name: by_nodes[24] for name, by_nodes in finding.figures["all_reduce_us"].items()}
    assert us[ROCE] == pytest.approx(us[IB], rel=0.4)
    assert us[SHARP] < us[IB] / 1.8
    assert us[TCP] > 8 * us[IB]
    assert "InfiniBand is not the only one that has it" in finding.finding


def test_more_servers_take_longer_but_not_for_switches_that_add(finding):
    for name, by_nodes in finding.figures["all_reduce_us"].items():
        first_us, *_, last_us = by_nodes.values()
        assert last_us == pytest.approx(first_us) if name == SHARP else last_us > first_us, name
    few_us, *_, many_us = finding.figures["all_reduce_us"][IB].values()
    assert many_us > 1.5 * few_us


def test_a_share_is_of_compute_and_all_reduce(finding):
    row = dict(zip(finding.columns, finding.rows[[each[0] for each in finding.rows].index(TCP)], strict=True))
    us = row["all-reduce µs"]
    assert row["at 5,000/s"] == f"{us / (200 + us):.0%}"
    assert row["calls/s at most"] == round(1e6 / us)


def test_invalid_options_are_refused():
    for flags, error in (({"nodes": 1}, "--nodes must be 2 or more"), ({"calls": 0}, "--calls must be 1 or more")):
        with pytest.raises(ConfigError, match=error):
            mpi_allreduce.run(**flags)
