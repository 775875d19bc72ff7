"""Ports of VPI models become Ethernet at both ends of a cable; others are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.link_layers import as_ethernet, ethernet_slots
from weft.fabric.rates import Technology

VPI = "star:hosts=4,server=host-fdr,switch=SX6036"


def layers(fabric) -> list[str]:
    return [link.label for link in fabric.all_links()]


@pytest.mark.parametrize("name", ["host3", "host3/1", "leaf1/3"])
def test_a_cable_is_named_by_its_host_adapter_or_either_port(name):
    before = weft.load(VPI)
    fabric = as_ethernet(before, [name])
    assert layers(fabric) == ["4xFDR", "4xFDR", "40GbE", "4xFDR"]
    assert layers(before) == ["4xFDR"] * 4, "the fabric given does not change"
    assert fabric.changes[-1] == f"configured {name} for Ethernet"


def test_a_switch_names_all_its_cables():
    fabric = as_ethernet(weft.load("fat-tree:hosts=40,server=host-fdr,switch=SX6036"), ["spine1"])
    spine = [link for link in fabric.all_links() if "spine1" in (link.a.node.name, link.b.node.name)]
    others = [link for link in fabric.all_links() if link not in spine]
    assert spine
    assert {link.technology for link in spine} == {Technology.ETHERNET}
    assert {link.technology for link in others} == {Technology.INFINIBAND}


def test_switches_with_one_link_layer_are_refused_and_vpi_switches_named():
    with pytest.raises(ConfigError, match=r"leaf1/3 cannot be Ethernet: all ports of a QM9700 .*: SX6036"):
        as_ethernet(weft.load("star:hosts=4"), ["h3"])


def test_the_second_configuration_of_a_cable_is_refused():
    fabric = as_ethernet(weft.load(VPI), ["host3"])
    with pytest.raises(ConfigError, match="host3 has no InfiniBand cable"):
        as_ethernet(fabric, ["host3"])


def test_planes_are_refused():
    with pytest.raises(ConfigError, match="2 planes"):
        as_ethernet(weft.load("fat-tree:hosts=4,radix=4,planes=2"), ["h1"])


def test_ports_of_unknown_models_take_the_rate_of_their_cable():
    whole = weft.load("star:hosts=2")
    unknown = replace(whole, models=tuple(f"model {number}" for number, _ in enumerate(whole.models)))
    assert layers(as_ethernet(unknown, ["h2"])) == ["4xNDR", "400GbE"]


def test_ethernet_slots_are_both_ends():
    fabric = as_ethernet(weft.load(VPI), ["host3"])
    host, leaf = fabric.find_port("host3/1").slot, fabric.find_port("leaf1/3").slot
    assert ethernet_slots(fabric) == {host: leaf, leaf: host}
