from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.files.opensm import write_dumps
from weft.fabric.model import Fabric
from weft.routing.check import check
from weft.routing.lids import assign_lids, ports_with_lids
from weft.routing.route import route
from weft.sim.engine import Options as RunOptions
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic


def blocks(fabric: Fabric, lmc: int) -> list[range]:
    lid, lmcs = assign_lids(fabric, lmc)
    return sorted(
        (range(int(lid[s]), int(lid[s]) + (1 << int(lmcs[s]))) for s in np.flatnonzero(lid)), key=lambda b: b.start
    )


@pytest.mark.parametrize("lmc", [0, 1, 3])
def test_every_port_that_needs_one_has_an_aligned_block_of_its_own(lmc):
    fabric = weft.load("superpod:su=1,servers=3")
    dependencies = blocks(fabric, lmc)
    hosts, switches = ports_with_lids(fabric)
    assert len(dependencies) == len(hosts) + len(switches) == 3 * 8 + 12
    assert dependencies[0].start >= 1
    assert all(a.stop <= b.start for a, b in pairwise(dependencies))
    assert all(block.start % len(block) == 0 for block in dependencies)


def test_existing_lids_are_kept_and_gaps_filled():
    fabric = weft.load("star:hosts=3")
    fabric.tables.lid[fabric["h2/1"].slot] = 1
    lid, _ = assign_lids(fabric)
    assert [int(lid[fabric[name].slot]) for name in ("h1/1", "h2/1", "h3/1", "leaf1/0")] == [2, 1, 3, 4]


def test_storage_adapters_without_a_cable_get_none():
    fabric = weft.load("superpod:su=1,servers=1")
    lid, _ = assign_lids(fabric)
    assert lid[fabric["dgx1/mlx5_1/1"].slot] == 0
    assert lid[fabric["dgx1/mlx5_0/2"].slot] == 0, "the PCIe side of an adapter is no port of the subnet"


def test_more_ports_than_a_subnet_has_lids_are_refused_with_the_limit():
    fabric = weft.load("superpod:su=1")
    with pytest.raises(ConfigError, match="--lmc must be 0 to 7, got 8"):
        assign_lids(fabric, 8)
    with pytest.raises(ConfigError, match=r"more LIDs than the 49,151 that a subnet has.*blocks of up to 128"):
        assign_lids(weft.load("fat-tree:hosts=648,radix=36"), 7)


def test_ethernet_has_addresses_beyond_the_lids_of_a_subnet():
    """128 addresses for each of 648 hosts."""
    lid, _ = assign_lids(weft.load("fat-tree:hosts=648,radix=36,speed=400GbE"), 7)
    assert int(lid.max()) > 0xFFFF
    assert len(set(lid[lid > 0].tolist())) == 648 + 54


def test_packets_reach_addresses_beyond_the_lids_of_a_subnet(tmp_path):
    """Existing addresses are kept. OpenSM's files have no such LIDs."""
    fabric = weft.load("star:hosts=4,speed=400GbE")
    fabric.tables.addresses[fabric["h1/1"].slot] = 70_000
    routing = route(fabric)
    tables = routing.tables
    assert tables.lft.shape == (1, 70_001)
    assert routing.fabric["h1/1"].lid == 70_000
    assert check(routing.fabric).ok
    assert all(path.arrived for path in weft.path(routing, "h2", "h1"))
    traffic = Traffic.of(routing.fabric, [("h2", "h1", 4096), ("h1", "h3", 4096)])
    result = PacketEngine().run(routing.fabric, traffic, RunOptions(paths="table"))
    assert result.finish_ps[0] == result.finish_ps[1] > 0
    assert int(routing.fabric.without("h4/1").tables.lid.max()) == 70_000
    with pytest.raises(ConfigError, match="OpenSM's files have LIDs of a subnet, at most 49,151"):
        write_dumps(routing.fabric, tmp_path)
