"""Feeds, PDUs and cooling of racks."""

from __future__ import annotations

import pytest

import weft
from weft.plan.floor.racks import place
from weft.plan.floor.room import Room
from weft.plan.power import find_supplies, sum_supplies, to_csv


def test_each_of_two_feeds_carries_a_rack_alone() -> None:
    racks = place(weft.load("superpod:su=1"), Room(pdu_w=20_000))
    for supply, drawn_w in zip(find_supplies(racks), racks.rack_power_w.tolist(), strict=True):
        assert supply.power_w == drawn_w
        assert supply.feed_w == drawn_w / 2
        each = supply.pdus // 2
        assert each * 20_000 >= drawn_w > (each - 1) * 20_000
    assert find_supplies(racks)[0].pdus == 6  # four DGX H100: 40.8 kW


def test_all_power_is_heat_that_air_carries_away() -> None:
    """10 kW: 34,120 BTU/h; at 10 K 1.2 kg/m3 of air with 1,005 J/(kg K) take 2,985 m3/h."""
    racks = place(weft.load("superpod:su=1,servers=1"), Room(air_delta_k=10))
    supply = find_supplies(racks)[0]
    assert supply.heat_btu_h / supply.power_w == pytest.approx(3.412)
    assert supply.air_m3_h / supply.power_w * 10_000 == pytest.approx(2_985, abs=1)
    assert sum_supplies([supply, supply])["air_m3_h"] == 2 * supply.air_m3_h


def test_racks_that_are_delivered_whole_have_their_own_pdus() -> None:
    supplies = find_supplies(place(weft.load("superpod:su=1,server=gb200-nvl72,servers=1,switch=QM9700")))
    whole = [supply for supply in supplies if supply.limit_w is None]
    assert [supply.pdus for supply in whole] == [0]
    assert len(to_csv(supplies).splitlines()) == len(supplies) + 1
