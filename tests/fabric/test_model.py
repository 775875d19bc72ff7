from __future__ import annotations

import numpy as np
import pytest

from weft.errors import ConfigError, UnknownName
from weft.fabric.build import FabricBuilder
from weft.fabric.counters import Counter
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology
from weft.fabric.spec import load
from weft.fabric.tables import NO_ROUTE
from weft.wire.port_info import PortInfo


def two_leaves() -> Fabric:
    """Return the fabric h1 h2 - leaf1 = spine1 = leaf2 - h3 h4 with two parallel links to the spine."""
    builder = FabricBuilder("two leaves")
    spine = builder.add_nodes(NodeKind.SWITCH, ["spine1"], n_ports=8)
    leaves = builder.add_nodes(NodeKind.SWITCH, ["leaf1", "leaf2"], n_ports=8, model="QM9700")
    servers = builder.add_servers(["h1", "h2", "h3", "h4"])
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2", "h3", "h4"], n_ports=2, server=servers)
    builder.add_links(hosts, 1, np.repeat(leaves, 2), [1, 2, 1, 2], "NDR", medium=Medium.DAC, length_m=2)
    builder.add_links(np.repeat(leaves, 2), [7, 8, 7, 8], np.repeat(spine, 4), [1, 2, 3, 4], "4xHDR", length_m=20)
    return builder.build()


def test_things_are_found_by_the_names_that_operators_use():
    fabric = two_leaves()
    assert str(fabric["leaf1/1"].peer) == "h1/1"
    assert fabric["leaf1"].kind is NodeKind.SWITCH
    assert fabric["h3/1"].peer.node.name == "leaf2"
    assert fabric["h3/2"].peer is None
    assert fabric["h3/2"].link is None
    assert "leaf2/8" in fabric
    assert "leaf2/9" not in fabric
    assert [str(n) for n in fabric["leaf1"].peers] == ["h1", "h2", "spine1", "spine1"]
    assert fabric["leaf1"].model == "QM9700"
    assert fabric["spine1"].model == ""


def test_a_link_knows_its_speed_medium_and_length():
    link = two_leaves()["h1/1"].link
    assert (link.label, link.rate_gbit_s, link.technology) == ("4xNDR", 400, Technology.INFINIBAND)
    assert (link.medium, link.length_m, link.bit_error_rate) == (Medium.DAC, 2, 0)
    assert str(link) == "h1/1 - leaf1/1"


def test_an_unknown_name_suggests_near_ones_and_says_where():
    with pytest.raises(UnknownName, match=r"no node, port or server 'laef1'; did you mean leaf1.*\n  In two leaves"):
        two_leaves()["laef1"]
    with pytest.raises(UnknownName, match="did you mean leaf1/8 or leaf1/1"):
        two_leaves()["leaf1/9"]
    with pytest.raises(UnknownName, match="A port is a node and a number"):
        two_leaves().find_port("leaf1")


def test_the_slot_of_port_n_is_first_port_plus_n():
    fabric = two_leaves()
    for slot in range(len(fabric.ports)):
        port = fabric.port(slot)
        assert fabric.first_port[port.node.index] + port.number == slot
    assert len(fabric.ports) == 3 * 9 + 4 * 3


def test_peers_point_at_each_other():
    ports = two_leaves().ports
    plugged = np.flatnonzero(ports.peer >= 0)
    assert len(plugged) == 16
    assert (ports.peer[ports.peer[plugged]] == plugged).all()
    assert (ports.link[plugged] == ports.link[ports.peer[plugged]]).all()


def test_guids_are_unique_and_a_switch_has_one_for_all_its_ports():
    fabric = two_leaves()
    assert len(set(fabric.nodes.guid.tolist())) == 7
    assert fabric["leaf1/3"].guid == fabric["leaf1"].guid
    assert fabric["h1/2"].guid == fabric["h1"].guid + 2


def test_the_cabling_is_read_only():
    with pytest.raises(ValueError, match="read-only"):
        two_leaves().ports.peer[0] = 3


def test_a_subset_keeps_names_guids_lids_tables_and_counters():
    fabric = two_leaves()
    fabric.tables.lid[:] = np.arange(len(fabric.ports)) + 1
    fabric.tables.lft[:] = np.arange(3)[:, None]
    fabric.tables.sl2vl[:] = (np.arange(len(fabric.tables.sl2vl)) % 251)[:, None]
    fabric.tables.pkey[fabric["h4/1"].slot, 1] = 0x8001
    fabric.counters[fabric["h4/1"].slot, Counter.SYMBOL_ERROR] = 5
    keep = np.array([name != "leaf1" for name in fabric.nodes.name])
    left = fabric.subset(keep_nodes=keep)
    assert len(left.links) == 4
    assert left["h1/1"].peer is None
    assert left["h4/1"].peer.name == "leaf2/2"
    for name in ("spine1/3", "leaf2/8", "h4/1"):
        assert left[name].lid == fabric[name].lid
        assert left[name].guid == fabric[name].guid
    assert left.tables.lft[:, 0].tolist() == [0, 2]
    before, after = fabric["leaf2"].index, left["leaf2"].index
    pairs = slice(fabric.tables.first_pair[before], fabric.tables.first_pair[before] + 81)
    assert (left.tables.sl2vl[left.tables.first_pair[after] :][:81] == fabric.tables.sl2vl[pairs]).all()
    assert left.tables.pkey[left["h4/1"].slot, 1] == 0x8001
    assert left.counters[left["h4/1"].slot, Counter.SYMBOL_ERROR] == 5
    assert "leaf1" in fabric, "the original is untouched"


