"""`Fabric.without`: a fabric without some of its parts, and without routes."""

from __future__ import annotations

import pytest

import weft
from weft.errors import ConfigError, UnknownName
from weft.routing.route import route


def test_a_cable_is_removed_by_either_end_or_as_an_object():
    fabric = weft.load("fat-tree:hosts=8,radix=4")
    cable = fabric["leaf1/3"].link
    for part in ("leaf1/3", str(cable.b), cable, fabric["leaf1/3"]):
        broken = fabric.without(part)
        assert len(broken.cables) == len(fabric.cables) - 1
        assert broken["leaf1/3"].peer is None


def test_a_node_and_a_server_are_removed_with_their_cables():
    fabric = weft.load("superpod:su=1,servers=2")
    broken = fabric.without("spine1", "dgx2")
    assert "spine1" not in broken
    assert broken.servers == ("dgx1",)
    assert broken.changes == ("killed spine1", "killed dgx2")
    assert "spine1" in fabric


def test_cables_are_those_of_the_network_and_not_those_inside_a_server():
    fabric = weft.load("superpod:su=1,servers=2")
    adapters = {port.name for node in fabric.hcas for port in node.ports}
    assert {str(cable.a) for cable in fabric.cables} & adapters
    assert len(fabric.cables) == fabric.network_links.sum() < len(fabric.links)


def test_the_new_fabric_keeps_its_lids_and_has_no_routes():
    routed = route(weft.load("fat-tree:hosts=8,radix=4")).fabric
    broken = routed.without("leaf1/3")
    assert broken["h8/1"].lid == routed["h8/1"].lid > 0
    assert "lft" not in vars(broken.tables)
    assert "lft" in vars(routed.tables)
    assert weft.check(weft.route(broken)).ok


@pytest.mark.parametrize(
    ("part", "error", "message"),
    [
        ("leaf1/99", UnknownName, "leaf1/99"),
        ("leaf9", UnknownName, "did you mean leaf"),
        ("leaf1/0", ConfigError, "leaf1/0 has no cable"),
        ("", UnknownName, "there is no node, port or server ''"),
        ("h1/tray2", ConfigError, "h1 has no trays"),
    ],
)
def test_a_missing_part_is_an_error(part, error, message):
    with pytest.raises(error, match=message):
        weft.load("fat-tree:hosts=8,radix=4").without(part)
