"""GPUs as hosts of their server's NVLink network."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.kinds import NodeKind
from weft.fabric.nvlink import join_nvlinks
from weft.fabric.rates import Technology
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.flow.engine import FlowEngine
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic


@pytest.fixture(scope="module")
def pod() -> weft.Fabric:
    return route(weft.load("superpod:su=1,servers=3"), RoutingOptions(adaptive=True)).fabric


def slot(fabric: weft.Fabric, name: str) -> int:
    return int(fabric.first_port[fabric.node_index[name]]) + 1


def test_a_gpu_has_one_link_with_the_rate_of_all_its_nvlinks(pod):
    joined = join_nvlinks(pod)
    links = joined.links_of(Technology.NVLINK)
    assert links.sum() == 3 * 8
    assert (joined.link_rate_gbit_s[links] == 18 * 25 * 8).all()
    assert not (joined.nodes.kind == NodeKind.GPU).any()
    assert len(joined.switches) == len(pod.switches) + 3


def test_a_lost_nvlink_is_missing_from_the_rate(pod):
    hurt = join_nvlinks(faults.remove_link(pod, "dgx2/gpu4/7"))
    assert hurt["dgx2/gpu4/1"].link.rate_gbit_s == 17 * 25 * 8
    assert hurt["dgx2/gpu5/1"].link.rate_gbit_s == 18 * 25 * 8


def test_the_network_is_as_before(pod):
    joined = join_nvlinks(pod)
    ends = ("dgx1/mlx5_3", "dgx3/mlx5_10")
    for engine in (FlowEngine(), PacketEngine()):
        before, after = (
            engine.run(item, Traffic.make([slot(item, ends[0])], [slot(item, ends[1])], 100_000)).last_arrival_ps
            for item in (pod, joined)
        )
        assert before == after


def test_groups_of_adaptive_routing_stay(pod):
    joined, before = join_nvlinks(pod), pod.tables
    assert len(before.ar_ports)
    assert (joined.tables.ar_ports == before.ar_ports).all()
    rows = joined.tables.switch_row[[joined.node_index[switch.name] for switch in pod.switches]]
    groups = before.ar_group[before.switch_row[[switch.index for switch in pod.switches]]]
    assert (joined.tables.ar_group[rows, : groups.shape[1]] == groups).all()


def test_virtual_lanes_of_the_network_stay():
    torus = route(weft.load("torus:6x6,server=dgx-a100")).fabric
    joined = join_nvlinks(torus)
    assert torus.tables.sl2vl.any(), "a torus needs lanes"
    for switch in torus.switches:
        node, now = switch.index, joined.node_index[switch.name]
        rows = (torus.nodes.n_ports[node] + 1) ** 2
        old, new = torus.tables.first_pair[node], joined.tables.first_pair[now]
        assert (torus.tables.sl2vl[old : old + rows] == joined.tables.sl2vl[new : new + rows]).all()


def test_gpus_of_one_server_reach_the_measured_ring_bandwidth(pod):
    joined = join_nvlinks(pod)
    traffic = Traffic.make([slot(joined, "dgx1/gpu0")], [slot(joined, "dgx1/gpu6")], 1 << 30)
    result = FlowEngine().run(joined, traffic)
    assert (1 << 30) * 1000 / result.last_arrival_ps == pytest.approx(370, rel=0.02)


def test_gpus_of_two_servers_have_no_nvlink_between_them(pod):
    joined = join_nvlinks(pod)
    ends = slot(joined, "dgx1/gpu0"), slot(joined, "dgx2/gpu1")
    with pytest.raises(ConfigError, match=r"dgx1/gpu0/1 to dgx2/gpu1/1"):
        FlowEngine().run(joined, Traffic.make([ends[0]], [ends[1]], 8))


def test_a_server_alone_needs_no_network():
    alone = weft.load("superpod:su=1,servers=1")
    keep = np.array([name.startswith("dgx") for name in alone.nodes.name])
    joined = join_nvlinks(alone.subset(keep))
    result = PacketEngine().run(joined, Traffic.make([slot(joined, "dgx1/gpu0")], [slot(joined, "dgx1/gpu1")], 1 << 20))
    assert result.done


def test_without_gpus_nothing_changes():
    plain = weft.load("star:hosts=4")
    assert join_nvlinks(plain) is plain


def test_gpus_of_two_trays_of_a_rack_talk_over_nvlink() -> None:
    """The rack has one switch with the speed of 18 links; the network's adapters are not used."""
    racks = route(weft.load("superpod:su=2,servers=2,server=gb200-nvl72"), RoutingOptions(adaptive=True)).fabric
    joined = join_nvlinks(racks)
    assert len(joined.switches) == len(racks.switches) + 2
    size_bytes = 1 << 30
    far = Traffic.make([slot(joined, "nvl1/gpu0")], [slot(joined, "nvl1/gpu71")], size_bytes, description="far")
    took_ps = FlowEngine().run(joined, far).last_arrival_ps
    assert size_bytes * 1000 / took_ps == pytest.approx(18 * 50 * (1 - 0.178), rel=0.05)
