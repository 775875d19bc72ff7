"""Times of a job's collectives: over a fabric as in closed form, where nothing is in the way."""

from dataclasses import replace

import pytest

import weft
from weft.cli import app
from weft.collectives.kinds import Collective, Protocol
from weft.collectives.nccl.cluster import from_server
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.measure import CONNECTIONS
from weft.collectives.nccl.network import Pattern
from weft.collectives.ranks import place
from weft.errors import ConfigError
from weft.fabric.faults import remove_link, slow
from weft.routing.engine import Options as Routing
from weft.routing.route import route
from weft.sim.analytic import AnalyticEngine
from weft.sim.engine import Memory, Options, Paths
from weft.training.communication import Ideal, OverFabric
from weft.training.parallel import Layout
from weft.training.site import find_site

OPTIONS = Options(paths=Paths.ADAPTIVE, memory=Memory.GPUDIRECT)


@pytest.fixture(scope="module")
def fabric():
    return route(weft.load("superpod:su=1,servers=8"), Routing(adaptive=True)).fabric


def layout(**given):
    return Layout(**{"gpus": 64, "global_batch": 64, "seq": 2048, **given})


@pytest.mark.parametrize("given", [{"tp": 4, "pp": 2}, {"tp": 8, "pp": 4}, {"tp": 2, "cp": 2, "pp": 2}, {"ep": 16}])
@pytest.mark.parametrize("kind", ["tp", "cp", "dp", "dp-cp", "ep", "edp"])
def test_a_fabric_without_flaws_is_the_ideal_network(fabric, given, kind):
    result = layout(**given)
    over, ideal = OverFabric(place(fabric), result, OPTIONS), Ideal(from_server("dgx-h100", nodes=8), result)
    for collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL):
        seconds = over.time_s(kind, collective, 256 << 20)
        assert seconds == pytest.approx(ideal.time_s(kind, collective, 256 << 20), rel=0.02)
        assert (seconds == 0) == (result.ranks(kind).shape[1] == 1)
    assert over.send_s(1 << 20) == pytest.approx(ideal.send_s(1 << 20), rel=0.05)


def test_a_group_has_as_many_adapters_as_members_in_a_server(fabric):
    """tp=4 leaves two members of a data-parallel group in each server."""
    ideal = Ideal(from_server("dgx-h100", nodes=8), layout(tp=4))
    part = replace(from_server("dgx-h100", nodes=8), gpus=2, nics=2)
    assert ideal.time_s("dp", Collective.ALL_GATHER, 1 << 30) == pytest.approx(
        estimate(part, Collective.ALL_GATHER, 1 << 30).time_us / 1e6
    )


def test_one_slow_cable_slows_the_whole_kind_of_group(fabric):
    result = layout(tp=8)
    sick = slow(fabric, "dgx3/mlx5_0/1", "4xHDR")
    whole, held = (OverFabric(place(item), result, OPTIONS) for item in (fabric, sick))
    ratio = held.time_s("dp", Collective.ALL_GATHER, 1 << 30) / whole.time_s("dp", Collective.ALL_GATHER, 1 << 30)
    assert 1.7 < ratio < 2.1
    assert held.time_s("tp", Collective.ALL_GATHER, 1 << 30) == whole.time_s("tp", Collective.ALL_GATHER, 1 << 30)


def test_only_groups_over_whole_servers_cross_rails_behind_a_missing_adapter(fabric):
    """NCCL connects channels of whole servers by their number; a group with a GPU on each server keeps its rail."""
    cut = route(remove_link(weft.load("superpod:su=1,servers=8"), "dgx3/mlx5_0/1"), Routing(adaptive=True)).fabric
    step_us = {
        (tp, each is cut): OverFabric(place(each), layout(tp=tp), OPTIONS)._measure("dp", Pattern.RING).step_us
        for tp in (1, 8)
        for each in (fabric, cut)
    }
    assert step_us[1, True] > 1.2 * step_us[1, False]
    assert step_us[8, True] < 1.12 * step_us[8, False]  # two groups share an adapter


def test_flows_and_closed_forms_agree(fabric):
    result = layout(tp=4, pp=2)
    flow, analytic = (OverFabric(place(fabric), result, OPTIONS, engine) for engine in (None, AnalyticEngine()))
    for kind in ("dp", "tp"):
        times = [item.time_s(kind, Collective.REDUCE_SCATTER, 1 << 28) for item in (flow, analytic)]
        assert times[0] == pytest.approx(times[1], rel=0.01)


