"""Counts of published fabrics."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.spec import load
from weft.fabric.subnets import subnets_of
from weft.fabric.summary import summarise
from weft.ids import Lid
from weft.routing.lids import assign_lids


def test_an_hpn_pod_has_the_counts_of_simais_template() -> None:
    """15,360 GPUs; 240 leaves and 120 spines, of which 120 leaves in each spine; 14,400 and 30,720 links."""
    fabric = load("hpn:segments=15")
    pod = summarise(fabric)
    spine, leaf = reversed(pod.tiers)
    assert pod.nodes["GPU"] == 15_360
    assert (leaf.switches, spine.switches) == (240, 120)
    assert leaf.hca_links == 30_720
    links = {link.between: (link.label, link.count) for link in pod.links}
    assert links["leaf - spine"] == ("400GbE", 14_400)
    assert links["HCA - leaf"] == ("200GbE", 30_720)
    assert len(fabric.find_node("spine1").peers) == 120
    assert leaf.oversubscription == 128 * 200 / (60 * 400)


def test_a_spectrum_x_pod_has_the_counts_of_simais_template() -> None:
    """4,096 GPUs; 64 leaves with 64 adapters of 400GbE each, and 64 spines, each with one uplink of every leaf."""
    fabric = load("hpn:segments=8,servers=64,spines=64,planes=1")
    pod = summarise(fabric)
    spine, leaf = reversed(pod.tiers)
    assert pod.nodes["GPU"] == 4096
    assert (leaf.switches, spine.switches, leaf.hca_links // leaf.switches) == (64, 64, 64)
    links = {link.between: (link.label, link.count) for link in pod.links}
    assert links == links | {"leaf - spine": ("400GbE", 4096), "HCA - leaf": ("400GbE", 4096)}
    assert leaf.oversubscription == 1.0


def test_a_group_of_cray_ex_has_496_local_links() -> None:
    """32 switches all-to-all, 16 hosts and up to 16 global ports on each: 512 hosts."""
    fabric = load("dragonfly:p=16,a=32,h=16,g=4,radix=64")
    a, b = fabric.link_nodes
    group, switch = fabric.nodes.group, fabric.nodes.kind == NodeKind.SWITCH
    local = switch[a] & switch[b] & (group[a] == group[b])
    assert len(fabric.servers) == 4 * 512
    assert int(local.sum()) == 4 * 496
    assert int((switch[a] & switch[b] & (group[a] != group[b])).sum()) == 4 * 512 // 2


def test_fat_trees_hold_k_squared_half_and_k_cubed_quarter_hosts() -> None:
    """k = 64: 2,048 hosts, 64 leaves, 32 spines, 2,048 links; with planes P times the switches and links."""
    for planes in (1, 2):
        tree = summarise(load(f"fat-tree:hosts=2048,radix=64,planes={planes}"))
        assert [tier.switches for tier in tree.tiers] == [64 * planes, 32 * planes]
        assert tree.links[1].count == 2048 * planes
    whole = summarise(load("fat-tree:hosts=65536,radix=64,levels=3"))
    assert sum(tier.switches for tier in whole.tiers) == 5120
    assert sum(link.count for link in whole.links[1:]) == 131_072


def test_64_ports_of_800_gbit_join_131072_nics_of_eight_planes_in_two_tiers() -> None:
    """K = 512 ports of 100 Gbit/s: K²/2 adapters, and 3K/2 switches in each of eight planes."""
    tree = summarise(load("fat-tree:hosts=131072,server=host+Thor-Ultra,switch=THU-64x800,planes=8"))
    assert [tier.switches for tier in tree.tiers] == [8 * 512, 8 * 256]
    assert [tier.free_ports for tier in tree.tiers] == [0, 0]
    assert tree.links[1].count == 8 * 131_072


def test_the_booster_of_jupiter_has_its_switches_and_ports() -> None:
    """25 groups of 15 leaves, 16 spines and 240 nodes with four ports of 200 Gbit/s: 64 on a leaf, as much goes up."""
    jupiter = "p=16,leaves=15,spines=16,cables=2,h=26,g=25,server=hgx-h100-4,switch=QM9700,speed=2xNDR,uplink=4xNDR"
    booster = summarise(load(f"dragonfly+:{jupiter}"))
    spine, leaf = reversed(booster.tiers)
    assert booster.servers == 25 * 240
    assert (leaf.switches, spine.switches) == (25 * 15, 25 * 16)
    assert leaf.hca_links == 25 * 960 == leaf.switches * 64
    assert leaf.oversubscription == 1.0
    links = {link.between: (link.label, link.count) for link in booster.links}
    assert links["HCA - leaf"] == ("2xNDR", 24_000)
    assert links["leaf - spine"] == ("4xNDR", 25 * 15 * 32)


def test_an_island_of_narval_has_66_nodes_of_hdr100_on_a_leaf_and_blocks_33_to_7() -> None:
    """A switch of 40 HDR ports: 33 split in two for nodes, and 7 up, one to each core. The number of leaves is free."""
    narval = "p=66,leaves=6,spines=7,h=1,g=1,server=host-hdr,switch=QM8700,radix=80,speed=2xHDR,uplink=4xHDR"
    island = summarise(load(f"dragonfly+:{narval}"))
    core, leaf = reversed(island.tiers)
    assert (leaf.hca_links // leaf.switches, core.switches, leaf.free_ports) == (66, 7, 0)
    assert leaf.oversubscription == 33 / 7
    links = {link.between: (link.label, link.count) for link in island.links}
    assert links == links | {"HCA - leaf": ("2xHDR", 6 * 66), "leaf - spine": ("4xHDR", 6 * 7)}


def test_links_between_groups_of_cray_ex_give_the_published_blocking() -> None:
    """512 hosts of a group against its links to all others: 512 / (links per pair of groups * (groups - 1))."""
    fabric = load("dragonfly:p=16,a=32,h=8,g=5,radix=64")
    a, b = fabric.link_nodes
    group, switch = fabric.nodes.group, fabric.nodes.kind == NodeKind.SWITCH
    between = switch[a] & switch[b] & (group[a] != group[b])
    pairs = {tuple(sorted(pair)) for pair in zip(group[a[between]].tolist(), group[b[between]].tolist(), strict=True)}
    assert len(pairs) == 10
    per_arc = int(between.sum()) / len(pairs)
    assert 512 / (per_arc * (5 - 1)) == 512 / (32 * 8) == 2.0


def test_a_segment_of_hpn_has_1024_gpus_on_eight_rails_of_two_ports() -> None:
    segment = summarise(load("hpn:segments=1"))
    assert (segment.nodes["GPU"], segment.tiers[0].switches) == (1024, 16)
    assert catalog.server("dgx-h100+ConnectX-7-EN").rails == 8


def test_connectx_8_is_800_gbit_of_infiniband_in_four_planes_or_two_ports_of_400_ethernet() -> None:
    port = load("star:hosts=2,server=host+ConnectX-8,switch=Q3400")
    assert set(port.link_rate_gbit_s[port.network_links].tolist()) == {800}
    planes = load("star:hosts=2,server=host+ConnectX-8,switch=Q3400,planes=4")
    assert set(planes.link_rate_gbit_s[planes.network_links].tolist()) == {200}
    ethernet = catalog.server("host+ConnectX-8-EN").adapter
    assert (ethernet.label, ethernet.ports) == ("400GbE", 2)
    with pytest.raises(ConfigError, match="planes=3 do not divide"):
        load("star:hosts=2,server=host+ConnectX-8,switch=Q3400,planes=3")
    with pytest.raises(ConfigError, match="planes=2 need ports of 2xXDR, and Q3400 has"):
        load("star:hosts=2,server=host+ConnectX-8,switch=Q3400,planes=2")


def test_a_subnet_has_49_151_unicast_lids_and_a_tree_of_65_536_ports_does_not_fit() -> None:
    assert (Lid.FIRST_MULTICAST - 1, Lid.FIRST_MULTICAST) == (49_151, 49_152)
    with pytest.raises(ConfigError, match=r"more LIDs than the 49,151 that a subnet has"):
        assign_lids(load("fat-tree:hosts=65536,radix=64,levels=3"))


def test_one_router_joins_two_to_six_subnets() -> None:
    for count in (2, 6):
        assert len(subnets_of(load(f"subnets:{count},of=star:hosts=2"))) == count
    for count in (1, 7):
        with pytest.raises(ConfigError, match="a router joins 2 to 6 subnets"):
            load(f"subnets:{count},of=star:hosts=2")