def test_a_server_goes_with_its_last_node():
    fabric = two_leaves()
    left = fabric.subset(keep_nodes=np.array([name != "h2" for name in fabric.nodes.name]))
    assert left.servers == ("h1", "h3", "h4")
    assert [str(node) for node in left["h3"].server.nodes] == ["h3"]


def test_tables_sleep_until_touched_and_start_as_after_power_up():
    tables = two_leaves().tables
    assert "sl2vl" not in vars(tables)
    assert tables.lft.shape == (3, 1)
    assert (tables.lft == NO_ROUTE).all()
    assert tables.sl2vl.shape == (3 * 81 + 4 * 3, 16)
    assert (tables.pkey[:, 0] == 0xFFFF).all()
    assert tables.mft.shape == (3, 0, 1)


def test_the_forwarding_table_has_a_column_for_every_lid_of_an_lmc_block():
    fabric = two_leaves()
    slot = fabric["h1/1"].slot
    fabric.tables.lid[slot] = 8
    fabric.tables.set_lmc(slot, 2)
    assert fabric.tables.lft.shape == (3, 12)


@pytest.mark.parametrize(
    ("b_node", "b_port", "message"),
    [
        (0, 9, "there is no port leaf1/9: leaf1 has ports 1 to 8"),
        (0, 0, "there is no port leaf1/0"),
        (0, 1, "leaf1/1 has two cables: to h1/1 and to h2/1"),
        (2, 1, "h2/1 is cabled to itself"),
    ],
)
def test_a_cable_that_cannot_be_is_refused_by_name(b_node, b_port, message):
    builder = FabricBuilder("wrong")
    builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=8)
    builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1)
    builder.add_links(1, 1, 0, 1, "NDR")
    builder.add_links(2, 1, b_node, b_port, "NDR")
    with pytest.raises(ConfigError, match=message):
        builder.build()


@pytest.mark.parametrize("name", ["", "a b", "leaf1/17", "a/b/c", "/x", "tab\t"])
def test_a_name_that_would_be_ambiguous_is_refused(name):
    builder = FabricBuilder("wrong")
    builder.add_nodes(NodeKind.SWITCH, [name], n_ports=8)
    with pytest.raises(ConfigError, match="invalid node name"):
        builder.build()


def test_double_names_guids_and_impossible_port_counts_are_refused():
    for names, options, message in (
        (["a", "a"], {"n_ports": 1}, "two nodes are called 'a'"),
        (["a", "b"], {"n_ports": 1, "guid": [7, 7]}, "a and b have the same GUID 0x0000000000000007"),
        (["a"], {"n_ports": 70_000}, "a cannot have 70000 ports"),
    ):
        builder = FabricBuilder("wrong")
        builder.add_nodes(NodeKind.HCA, names, **options)
        with pytest.raises(ConfigError, match=message):
            builder.build()


def test_an_empty_fabric_is_a_fabric():
    fabric = FabricBuilder("nothing").build()
    assert len(fabric.nodes) == len(fabric.links) == 0
    assert fabric.tables.sl2vl.shape == (0, 16)
    with pytest.raises(UnknownName):
        fabric["h1"]


def test_a_number_as_an_index_is_refused_with_an_example():
    with pytest.raises(TypeError, match=r"3 is no name; .*fabric\['leaf1/3'\]"):
        load("star:hosts=2")[3]


def test_the_lmc_shares_a_byte_with_other_fields_of_port_info():
    tables, byte = load("star:hosts=2").tables, PortInfo.lmc.bit // 8
    tables.port_info[:, byte] = 0xA8
    tables.set_lmc(slice(None), 7)
    tables.set_lmc([1], 2)
    assert tables.port_info[:3, byte].tolist() == [0xAF, 0xAA, 0xAF]
    assert tables.lmc[:3].tolist() == [7, 2, 7]


def test_a_port_has_two_arbitration_tables_of_64_lanes_and_weights():
    tables = load("star:hosts=2").tables
    assert tables.vl_arbitration.nbytes == len(tables.lid) * 2 * 64 * 2
