"""Against NVIDIA's own counts, and the cabling rule behind them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.topologies import superpod
from weft.fabric.topologies.superpod import count_switches, fit_superpod

# units: leaves, spines, cores. DGX SuperPOD Reference Architecture, DGX H100 (RA-11333-001 V11), Table 3 and Table 4;
# the DGX B200 edition has the same for 2, 4, 8, 16, 32 and 64.
PUBLISHED = {
    1: (8, 4, 0),
    2: (16, 8, 0),
    3: (24, 16, 0),
    4: (32, 16, 0),
    8: (64, 32, 0),
    16: (128, 128, 64),
    32: (256, 256, 128),
    64: (512, 512, 256),
}


def tier_counts(fabric: Fabric) -> tuple[int, int, int]:
    counts = Counter(node.name.rstrip("0123456789") for node in fabric.switches)
    return counts["leaf"], counts["spine"], counts["core"]


def cable_counts(fabric: Fabric) -> dict[str, int]:
    """Count network cables by the tiers that they join."""
    a, b = (end[fabric.network_links] for end in fabric.link_nodes)
    names, kinds = fabric.nodes.name, fabric.nodes.kind
    tiers = ["node" if kinds[i] == NodeKind.HCA else name.rstrip("0123456789") for i, name in enumerate(names)]
    return dict(Counter(f"{tiers[i]}-{tiers[j]}" for i, j in zip(a.tolist(), b.tolist(), strict=True)))


@pytest.mark.parametrize(("su", "server"), [*((su, "dgx-h100") for su in PUBLISHED), (8, "dgx-b200")])
def test_switches_and_cables_are_as_published(su, server):
    fabric = superpod(su, server=server)
    leaf, spine, core = PUBLISHED[su]
    assert tier_counts(fabric) == (leaf, spine, core)
    expected = {"node-leaf": 256 * su, "leaf-spine": 256 * su} | ({"spine-core": 256 * su} if core else {})
    assert cable_counts(fabric) == expected
    assert len(fabric.servers) == 32 * su


@pytest.mark.parametrize("su", [1, 2, 3, 4])
def test_a_place_taken_by_the_fabric_manager_leaves_switches_and_uplinks_as_they_are(su):
    """Table 4: one server fewer in all, in whose place two UFM hosts have two cables each."""
    fabric = superpod(su, ufm=2)
    assert tier_counts(fabric) == PUBLISHED[su]
    assert cable_counts(fabric) == {"node-leaf": 8 * (32 * su - 1) + 4, "leaf-spine": 256 * su}
    plugged = [str(hca.port(1).peer) for name in ("ufm1", "ufm2") for hca in fabric[name].hcas]
    assert plugged == [f"leaf{n}/32" for n in (1, 2, 3, 4)]
    if su > 1:
        assert str(fabric["dgx32/mlx5_0/1"].peer) == "leaf9/1"


def test_the_place_of_the_fabric_manager_is_no_servers():
    with pytest.raises(ConfigError, match=r"servers=32 do not fill su=1: units hold 32 each with 1 for UFM.* 1 to 31"):
        superpod(1, servers=32, ufm=2)


def test_rails_share_leaves_in_adjacent_ports():
    fabric = superpod(1, leaves=4)
    assert tier_counts(fabric) == (4, 2, 0)
    assert len(fabric.servers) == 16
    plugged = [str(hca.port(1).peer) for hca in fabric["dgx3"].hcas if hca.port(1).peer]
    assert plugged == [f"leaf{leaf}/{port}" for leaf in (1, 2, 3, 4) for port in (5, 6)]
    with pytest.raises(ConfigError, match=r"leaves=3 do not divide 8 rails evenly: give one of 1, 2, 4, 8"):
        superpod(1, leaves=3)


def test_one_leaf_is_the_whole_fabric_and_all_its_ports_are_for_servers():
    fabric = superpod(1, leaves=1)
    assert tier_counts(fabric) == (1, 0, 0)
    assert len(fabric.servers) == 8
    assert cable_counts(fabric) == {"node-leaf": 64}


@pytest.mark.parametrize(("ratio", "spines", "uplinks"), [(2, 8, 16), (3, 6, 12), (1.5, 11, 22)])
def test_oversubscribed_leaves_have_fewer_uplinks(ratio, spines, uplinks):
    """11 uplinks would keep the ratio of 3, over 11 spines: 12 need only 6."""
    fabric = superpod(4, oversubscription=ratio)
    assert tier_counts(fabric) == (32, spines, 0)
    assert cable_counts(fabric) == {"node-leaf": 32 * 32, "leaf-spine": 32 * uplinks}


@pytest.mark.parametrize(
    ("servers", "radix", "switches"), [(1, 64, 1), (8, 64, 1), (9, 64, 6), (17, 64, 12), (6, 40, 6)]
)
def test_few_servers_get_the_fewest_switches(servers, radix, switches):
    """The choice has the fewest switches of all ways to share the leaves of a unit."""
    chosen = fit_superpod(servers, rails=8, radix=radix)
    assert len(superpod(radix=radix, **chosen).switches) == switches
    for leaves in (1, 2, 4, 8):
        try:
            other = superpod(1, servers=servers, leaves=leaves, radix=radix)
        except ConfigError:
            continue
        assert len(other.switches) >= switches


@given(
    st.integers(1, 120),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(16, 80),
    st.sampled_from([None, 1, 2]),
    st.booleans(),
)
def test_the_chosen_superpod_can_be_built_and_holds_all_servers(servers, rails, radix, ufm, twice):
    chosen = fit_superpod(servers, rails=rails, radix=radix, ufm=ufm)
    server = "dgx-h100" if rails == 8 else f"dgx-h100+{rails}rails"
    ratio = 2.0 if twice else 1.0
    fabric = superpod(server=server, radix=radix, ufm=ufm, oversubscription=ratio, **chosen)
    assert len(fabric.switches) == count_switches(servers, rails=rails, radix=radix, ufm=ufm, oversubscription=ratio)
    assert len(fabric.servers) == servers + (ufm or 0)
    assert fabric.network_links.sum() >= servers * rails


def test_seven_units_of_dgx_a100_have_28_cores():
    """Cores of 40 ports join 80 spines with 14 uplinks each, and not one port of theirs is left over."""
    fabric = superpod(7, server="dgx-a100")
    assert tier_counts(fabric) == (56, 80, 28)
    assert {sum(port.peer is not None for port in fabric[f"core{n}"].ports) for n in range(1, 29)} == {40}


def test_rail_r_of_a_server_is_in_leaf_r_of_its_unit():
    fabric = superpod(2)
    for server, unit, place in (("dgx1", 0, 1), ("dgx32", 0, 32), ("dgx33", 1, 1), ("dgx64", 1, 32)):
        plugged = [hca.port(1).peer for hca in fabric[server].hcas]
        assert [str(port) for port in plugged if port] == [f"leaf{8 * unit + r}/{place}" for r in range(1, 9)]
        assert fabric[server].nodes[0].group == f"su{unit + 1}"
    assert fabric["leaf9"].group == "su2"


@pytest.mark.parametrize("su", [4, 9, 16, 64])
def test_a_leaf_spreads_32_uplinks_evenly(su):
    fabric = superpod(su)
    for leaf in ("leaf1", f"leaf{8 * su}"):
        spread = Counter(port.peer.node.name for port in fabric[leaf].ports[32:])
        assert sum(spread.values()) == 32
        assert len(set(spread.values())) == 1


def test_large_superpods_have_separate_spines_for_each_rail():
    """So a packet between two servers on the same rail never needs a core."""
    fabric = superpod(16, server="dgx-h100")
    for rail in range(8):
        spines = {peer.name for su in range(16) for peer in fabric[f"leaf{8 * su + rail + 1}"].peers[-32:]}
        assert spines == {f"spine{n}" for n in range(16 * rail + 1, 16 * rail + 17)}


def test_units_of_dgx_a100_have_20_servers_on_40_port_switches():
    fabric = superpod(2, server="dgx-a100")
    assert len(fabric.servers) == 40
    assert fabric["leaf1"].model == "QM8700"
    assert tier_counts(fabric) == (16, 10, 0)
    assert fabric["leaf1/1"].link.label == fabric["spine1/1"].link.label == "4xHDR"


@pytest.mark.parametrize(("su", "servers"), [(2, 32), (2, 65), (1, 33)])
def test_only_the_last_unit_may_have_servers_missing(su, servers):
    with pytest.raises(ConfigError, match=f"servers={servers} do not fill su={su}"):
        superpod(su, servers=servers)


def test_more_units_than_cores_can_join_are_refused():
    with pytest.raises(ConfigError, match="8 rails and cores of 64 ports allow 256 units"):
        superpod(257)
    assert len(superpod(60, server="dgx-a100").servers) == 1200


def test_a_rack_of_trays_has_a_place_for_each_tray_and_a_leaf_for_each_of_its_rails() -> None:
    """64 places hold three racks of 18 trays; the second lies in both units. A tray has 8 adapters in all."""
    fabric = superpod(2, server="gb200-nvl72")
    assert fabric.servers == ("nvl1", "nvl2", "nvl3")
    assert tier_counts(fabric) == (8, 4, 0)
    assert cable_counts(fabric) == {"node-leaf": 3 * 72, "leaf-spine": 8 * 32}
    plugged = {name: str(fabric[f"{name}/1"].peer) for name in ("nvl1/mlx5_0", "nvl1/mlx5_12", "nvl2/mlx5_0")}
    assert plugged == {"nvl1/mlx5_0": "leaf1/1", "nvl1/mlx5_12": "leaf4/2", "nvl2/mlx5_0": "leaf1/19"}
    assert str(fabric["nvl2/mlx5_104/1"].peer) == "leaf1/32"  # tray 14 is the last of the first unit
    assert str(fabric["nvl2/mlx5_112/1"].peer) == "leaf5/1"


@pytest.mark.parametrize(("racks", "radix"), [(1, 64), (2, 64), (3, 64), (16, 64), (4, 144), (5, 144), (1, 144)])
def test_units_are_fitted_to_racks_of_trays(racks: int, radix: int) -> None:
    chosen = fit_superpod(racks, rails=72, trays=18, radix=radix)
    assert len(superpod(**chosen, server="gb200-nvl72", radix=radix).servers) == racks  # type: ignore[arg-type]


def test_racks_that_do_not_fit_are_refused_in_trays() -> None:
    with pytest.raises(ConfigError, match="servers=2 do not fill su=1: units hold 32 trays each, 18 for a server"):
        superpod(1, server="gb200-nvl72", servers=2)
    with pytest.raises(ConfigError, match="su=1 has 16 places, and a rack of 18 trays needs 18"):
        superpod(1, server="gb200-nvl72", radix=32)


def test_cores_join_half_their_ports_of_pods():
    assert superpod(su=4, radix=8).spec
    with pytest.raises(ConfigError, match="su=5 is too many: 8 rails and cores of 8 ports allow 4 units"):
        superpod(su=5, radix=8)
