"""NCCL topology files agree with the fabric."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter

import numpy as np
import pytest

from weft.errors import ConfigError, UnknownName
from weft.fabric import catalog
from weft.fabric.build import FabricBuilder
from weft.fabric.files import nccl_topology
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.servers import add_servers

DGX = ["dgx-a100", "dgx-h100", "dgx-b200"]


def cluster(template: str, *, speed: str = "", storage: bool = True) -> Fabric:
    """Return two servers with all their adapters on one switch for compute and one for storage."""
    builder = FabricBuilder(template)
    nodes = add_servers(builder, template, ["dgx1", "dgx2"])
    leaves = builder.add_nodes(NodeKind.SWITCH, ["leaf1", "leaf2"], n_ports=160)
    line = speed or nodes.template.adapter.label
    for adapters, leaf in ((nodes.compute, leaves[0]), (nodes.storage, leaves[1])):
        if storage or leaf == leaves[0]:
            builder.add_links(adapters, 1, leaf, np.arange(1, adapters.size + 1).reshape(adapters.shape), line)
    return builder.build()


def topology(fabric: Fabric, server: str = "dgx2") -> ET.Element:
    return ET.fromstring(nccl_topology.to_text(fabric, server))


@pytest.mark.parametrize("template", DGX)
def test_gpus_adapters_and_nvlinks_are_counted_as_in_the_fabric(template: str) -> None:
    root, entry = topology(cluster(template)), catalog.server(template)
    assert (root.tag, root.get("version"), root.get("name")) == ("system", "1", "dgx2")
    assert len(root.findall("cpu")) == 2
    assert [int(gpu.get("dev", "")) for gpu in root.iter("gpu")] == list(range(8))
    assert {gpu.get("sm") for gpu in root.iter("gpu")} == {str(catalog.gpu(entry.gpu).sm)}
    for gpu in root.iter("gpu"):
        assert sorted(int(link.get("count", "")) for link in gpu) == sorted(entry.nvlink_spread)
        assert {link.get("tclass") for link in gpu} == {"0x068000"}
    assert len(list(root.iter("net"))) == 12
    devices = {int(net.get("dev", "")): net.get("name") for net in root.iter("net")}
    first = int(entry.compute[0].removeprefix("mlx5_"))
    assert [devices[dev] for dev in range(12)] == [f"mlx5_{first + dev}" for dev in range(12)]


@pytest.mark.parametrize(("template", "mbit_s"), [("dgx-a100", 200_000), ("dgx-h100", 400_000)])
def test_nets_carry_speed_rail_and_guid_of_the_fabric(template: str, mbit_s: int) -> None:
    fabric, entry = cluster(template), catalog.server(template)
    nets = {net.get("name"): net for net in topology(fabric).iter("net")}
    assert set(nets) == {*entry.compute, *entry.storage}
    for rail, name in enumerate(entry.compute):
        assert nets[name].get("rail") == str(rail)
    for name, net in nets.items():
        assert net.get("speed") == str(mbit_s)
        assert net.get("guid") == str(fabric.find_node(f"dgx2/{name}").guid)
    assert [name for name in entry.storage if nets[name].get("rail") is not None] == []


@pytest.mark.parametrize("template", DGX)
def test_each_gpu_hangs_below_the_bridge_of_its_rails_adapter(template: str) -> None:
    bridges = [pci for pci in topology(cluster(template)).iter("pci") if pci.get("class") == "0x060400"]
    assert len(bridges) == 4
    for bridge in bridges:
        gpus = {gpu.get("dev") for gpu in bridge.iter("gpu")}
        assert len(gpus) == 2
        assert {net.get("rail") for net in bridge.iter("net")} == gpus


def test_dual_port_storage_cards_are_one_pci_device_with_two_nets() -> None:
    """NCCL's own dump of a DGX A100 has it: one device at 61:00.0 with mlx5_4 and mlx5_5, all sixteen lanes."""
    card = next(pci for pci in topology(cluster("dgx-a100")).iter("pci") if pci.get("busid") == "0000:61:00.0")
    assert [net.get("name") for net in card.iter("net")] == ["mlx5_4", "mlx5_5"]
    assert (card.get("link_speed"), card.get("link_width")) == ("16.0 GT/s PCIe", "16")


