"""Servers: a DGX follows its template, a host is one node, and thousands are as correct as one."""

from __future__ import annotations

import numpy as np
import pytest

from weft.errors import ConfigError, UnknownName
from weft.fabric import catalog
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology
from weft.fabric.servers import add_servers
from weft.fabric.views import Node, Server
from weft.units import gbyte_s

DGX = ["dgx-a100", "dgx-h100", "dgx-b200"]


def boxes(template: str, count: int = 2) -> Fabric:
    builder = FabricBuilder(template)
    add_servers(builder, template, [f"dgx{i}" for i in range(1, count + 1)])
    return builder.build()


def server_of(fabric: Fabric, name: str) -> Server:
    result = fabric[name]
    assert isinstance(result, Server)
    return result


def peers(node: Node, technology: Technology) -> list[Node]:
    links = [port for port in node.ports if port.link is not None and port.link.technology is technology]
    return [port.peer.node for port in links if port.peer is not None]


@pytest.mark.parametrize("template", DGX)
def test_a_dgx_has_the_parts_of_its_template(template: str) -> None:
    fabric, entry = boxes(template), catalog.server(template)
    server = server_of(fabric, "dgx2")
    kinds = {kind: len(server.of_kind(kind)) for kind in NodeKind}
    assert kinds[NodeKind.GPU] == 8
    assert kinds[NodeKind.HCA] == 12
    assert kinds[NodeKind.NVSWITCH] == len(entry.nvlink_spread)
    assert kinds[NodeKind.PCIE_SWITCH] == 4
    assert kinds[NodeKind.CPU] == 2
    assert [gpu.model for gpu in server.gpus] == [entry.gpu] * 8
    assert {hca.model for hca in server.hcas} == {entry.compute_adapter, entry.storage_adapter}
    assert {cpu.model for cpu in server.of_kind(NodeKind.CPU)} == {template}


def test_names_and_descriptions_are_those_of_the_real_machine() -> None:
    fabric = boxes("dgx-h100")
    node = fabric.find_node("dgx1/mlx5_10")
    assert node.description == "dgx1 mlx5_10"
    assert (node.kind, node.model) == (NodeKind.HCA, "ConnectX-7")
    ids = fabric.nodes.vendor_id[node.index], fabric.nodes.device_id[node.index]
    assert ids == (0x2C9, 0x1021)
    for name in ("dgx1/gpu0", "dgx1/nvswitch3", "dgx1/pcie3", "dgx1/cpu1", "dgx2/mlx5_0"):
        assert name in fabric


@pytest.mark.parametrize(("template", "gbyte_s_one_way"), [("dgx-a100", 300), ("dgx-h100", 450), ("dgx-b200", 900)])
def test_every_gpu_reaches_every_nvswitch_with_its_published_bandwidth(template: str, gbyte_s_one_way: float) -> None:
    fabric, entry = boxes(template), catalog.server(template)
    for gpu in server_of(fabric, "dgx2").gpus:
        switches = [node.name for node in peers(gpu, Technology.NVLINK)]
        spread = [switches.count(f"dgx2/nvswitch{i}") for i in range(len(entry.nvlink_spread))]
        assert tuple(spread) == entry.nvlink_spread
        links = [port.link for port in gpu.ports if port.link and port.link.technology is Technology.NVLINK]
        assert gbyte_s(sum(link.rate_gbit_s for link in links)) == pytest.approx(gbyte_s_one_way)


@pytest.mark.parametrize("template", DGX)
def test_each_gpu_shares_a_pcie_switch_with_the_adapter_of_its_rail(template: str) -> None:
    builder = FabricBuilder(template)
    nodes = add_servers(builder, template, ["dgx1", "dgx2"])
    fabric = builder.build()
    for server, gpus in enumerate([server_of(fabric, "dgx1").gpus, server_of(fabric, "dgx2").gpus]):
        for rail, gpu in enumerate(gpus):
            adapter = fabric.node(int(nodes.compute[server, rail]))
            assert peers(gpu, Technology.PCIE) == peers(adapter, Technology.PCIE)
            assert peers(gpu, Technology.PCIE)[0].kind == NodeKind.PCIE_SWITCH


@pytest.mark.parametrize("template", DGX)
def test_pcie_is_a_tree_below_each_socket(template: str) -> None:
    """A forest has as many links as nodes, less one for each tree."""
    fabric = boxes(template, count=1)
    pcie = fabric.links_of(Technology.PCIE)
    a, b = (end[pcie] for end in fabric.link_nodes)
    assert len(a) == len(np.union1d(a, b)) - len(fabric.of_kind(NodeKind.CPU))
    for switch in server_of(fabric, "dgx1").of_kind(NodeKind.PCIE_SWITCH):
        up = switch.port(1).peer
        assert up is not None
        assert up.node.kind == NodeKind.CPU


def test_ports_are_numbered_network_first_then_nvlink_then_pcie() -> None:
    fabric = boxes("dgx-h100")
    adapter, gpu = fabric.find_node("dgx1/mlx5_0"), fabric.find_node("dgx1/gpu0")
    assert [port.link and port.link.label for port in adapter.ports] == [None, "16xPCIe5"]
    assert [port.link and port.link.label for port in gpu.ports] == ["NVLink4"] * 18 + ["16xPCIe5"]


