"""Sizes against NVIDIA's published tables, to the last cable; then properties of every size."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.cabling_warnings import find_cabling_warnings
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.fabric.topologies.superpod import count_switches, most_in_superpod
from weft.plan.request import Request
from weft.plan.size import Size, size

FIGURES = Path(__file__).parents[3] / "shared" / "figures" / "superpod_planner.json"
RECORDS = json.loads(FIGURES.read_text())["records"] if FIGURES.is_file() else []
SERVERS = {"DGX H100": "dgx-h100", "DGX B200": "dgx-b200"}
NAMES = {"cables_spine_leaf": "cables_leaf_spine"}


@pytest.mark.skipif(not RECORDS, reason=f"{FIGURES} is not there")
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["id"])
def test_every_published_row_is_met_exactly(record):
    output = record["config"]
    ufm = "UFM" in output.get("note", "")
    result = size(Request(gpus=output["gpus"], server=SERVERS[output["system"]], ufm_hosts=ufm)).report()
    result["cables_compute_and_ufm"] = result["cables_node_leaf"] + result["cables_ufm"]
    assert result["cables_node_leaf"] == output["nodes"] * output["rails"]
    assert result["servers"] == output["nodes"]
    assert {name: result[NAMES.get(name, name)] for name in record["value"]} == record["value"]
    assert result["cables_ufm"] == (4 if ufm else 0)


def cabled(fabric: Fabric, server: str) -> int:
    return sum(hca.port(1).peer is not None for hca in fabric[server].hcas)


def check(made: Size, servers: int, rails: int) -> None:
    """Check every size: all rails of all servers, no level narrower than requested, nothing odd."""
    fabric = made.fabric
    own = [name for name in fabric.servers if not name.startswith("ufm")]
    assert len(own) == servers
    assert {cabled(fabric, name) for name in {own[0], own[servers // 2], own[-1]}} == {rails}
    level, ends = levels(fabric), [end[fabric.network_links] for end in fabric.link_nodes]
    ratio = made.request.oversubscription if made.request else 1.0
    for tier in range(1, int(level.max())):
        down = Counter(np.concatenate([x[level[x] > level[y]] for x, y in (ends, ends[::-1])]).tolist())
        up = Counter(np.concatenate([x[level[x] < level[y]] for x, y in (ends, ends[::-1])]).tolist())
        for switch in np.flatnonzero((level == tier) & (fabric.nodes.kind == NodeKind.SWITCH)).tolist():
            if up[switch]:
                assert down[switch] <= (ratio if tier == 1 else 1) * up[switch]
    assert made.leaf + made.spine + made.core == len(fabric.switches)
    assert sum(made.cables.values()) == fabric.network_links.sum()


@given(
    st.integers(1, 300),
    st.sampled_from(["dgx-h100", "dgx-h200", "dgx-a100", "dgx-b200"]),
    st.sampled_from([None, "hdr", "roce-400", "eth-100-tcp", "opa-100", "xdr"]),
    st.sampled_from(["superpod", "fat-tree", "dragonfly+"]),
    st.sampled_from([None, 1, 2, 4]),
    st.sampled_from([1.0, 1.5, 2.0]),
)
def test_no_size_is_oversubscribed_unless_asked_and_every_server_has_all_rails(
    servers, server, fabric, topology, rails, ratio
):
    if topology == "dragonfly+":
        servers, ratio = servers + 1, 1.0
    request = Request(
        servers=servers, server=server, fabric=fabric, topology=topology, rails=rails, oversubscription=ratio
    )
    check(size(request), servers, rails or 8)


@pytest.mark.parametrize(
    ("topology", "switch"), [("superpod", "QM8700"), ("superpod", "QM9700"), ("fat-tree", "QM8700")]
)
def test_more_servers_never_need_fewer_switches_or_cables(topology, switch):
    before = (0, 0)
    for servers in (1, 5, 6, 8, 9, 10, 11, 16, 17, 20, 21, 32, 33, 64, 65, 100, 101, 128, 129, 256, 257):
        result = size(Request(servers=servers, topology=topology, switch=switch))
        now = len(result.fabric.switches), sum(result.cables.values())
        assert now >= before
        assert now[1] >= before[1]
        before = now


def test_few_servers_share_one_switch_and_one_needs_none():
    result = size(Request(gpus=32))
    assert (result.leaf, result.spine, result.cables) == (1, 0, {"node_leaf": 32})
    assert size(Request(gpus=8)).notes == ("One server needs no fabric; its GPUs are connected inside.",)


def test_gpus_that_do_not_fill_the_last_server_are_said():
    result = size(Request(gpus=20))
    assert len(result.fabric.servers) == 3
    assert result.notes == ("3 × dgx-h100 have 24 GPUs; 20 do not fill the last server.",)
    (cloud,) = size(Request(gpus=16, fabric="efa-400")).notes
    assert cloud.startswith("efa-400: ")
    assert "the bill is what such ports cost, not what AWS asks" in cloud


def test_ufm_takes_the_place_of_a_server_and_a_full_unit_says_so():
    result = size(Request(gpus=256, ufm_hosts=True))
    assert result.report()["leaf"] == 16
    assert result.notes == (
        "The UFM hosts take the place of a server, which needs more switches: 31 servers would do with fewer.",
    )


def test_plan_with_growth_is_the_first_part_of_the_later_fabric():
    """Every cable of today is a cable of later, from the same port to the same port."""
    result = size(Request(gpus=200, grow_to=1024))
    assert (result.leaf, result.spine, len(result.fabric.servers)) == (8, 16, 25)
    assert (result.report()["later"]["leaf"], result.report()["later"]["servers"]) == (32, 128)
    assert set(map(str, result.fabric.all_links())) <= set(map(str, result.later.all_links()))
    assert result.notes[0].startswith("Built for 128 servers: 24 leaf switches and 1,592 cables are added later, and")
    assert find_cabling_warnings(result.fabric, levels(result.fabric)) == ()


@pytest.mark.parametrize(
    "given",
    [
        {"servers": servers, "server": server, "switch": switch, "oversubscription": ratio}
        for server, switch, sizes in (
            ("dgx-h100", "QM9700", (1, 4, 9, 33, 100, 257)),
            ("dgx-a100", "QM8700", (3, 21, 140, 141)),
            ("gb200-nvl72", "QM9700", (2, 56, 57)),
        )
        for servers in sizes
        for ratio in (1.0, 2.0)
    ],
)
def test_switches_are_counted_as_they_are_built(given):
    request = Request(**given)
    box = request.template
    ports = {"rails": box.rails, "trays": box.trays, "radix": request.radix}
    counted = count_switches(given["servers"], **ports, oversubscription=given["oversubscription"])
    assert counted == sum(size(request).switches.values())


def test_a_fabric_may_grow_to_the_size_it_has():
    assert Request(gpus=64, grow_to=64).grow_to == 64


def test_a_size_near_by_that_needs_far_fewer_switches_is_named():
    (note,) = size(Request(gpus=4_104, server="gb200-nvl72")).notes
    assert note == "A similar size needs far fewer switches: 4,104 GPUs take 456 switches, 4,032 GPUs take 320."
    assert not size(Request(gpus=4_032, server="gb200-nvl72")).notes
    assert "33 servers take 24 switches, 32 servers take 12" in size(Request(servers=33)).notes[0]


def test_cards_that_a_server_is_not_sold_with_are_named():
    (note,) = size(Request(servers=36, fabric="xdr")).notes
    assert note.startswith("dgx-h100 includes ConnectX-7, which stay unused; ConnectX-8 are bought in addition.")
    assert note.endswith("Its slots are 16xPCIe5, and the card is made for 16xPCIe6.")
    assert not size(Request(servers=32, fabric="roce-400")).notes  # the same card
    assert not size(Request(servers=32, server="host", fabric="xdr")).notes  # its configuration is free


@pytest.mark.parametrize(
    ("gpus", "server", "leaf", "spine", "ports"),
    [(1_024, "dgx-h100", 16, 8, 1_024), (4_096, "dgx-b300", 128, 64, 2 * 4_096)],
)
def test_an_sn5600_joins_servers_by_128_ports_of_400_gigabit(gpus, server, leaf, spine, ports):
    """Computed by hand: half of a leaf's 128 ports go down; a ConnectX-8 has two ports of 400GbE and none of 800GbE."""
    result = size(Request(gpus=gpus, server=server, switch="SN5600"))
    assert (result.leaf, result.spine, result.core) == (leaf, spine, 0)
    assert result.cables == {"node_leaf": ports, "leaf_spine": ports}


