"""Each cabling problem is put into a healthy fabric and found; the healthy fabric has none."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fabric.duplicates import with_port_guid

import weft
from weft.fabric import faults
from weft.fabric.build import FabricBuilder
from weft.fabric.cabling_warnings import find_cabling_warnings
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric


def warnings(fabric: Fabric) -> dict[str, tuple[str, ...]]:
    return {warning.problem: warning.names for warning in find_cabling_warnings(fabric, levels(fabric))}


@pytest.mark.parametrize(
    "spec",
    [
        "star:hosts=8",
        "fat-tree:hosts=128,radix=16",
        "superpod:su=2",
        "superpod:su=1,servers=31",
        "dragonfly:p=2,a=4,h=2",
        "torus:4x4x4",
        "hyperx:4x4",
    ],
)
def test_fabrics_that_weft_builds_have_no_warnings(spec):
    assert warnings(weft.load(spec)) == {}


def test_a_slow_cable_is_found():
    fabric = faults.slow(weft.load("fat-tree:hosts=128,radix=16"), "leaf3/9", "1xSDR")
    ((kind, names),) = warnings(fabric).items()
    assert "slower than the other links" in kind
    assert names[0].startswith("leaf3/9 - ") or " - leaf3/9 " in names[0]


def test_a_link_with_bit_errors_is_found():
    result = warnings(faults.degrade(weft.load("fat-tree:hosts=128,radix=16"), "h5/1", 1e-9))
    assert result["links with bit errors"][0].endswith("at 1e-09")


def test_a_missing_uplink_is_found():
    result = warnings(faults.remove_link(weft.load("fat-tree:hosts=128,radix=16"), "leaf3/9"))
    assert result == {"leaves whose number of uplinks is not 8": ("leaf3 (7)",)}


def test_a_server_with_a_dark_rail_is_found():
    result = warnings(faults.remove_link(weft.load("superpod:su=1"), "dgx7/mlx5_0/1"))
    assert result == {"servers with fewer than 8 cabled HCAs": ("dgx7 (7)",)}


def _rewired(fabric: Fabric, one: str, other: str) -> Fabric:
    """Swap the far ends of two cables."""
    b = fabric.links.b.copy()
    i, j = fabric[one].link.index, fabric[other].link.index
    b[i], b[j] = b[j], b[i]
    from dataclasses import replace

    return fabric.with_links(replace(fabric.links, b=b))


def test_two_swapped_rails_are_found():
    fabric = _rewired(weft.load("superpod:su=1"), "dgx7/mlx5_0/1", "dgx7/mlx5_3/1")
    result = warnings(fabric)
    assert result == {
        "HCAs on a leaf of another rail": ("dgx7/mlx5_3 on leaf1 (mlx5_0)", "dgx7/mlx5_0 on leaf2 (mlx5_3)")
    }


def test_two_swapped_rails_are_found_where_rails_share_leaves():
    fabric = weft.load("superpod:su=1,servers=12,leaves=4,ufm=2")
    assert warnings(fabric) == {}
    shared = "mlx5_0, mlx5_3", "mlx5_4, mlx5_5"
    assert warnings(_rewired(fabric, "dgx7/mlx5_3/1", "dgx7/mlx5_4/1")) == {
        "HCAs on a leaf of another rail": (f"dgx7/mlx5_4 on leaf1 ({shared[0]})", f"dgx7/mlx5_3 on leaf2 ({shared[1]})")
    }


def test_a_dead_end_an_island_and_a_dark_switch_are_found():
    builder = FabricBuilder("odd")
    builder.add_nodes(NodeKind.SWITCH, ["leaf1", "stub1", "stub2", "lone", "dark"], n_ports=8)
    builder.add_nodes(NodeKind.HCA, ["h1", "h2", "h3"], n_ports=1)
    builder.add_links([5, 6, 0, 1, 7], 1, [0, 0, 1, 2, 3], [2, 3, 2, 2, 1], "EDR")
    result = warnings(builder.build())
    assert result["dead ends, switches that lead to no host"] == ("stub1", "stub2")
    assert result["2 islands, of 5 and 2 nodes; not in the largest"] == ("lone", "h3")
    assert result["switches with no cable"] == ("dark",)


def test_leaves_without_hosts_are_found():
    fabric = weft.load("fat-tree:hosts=16,radix=8")
    hosts = [port.peer.node.index for name in ("leaf1", "leaf2") for port in fabric[name].ports[:4]]
    keep = np.ones(len(fabric.nodes), bool)
    keep[hosts] = False
    bare = fabric.subset(keep)
    assert warnings(bare) == {"leaves without hosts": ("leaf1", "leaf2")}


def test_a_shortcut_between_leaves_is_found():
    fabric = weft.load("fat-tree:hosts=118,radix=16")
    spare = [port.name for leaf in fabric.switches if leaf.name.startswith("leaf") for port in leaf.ports[:8]]
    free = [name for name in spare if fabric[name].peer is None]
    assert len(free) >= 2, "the last leaf has room"
    fabric = faults.remove_link(fabric, "h1/1")
    from dataclasses import replace

    links = fabric.links
    extra = {column: np.append(getattr(links, column), getattr(links, column)[-1]) for column in links.__slots__}
    extra["a"][-1], extra["b"][-1] = fabric["leaf1/1"].slot, fabric[free[0]].slot
    result = warnings(fabric.with_links(replace(links, **extra)))
    assert list(result["links that do not go from one tier to the next"]) == [f"leaf1/1 - {free[0]}"]


def test_lids_claimed_twice_and_lids_missing_are_found():
    fabric = weft.load("star:hosts=4")
    fabric.tables.lid[[fabric["leaf1/0"].slot, fabric["h1/1"].slot, fabric["h2/1"].slot]] = (1, 2, 2)
    result = warnings(fabric)
    assert result["LIDs of more than one port"] == ("h1/1 (2)", "h2/1 (2)")
    assert result["ports without a LID"] == ("h3/1", "h4/1")


def test_a_port_guid_of_two_adapters_is_named_with_the_winner_by_lowest_node_guid():
    fabric = with_port_guid(weft.load("star:hosts=4"), "h4/1", of="h2/1")
    guid = fabric.find_port("h2/1").guid
    assert warnings(fabric) == {"duplicate port GUIDs": (f"h4/1 has the port GUID {guid} of h2/1",)}


def test_a_port_without_a_cable_competes_for_no_guid():
    fabric = with_port_guid(weft.load("star:hosts=4"), "h4/1", of="h2/1")
    assert "duplicate port GUIDs" not in warnings(faults.remove_link(fabric, "h2/1"))
