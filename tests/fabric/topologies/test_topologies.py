"""Properties of all topologies for any parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.levels import islands
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, speeds
from weft.fabric.spec import describe, load
from weft.fabric.topologies import TOPOLOGIES, star

few = st.integers(1, 4)
sizes = st.lists(few, min_size=1, max_size=3).map(tuple)
calls = st.one_of(
    st.tuples(st.just("star"), st.fixed_dictionaries({"hosts": st.integers(1, 12)})),
    st.tuples(
        st.just("fat-tree"),
        st.fixed_dictionaries(
            {"hosts": st.integers(1, 200)}, optional={"oversubscription": st.sampled_from([1.5, 3.0])}
        ),
    ),
    st.tuples(st.just("superpod"), st.fixed_dictionaries({"su": st.integers(1, 30), "server": st.just("host")})),
    st.tuples(st.just("dragonfly"), st.fixed_dictionaries({"p": few, "a": few, "h": few}, optional={"g": few})),
    st.tuples(
        st.just("dragonfly+"),
        st.fixed_dictionaries({"p": few, "leaves": few, "spines": few, "h": few}, optional={"g": few}),
    ),
    st.tuples(st.just("slim-fly"), st.fixed_dictionaries({"q": st.sampled_from([3, 5])}, optional={"hosts": few})),
    st.tuples(st.sampled_from(["torus", "mesh", "hyperx"]), st.fixed_dictionaries({"dims": sizes, "hosts": few})),
)
RADIX = 12


def build(call: tuple[str, dict[str, object]]) -> Fabric | None:
    """Build a fabric, or return None if it is refused; refusals have separate tests."""
    name, parameters = call
    try:
        return TOPOLOGIES[name](**parameters, radix=RADIX)
    except ConfigError:
        return None


@given(calls)
def test_every_host_is_plugged_in_and_reaches_every_other(call):
    fabric = build(call)
    if fabric is not None:
        (everything,) = islands(fabric)
        assert len(everything) == len(fabric.nodes)
        assert all(len(hca.peers) == 1 for hca in fabric.hcas)


@given(calls)
def test_ports_stay_within_the_radix(call):
    """The builder refuses a port with two cables; this checks that no topology uses ports that a switch lacks."""
    fabric = build(call)
    if fabric is not None:
        assert set(fabric.nodes.n_ports[fabric.of_kind(NodeKind.SWITCH)].tolist()) == {RADIX}


@given(calls)
def test_the_spec_of_a_fabric_builds_it_again(call):
    fabric = build(call)
    if fabric is not None:
        again = load(fabric.spec)
        assert again.spec == fabric.spec
        assert again.nodes.name == fabric.nodes.name
        assert np.array_equal(again.ports.peer, fabric.ports.peer)
        assert np.array_equal(again.nodes.guid, fabric.nodes.guid)


@pytest.mark.parametrize("topology", describe(), ids=lambda topology: topology.name)
def test_the_example_of_each_topology_works(topology):
    assert load(topology.example).spec == topology.example


@pytest.mark.parametrize("name", sorted(TOPOLOGIES.keys() - {"hpn"}))  # a leaf for each rail of servers with several
def test_hosts_stand_first_in_the_list_of_nodes(name):
    """Tools that start at the first node start at h1."""
    fabric = load({t.name: t.example for t in describe()}[name].replace("server=dgx-a100", "server=host"))
    assert fabric.nodes.name[0] == "h1"
    assert sorted(fabric.nodes.kind.tolist(), reverse=True) == fabric.nodes.kind.tolist()


def test_switches_have_the_ids_of_the_catalog():
    leaf = star(4, switch="QM8700")["leaf1"]
    assert leaf.model == "QM8700"
    assert len(leaf.ports) == catalog.switch("QM8700").ports
    assert leaf.fabric.nodes.device_id[leaf.index] == catalog.switch("QM8700").device_id


def test_the_switch_follows_from_the_server_s_adapter():
    assert star(1, server="dgx-h100")["leaf1"].model == "QM9700"
    assert star(1, server="dgx-a100")["leaf1"].model == "QM8700"


def test_the_switch_follows_from_the_speed_if_one_is_given():
    fabric = star(4, speed="HDR")
    assert fabric["leaf1"].model == "QM8700"
    assert fabric["leaf1/1"].link.label == "4xHDR"


def test_a_server_s_link_runs_at_the_slower_of_its_ends():
    fabric = load("fat-tree:hosts=9,server=dgx-a100,switch=QM9700,levels=2")
    assert fabric["leaf1/1"].link.label == "4xHDR"
    assert fabric["leaf1/33"].link.label == "4xNDR"


def test_infiniband_cards_speak_ethernet_to_an_ethernet_switch_up_to_their_rate():
    fabric = load("fat-tree:hosts=65,switch=SN5600,speed=400GbE,radix=64")
    assert fabric["leaf1/1"].link.label == "400GbE"
    assert load("fat-tree:hosts=9,server=dgx-a100,switch=SN5600,levels=2")["leaf1/1"].link.label == "200GbE"


def test_cages_of_a_switch_split_to_the_speed_of_the_adapters():
    """An SN5600 has 64 ports of 800GbE or 128 of 400GbE; a speed or a radix that is given stays."""

    def ports(fabric):
        return int(fabric.nodes.n_ports[fabric["leaf1"].index])

    whole = load("star:hosts=3,server=host-xdr,switch=SN5600")
    split = load("fat-tree:hosts=129,switch=SN5600")
    assert (ports(whole), ports(split)) == (64, 128)
    assert {split["leaf1/1"].link.label, split["leaf1/65"].link.label} == {"400GbE"}
    assert ports(load("star:hosts=3,switch=SN5600,speed=400GbE")) == 128
    assert ports(load("star:hosts=3,switch=SN5600,radix=40")) == 40


def test_a_card_of_another_technology_than_the_switch_is_refused():
    with pytest.raises(ConfigError, match="ConnectX-7 supports infiniband, not omni-path at 4xOPA-100"):
        star(4, switch="100SWE48")


def test_a_switch_made_for_more_can_run_slower_but_not_the_other_way_round():
    assert star(4, switch="QM9700", speed="EDR")["leaf1/1"].link.label == "4xEDR"
    with pytest.raises(ConfigError, match="QM8700 runs at 4xHDR, not at NDR"):
        star(4, switch="QM8700", speed="NDR")


def test_cables_are_as_long_as_their_tier_and_of_a_medium_that_reaches():
    fabric = load("fat-tree:hosts=256,radix=16,switch=QM9700")
    host, row, hall = (fabric[name].link for name in ("h1/1", "leaf1/9", "core1/1"))
    assert host.length_m < row.length_m < hall.length_m
    assert Medium.UNKNOWN not in fabric.links.medium
    assert host.medium == catalog.cable_for("NDR", host.length_m).medium
    assert hall.medium == catalog.cable_for("NDR", hall.length_m).medium


@pytest.mark.parametrize(
    "spec", ["torus:4000x4000", "hyperx:30x30x30x30x30,radix=254", "fat-tree:hosts=4000000,radix=254"]
)
def test_a_fabric_too_large_for_memory_is_refused_before_building(spec):
    with pytest.raises(ConfigError, match="weft builds up to 10,000,000"):
        load(spec)


def test_more_ports_than_a_forwarding_table_can_name_are_refused():
    ethernet = {"server": "host+Thor-Ultra", "switch": "THU-64x800"}
    with pytest.raises(ConfigError, match="radix=255 is more ports than a switch can have: at most 1,024, or 254 of"):
        star(4, radix=255)
    assert star(4, radix=1024, **ethernet).switches[0].ports[-1].number == 1024
    with pytest.raises(ConfigError, match="radix=1025 is more ports than a switch can have: at most 1,024, or 254 of"):
        star(4, radix=1025, **ethernet)


def test_a_wide_switch_takes_no_link_of_infiniband():
    builder = FabricBuilder("wide")
    switch = builder.add_nodes(NodeKind.SWITCH, ["sw1"], n_ports=255)
    hosts = builder.add_nodes(NodeKind.HCA, ["h1"], n_ports=1)
    builder.add_links(hosts, 1, switch, 255, "NDR")
    with pytest.raises(ConfigError, match=r"sw1 cannot have 255 ports of InfiniBand, .* at most 254"):
        builder.build()


# -- what is asked for is what there is -------------------------------------------------------------------------------

SMALL = {
    "star": "star:hosts=4",
    "fat-tree": "fat-tree:hosts=8,radix=4",
    "superpod": "superpod:su=1,servers=2",
    "dragonfly": "dragonfly:p=1,a=2,h=1",
    "dragonfly+": "dragonfly+:p=1,leaves=2,spines=2,h=1",
    "torus": "torus:3x3",
    "mesh": "mesh:2x2",
    "hyperx": "hyperx:2x2",
    "slim-fly": "slim-fly:q=3",
}
assert SMALL.keys() == TOPOLOGIES.keys() - {"hpn"}  # which takes the speed of its switch
NETWORKS = (Technology.INFINIBAND, Technology.ETHERNET)
LABELS = [one.label(width) for one in speeds() if one.technology in NETWORKS for width in one.widths]


def labels_of(spec: str) -> set[str] | None:
    """Return the labels of all network links; None if the fabric cannot be built."""
    try:
        fabric = load(spec)
    except ConfigError:
        return None
    return {fabric.link(int(index)).label for index in np.flatnonzero(fabric.network_links)}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("server", ["host", "host-fdr", "host-xdr"])
def test_all_links_run_at_the_speed_that_is_asked_for(name, server):
    """Otherwise it is refused, for every speed and width of every network."""
    built = {label: labels_of(f"{SMALL[name]},server={server},speed={label}") for label in LABELS}
    assert {label: result for label, result in built.items() if result} == {
        label: {label} for label in built if built[label]
    }
    fastest = catalog.server(server).adapter.label
    assert built[fastest] == {fastest}
    assert built["4xSDR"] == {"4xSDR"}


def test_no_switch_or_server_changes_the_speed_that_is_asked_for():
    for switch in catalog.switches():
        for server in catalog.servers():
            for label in ("4xFDR", "4xNDR", "4xXDR", "1xXDR", "12xEDR", "400GbE", "800GbE"):
                result = labels_of(f"star:hosts=2,switch={switch.name},server={server.name},speed={label}")
                assert result in (None, {label}), (switch.name, server.name)
                if label == "4xXDR":
                    assert (result is not None) == (switch.name == "Q3400" and server.adapter.label == label)


@pytest.mark.parametrize("name", SMALL)
def test_a_speed_that_the_server_lacks_is_refused_with_the_way_out(name):
    rule = "ConnectX-7 in host runs at 4xNDR, not at 4xXDR: give server=host-xdr or dgx-b300 or gb300-nvl72 or "
    with pytest.raises(ConfigError, match=rule):
        load(f"{SMALL[name]},server=host,speed=XDR")
    assert labels_of(f"{SMALL[name]},server=host-xdr,speed=XDR") == {"4xXDR"}


def test_lanes_that_a_port_lacks_are_refused():
    """1xXDR is slower than 4xNDR, and no NDR port can do it; nor has it 12 lanes."""
    for label in ("1xXDR", "12xSDR"):
        with pytest.raises(ConfigError, match=f"ConnectX-7 in host runs at 4xNDR, not at {label}"):
            load(f"star:hosts=2,speed={label}")
    with pytest.raises(ConfigError, match="QM9700 runs at 4xNDR, not at 1xXDR: give another switch or speed"):
        load("star:hosts=2,server=host-xdr,switch=QM9700,speed=1xXDR")


def test_a_director_is_refused_where_a_topology_needs_many_equal_switches():
    with pytest.raises(ConfigError, match=r"CS8500 is a director of 800 ports.*\n.*star:.*same chip: QM8700"):
        load("fat-tree:hosts=400,switch=CS8500")
