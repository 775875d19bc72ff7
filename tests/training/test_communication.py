"""Times of a job's collectives: over a fabric as in closed form, where nothing is in the way."""

from dataclasses import replace

import pytest

import weft
from weft.collectives.cluster import from_server
from weft.collectives.estimate import estimate
from weft.collectives.ideal import ideal_networks
from weft.collectives.kinds import Collective
from weft.collectives.measure import CONNECTIONS
from weft.collectives.ranks import place
from weft.errors import ConfigError
from weft.fabric.faults import slow
from weft.routing.engine import Options as Routing
from weft.routing.route import route
from weft.sim.analytic import AnalyticEngine
from weft.sim.engine import Memory, Options, Paths
from weft.training.communication import Ideal, OverFabric
from weft.training.parallel import Layout

OPTIONS = Options(paths=Paths.ADAPTIVE, memory=Memory.GPUDIRECT)


@pytest.fixture(scope="module")
def fabric():
    return route(weft.load("superpod:su=1,servers=8"), Routing(adaptive=True)).fabric


def layout(**given):
    return Layout(**{"gpus": 64, "global_batch": 64, "seq": 2048, **given})


@pytest.mark.parametrize("given", [{"tp": 4, "pp": 2}, {"tp": 8, "pp": 4}, {"tp": 2, "cp": 2, "pp": 2}, {"ep": 16}])
@pytest.mark.parametrize("kind", ["tp", "cp", "dp", "dp-cp", "ep", "edp"])
def test_a_fabric_without_flaws_is_the_ideal_network(fabric, given, kind):
    made = layout(**given)
    over, ideal = OverFabric(place(fabric), made, OPTIONS), Ideal(from_server("dgx-h100", nodes=8), made)
    for collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL):
        seconds = over.time_s(kind, collective, 256 << 20)
        assert seconds == pytest.approx(ideal.time_s(kind, collective, 256 << 20), rel=0.02)
        assert (seconds == 0) == (made.ranks(kind).shape[1] == 1)
    assert over.send_s(1 << 20) == pytest.approx(ideal.send_s(1 << 20), rel=0.05)


def test_a_group_has_as_many_adapters_as_members_in_a_server(fabric):
    """tp=4 leaves two members of a data-parallel group in each server."""
    ideal = Ideal(from_server("dgx-h100", nodes=8), layout(tp=4))
    part = replace(from_server("dgx-h100", nodes=8), gpus=2, nics=2)
    assert ideal.time_s("dp", Collective.ALL_GATHER, 1 << 30) == pytest.approx(
        estimate(part, Collective.ALL_GATHER, 1 << 30).time_us / 1e6
    )


def test_one_slow_cable_slows_the_whole_kind_of_group(fabric):
    made = layout(tp=8)
    sick = slow(fabric, "dgx3/mlx5_0/1", "4xHDR")
    whole, held = (OverFabric(place(one), made, OPTIONS) for one in (fabric, sick))
    ratio = held.time_s("dp", Collective.ALL_GATHER, 1 << 30) / whole.time_s("dp", Collective.ALL_GATHER, 1 << 30)
    assert 1.7 < ratio < 2.1
    assert held.time_s("tp", Collective.ALL_GATHER, 1 << 30) == whole.time_s("tp", Collective.ALL_GATHER, 1 << 30)


def test_flows_and_closed_forms_agree(fabric):
    made = layout(tp=4, pp=2)
    flow, analytic = (OverFabric(place(fabric), made, OPTIONS, engine) for engine in (None, AnalyticEngine()))
    for kind in ("dp", "tp"):
        times = [one.time_s(kind, Collective.REDUCE_SCATTER, 1 << 28) for one in (flow, analytic)]
        assert times[0] == pytest.approx(times[1], rel=0.01)


def test_a_group_that_straddles_servers_unevenly_is_refused():
    uneven = Ideal(from_server("dgx-h100", nodes=3), layout(gpus=24, tp=2, pp=2, global_batch=6))
    with pytest.raises(ConfigError, match="dp groups of 6 do not all lie evenly on servers of 8 GPUs"):
        uneven.time_s("dp", Collective.ALL_GATHER, 1 << 20)
    third = Ideal(from_server("dgx-h100", nodes=3), layout(gpus=24, tp=2, cp=3, global_batch=4, seq=6144))
    with pytest.raises(ConfigError, match="cp groups of 3 do not all"):  # only some lie in one server
        third.time_s("cp", Collective.ALL_GATHER, 1 << 20)


def test_an_uneven_group_names_numbers_of_gpus_that_are_even():
    """Stages of 156 GPUs have 19 servers and a half; those of 152 and 160 have whole servers."""

    def gather(gpus: int) -> float:
        made = layout(gpus=gpus, tp=2, pp=16, global_batch=gpus)
        return Ideal(from_server("dgx-h100", nodes=gpus // 8), made).time_s("dp-cp", Collective.ALL_GATHER, 1 << 20)

    with pytest.raises(ConfigError, match=r"dp-cp groups of 78 .* 8 GPUs: .* nearest are gpus = 2432 or 2560"):
        gather(2496)
    assert 0 < gather(2432) < gather(2560)
    third = layout(gpus=24, tp=2, cp=3, global_batch=4, seq=6144)
    assert third.way_to_even(8) == "let tp*cp = 6 divide 8, or be a multiple of it"


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


def test_what_is_remembered_of_one_network_is_not_said_of_another():
    cluster, made = from_server("dgx-h100", nodes=8), layout()
    times_s = [
        Ideal(cluster, made, ideal_networks(cluster, network=name)).time_s("dp", Collective.ALL_GATHER, 1 << 20)
        for name in ("infiniband", "tcp", "infiniband")
    ]
    assert times_s[0] == times_s[2] < times_s[1] / 2
