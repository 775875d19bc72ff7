"""Old and new forwarding entries together: no mix deadlocks where the check finds no loop."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.fabric.tables import NO_ROUTE
from weft.routing.check import check
from weft.routing.engine import Options
from weft.routing.mixed import LANES_CHANGE, find_mixed_loop
from weft.routing.route import reroute, route
from weft.training.failures import break_permanently

MIXES = 40


def random_mixes(before, after):
    """Yield the fabric with entries that are old or new at random."""
    old, new = before.tables.lft, after.tables.lft
    rng = np.random.default_rng(7)
    for _ in range(MIXES):
        tables = after.tables.unrouted()
        tables.lft = np.where(rng.random(old.shape) < 0.5, old, new)
        yield after.configured(tables)


@pytest.mark.parametrize(
    ("spec", "engines", "has_loop"),
    [
        ("fat-tree:hosts=16,radix=8", ("fat-tree", "min-hop"), False),
        ("fat-tree:hosts=128,radix=8,levels=3", ("fat-tree", "up-down"), False),
        ("torus:5x1", ("up-down", "min-hop"), True),
        ("torus:4x3", ("up-down", "min-hop"), True),
    ],
)
def test_where_no_loop_is_found_no_mix_of_entries_has_one(spec, engines, has_loop):
    fabric = weft.load(spec)
    before, after = (route(fabric, Options(engine=engine)).fabric for engine in engines)
    loop = find_mixed_loop(before, after)
    assert bool(loop) == has_loop
    found = [bool(check(mix, hosts_only=True).credit_loop) for mix in random_mixes(before, after)]
    assert any(found) <= has_loop


def test_tables_without_a_loop_can_form_one_together():
    """Around a ring of five each table leaves out another link."""
    fabric = weft.load("torus:5x1")
    before, after = (route(fabric, Options(engine="up-down", root=root)).fabric for root in ("sw1", "sw3"))
    assert check(before).ok
    assert check(after).ok
    loop = find_mixed_loop(before, after)
    assert len(loop) == 5
    assert any(check(mix, hosts_only=True).credit_loop for mix in random_mixes(before, after))
    assert find_mixed_loop(before, before) == ()


def test_a_switch_that_is_gone_takes_its_entries_with_it():
    present = route(weft.load("fat-tree:hosts=16,radix=8"))
    without = reroute(break_permanently(present.fabric, ["dead:spine1"]), present)
    assert find_mixed_loop(present.fabric, without.fabric) == ()
    assert find_mixed_loop(without.fabric, present.fabric) == ()


def test_tables_with_other_lanes_are_not_proved():
    fabric = weft.load("torus:6x6")
    before, after = (route(fabric, Options(engine=engine)).fabric for engine in ("dfsssp", "up-down"))
    assert find_mixed_loop(before, after) == (LANES_CHANGE,)


def test_lanes_separate_the_paths_of_equal_lane_tables():
    """By the lanes of dimension-order the two directions around a ring never wait for each other."""
    fabric = route(weft.load("torus:6x6"), Options(engine="dimension-order")).fabric
    assert find_mixed_loop(fabric, fabric) == ()
    one_lane = fabric.configured(replace_lanes(fabric))
    assert find_mixed_loop(one_lane, one_lane)


def replace_lanes(fabric):
    """Return the tables with all packets on one lane."""
    tables = fabric.tables.unrouted()
    tables.lft = fabric.tables.lft
    return tables


def test_entries_that_drop_packets_add_nothing():
    fabric = route(weft.load("torus:5x1"), Options(engine="up-down", root="sw1")).fabric
    tables = fabric.tables.unrouted()
    tables.lft = np.full_like(fabric.tables.lft, NO_ROUTE)
    nothing = fabric.configured(tables)
    assert find_mixed_loop(nothing, fabric) == find_mixed_loop(fabric, nothing) == ()
