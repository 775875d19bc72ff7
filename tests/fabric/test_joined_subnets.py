"""Several subnets as one fabric: addresses that no two ports share, and tables that lead through routers."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.joined_subnets import join_subnets
from weft.fabric.kinds import NodeKind
from weft.fabric.planes import expand
from weft.fabric.subnets import choose_router
from weft.fabric.tables import NO_ROUTE
from weft.routing.engine import Options
from weft.routing.route import route
from weft.wire.bulk import column, fill
from weft.wire.smp import SwitchInfo


def trip(fabric, source: str, destination: str) -> list[str]:
    there, *_ = weft.path(fabric, source, destination)
    assert there.arrived
    return [hop.port for hop in there.hops]


def test_every_end_port_has_an_address_of_its_own_and_names_stay():
    fabric = weft.route("subnets:3,of=star:hosts=4").fabric
    joined = join_subnets(fabric)
    addresses = joined.tables.lid[joined.tables.lid > 0]
    assert sorted(addresses.tolist()) == [*range(1, 3 * (4 + 1) + 1)]
    assert joined.tables.lft.shape == (4, 16)
    assert joined.nodes.name == fabric.nodes.name
    assert len(joined.of_kind(NodeKind.SWITCH)) == 4
    assert len(fabric.of_kind(NodeKind.SWITCH)) == 3, "the fabric itself is unchanged"


def test_one_subnet_and_unrouted_subnets_stay_as_they_are():
    star, unrouted = weft.route("star:hosts=4").fabric, weft.load("subnets:2,of=star:hosts=2")
    assert join_subnets(star) is star
    assert join_subnets(unrouted) is unrouted


def test_planes_that_differ_are_joined_each_by_itself():
    """A host has lost its cable in plane 2, so the addresses of that plane are others than those of plane 1."""
    whole = expand(weft.load("subnets:2,of=star:hosts=2,planes=2")).without("p2-s1-leaf1/1")
    joined = join_subnets(route(whole).fabric)
    names = [f"s{subnet}-h{host}/{plane}" for plane in (1, 2) for subnet in (1, 2) for host in (1, 2)]
    hosts = [joined.find_port(name).slot for name in names]
    address = joined.tables.lid[hosts]
    assert address[4] == 0
    assert len(set(address[:4])) == 4
    assert len(set(address[4:])) == 4
    leaves = [joined.node_index[f"p{plane}-s2-leaf1"] for plane in (1, 2)]
    routes = joined.tables.lft[joined.tables.switch_row[leaves]]
    assert routes[0, address[:4]].tolist() == [3, 3, 1, 2]
    assert routes[1, address[5:]].tolist() == [3, 1, 2]
    assert joined.tables.subnet[hosts].tolist() == [1, 1, 2, 2] * 2


def test_blocks_of_lids_stay_aligned():
    fabric = route(weft.load("subnets:2,of=fat-tree:hosts=12,radix=8"), Options(lmc=2, engine="up-down")).fabric
    joined = join_subnets(fabric)
    hosts = fabric.first_port[fabric.of_kind(NodeKind.HCA)] + 1
    assert (joined.tables.lid[hosts] % 4 == 0).all()
    traces = weft.path(fabric, "s1-h1", "s2-h12")
    assert len(traces) == 8
    assert all(each.arrived for each in traces)


def test_path_leads_through_the_router_that_the_administrator_would_name():
    fabric = weft.route("subnets:2,routers=3,of=star:hosts=8").fabric
    used = set()
    for number in range(1, 9):
        _, out, across, into = trip(fabric, "s1-h1", f"s2-h{number}")
        guid = int(fabric.ports.guid[fabric.find_port(f"s2-h{number}/1").slot])
        router = f"router{choose_router(guid, 3) + 1}"
        assert (out.partition("/")[0], across, into) == ("s1-leaf1", f"{router}/2", f"s2-leaf1/{number}")
        used.add(router)
    assert len(used) == 3


def test_dlid_of_a_trace_is_that_of_the_router_and_local_pairs_keep_theirs():
    fabric = weft.route("subnets:2,of=star:hosts=4").fabric
    there, back = weft.path(fabric, "s1-h1", "s2-h2")
    assert there.dlid == int(fabric.tables.lid[fabric.find_port("router1/1").slot])
    assert back.dlid == int(fabric.tables.lid[fabric.find_port("router1/2").slot])
    local, _ = weft.path(fabric, "s2-h1", "s2-h2")
    assert local.dlid == int(fabric.tables.lid[fabric.find_port("s2-h2/1").slot])


def test_levels_that_differ_behind_a_router_are_refused():
    fabric = route(weft.load("subnets:2,of=torus:5x5"), Options(engine="dfsssp")).fabric
    assert fabric.tables.path_sl.any()
    with pytest.raises(ConfigError, match="a router changes the level of a packet"):
        join_subnets(fabric)


def test_service_level_0_everywhere_is_no_other_level():
    fabric = weft.route("subnets:2,of=star:hosts=2").fabric
    fabric.tables.path_sl = np.zeros_like(fabric.tables.lft)
    assert not join_subnets(fabric).tables.path_sl.any()


def test_switches_of_a_running_fabric_keep_their_settings_and_forward_all_addresses():
    fabric = weft.route("subnets:2,of=star:hosts=2").fabric
    infos = fabric.tables.switch_info
    fill(infos, SwitchInfo.linear_fdb_top, 5)
    fill(infos, SwitchInfo.multicast_fdb_top, np.arange(len(infos)) + 0xC000)
    joined = join_subnets(fabric).tables.switch_info
    assert set(column(joined, SwitchInfo.linear_fdb_top).tolist()) == {0xFFFF}
    assert column(joined, SwitchInfo.multicast_fdb_top).tolist() == [*range(0xC000, 0xC000 + len(infos))]
    assert set(column(infos, SwitchInfo.linear_fdb_top).tolist()) == {5}, "those of the fabric itself"


def test_router_with_lid_1_is_used():
    fabric = weft.load("subnets:2,of=star:hosts=2")
    names, tables = list(fabric.nodes.name), fabric.tables
    for number in (1, 2):
        tables.lid[fabric.first_port[names.index("router1")] + number] = 1
        for lid, name in enumerate((f"s{number}-leaf1", f"s{number}-h1", f"s{number}-h2"), 2):
            tables.lid[fabric.first_port[names.index(name)] + (lid > 2)] = lid
    tables.lft[:] = NO_ROUTE
    tables.lft[:, 1:5] = (3, 0, 1, 2)
    assert trip(fabric, "s1-h1", "s2-h2") == ["s1-h1/1", "s1-leaf1/3", "router1/2", "s2-leaf1/2"]


def test_lanes_of_routers_follow_their_output_ports():
    fabric = weft.route("subnets:2,of=fat-tree:hosts=12,radix=8").fabric
    joined = join_subnets(fabric)
    router = int(fabric.of_kind(NodeKind.ROUTER)[0])
    old, new = (each.tables.first_pair[router] for each in (fabric, joined))
    assert "sl2vl" in vars(fabric.tables)
    for entered in range(3):
        rows = joined.tables.sl2vl[new + 3 * entered : new + 3 * entered + 3]
        assert np.array_equal(rows, fabric.tables.sl2vl[old : old + 3])
    assert weft.path(fabric, "s1-h3", "s2-h12")[0].arrived