def test_addresses_are_the_real_machines_where_known_and_never_twice() -> None:
    for template in DGX:
        root = topology(cluster(template))
        addresses = Counter(pci.get("busid") for pci in root.iter("pci"))
        assert max(addresses.values()) == 1
        assert all(re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", str(a)) for a in addresses)
    assert next(topology(cluster("dgx-h100")).iter("nvlink")).get("target") == "0000:05:00.0"


def test_a_slower_cable_and_ethernet_show() -> None:
    assert {net.get("speed") for net in topology(cluster("dgx-h100", speed="HDR")).iter("net")} == {"200000"}
    classes = Counter(pci.get("class") for pci in topology(cluster("dgx-h100", speed="400GbE")).iter("pci"))
    assert classes["0x020000"] == 10  # eight rails and two storage cards


def test_removed_devices_are_not_in_the_file() -> None:
    fabric = cluster("dgx-h100", storage=False)
    keep = np.ones(len(fabric.nodes), bool)
    keep[fabric.find_node("dgx2/gpu3").index] = False
    keep[fabric.find_node("dgx2/nvswitch0").index] = False
    root = topology(fabric.subset(keep_nodes=keep))
    assert len(list(root.iter("gpu"))) == 7
    assert {len(gpu) for gpu in root.iter("gpu")} == {3}
    assert sorted(str(net.get("name")) for net in root.iter("net")) == sorted(catalog.server("dgx-h100").compute)
    assert sorted(int(net.get("dev", "")) for net in root.iter("net")) == list(range(8))


def test_the_text_keeps_to_the_part_of_xml_that_nccl_reads() -> None:
    text = nccl_topology.to_text(cluster("dgx-b200"), "dgx1")
    assert text.startswith("<system ")
    assert text.endswith("</system>\n")
    assert " />" not in text
    assert not re.search(r"= |\t", text)
    longest = max(len(value) for value in re.findall(r'"([^"]*)"', text))
    assert longest < 255  # MAX_STR_LEN of NCCL's src/graph/xml.h


def test_a_name_that_xml_must_quote_comes_back() -> None:
    builder = FabricBuilder("quotes")
    add_servers(builder, "dgx-h100", ['r&d<"1">'])
    assert topology(builder.build(), 'r&d<"1">').get("name") == 'r&d<"1">'


def test_a_plain_host_and_an_unknown_server_are_refused() -> None:
    builder = FabricBuilder("hosts")
    add_servers(builder, "host", ["h1"])
    fabric = builder.build()
    with pytest.raises(ConfigError, match=r"h1 is a plain .* server=dgx-a100 or .*dgx-h100 or dgx-h200 or dgx-b200"):
        nccl_topology.to_text(fabric, "h1")
    with pytest.raises(UnknownName, match="there is no server 'h7'; did you mean h1"):
        nccl_topology.to_text(fabric, "h7")


def test_a_rack_is_written_as_its_first_tray() -> None:
    """Four GPUs with all their links to one NVSwitch elsewhere, on two processors, with the four rails of a tray."""
    root = topology(cluster("gb200-nvl72", storage=False))
    assert len(root.findall("cpu")) == 2
    assert [int(gpu.get("dev", "")) for gpu in root.iter("gpu")] == [0, 1, 2, 3]
    for gpu in root.iter("gpu"):
        nvlinks = [link.attrib for link in gpu.findall("nvlink")]
        assert nvlinks == [{"target": "fffffff:ff:ff.0", "count": "18", "tclass": "0x068000"}]
        assert [link.get("count") for link in gpu.findall("c2c")] == ["5"]
    assert [net.get("name") for net in root.iter("net")] == ["mlx5_0", "mlx5_1", "mlx5_3", "mlx5_4"]


@pytest.mark.parametrize(("template", "links"), [("hgx-a100-4", 4), ("hgx-h100-4", 6), ("mgx-h100-nvl", 12)])
def test_nvlinks_from_gpu_to_gpu_name_the_other_gpu(template: str, links: int) -> None:
    root, entry = topology(cluster(template, storage=False)), catalog.server(template)
    gpu_at = {pci.get("busid"): gpu.get("dev") for pci in root.iter("pci") if (gpu := pci.find("gpu")) is not None}
    messages = {
        (gpu.get("dev"), gpu_at[link.get("target")])
        for gpu in root.iter("gpu")
        for link in gpu.findall("nvlink")
        if (link.get("count"), link.get("tclass")) == (str(links), "0x030200")
    }
    pairs = {(item.removeprefix("gpu"), other.removeprefix("gpu")) for item, other, _ in entry.nvlink_pairs}
    assert messages == pairs | {(other, item) for item, other in pairs}
