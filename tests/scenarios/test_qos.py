"""MPI under storage load: the theory of one VL and of two."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.scenarios import qos
from weft.scenarios.qos import FIRST, IDLE, LAST, ONE, TURNS

SMALL = {"messages": 60, "servers": 3}
PACKET_US = 4122 * 8e-3 / 395  # a full packet on an NDR line
LINKS = 4


@pytest.fixture(scope="module")
def finding():
    return qos.run(**SMALL)


def test_on_one_lane_a_message_waits_for_the_full_buffers(finding):
    """Buffers are full except for packets in flight when a credit returns, so the wait is somewhat shorter."""
    waited_us = finding.figures["p50_us"][ONE] - finding.figures["p50_us"][IDLE]
    assert 0.75 * finding.figures["full_buffers_us"] < waited_us <= finding.figures["full_buffers_us"]


def test_the_wait_on_one_lane_is_proportional_to_the_buffers(finding):
    waits_us = []
    for buffer_bytes in (100_000, 200_000):
        p50_us = qos.run(**SMALL, buffer_bytes=buffer_bytes).figures["p50_us"]
        waits_us.append(p50_us[ONE] - p50_us[IDLE])
    assert waits_us[1] / waits_us[0] == pytest.approx(2, rel=0.15)


@pytest.mark.parametrize("policy", [TURNS, FIRST])
def test_on_its_own_lane_a_message_waits_for_a_packet_at_each_link_at_most(finding, policy):
    assert finding.figures["max_us"][policy] <= finding.figures["max_us"][IDLE] + LINKS * PACKET_US


def test_storage_loses_nothing_by_a_lane_for_mpi(finding):
    assert finding.figures["storage_gbit_s"][FIRST] == pytest.approx(finding.figures["storage_gbit_s"][ONE], rel=0.01)


def test_the_wrong_lane_first_is_worse_than_one_lane(finding):
    assert finding.figures["p50_us"][LAST] > 3 * finding.figures["p50_us"][ONE]


def test_priority_pays_when_messages_have_many_packets():
    p99_us = qos.run(servers=3, messages=120, size_bytes=16_384).figures["p99_us"]
    assert p99_us[FIRST] < 0.8 * p99_us[TURNS]


def test_the_sentence_has_the_numbers_of_the_table(finding):
    for policy in (IDLE, ONE, TURNS):
        assert f"{finding.figures['p50_us'][policy]:.2f}" in finding.finding
    assert [row[0] for row in finding.rows] == [IDLE, ONE, TURNS, FIRST, LAST]


@pytest.mark.parametrize("options", [{"servers": 7}, {"servers": 0}, {"messages": 1}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        qos.run(**options)