def test_the_two_ports_of_a_card_share_its_slot() -> None:
    """Two nodes of eight lanes each, not two slots of sixteen."""
    fabric = boxes("dgx-h100")
    links = [fabric.find_port(f"dgx1/{name}/2").link for name in ("mlx5_1", "mlx5_2")]
    assert [link and link.label for link in links] == ["8xPCIe5", "8xPCIe5"]


def test_all_inside_a_box_is_on_the_board_and_off_the_network() -> None:
    fabric = boxes("dgx-a100")
    assert set(fabric.links.medium.tolist()) == {Medium.BOARD}
    assert not fabric.network_links.any()


def test_network_ports_are_those_that_infiniband_tools_see() -> None:
    builder = FabricBuilder("mixed")
    nodes = add_servers(builder, "dgx-h100", ["dgx1"])
    hosts = add_servers(builder, "host", ["h1"])
    leaf = builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=64)
    builder.add_links(nodes.compute, 1, leaf, np.arange(1, 9), "NDR")
    fabric = builder.build()
    ports = fabric.network_ports
    assert set(ports[fabric.of_kind(NodeKind.HCA)].tolist()) == {1}  # plugged in or not
    assert ports[hosts.compute[0, 0]] == 1
    assert ports[leaf[0]] == 64
    inside = (NodeKind.GPU, NodeKind.NVSWITCH, NodeKind.PCIE_SWITCH, NodeKind.CPU)
    assert not ports[fabric.of_kind(*inside)].any()
    cut = fabric.subset(keep_links=~fabric.links_of(Technology.NVLINK))
    assert not cut.network_ports[cut.of_kind(*inside)].any()


def test_a_host_is_one_adapter_with_the_servers_own_name() -> None:
    builder = FabricBuilder("hosts")
    nodes = add_servers(builder, "host", ["h1", "h2"])
    fabric = builder.build()
    assert nodes.compute.tolist() == [[0], [1]]
    assert nodes.storage.shape == (2, 0)
    assert fabric.nodes.name == ("h1", "h2")
    assert fabric.nodes.description == ("h1 mlx5_0", "h2 mlx5_0")
    assert fabric.servers == ("h1", "h2")
    assert fabric.find_port("h1/1").peer is None
    assert fabric.nodes.n_ports.tolist() == [1, 1]


def test_the_answer_indexes_rails_and_storage_of_each_server() -> None:
    builder = FabricBuilder("dgx-h100")
    builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=64)  # so that indices do not start at 0
    nodes = add_servers(builder, "DGX-H100", ["dgx1", "dgx2", "dgx3"])
    fabric = builder.build()
    assert nodes.template is catalog.server("dgx-h100")
    for server in range(3):
        names = [fabric.nodes.name[i] for i in nodes.compute[server]]
        assert names == [f"dgx{server + 1}/{device}" for device in nodes.template.compute]
        names = [fabric.nodes.name[i] for i in nodes.storage[server]]
        assert names == [f"dgx{server + 1}/{device}" for device in nodes.template.storage]


def test_groups_are_one_for_all_or_one_for_each() -> None:
    builder = FabricBuilder("groups")
    first, second = builder.add_groups(["su1", "su2"])
    add_servers(builder, "host", ["h1", "h2"], group=first)
    add_servers(builder, "dgx-h100", ["dgx1", "dgx2"], group=[first, second])
    fabric = builder.build()
    assert [fabric.find_node(name).group for name in ("h1", "h2")] == ["su1", "su1"]
    assert {node.group for node in server_of(fabric, "dgx1").nodes} == {"su1"}
    assert {node.group for node in server_of(fabric, "dgx2").nodes} == {"su2"}


def test_no_servers_are_no_nodes() -> None:
    builder = FabricBuilder("nothing")
    nodes = add_servers(builder, "dgx-h100", [])
    assert nodes.compute.shape == (0, 8)
    assert len(builder.build().nodes) == 0


def test_every_server_of_many_is_wired_like_the_first() -> None:
    """2,048 DGX, compared as arrays: the same links between the same ports, each within its own box."""
    fabric = boxes("dgx-h100", count=2048)
    assert len(fabric.nodes) == 2048 * 30
    a, b = fabric.link_nodes
    server = fabric.nodes.server
    assert (server[a] == server[b]).all()
    device = np.array([name.rpartition("/")[2] for name in fabric.nodes.name])
    wires = np.stack((device[a], fabric.ports.number[fabric.links.a], device[b], fabric.ports.number[fabric.links.b]))
    order = np.argsort(server[a], kind="stable")
    each = wires[:, order].reshape(4, 2048, -1)
    assert (each == each[:, :1]).all()


def test_mistakes_are_named() -> None:
    with pytest.raises(
        UnknownName, match="there is no server template in the catalog 'dgx-h10'; did you mean dgx-h100"
    ):
        add_servers(FabricBuilder("x"), "dgx-h10", ["dgx1"])
    builder = FabricBuilder("x")
    add_servers(builder, "dgx-h100", ["dgx1", "dgx1"])
    with pytest.raises(ConfigError, match="two nodes are called 'dgx1/mlx5_0'"):
        builder.build()
