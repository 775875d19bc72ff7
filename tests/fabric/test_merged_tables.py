"""Tables of planes and subnets that are routed by themselves, put together to those of the whole fabric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import weft
from weft.fabric.merged_tables import merge_tables
from weft.fabric.model import Fabric
from weft.fabric.planes import expand, split_planes
from weft.fabric.subnets import subnets_of, take_subnet
from weft.fabric.tables import NO_ROUTE, Tables
from weft.routing.engine import Options
from weft.routing.route import route


def parts_of(fabric: Fabric) -> list[tuple[NDArray[np.bool_], Fabric]]:
    if fabric.expanded:
        return split_planes(fabric)
    return [take_subnet(fabric, part) for part in subnets_of(fabric)]


def choices(fabric: Fabric) -> dict[tuple[str, int], Any]:
    """Return the ports that a switch may take to a LID, by its name."""
    tables, found = fabric.tables, {}
    for switch in fabric.switches:
        row = int(tables.switch_row[switch.index])
        for lid in np.flatnonzero(tables.lft[row] != NO_ROUTE).tolist():
            group = int(tables.ar_group[row, lid])
            several = tuple(np.flatnonzero(tables.ar_ports[group]).tolist()) if group >= 0 else ()
            found[switch.name, lid] = (int(tables.lft[row, lid]), several)
    return found


@pytest.mark.parametrize("spec", ["subnets:3,of=fat-tree:hosts=12,radix=8", "fat-tree:hosts=12,radix=8,planes=2"])
def test_adaptive_groups_of_each_part_have_its_ports(spec: str) -> None:
    fabric = weft.load(spec)
    if fabric.planes > 1:  # planes that differ
        fabric = expand(fabric).without("p2-leaf1/5")
    options = Options(adaptive=True)
    whole = choices(route(fabric, options).fabric)
    own: dict[tuple[str, int], Any] = {}
    for _, part in parts_of(fabric):
        own |= choices(route(part, options).fabric)
    assert whole == own
    assert sum(len(several) > 1 for _, several in whole.values()) > 10


def merge(fabric: Fabric, *parts: Tables) -> Tables:
    return merge_tables(fabric, [keep for keep, _ in parts_of(fabric)], parts)


def two_subnets() -> tuple[Fabric, list[Tables]]:
    """Return a fabric of two subnets, and empty tables for each."""
    fabric = weft.load("subnets:2,of=star:hosts=2")
    parts = [part.tables.like() for _, part in parts_of(fabric)]
    for part in parts:
        part.lft[:] = NO_ROUTE
    return fabric, parts


def test_a_part_without_adaptive_groups_has_none_beside_one_that_has_some() -> None:
    fabric, (first, second) = two_subnets()
    second.ar_group = np.array([[-1, 0, 1]], np.int32)
    second.lft = np.array([[NO_ROUTE, 1, 2]], np.uint8)
    second.ar_ports = np.zeros((2, 256), np.bool_)
    second.ar_ports[0, 1] = second.ar_ports[1, 2] = True
    merged = merge(fabric, first, second)
    assert (merged.ar_group[0] < 0).all()
    assert [np.flatnonzero(merged.ar_ports[group]).tolist() for group in merged.ar_group[1, 1:3]] == [[1], [2]]


def test_lanes_of_each_part_are_those_of_its_nodes() -> None:
    fabric, (first, second) = two_subnets()
    second.sl2vl[:] = 3
    merged = merge(fabric, first, second)
    for node, name in enumerate(fabric.nodes.name):
        begin = int(merged.first_pair[node])
        lanes = set(merged.sl2vl[begin].tolist())
        assert (lanes == {3}) == (name.startswith(("s2-", "router"))), name


def test_addresses_beyond_the_lids_of_a_subnet_stay_whole() -> None:
    fabric, parts = two_subnets()
    for number, part in enumerate(parts):
        part.addresses = np.zeros(len(part.port_info), np.int32)
        part.addresses[0] = 100_000 + number
    merged = merge(fabric, *parts)
    assert set(merged.lid[merged.lid > 0].tolist()) == {100_000, 100_001}
