"""Tables of Ethernet switches with more ports than a byte counts: 64 × 800G as 512 × 100G."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.fabric.planes import expand
from weft.fabric.spec import load
from weft.fabric.tables import WIDE_NO_ROUTE
from weft.routing.check import check
from weft.routing.engine import Options
from weft.routing.quality import measure
from weft.routing.route import reroute, route

WIDE = "fat-tree:hosts=600,server=host+ConnectX-6-Dx,switch=THU-64x800,breakout=8"  # leaves of 256 hosts, two spines


@pytest.mark.parametrize("engine", ["min-hop", "up-down", "fat-tree", "dfsssp"])
def test_every_engine_routes_to_ports_of_all_numbers(engine: str) -> None:
    routing = route(load(WIDE), Options(engine=engine))
    lft = routing.tables.lft
    assert lft.dtype == np.uint16
    assert {255, 256, 512} <= set(np.unique(lft[lft != WIDE_NO_ROUTE]).tolist())
    verdict = check(routing.fabric)
    assert (verdict.ok, verdict.missing, verdict.pairs) == (True, 0, 605 * 604)


def test_measured_loads_are_those_of_the_closed_form() -> None:
    """Each of 256 uplinks of a full leaf carries the same part of what its hosts send to the 344 others."""
    quality = measure(route(load(WIDE)).fabric, bisections=2)
    assert quality.all_to_all.mean_load * len(quality.links) == 2 * (2 * 256 * 344 + 88 * 512)
    assert quality.all_to_all.slowdown == 1


def test_a_missing_entry_is_found_where_port_255_is_a_route() -> None:
    routing = route(load(WIDE))
    tables, host = routing.tables, routing.fabric.find_node("h255")
    assert host.ports[0].peer is not None
    assert host.ports[0].peer.number == 255
    lid = int(tables.lid[host.ports[0].slot])
    tables.lft[tables.switch_row[routing.fabric.find_node("leaf1").index], lid] = tables.no_route
    verdict = check(routing.fabric)
    assert not verdict.ok
    assert verdict.missing == 604
    assert "no" in verdict.first_failure


def test_groups_for_adaptive_routing_have_all_uplinks() -> None:
    tables = route(load(WIDE), Options(engine="fat-tree", adaptive=True)).tables
    sizes = tables.ar_ports.sum(axis=1)
    assert tables.ar_ports.shape[1] == 513
    assert int(sizes.max()) == 256
    assert np.flatnonzero(tables.ar_ports[sizes.argmax()]).tolist() in (
        list(range(1, 257)),
        list(range(257, 513)),
    )


def test_a_lost_spine_is_repaired_with_the_entries_that_remain() -> None:
    before = route(load(WIDE))
    after = reroute(before.fabric.without("spine2"), before)
    assert check(after.fabric).ok
    assert after.changed_entries is not None
    assert 0 < after.changed_entries < after.tables.lft.size / 2


def test_planes_that_differ_are_routed_each() -> None:
    fabric = expand(load("fat-tree:hosts=520,server=host+Thor-Ultra,switch=THU-64x800,planes=8")).without("p2-spine1")
    routed = weft.route(fabric).fabric
    assert routed.tables.lft.dtype == np.uint16
    assert check(routed).ok
