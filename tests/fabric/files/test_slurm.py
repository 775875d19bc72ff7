"""topology.conf: a tree that has every server once, and one top for each part of the network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.build import FabricBuilder
from weft.fabric.files import slurm
from weft.fabric.files.hostlist import compress, natural
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import islands
from weft.fabric.model import Fabric
from weft.fabric.spec import load


def expand(hostlist: str) -> list[str]:
    """Return the names in a hostlist, by the rules of Slurm's manual."""
    names = []
    for item in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", hostlist):
        match = re.fullmatch(r"([^\[]*)\[([^\]]*)\]", item)
        for part in match[2].split(",") if match else [None]:
            if part is None:
                names.append(item)
                continue
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            names += [f"{match[1]}{number:0{len(first)}d}" for number in numbers]
    return names


def parse(text: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return the nodes and the switches below each switch, from a topology.conf."""
    tree = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, key, inside = re.fullmatch(r"SwitchName=(\S+) (Nodes|Switches)=(\S+)", line).groups()
            assert name not in tree
            tree[name] = (expand(inside), []) if key == "Nodes" else ([], expand(inside))
    return tree


def check(text: str) -> list[set[str]]:
    """Assert Slurm's rules for a file; return the servers below each top switch."""
    tree = parse(text)
    children = [child for _, below in tree.values() for child in below]
    servers = [server for inside, _ in tree.values() for server in inside]
    assert len(children) == len(set(children)), "a switch has two parents"
    assert set(children) <= set(tree), "a switch without a definition"
    assert len(servers) == len(set(servers)), "a server that is there twice"

    def below(name: str) -> set[str]:
        inside, switches = tree[name]
        return set(inside).union(*map(below, switches))

    return [below(name) for name in tree if name not in children]


# -- hostlists -----------------------------------------------------------------------------------------------------


def test_a_hostlist_is_the_shortest_usual_spelling():
    assert compress(["h1", "h2", "h3", "h12"]) == "h[1-3,12]"
    assert compress(["h10", "h9", "h8"]) == "h[8-10]"
    assert compress(["n008", "n009", "n010"]) == "n[008-010]"
    assert compress(["login", "h1"]) == "login,h1"
    assert compress(["rack1-n1", "rack1-n2", "rack2-n1"]) == "rack1-n[1-2],rack2-n1"
    assert sorted(["h10", "h9", "h1"], key=natural) == ["h1", "h9", "h10"]


@given(st.sets(st.from_regex(r"[a-z]([a-z-]|[0-9]{1,4}){0,5}", fullmatch=True)))
def test_a_hostlist_stands_for_the_same_names(names):
    expanded = expand(compress(names))
    assert set(expanded) == names
    assert len(expanded) == len(names)


# -- trees ---------------------------------------------------------------------------------------------------------


def test_spines_over_the_same_leaves_are_one_switch():
    tree = parse(slurm.to_text(load("fat-tree:hosts=16,radix=8")))
    assert tree["leaf2"] == (["h5", "h6", "h7", "h8"], [])
    assert tree["spine1-spine2"] == ([], ["leaf1", "leaf2", "leaf3", "leaf4"])


def test_the_rails_of_a_scalable_unit_are_one_switch():
    """A server is connected to 8 leaves; Slurm has it below one."""
    assert slurm.to_text(load("superpod:su=2")).splitlines()[1:] == [
        "# su1 stands for leaf[1-8]",
        "SwitchName=su1 Nodes=dgx[1-32]",
        "# su2 stands for leaf[9-16]",
        "SwitchName=su2 Nodes=dgx[33-64]",
        "# spine1-spine8 stands for spine[1-8]",
        "SwitchName=spine1-spine8 Switches=su[1-2]",
    ]


def test_pods_are_a_level_below_the_cores():
    tree = parse(slurm.to_text(load("fat-tree:hosts=64,radix=8")))
    assert tree["pod1"] == ([], ["leaf1", "leaf2", "leaf3", "leaf4"])
    assert tree["core1-core8"] == ([], ["pod1", "pod2", "pod3", "pod4"])


def test_groups_of_a_dragonfly_are_a_level():
    tree = parse(slurm.to_text(load("dragonfly:p=2,a=4,h=1")))
    assert tree["group2"] == ([], ["g2s1", "g2s2", "g2s3", "g2s4"])
    assert tree["top"] == ([], [f"group{i}" for i in range(1, 6)])


def test_a_server_that_lost_a_rail_stays_in_its_unit():
    fabric = faults.remove_link(load("superpod:su=2"), "leaf1/1")
    assert check(slurm.to_text(fabric)) == [{f"dgx{i}" for i in range(1, 65)}]
    assert "SwitchName=su1 Nodes=dgx[1-32]" in slurm.to_text(fabric)


def test_storage_servers_are_below_their_own_leaf():
    fabric = load(str(Path(__file__).parents[3] / "examples" / "rails.yaml"))
    assert parse(slurm.to_text(fabric)) == {
        "leaf1-leaf8": (["dgx1", "dgx2", "dgx3", "dgx4"], []),
        "storage1": (["nas1", "nas2"], []),
    }


def test_a_storage_network_does_not_merge_units_of_the_compute_network():
    """Two leaves for compute, one for storage with servers of both, all below one spine."""
    builder = FabricBuilder("storage")
    servers = builder.add_servers(["a", "b", "c", "d"])
    compute = builder.add_nodes(NodeKind.HCA, [f"{s}/mlx5_0" for s in "abcd"], n_ports=1, server=servers)
    storage = builder.add_nodes(NodeKind.HCA, [f"{s}/mlx5_1" for s in "abcd"], n_ports=1, server=servers)
    switches = builder.add_nodes(NodeKind.SWITCH, ["leaf1", "leaf2", "store", "spine"], n_ports=8)
    builder.add_links(compute, 1, switches[[0, 0, 1, 1]], [1, 2, 1, 2], "HDR")
    builder.add_links(storage, 1, switches[2], [1, 2, 3, 4], "HDR")
    builder.add_links(switches[:3], 8, switches[3], [1, 2, 3], "HDR")
    tree = parse(slurm.to_text(builder.build()))
    assert tree == {"leaf1": (["a", "b"], []), "leaf2": (["c", "d"], []), "spine": ([], ["leaf1", "leaf2"])}


def test_the_units_and_pods_of_selene_are_found(selene_dump):
    """25 units of 8 rails in 4 pods; a few management switches stand beside."""
    fabric = load(str(selene_dump))
    tree = parse(slurm.to_text(fabric))
    assert check(slurm.to_text(fabric)) == [set(fabric.servers)]
    units = [name for name, (servers, _) in tree.items() if servers and name.startswith("LG")]
    assert len(units) == 25
    assert tree["LG01-01-LG01-08"][0] == [f"luna-{i:04d}" for i in range(1, 21)]
    assert sum(name.startswith("CSPINE") for name in tree) == 4


def test_an_ndr_cluster_has_a_unit_for_each_row_of_its_servers(ndr_dump):
    """Its servers are called after their row; many adapters are down, yet no row is torn apart."""
    tree = parse(slurm.to_text(load(str(ndr_dump))))
    rows = [
        {re.sub(r"-c\d+", "", server) for server in servers if "dgx" in server}
        for servers, _ in tree.values()
        if servers
    ]
    assert all(len(row) == 1 for row in rows)
    assert len(set().union(*rows)) == len(rows) == 8


def test_servers_unknown_to_slurm_are_in_comments():
    fabric = faults.remove_link(load("star:hosts=3,radix=8"), "h2/1")
    assert "# On no switch: h2" in slurm.to_text(fabric)
    builder = FabricBuilder("stray")
    box = builder.add_servers(["a"])
    hcas = builder.add_nodes(NodeKind.HCA, ["a", "H-0001", "H-0002"], n_ports=1, server=[box[0], -1, -1])
    leaves = builder.add_nodes(NodeKind.SWITCH, ["leaf1", "leaf2"], n_ports=8)
    builder.add_links(hcas, 1, leaves[[0, 1, 1]], [1, 2, 3], "HDR")
    text = slurm.to_text(builder.build())
    assert "# Adapters in no known server: H-[0001-0002]" in text
    assert parse(text) == {"leaf1": (["a"], [])}


def test_parts_that_only_a_merged_switch_joins_have_one_top():
    """Servers a and b are on leaf1 and leaf2; a cable leads from leaf2 to leaf3, none from leaf1."""
    builder = FabricBuilder("bridge")
    names = ["a/mlx5_0", "b/mlx5_0", "a/mlx5_1", "b/mlx5_1", "c/mlx5_0"]
    boxes = builder.add_servers([name[0] for name in names])
    hcas = builder.add_nodes(NodeKind.HCA, names, n_ports=1, server=boxes)
    leaves = builder.add_nodes(NodeKind.SWITCH, ["leaf1", "leaf2", "leaf3"], n_ports=8)
    builder.add_links(hcas, 1, leaves[[0, 0, 1, 1, 2]], [1, 2, 1, 2, 1], "HDR")
    builder.add_links(leaves[1], 8, leaves[2], 8, "HDR")
    assert parse(slurm.to_text(builder.build()))["top"] == ([], ["leaf3", "leaf1-leaf2"])


def test_names_that_slurm_does_not_accept_are_refused():
    with pytest.raises(ConfigError, match="no server on a switch"):
        slurm.to_text(FabricBuilder("empty").build())
    builder = FabricBuilder("odd name")
    hca = builder.add_nodes(NodeKind.HCA, ["a[1]"], n_ports=1, server=builder.add_servers(["a[1]"]))
    builder.add_links(hca, 1, builder.add_nodes(NodeKind.SWITCH, ["s"], n_ports=1), 1, "HDR")
    with pytest.raises(ConfigError, match="cannot be a Slurm NodeName"):
        slurm.to_text(builder.build())


@pytest.mark.parametrize(
    "spec",
    [
        "star:3",
        "fat-tree:hosts=100,radix=8",
        "dragonfly+:p=2,leaves=2,spines=2,h=2,g=3",
        "torus:3x3x3",
        "superpod:su=1",
    ],
)
def test_every_topology_is_one_tree_of_all_servers(spec):
    fabric = load(spec)
    assert check(slurm.to_text(fabric)) == [set(fabric.servers)]


@st.composite
def networks(draw) -> Fabric:
    """Draw any cabling of up to 12 switches and 12 servers with up to 3 adapters."""
    builder = FabricBuilder("made up")
    groups = builder.add_groups(["red", "blue"])
    n_switches, n_servers = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    switches = builder.add_nodes(
        NodeKind.SWITCH,
        [f"s{i}" for i in range(n_switches)],
        n_ports=100,
        group=draw(st.lists(st.sampled_from([-1, *groups]), min_size=n_switches, max_size=n_switches)),
    )
    next_port = dict.fromkeys(switches.tolist(), 1)

    def port() -> tuple[int, int]:
        switch = int(draw(st.sampled_from(switches.tolist())))
        next_port[switch] += 1
        return switch, next_port[switch]

    for server in range(n_servers):
        box = builder.add_servers([f"h{server}"])
        rails = draw(st.integers(0, 3))
        hcas = builder.add_nodes(NodeKind.HCA, [f"h{server}/mlx5_{i}" for i in range(rails)], n_ports=1, server=box)
        for hca in hcas:
            builder.add_links(hca, 1, *port(), "HDR")
    for _ in range(draw(st.integers(0, 20))):
        builder.add_links(*port(), *port(), "HDR")
    return builder.build()


@settings(max_examples=80)
@given(networks())
def test_any_network_is_a_forest_with_every_server_once(fabric):
    """Servers on the same island are below the same top: a server joins the islands that its adapters are on."""
    on_a_switch = {node.server.name for node in fabric.hcas if node.peers}
    if not on_a_switch:
        return
    tops = check(slurm.to_text(fabric))
    assert set().union(*tops) == on_a_switch
    for island in islands(fabric):
        servers = {node.server.name for node in map(fabric.node, island.tolist()) if node.kind == NodeKind.HCA}
        single = {name for name in servers if len(fabric[name].hcas) == 1}
        assert sum(not top.isdisjoint(single) for top in tops) <= 1