def test_a_dragonfly_is_balanced_and_says_its_global_bandwidth():
    result = size(Request(gpus=16_384, topology="dragonfly+"))
    assert (result.leaf, result.spine, result.core) == (512, 512, 0)
    assert result.cables == {"node_leaf": 16_384, "leaf_spine": 16_384, "spine_spine": 8_192}
    assert result.notes == ("Global links between groups have 1.00 of the bandwidth of the hosts.",)


def test_the_fabric_follows_from_the_server_or_the_switch():
    assert size(Request(gpus=64, server="dgx-a100")).spec.endswith("switch=QM8700")
    assert Request(gpus=64, switch="SN4700").template.compute_adapter == "ConnectX-7-EN"
    assert Request(gpus=64, fabric="xdr", rails=4).template.name == "dgx-h100+ConnectX-8+4rails"
    assert Request(servers=64, server="host").kind == "fat-tree"
    assert Request(servers=4, switch="SN5600").template.compute_adapter == "ConnectX-7-EN"
    assert Request(servers=4, switch="SX6036", server="host").template == catalog.server("host")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"gpus": 16_384, "fabric": "hdr"}, r"QM8700, 40 ports, joins 2,000 .*\n  take 16,000 GPUs, or --fabric ndr"),
        ({"gpus": 16_384, "fabric": "hdr", "topology": "fat-tree"}, r"a fat-tree of QM8700.*\n  take 16,000 GPUs"),
        ({"servers": 10**6, "server": "host"}, r"1,000,000 servers do not fit.*take 65,536 servers"),
        ({"gpus": 4, "topology": "dragonfly+"}, r"give 2 to 131,200"),
        (
            {"servers": 2, "server": "gb200-nvl72", "topology": "dragonfly+"},
            r"72 rails, all on one leaf, which has 32 ports",
        ),
        ({"gpus": 16, "topology": "fat-tree", "ufm_hosts": True}, r"--ufm-hosts needs a superpod"),
        ({"gpus": 16, "topology": "dragonfly+", "oversubscription": 2.0}, r"use --topology superpod or fat-tree"),
        ({"servers": 4, "server": "host-fdr"}, r"no fabric of the catalog has the ConnectX-3"),
        ({}, r"by --gpus or by --servers"),
        ({"gpus": 8, "servers": 1}, r"by --gpus or by --servers"),
        ({"gpus": 8, "server": "host"}, r"host has no GPUs; give the number of servers, --servers 8"),
        ({"gpus": 0}, r"--gpus must be 1 or more, got 0"),
        ({"gpus": 64, "grow_to": 32}, r"--grow-to must be at least today's 64 GPUs, got 32"),
        ({"gpus": 64, "oversubscription": 0.5}, r"--oversubscription must be 1 or more"),
        ({"gpus": 64, "topology": "fat"}, r"did you mean fat-tree"),
        (
            {"gpus": 64, "fabric": "ndr", "switch": "SN5400"},
            r"--fabric ndr is NDR, --switch SN5400 supports 400GbE or 200GbE; leave out one",
        ),
        ({"gpus": 64, "rails": 9}, r"rails are 1 to 8, not 9"),
    ],
)
def test_invalid_plan_names_valid_ones(given, says):
    with pytest.raises(ConfigError, match=rf"(?s){says}"):
        size(Request(**given))


@pytest.mark.parametrize(("rails", "radix"), [(8, 64), (8, 40), (4, 36), (2, 8)])
def test_one_server_more_never_needs_fewer_switches(rails: int, radix: int) -> None:
    most = min(most_in_superpod(rails=rails, radix=radix), 3_000)
    counts = [count_switches(servers, rails=rails, radix=radix) for servers in range(1, most + 1)]
    assert counts == sorted(counts)


@pytest.mark.parametrize(
    ("fabric", "server", "leaves"), [("spectrum-x-400", "dgx-h100", 64), ("spectrum-x-800", "dgx-b300", 128)]
)
def test_spectrum_x_of_4096_gpus_has_the_leaves_of_the_published_template(fabric, server, leaves):
    """SimAI's template of Spectrum-X: 4,096 GPUs at 400 Gb/s on 64 leaves with 64 adapters each; two ports, twice."""
    planned = size(Request(gpus=4096, server=server, fabric=fabric)).fabric
    assert Counter(levels(planned)[planned.of_kind(NodeKind.SWITCH)].tolist())[1] == leaves
