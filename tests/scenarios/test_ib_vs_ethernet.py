"""InfiniBand and Ethernet: the numbers behind the verdicts, each by its own arithmetic."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.fabric.timing import timings
from weft.scenarios import ib_vs_ethernet
from weft.scenarios.ib_vs_ethernet import (
    BUCKET_BYTES,
    IB,
    IB_ADAPTIVE,
    LEAVES,
    RAILS,
    ROCE,
    ROCE_100,
    ROCE_ADAPTIVE,
    SMALL_BYTES,
    TCP,
)


@pytest.fixture(scope="module")
def finding():
    return ib_vs_ethernet.run(servers=8, size_bytes=2 << 20)


def holds(finding, claim: str) -> str:
    return next(row[3] for row in finding.rows if claim in str(row[0]))


def test_tcp_is_slower_than_roce_by_the_kernel_time(finding):
    networks, kernel, adapter = finding.figures["networks"], timings().tcp, timings().adapter["ethernet"]
    more_us = networks[TCP]["latency_us"] - networks[ROCE_100]["latency_us"]
    spent_ns = kernel.send_ns + kernel.receive_ns - adapter.post_ns - adapter.receive_ns
    assert more_us == pytest.approx(spent_ns / 1000, rel=0.05)


def test_cores_at_full_rate_follow_from_the_rate_of_one_core(finding):
    networks = finding.figures["networks"]
    assert networks[TCP]["cores"] == pytest.approx(networks[TCP]["gbit_s"] / timings().tcp.copy_gbit_s, rel=0.05)
    messages_s = networks[IB]["gbit_s"] * 1e9 / 8 / (1 << 20)
    assert networks[IB]["cores"] == pytest.approx(messages_s * timings().adapter["infiniband"].gap_ns / 1e9, rel=0.05)


def test_by_static_tables_so_many_flows_share_a_link_as_the_last_is_slower(finding):
    worst = finding.figures["networks"][IB]["worst_slowdown"]
    assert worst > 1.5
    assert worst == pytest.approx(round(worst), rel=0.1)


@pytest.mark.parametrize("network", [IB_ADAPTIVE, ROCE_ADAPTIVE])
def test_adaptive_routing_removes_collisions_on_both(finding, network):
    assert finding.figures["networks"][network]["worst_slowdown"] < 1.2
    assert holds(finding, "adaptive routing") == "yes, and Ethernet's too"


def test_only_tcp_loses_packets(finding):
    assert {name for name, each in finding.figures["networks"].items() if each["dropped"]} == {TCP}
    assert holds(finding, "Drop-based") == "for TCP"


def test_the_claimed_latency_of_ethernet_holds_for_tcp_only(finding):
    assert holds(finding, "400G Ethernet | Latency") == holds(finding, "10-50x") == "for TCP"
    assert holds(finding, "under 1 microsecond") == "no"


def test_on_rails_roce_reduces_as_fast_as_infiniband_and_tcp_does_not(finding):
    bucket = {name: each["all_reduce_us"][RAILS][BUCKET_BYTES] for name, each in finding.figures["networks"].items()}
    assert bucket[IB] == pytest.approx(bucket[IB_ADAPTIVE], rel=1e-4)  # a ring that stays on one leaf has one way
    assert bucket[ROCE] < 1.1 * bucket[IB]
    assert bucket[TCP] > 2 * bucket[IB]


def test_adaptive_routing_saves_the_cost_of_hash_collisions(finding):
    bucket = {name: each["all_reduce_us"][LEAVES][BUCKET_BYTES] for name, each in finding.figures["networks"].items()}
    assert bucket[ROCE] > 1.1 * bucket[ROCE_ADAPTIVE]


def test_a_small_all_reduce_is_slower_by_tcp(finding):
    small = {name: each["all_reduce_us"][RAILS][SMALL_BYTES] for name, each in finding.figures["networks"].items()}
    assert small[IB] <= small[ROCE] < small[TCP]


@pytest.mark.parametrize("options", [{"servers": 1}, {"servers": 17}, {"size_bytes": 1000}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        ib_vs_ethernet.run(**options)
