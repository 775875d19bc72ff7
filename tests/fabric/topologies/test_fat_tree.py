from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.fabric.topologies import fat_tree
from weft.fabric.topologies.fat_tree import choose_above, split_ports


def tiers(fabric: Fabric) -> dict[str, int]:
    return dict(Counter(node.name.rstrip("0123456789") for node in fabric.switches))


def cables(fabric: Fabric, tier: str) -> dict[str, Counter[str]]:
    """Return the number of cables from each switch of the tier to each switch above it."""
    order = {"h": 0, "leaf": 1, "spine": 2, "core": 3}

    def rank(name: str) -> int:
        return order[name.rstrip("0123456789")]

    return {
        node.name: Counter(peer.name for peer in node.peers if rank(peer.name) > rank(node.name))
        for node in fabric.switches
        if rank(node.name) == order[tier]
    }


@pytest.mark.parametrize(("radix", "hosts"), [(4, 16), (8, 128), (16, 1024), (36, 11_664)])
def test_a_full_tree_of_three_levels_has_five_quarters_of_radix_squared_switches(radix, hosts):
    """Al-Fares, Loukissas, Vahdat 2008: k^3/4 hosts, k^2/2 leaves, k^2/2 spines, k^2/4 cores."""
    fabric = fat_tree(hosts, radix=radix)
    assert hosts == radix**3 // 4
    assert tiers(fabric) == {"leaf": radix**2 // 2, "spine": radix**2 // 2, "core": radix**2 // 4}
    assert len(fabric.links) == 3 * hosts


def test_two_levels_of_36_port_switches_hold_648_hosts():
    fabric = fat_tree(648, radix=36)
    assert tiers(fabric) == {"leaf": 36, "spine": 18}
    assert set(map(tuple, (c.values() for c in cables(fabric, "leaf").values()))) == {(1,) * 18}


def test_twelve_pods_of_36_port_switches_have_108_cores_and_three_parallel_cables():
    fabric = fat_tree(3456, pods=12, radix=36)
    assert tiers(fabric) == {"leaf": 12 * 16, "spine": 12 * 18, "core": 108}
    assert set(map(tuple, (c.values() for c in cables(fabric, "spine").values()))) == {(3,) * 6}


def test_spines_that_are_not_full_have_the_uplinks_that_need_the_fewest_cores():
    """14 leaves to a pod: 14 uplinks of a spine would take 7 cores of its group, 15 take 5, and 18 would take 6."""
    fabric = fat_tree(3000, pods=12, radix=36)
    assert tiers(fabric)["core"] == 18 * 5
    assert set(map(tuple, (c.values() for c in cables(fabric, "spine").values()))) == {(3,) * 5}


def test_27648_hosts_on_48_port_switches():
    fabric = fat_tree(27_648, radix=48)
    assert len(fabric.switches) == 2_880
    assert len(fabric.links) == 82_944


def test_1024_hosts_on_qm9700():
    assert tiers(fat_tree(1024, switch="QM9700")) == {"leaf": 32, "spine": 16}


def test_one_switch_is_enough_for_as_many_hosts_as_it_has_ports():
    assert tiers(fat_tree(36, radix=36)) == {"leaf": 1}
    assert tiers(fat_tree(37, radix=36)) == {"leaf": 3, "spine": 2}


def test_leaves_fill_up_in_order_hosts_first_then_uplinks():
    fabric = fat_tree(40, radix=36)
    assert [str(fabric[f"leaf1/{n}"].peer) for n in (1, 18, 19, 36)] == ["h1/1", "h18/1", "spine1/1", "spine2/9"]
    assert fabric["leaf3/4"].peer.name == "h40/1"
    assert fabric["leaf3/5"].peer is None
    assert fabric["leaf3/19"].peer.name == "spine1/19"


def test_parallel_cables_are_in_adjacent_ports_on_both_sides():
    fabric = fat_tree(40, radix=36)
    pairs = [(port.number, port.peer.number) for port in fabric["leaf2"].ports if port.peer.node.name == "spine2"]
    assert pairs == [(28 + n, 10 + n) for n in range(9)]


def test_hosts_leaves_and_spines_know_their_pod_and_cores_belong_to_none():
    fabric = fat_tree(128, radix=8)
    assert [fabric[name].group for name in ("h1", "h16", "h17", "leaf4", "leaf5", "spine5", "h128", "core1")] == [
        *("pod1", "pod1", "pod2", "pod1", "pod2", "pod2", "pod8", "")
    ]
    assert all(port.peer.node.group == "pod3" for port in fabric["leaf9"].ports)


def test_spine_j_of_every_pod_plugs_into_core_group_j():
    fabric = fat_tree(128, radix=8)
    up = cables(fabric, "spine")
    for pod in range(8):
        for j in range(4):
            assert set(up[f"spine{4 * pod + j + 1}"]) == {f"core{4 * j + k}" for k in range(1, 5)}


def test_leaves_are_shared_out_evenly_over_the_pods():
    fabric = fat_tree(18 * 37, radix=36)
    assert Counter(node.group for node in fabric.switches if node.name.startswith("leaf")) == {
        "pod1": 13,
        "pod2": 12,
        "pod3": 12,
    }


@given(st.floats(0, 1), st.integers(4, 12), st.sampled_from([1.0, 1.5, 2.0, 3.0]), st.sampled_from([2, 3]))
def test_uplinks_are_spread_evenly_and_no_spine_is_oversubscribed(full, radix, oversubscription, height):
    """The number of hosts is from one (full = 0) to the maximum of the tree (1)."""
    down, up = split_ports(radix, oversubscription)
    assert down <= oversubscription * up
    most = radix * down * (radix // 2 if height == 3 else 1)
    fabric = fat_tree(max(1, round(full * most)), radix=radix, oversubscription=oversubscription, levels=height)
    assert set(levels(fabric).tolist()) == set(range(height + 1))
    for spread in cables(fabric, "leaf").values():
        assert sum(spread.values()) == up
        assert len(set(spread.values())) == 1
    for name, spread in cables(fabric, "spine").items():
        if height == 3:
            below = len(fabric[name].peers) - sum(spread.values())
            assert below <= sum(spread.values()) <= radix // 2
            assert len(set(spread.values())) == 1


def test_the_bisection_of_a_full_tree_is_half_its_hosts():
    """Cut between the pods: every host of one half can talk to the other half at full speed."""
    fabric = fat_tree(128, radix=8)
    a, b = fabric.link_nodes
    core = np.array([name.startswith("core") for name in fabric.nodes.name])
    lower_half = fabric.nodes.group < 4
    assert np.count_nonzero((core[a] | core[b]) & (lower_half[a] & ~core[a] | lower_half[b] & ~core[b])) == 64


@pytest.mark.parametrize(
    ("radix", "oversubscription", "down", "up"), [(36, 1, 18, 18), (36, 2, 24, 12), (64, 3, 48, 16), (24, 1.4, 14, 10)]
)
def test_oversubscription_is_down_ports_for_each_uplink(radix, oversubscription, down, up):
    assert split_ports(radix, oversubscription) == (down, up)


def test_hosts_count_servers_and_their_rails_take_adjacent_ports():
    fabric = fat_tree(16, server="dgx-h100")
    assert tiers(fabric) == {"leaf": 4, "spine": 2}
    assert [str(fabric[f"leaf{n}/1"].peer) for n in (1, 2)] == ["dgx1/mlx5_0/1", "dgx5/mlx5_0/1"]


def test_a_tree_that_cannot_exist_is_refused_with_the_largest_one_and_the_way_out():
    with pytest.raises(ConfigError, match=r"at most 11,664\n.*radix=37") as refusal:
        fat_tree(11_665, radix=36)
    assert len(fat_tree(11_665, radix=37).hcas) == 11_665
    assert "hosts=11665" in str(refusal.value)
    with pytest.raises(ConfigError, match=r"levels=2 of 36-port switches hold at most 648\n  Leave out levels"):
        fat_tree(649, radix=36, levels=2)
    with pytest.raises(ConfigError, match="Use fewer hosts"):
        fat_tree(10**9, radix=36)
    with pytest.raises(ConfigError, match="at most 8,192"):
        fat_tree(8_193, server="dgx-h100", switch="QM9700")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"levels": 4}, "levels=4 is not possible: give 1, 2 or 3"),
        ({"levels": 2, "pods": 3}, "leave out levels=2"),
        ({"pods": 1, "radix": 8}, "fill 25 leaves, and with 8-port switches that is 7 to 8 pods"),
        ({"pods": 9, "radix": 8}, "7 to 8 pods"),
        ({"oversubscription": 64}, "leaves no uplink on a leaf of 64 ports: at most 63"),
    ],
)
def test_impossible_trees_are_refused_with_the_possible_values(parameters, message):
    with pytest.raises(ConfigError, match=message):
        fat_tree(100, **parameters)


def test_groups_of_mixed_spines_need_the_fewest_cores_and_cables():
    assert choose_above(7, 8, 20, 40, mixed=True) == (10, 2, 16, 16)  # 32 cores
    assert choose_above(7, 8, 20, 40, mixed=False) == (10, 10, 4, 16)  # 40 cores