def test_the_server_with_the_fewest_members_limits_the_adapters_of_an_uneven_group():
    """Stages of 156 GPUs have 19 servers and a half: of a group with tp = 2 four members each, and two in the last."""

    def gather_s(gpus: int) -> float:
        cut = layout(gpus=gpus, tp=2, pp=16, global_batch=gpus)
        return Ideal(from_server("dgx-h100", nodes=gpus // 8), cut).time_s("dp-cp", Collective.ALL_GATHER, 1 << 30)

    fewest = replace(from_server("dgx-h100", nodes=20), gpus=4, nics=2)
    assert gather_s(2496) == pytest.approx(estimate(fewest, Collective.ALL_GATHER, 1 << 30).time_us / 1e6)
    assert gather_s(2496) == pytest.approx(2 * gather_s(2560), rel=0.05)


@pytest.mark.parametrize(("gpus", "given"), [(24, {"tp": 2, "pp": 2}), (24, {"tp": 2, "cp": 3}), (56, {"pp": 2})])
def test_uneven_groups_take_as_long_over_a_fabric_as_over_the_ideal_network(gpus, given):
    cut = layout(gpus=gpus, global_batch=gpus, seq=6144, **given)
    fabric = route(weft.load(f"superpod:su=1,servers={gpus // 8}"), Routing(adaptive=True)).fabric
    over, ideal = OverFabric(place(fabric), cut, OPTIONS), Ideal(from_server("dgx-h100", nodes=gpus // 8), cut)
    for kind in ("cp", "dp", "dp-cp"):
        seconds = over.time_s(kind, Collective.ALL_GATHER, 256 << 20)
        assert seconds == pytest.approx(ideal.time_s(kind, Collective.ALL_GATHER, 256 << 20), rel=0.05)


def test_groups_inside_a_server_wait_for_those_that_cross_to_another():
    """With tp = 2 every second context group of three is on two servers."""
    crossing = Ideal(from_server("dgx-h100", nodes=3), layout(gpus=24, tp=2, cp=3, global_batch=4, seq=6144))
    inside = Ideal(from_server("dgx-h100", nodes=3), layout(gpus=24, tp=2, cp=4, global_batch=3, seq=6144))
    assert crossing.time_s("cp", Collective.ALL_GATHER, 1 << 30) > 2 * inside.time_s(
        "cp", Collective.ALL_GATHER, 1 << 30
    )


def test_a_job_has_as_many_gpus_as_its_servers(fabric):
    with pytest.raises(ConfigError, match="a layout of 32 GPUs on 64"):
        OverFabric(place(fabric), layout(gpus=32))


def test_where_nothing_tells_connections_apart_one_stands_for_all(fabric, monkeypatch):
    """Adaptive routing spreads each over all ports."""
    times = []
    for _ in range(2):
        over = OverFabric(place(fabric), layout(tp=2), OPTIONS)
        times.append(over.time_s("dp-cp", Collective.ALL_GATHER, 1 << 28))
        monkeypatch.setattr(OverFabric, "_connections", CONNECTIONS)
    assert times[0] == pytest.approx(times[1], rel=1e-3)


def test_cached_times_are_kept_per_network():
    cluster, result = from_server("dgx-h100", nodes=8), layout()
    times_s = [
        Ideal(cluster, result, ideal_networks(cluster, network=name)).time_s("dp", Collective.ALL_GATHER, 1 << 20)
        for name in ("infiniband", "tcp", "infiniband")
    ]
    assert times_s[0] == times_s[2] < times_s[1] / 2


def test_tcp_on_a_faster_line_is_slower_only_by_the_protocol_that_nccl_chooses():
    """NCCL compares protocols by the rate of the port, and one core's copies bound both."""
    times, protocols = [], []
    for name in ("eth-100-tcp", "eth-400-tcp"):
        site = find_site(name, gpus=64)
        part = replace(site.cluster, gpus=4, nics=4)
        chosen, simple = (
            estimate(part, Collective.REDUCE_SCATTER, 159 << 20, networks=site.networks, protocol=protocol)
            for protocol in (None, Protocol.SIMPLE)
        )
        protocols.append(chosen.protocol)
        times.append(simple.time_us)
    assert protocols == [Protocol.SIMPLE, Protocol.LL128]
    assert times[1] == pytest.approx(times[0], rel=0.01)


def test_tcp_on_several_lines_is_explained_beside_the_table(capsys):
    job = ("train", "llama3-8b", "--gpus", "16", "--tp", "2", "--engine", "analytic", "--fabrics")
    for fabrics, is_explained in (("eth-100-tcp,eth-400-tcp", True), ("ndr,eth-400-tcp", False)):
        app([*job, fabrics])
        assert ("400G is no faster than 100G" in capsys.readouterr().out) == is_explained
