"""Planes: one network that represents several, and the same network written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.planes import expand, holding, in_network, plane_number, remove_plane, split_planes
from weft.fabric.spec import load
from weft.fabric.summary import summarise

XDR = "superpod:su=1,server=dgx-b300,servers=4,planes=4"
ETHERNET = "fat-tree:hosts=16,server=dgx-h100+ConnectX-7-EN,planes=2"


@pytest.mark.parametrize(
    ("spec", "label", "radix"),
    [
        (XDR, "1xXDR", 144),  # a chip of a Q3400 for each plane
        ("superpod:su=1,planes=2", "2xNDR", 128),  # 64 ports of 400 Gbit/s are 128 of 200
        (ETHERNET, "200GbE", 128),
        ("star:hosts=4,planes=4,radix=64", "1xNDR", 64),
        ("star:hosts=4,server=host+Thor-Ultra,switch=TH5-64x800,planes=4", "200GbE", 256),
        ("star:hosts=4,server=host+Thor-Ultra,switch=THU-64x800,planes=8", "100GbE", 512),
    ],
)
def test_a_plane_has_its_share_of_an_adapter_port(spec: str, label: str, radix: int) -> None:
    fabric = load(spec)
    assert {cable.label for cable in fabric.cables} == {label}
    assert fabric.nodes.n_ports[fabric.of_kind(NodeKind.SWITCH)].max() == radix


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("star:hosts=4,planes=3", "planes=3 do not divide a ConnectX-7 of 4xNDR: its 4 lanes divide into 1, 2, 4"),
        ("star:hosts=4,server=dgx-h100+ConnectX-7-EN,planes=3", "its ports split into 1, 2, 4, 8"),
        ("superpod:su=1,server=dgx-a100,planes=2", "planes=2 need ports of 2xHDR, and QM8700 has 40 × 4xHDR"),
        ("star:hosts=4,switch=SN5600,breakout=8", "breakout=8: SN5600 has 64 × 800GbE or 128 × 400GbE"),
        ("star:hosts=4,switch=SN5600,breakout=2,speed=800GbE", "speed=800GbE and breakout=2 are two speeds"),
    ],
)
def test_planes_that_do_not_divide_and_breakouts_that_a_switch_lacks_are_refused(spec: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(spec)


def test_a_broken_out_switch_has_as_many_ports_of_the_slower_speed() -> None:
    fabric = load("star:hosts=100,switch=SN5600,breakout=2")
    assert fabric.switches[0].ports[-1].number == 128
    assert fabric.cables[0].label == "400GbE"


@pytest.mark.parametrize(("breakout", "label"), [(1, "800GbE"), (2, "400GbE"), (4, "200GbE"), (8, "100GbE")])
def test_64_ports_of_800_gbit_are_128_of_400_256_of_200_or_512_of_100(breakout: int, label: str) -> None:
    fabric = load(f"star:hosts=4,server=host+Thor-Ultra,switch=THU-64x800,breakout={breakout}")
    assert fabric.switches[0].ports[-1].number == 64 * breakout
    assert fabric.servers == ("h1", "h2", "h3", "h4")  # as with the adapter of the template
    assert fabric.cables[0].label == label


def test_counts_and_rates_are_those_of_all_planes() -> None:
    one, four = summarise(load(XDR.replace(",planes=4", ""))), summarise(load(XDR))
    assert four.nodes["switch"] == 4 * one.nodes["switch"]
    assert four.boxes == one.boxes == one.nodes["switch"]  # a Q3400 has a chip in each plane
    assert four.nodes["HCA"] == one.nodes["HCA"]
    assert four.tiers[0].down_gbit_s == one.tiers[0].down_gbit_s  # four times a quarter of the rate
    assert four.links[0].count == 4 * one.links[0].count
    assert four.links[-1].count == one.links[-1].count  # PCIe


def test_the_expanded_fabric_has_the_counts_of_the_compact_one() -> None:
    compact, whole = load(ETHERNET), expand(load(ETHERNET))
    few, many = summarise(compact), summarise(whole)
    assert many.nodes == few.nodes
    assert [(t.switches, t.hca_links, t.down_gbit_s, t.up_gbit_s, t.free_ports) for t in many.tiers] == [
        (t.switches, t.hca_links, t.down_gbit_s, t.up_gbit_s, t.free_ports) for t in few.tiers
    ]
    assert [(link.between, link.count) for link in many.links] == [(link.between, link.count) for link in few.links]
    assert len(np.unique(whole.nodes.guid)) == len(whole.nodes)


def test_port_n_of_an_adapter_is_in_plane_n() -> None:
    whole = expand(load(XDR))
    adapter = next(port.node for cable in whole.cables for port in (cable.a, cable.b) if port.node.server)
    peers = [str(port.peer) for port in adapter.ports[:4]]
    assert peers == [f"p{plane}-leaf1/1" for plane in range(1, 5)]
    assert adapter.ports[4].peer is not None
    assert "pcie" in str(adapter.ports[4].peer)


def test_every_plane_of_an_expanded_fabric_is_the_compact_one() -> None:
    compact = load(XDR)
    for _, part in split_planes(expand(compact)):
        assert len(part.links) == len(compact.links)
        assert sorted(link.label for link in part.cables) == sorted(link.label for link in compact.cables)


def test_tables_are_copied_to_every_plane() -> None:
    routed = weft.route(XDR).fabric
    verdict = weft.check(expand(routed))
    assert verdict.ok
    assert verdict.pairs == 4 * weft.check(routed).pairs


def test_a_lost_plane_costs_its_share_of_the_rate() -> None:
    fabric = load(XDR)
    broken = fabric.without("plane2")
    assert (broken.planes, broken.changes) == (3, ("killed plane2",))
    assert summarise(broken).tiers[0].down_gbit_s == 0.75 * summarise(fabric).tiers[0].down_gbit_s
    assert weft.check(weft.route(broken)).ok
    with pytest.raises(ConfigError, match=r"plane5: .* has planes 1 to 3"):
        broken.without("plane5")


def test_a_fault_in_one_plane_leaves_the_others_whole() -> None:
    broken = load(XDR).without("p2-spine1")
    assert broken.expanded
    routing = weft.route(broken)
    assert weft.check(routing).ok
    assert sum(name.startswith("p2-spine") for name in broken.nodes.name) == 3
    assert sum(name.startswith("p3-spine") for name in broken.nodes.name) == 4
    gone = weft.load(XDR).without("p2-spine1", "plane2")
    assert not any(name.startswith("p2-") for name in gone.nodes.name)


def test_a_switch_of_every_plane_is_named_in_one_of_them() -> None:
    with pytest.raises(ConfigError, match="leaf1 is in each of 4 planes: name it in one of them, p1-leaf1"):
        load(XDR).without("leaf1")


def test_a_server_is_removed_from_all_planes() -> None:
    assert not load(XDR).without("dgx1").expanded


def test_rerouting_one_plane_changes_no_entry_of_the_others() -> None:
    routing = weft.route(XDR)
    again = weft.route(XDR, fault="dead:p2-spine1")
    assert again.changed_entries is not None
    assert 0 < again.changed_entries < routing.tables.lft.size
    assert weft.check(again).ok


def test_one_plane_is_the_fabric_without_planes() -> None:
    one, none = load("superpod:su=1,servers=2,planes=1"), load("superpod:su=1,servers=2")
    assert one.nodes.name == none.nodes.name
    assert (one.links.a == none.links.a).all()
    assert (one.links.speed == none.links.speed).all()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("plane1", 1),
        ("plane10", 10),
        ("plane0", None),
        ("plane", None),
        ("plane2x", None),
        ("p2", None),
        ("aplane2", None),
    ],
)
def test_a_plane_is_named_by_its_number_from_1(name: str, number: int | None) -> None:
    assert plane_number(name) == number


def test_the_last_plane_exists_and_the_next_does_not() -> None:
    for fabric in (load(ETHERNET), expand(load(ETHERNET))):
        assert remove_plane(fabric, 2).changes[-1:] == ("killed plane2",)
        with pytest.raises(ConfigError, match=r"plane3: .* has planes 1 to 2"):
            remove_plane(fabric, 3)


def test_a_part_is_looked_up_in_the_fabric_that_has_it() -> None:
    compact = load(ETHERNET)
    whole = expand(compact)
    assert expand(whole) is whole
    assert holding(whole, "p1-leaf1") is whole
    assert holding(compact, "dgx1") is compact
    assert holding(compact, "nothing") is compact
    assert holding(compact, "p2-leaf1/1").expanded
    with pytest.raises(ConfigError, match="leaf1/1 is in each of 2 planes: name it in one of them, p1-leaf1/1"):
        holding(compact, "leaf1/1")


def test_tables_of_a_plane_and_of_its_adapters_are_those_of_the_compact_fabric() -> None:
    compact = weft.route("star:hosts=2,planes=2").fabric
    tables = compact.tables
    tables.pkey[:, 0] = np.arange(len(compact.ports)) + 1
    tables.sl2vl[:] = np.arange(len(tables.sl2vl))[:, None] % 15
    whole = expand(compact)
    assert whole.nodes.name == ("h1", "h2", "p1-leaf1", "p2-leaf1")
    assert (whole.tables.lft == tables.lft[0]).all()
    old, new = compact["h1/1"].slot, [whole[f"h1/{number}"].slot for number in (1, 2)]
    assert whole.tables.pkey[new, 0].tolist() == [old + 1, old + 1]
    for plane in (1, 2):
        assert whole.tables.pkey[whole[f"p{plane}-leaf1/1"].slot, 0] == compact["leaf1/1"].slot + 1
    pairs = len(tables.sl2vl) - int(tables.first_pair[2])  # pairs of the switch, the last node
    for node in (2, 3):
        first = int(whole.tables.first_pair[node])
        assert (whole.tables.sl2vl[first : first + pairs] == tables.sl2vl[-pairs:]).all()
    of_adapter = slice(int(whole.tables.first_pair[0]), int(whole.tables.first_pair[1]))
    assert (whole.tables.sl2vl[of_adapter] == tables.sl2vl[int(tables.first_pair[0]) + 1]).all()


def test_counters_of_an_adapter_are_those_of_its_port_in_every_plane_and_of_its_pcie_port() -> None:
    compact = load(XDR)
    adapter = next(port.node for cable in compact.cables for port in (cable.a, cable.b) if port.node.server)
    compact.counters[:] = np.arange(len(compact.ports))[:, None]
    whole = expand(compact)
    planes, pcie = (compact.port(int(compact.first_port[adapter.index]) + number) for number in (1, 2))
    assert pcie.peer is not None
    for number, expected in ((0, planes.slot - 1), *((n, planes.slot) for n in (1, 2, 3, 4)), (5, pcie.slot)):
        assert set(whole.counters[whole.first_port[whole.node_index[adapter.name]] + number].tolist()) == {expected}


def test_switches_in_servers_and_adapters_outside_of_them_are_not_of_a_plane() -> None:
    fabric = load("star:hosts=2,planes=2")
    assert in_network(fabric).tolist() == [False, False, True]
    assert fabric.nodes.name[2] == "leaf1"
    outside = replace(fabric, nodes=replace(fabric.nodes, server=np.array([-1, 0, -1], np.int32)))
    assert in_network(outside).tolist() == [False, False, True]
    inside = replace(fabric, nodes=replace(fabric.nodes, server=np.array([0, 1, 1], np.int32)))
    assert not in_network(inside).any()


def test_ports_of_an_adapter_have_guids_of_their_own_and_ports_of_a_switch_that_of_the_switch() -> None:
    whole = expand(load("star:hosts=2,planes=2"))
    base = int(whole.nodes.guid[0])
    assert [int(whole[f"h1/{number}"].guid) - base for number in (1, 2)] == [1, 2]
    for plane in (1, 2):
        switch = whole.find_node(f"p{plane}-leaf1")
        assert {int(port.guid) for port in switch.ports} == {int(whole.nodes.guid[switch.index])}
    assert len(set(whole.nodes.system_guid.tolist())) == 4
