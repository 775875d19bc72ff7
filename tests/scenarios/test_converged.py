"""One network for compute and storage: lanes divide ports as their weights say, and bills are those of fat trees."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.scenarios import converged
from weft.scenarios.converged import FIRST, NINE_TO_ONE, ONE_LANE, SERVERS, STORAGE, TWO

LINE_GBIT_S = 395  # of NDR, for packets of 4 KiB


@pytest.fixture(scope="module")
def finding():
    return converged.run(size_bytes=8 << 20)


def test_two_networks_carry_the_message_at_the_rate_of_the_line(finding):
    alone_ms = (8 << 20) * 8 / LINE_GBIT_S / 1e6
    assert finding.figures["step_ms"][TWO.name] == pytest.approx(alone_ms, rel=0.03)


def test_weights_of_nine_to_one_give_nine_tenths_of_each_port(finding):
    figures = finding.figures
    assert figures["slowdown"][NINE_TO_ONE.name] == pytest.approx(10 / 9, rel=0.02)
    assert figures["storage_gbit_s"][NINE_TO_ONE.name] == pytest.approx(LINE_GBIT_S / 10, rel=0.1)


def test_the_first_lane_takes_all_and_storage_starves(finding):
    figures = finding.figures
    assert figures["slowdown"][FIRST.name] == pytest.approx(1, rel=0.01)
    assert figures["storage_gbit_s"][FIRST.name] < 0.02 * LINE_GBIT_S


def test_one_lane_costs_collectives_the_storage_servers_rate(finding):
    """Seven servers share a storage port: each takes a seventh of its own port from collectives."""
    figures = finding.figures
    readers = len(SERVERS) / len(STORAGE)
    assert figures["slowdown"][ONE_LANE.name] == pytest.approx(readers / (readers - 1), rel=0.03)
    assert figures["slowdown"][ONE_LANE.name] > figures["slowdown"][NINE_TO_ONE.name]
    assert figures["storage_gbit_s"][ONE_LANE.name] == pytest.approx(LINE_GBIT_S / readers, rel=0.1)


def test_bills_have_the_ports_of_the_same_servers(finding):
    """512 GPUs in 64 servers, 16 storage servers with two ports; on two networks servers have a storage port too."""
    two, one = finding.figures["two"], finding.figures["one"]
    assert one["cables"] - (512 + 32) == 512 + 32, "a full fat tree of two levels has as many cables above"
    assert two["cables"] >= 2 * 512 + 2 * (64 + 32)
    assert two["power_w"] == two["switches"] * 747


def test_the_break_even_is_the_price_over_the_lost_time(finding):
    low, _ = finding.figures["break_even"]
    two, one = finding.figures["two"], finding.figures["one"]
    lost = finding.figures["slowdown"][NINE_TO_ONE.name] - 1
    assert low * lost * 512 * 2.5 * 4 * 8760 == pytest.approx(two["low_usd"] - one["low_usd"])
    assert f"more than {low:.1%}" in finding.finding
    cheap = converged.run(size_bytes=1 << 20, gpu_hour_usd=0.25).figures
    assert cheap["break_even"][0] > 5 * low, "cheaper hours make the second network dearer"


def test_where_two_networks_cost_less_the_answer_says_so():
    finding = converged.run(size_bytes=1 << 20, gpus=1024, storage=32)
    assert finding.figures["break_even"][1] < 0
    assert finding.finding.startswith("Two networks: they cost no more than one here")
    assert " less: " in finding.finding


def test_dcqcn_slows_collectives_more_than_their_lane_does(finding):
    """Marks of full queues halve a sender's rate, and a message of 4 MiB is over before it has recovered."""
    slower = converged.run(size_bytes=4 << 20, fabric="roce-400").figures["slowdown"]
    assert slower[ONE_LANE.name] > slower[NINE_TO_ONE.name] > 1.5 * finding.figures["slowdown"][NINE_TO_ONE.name]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"size_bytes": 1}, "--size must be 64K to 64M"),
        ({"gpus": 60}, "--gpus must be a multiple of 8"),
        ({"gpus": 68}, "--gpus must be a multiple of 8"),
        ({"storage": 0}, "--storage must be 1 to 64"),
        ({"gpu_hour_usd": 0.0}, "--gpu-hour must be above 0"),
        ({"fabric": "nosuch"}, "nosuch"),
    ],
)
def test_wrong_options_are_refused_with_the_limit(arguments, reason):
    with pytest.raises(ConfigError, match=reason):
        converged.run(**arguments)
