from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.fabric import faults
from weft.routing.check import check
from weft.routing.engine import Options
from weft.routing.route import reroute, route


@pytest.mark.parametrize("engine", ["fat-tree", "up-down", "auto"])
def test_a_broken_link_changes_no_more_than_the_entries_that_used_it(engine):
    before = route(weft.load("fat-tree:hosts=128,radix=16"), Options(engine=engine))
    fabric = before.fabric
    lft, row = fabric.tables.lft, fabric.tables.switch_row
    link = fabric["leaf3/9"].link
    used = sum(int((lft[row[port.node.index]] == port.number).sum()) for port in (link.a, link.b))
    after = reroute(faults.remove_link(fabric, "leaf3/9"), before)
    assert check(after.fabric).ok
    assert after.changed_entries is not None
    # The entries over the link, and those of other leaves that came to leaf3 through the spine that lost it.
    other_leaves = 15
    to_leaf3 = 8 + 1
    assert used <= after.changed_entries <= used + other_leaves * to_leaf3


def test_nothing_broken_nothing_changed():
    before = route(weft.load("fat-tree:hosts=64,radix=8"))
    after = reroute(before.fabric, before)
    assert after.changed_entries == 0
    assert np.array_equal(after.tables.lft, before.tables.lft)


def test_a_dead_spine_leaves_everybody_reachable_and_lids_as_they_were():
    before = route(weft.load("fat-tree:hosts=128,radix=16"))
    after = reroute(faults.kill(before.fabric, "spine3"), before)
    assert check(after.fabric).ok
    for name in ("h1/1", "h77/1", "leaf4/0"):
        assert after.fabric[name].lid == before.fabric[name].lid


def test_when_the_root_dies_another_is_found():
    before = route(weft.load("fat-tree:hosts=128,radix=16"), Options(engine="fat-tree", root="leaf2"))
    after = reroute(faults.kill(before.fabric, "leaf2"), before)
    verdict = check(after.fabric)
    assert verdict.ok, verdict.explain()
