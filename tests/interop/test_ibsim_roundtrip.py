"""Files that weft writes load in ibsim, and ibnetdiscover sees the same fabric there.

The records that the real tool prints must equal those that weft wrote, except for two values that ibsim 0.10 invents:
port GUIDs of adapters, and the rate of links faster than HDR, which it does not know and reports as 4xSDR.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from weft.fabric.build import FabricBuilder
from weft.fabric.files import ibnetdiscover
from weft.fabric.files.naming import node_id
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.spec import load

pytestmark = pytest.mark.interop


def records(text: str, *, rates: bool) -> set[str]:
    """Return the record of each node, without port GUIDs of adapters, and without rates unless `rates`."""
    text = re.sub(r"\]\([0-9a-f]+\)", "]", text)
    if not rates:
        text = re.sub(r" \d+x[A-Z]+\d*$", "", text, flags=re.MULTILINE)
    return {block.strip() for block in text.split("\n\n")[1:]}


def hold_to_ibsim(fabric: Fabric, ibsim, *, rates: bool) -> None:
    text = ibnetdiscover.to_text(fabric)
    host = node_id(NodeKind.HCA, fabric.hcas[0].guid)
    observed = ibsim(text).run("ibnetdiscover", host=host)
    written, result = records(text, rates=rates), records(observed, rates=rates)
    assert len(written) == len(fabric.of_kind(NodeKind.SWITCH, NodeKind.HCA, NodeKind.AGGREGATION))
    assert result - written == written - result == set()


def test_selene_comes_back_as_it_was(ibsim, selene_dump):
    hold_to_ibsim(ibnetdiscover.read(selene_dump), ibsim, rates=True)


def test_the_ndr_fabric_comes_back_but_for_the_rates(ibsim, ndr_dump):
    hold_to_ibsim(ibnetdiscover.read(ndr_dump), ibsim, rates=False)


@pytest.mark.parametrize(
    "spec",
    [
        "star:8,speed=HDR",
        "fat-tree:hosts=120,switch=QM8700",
        "dragonfly:p=2,a=4,h=2,speed=EDR",
        "torus:3x3x3,speed=EDR",
    ],
)
def test_a_topology_comes_back_as_it_was(ibsim, spec):
    hold_to_ibsim(load(spec), ibsim, rates=True)


@pytest.mark.parametrize("rate", ["1xSDR", "4xDDR", "8xQDR", "4xFDR10", "12xFDR", "4xEDR", "2xHDR"])
def test_every_rate_that_ibsim_knows_comes_back(ibsim, rate):
    """FDR10 exists only between Mellanox devices."""
    builder = FabricBuilder("two hosts")
    leaf = builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=8, vendor_id=0x2C9, device_id=0xD2F0)
    hosts = builder.add_nodes(
        NodeKind.HCA,
        ["h1", "h2"],
        n_ports=1,
        descriptions=["h1 mlx5_0", "h2 mlx5_0"],
        vendor_id=0x2C9,
        device_id=0x101B,
    )
    builder.add_links(hosts, 1, leaf, [1, 8], rate)
    hold_to_ibsim(builder.build(), ibsim, rates=True)


def test_a_net_by_hand_is_the_same_fabric_to_weft_and_to_ibsim(ibsim, tmp_path):
    """IDs, GUIDs and rates that are not in the file get the same values."""
    net = 'Switch\t8 "Switch1"\n[1]\t"Hca1"[1]\n[2]\t"Hca2"[2]\n\nHca\t2 "Hca1"\n[1]\t"Switch1"[1]\n\n'
    net += 'Hca\t2 "Hca2"\n[2]\t"Switch1"[2]\n'
    path = tmp_path / "by-hand.net"
    path.write_text(net, encoding="utf-8")
    fabric = ibnetdiscover.read(path)
    observed = ibsim(net).run("ibnetdiscover", host="Hca1")
    path.write_text(observed, encoding="utf-8")
    again = ibnetdiscover.read(path)
    assert np.array_equal(np.sort(again.nodes.guid), np.sort(fabric.nodes.guid))
    assert sorted(again.nodes.name) == sorted(fabric.nodes.name)
    assert {f"{link} {link.label}" for link in again.all_links()} == {
        f"{link} {link.label}" for link in fabric.all_links()
    }
