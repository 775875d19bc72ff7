"""Switches are moved to where cables cost least: the best place by hand and by trying all, never a worse plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.plan.floors import check_racks

import weft
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.prices import read_prices
from weft.plan.floor.cables import cable
from weft.plan.floor.racks import Racks, place
from weft.plan.floor.room import Room
from weft.plan.floor.runs import find_runs
from weft.plan.optimise import _floor, cost_usd, optimise
from weft.plan.search import total_cost, try_moves

PRICES = read_prices()


def rank(racks: Racks) -> tuple[int, float, float]:
    result = cable(racks)
    return int(result.optical.sum()), sum(cost_usd(result, PRICES)), round(float(result.route_m.sum()), 2)


def test_a_switch_at_the_wrong_end_of_the_row_goes_to_its_servers() -> None:
    """Computed by hand: 32 hosts in A01, their leaf at the end of the row; 8 units are free above the hosts."""
    racks = place(weft.load("star:hosts=32"), Room(switches="end", rack_u=40, racks_per_row=9))
    racks = replace(racks, names=("A01", "A09"), column=np.array([0, 8], np.int32))
    saving = optimise(racks, PRICES)
    switch = int(racks.tier.argmax())
    assert (racks.position(switch), saving.optics[0]) == ("A09-U39", 32)
    assert saving.after.racks.position(switch).startswith("A01")
    assert saving.optics[1] == 0
    assert saving.emptied == ("A09",)
    assert saving.usd == (32 * (2 * 293 + 50 - 50), 32 * (2 * 391 + 100 - 100))  # two ports and a fibre for copper
    assert str(saving).startswith("1 switch moved: 32 optical links become 0")


def test_the_best_of_all_places_is_found() -> None:
    """Two switches with two hosts each, in three racks of 6U: all 324 pairs of places are tried."""
    racks = place(weft.load("torus:2,hosts=2,server=host-hdr"), Room(rack_u=6, switches="end", tray_m=1.5))
    first, second = np.flatnonzero(racks.tier > 0).tolist()
    best = rank(racks)
    spots = list(product(range(len(racks.names)), range(1, 6)))
    for item, other in product(spots, spots):
        rack, u = racks.rack.copy(), racks.u.copy()
        (rack[first], u[first]), (rack[second], u[second]) = item, other
        moved = replace(racks, rack=rack, u=u)
        if _stands(moved):
            best = min(best, rank(moved))
    assert best < rank(racks)
    assert rank(optimise(racks, PRICES).after.racks) == pytest.approx(best)


def _stands(racks: Racks) -> bool:
    """Check that nothing overlaps, with a unit free above every switch."""
    filled = np.zeros((len(racks.names), racks.room.rack_u + 3), int)
    for box in range(len(racks.boxes)):
        top = racks.u[box] + racks.height_u[box] + (racks.tier[box] > 0)
        if top > racks.room.rack_u + 1:
            return False
        filled[racks.rack[box], racks.u[box] : top] += 1
    return bool(filled.max() == 1)


@pytest.mark.parametrize("room", [Room(), Room(switches="end", rack_power_w=42_500)])
def test_a_superpod_gets_fewer_optics_within_height_and_power(room: Room) -> None:
    """Its 1,024 links to servers are optical anywhere, and the best plan has no others. 42.5 kW hold a switch and
    its plugs beside four servers."""
    racks = place(weft.load("superpod:su=4"), room)
    rounds = []
    saving = optimise(racks, PRICES, progress=lambda done, of: rounds.append((done, of)))
    before, after = saving.optics
    assert after == 1024 < 0.6 * before
    check_racks(saving.after.racks, empty=True)
    servers = racks.tier == 0
    assert (saving.after.racks.rack[servers] == racks.rack[servers]).all()
    assert rounds == [(i, len(rounds)) for i in range(1, len(rounds) + 1)]


def test_the_same_seed_makes_the_same_plan() -> None:
    racks = place(weft.load("superpod:su=1"))
    some = ([False] * 5 for _ in range(2))
    item, other = (optimise(racks, PRICES, seed=7, stop=iter([*five, True]).__next__).after.racks for five in some)
    assert (item.rack == other.rack).all()
    assert (item.u == other.u).all()


def test_early_stop_returns_the_best_plan_so_far() -> None:
    racks = place(weft.load("superpod:su=1"), Room(switches="end"))
    for rounds in (0, 1, 3):
        seen: list[int] = []
        saving = optimise(
            racks,
            PRICES,
            progress=lambda done, _, seen=seen: seen.append(done),
            stop=lambda n=rounds, s=seen: len(s) == n,
        )
        assert saving.rounds == rounds
        assert rank(saving.after.racks) <= rank(racks)
        assert (saving.optics[1] < saving.optics[0]) == (rounds > 0)


def test_saving_is_money_or_metres() -> None:
    saving = optimise(place(weft.load("superpod:su=1")), PRICES, stop=lambda: True)
    shorter = replace(saving.before, length_m=saving.before.length_m - 0.5)
    assert str(replace(saving, after=shorter)).endswith("; that saves 256 m and no money")
    assert str(replace(saving, usd=(120.0, 300.0))).endswith("; that saves 120 to 300 USD")


def without_servers() -> Fabric:
    """Return six switches with an adapter each: their boxes are the first."""
    builder = FabricBuilder("chain")
    switches = builder.add_nodes(NodeKind.SWITCH, [f"sw{i}" for i in range(6)], n_ports=3)
    builder.add_links(builder.add_nodes(NodeKind.HCA, [f"a{i}" for i in range(6)], n_ports=1), 1, switches, 1, "EDR")
    builder.add_links(switches[:-1], 2, switches[1:], 3, "EDR")
    return builder.build()


@pytest.mark.parametrize(
    ("build", "rack_u"), [(lambda: weft.load("superpod:su=1,radix=16"), 48), (without_servers, 8)], ids=["pod", "chain"]
)
def test_units_power_and_cost_follow_the_moves_of_the_search(build: Callable[[], Fabric], rack_u: int) -> None:
    racks = place(build(), Room(switches="end", rack_u=rack_u))
    floor = _floor(racks, find_runs(racks.fabric, racks.box_of, racks.tier), PRICES)
    cost, power_w = total_cost(floor), floor.free_w.sum()
    saved, _, stamp = try_moves(floor, 3000, 1e3, 7, 0)
    occupied, free_w = np.zeros_like(floor.occupied), np.full(len(floor.free_w), racks.room.filled_w)
    for box, (rack, u) in enumerate(zip(floor.rack, floor.u, strict=True)):
        occupied[rack, u : u + floor.needs_u[box]] += 1
        free_w[rack] -= floor.power_w[box]
    assert (floor.rack != racks.rack).any()
    assert np.array_equal(floor.occupied, occupied)
    assert occupied.max() == 1
    assert floor.free_w == pytest.approx(free_w)
    assert floor.free_w.sum() == pytest.approx(power_w)
    assert total_cost(floor) == pytest.approx(cost - saved)
    assert stamp % 2 == 0
    assert floor.counted.max() <= stamp


@pytest.mark.parametrize("switches", ["end", "top"])
def test_the_search_measures_cables_as_the_plan_does(switches: str) -> None:
    """Without prices the cost of a floor is the metres of its cables, in racks and between them."""
    racks = place(weft.load("fat-tree:hosts=24,radix=8"), Room(switches=switches, rack_u=20, tray_m=1.5))
    floor = _floor(racks, find_runs(racks.fabric, racks.box_of, racks.tier), PRICES)
    free = floor._replace(cost=np.zeros_like(floor.cost))
    assert len(racks.names) > 1
    route_m = cable(racks).route_m
    assert total_cost(free) == pytest.approx(route_m.sum(), abs=0.005 * len(route_m))  # lengths in whole centimetres


def test_switches_of_different_power_swap_only_where_both_racks_can_feed_them() -> None:
    racks = place(weft.load("fat-tree:hosts=24,radix=8"), Room(switches="end", rack_u=8))
    floor = _floor(racks, find_runs(racks.fabric, racks.box_of, racks.tier), PRICES)
    power_w = np.zeros(len(floor.power_w))
    power_w[floor.switches] = np.where(np.arange(len(floor.switches)) % 2, 500.0, 3_000.0)
    used_w = np.bincount(floor.rack, weights=power_w, minlength=len(floor.free_w))
    floor = floor._replace(power_w=power_w, free_w=used_w.max() + 1_000 - used_w)
    try_moves(floor, 2_000, 1e6, 7, 0)
    assert (floor.rack != racks.rack).any()
    assert floor.occupied.max() == 1
    assert floor.free_w.min() >= 0
