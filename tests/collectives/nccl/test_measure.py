"""Rates of a fabric for patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

import weft
from weft.collectives.nccl.measure import measure, pattern_traffic
from weft.collectives.nccl.network import Pattern
from weft.collectives.ranks import channel_adapters, place, subset
from weft.errors import ConfigError
from weft.fabric import catalog, faults
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options


def routed(spec: str) -> weft.Fabric:
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def test_ndr_adapters_carry_what_perftest_measures():
    networks = measure(place(routed("superpod:su=1,servers=4"))).networks
    for pattern in Pattern:
        assert networks[pattern].adapter_gbyte_s == pytest.approx(49.05, rel=0.01), pattern
    assert 1 < networks[Pattern.RING].step_us < 3


def test_a_slow_cable_slows_the_whole_ring():
    fabric = faults.slow(routed("superpod:su=1,servers=4"), "dgx3/mlx5_0/1", "4xEDR")
    networks = measure(place(fabric), patterns=[Pattern.RING]).networks
    assert networks[Pattern.RING].adapter_gbyte_s == pytest.approx(49.05 / 4, rel=0.02)


def asked() -> list[tuple[str, str, dict[str, list[str]]]]:
    """Return servers, missing adapters and those of NCCL's channels by pattern, as ask_nccl_adapters.py wrote them."""
    cases: dict[tuple[str, str], dict[str, list[str]]] = {}
    for line in Path(__file__).with_name("nccl_adapters.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            server, missing, pattern, adapters = line.split()
            cases.setdefault((server, missing), {})[pattern] = adapters.split(",")
    return [(*key, patterns) for key, patterns in cases.items()]


@pytest.mark.parametrize(("server", "missing", "patterns"), asked(), ids=lambda value: str(value)[:20])
def test_channels_lie_over_the_adapters_that_nccls_own_search_takes(server, missing, patterns):
    fabric = weft.load(f"star:hosts=2,server={server}")
    broken = fabric.servers[1]
    ranks = place(faults.remove_link(fabric, f"{broken}/{missing}/1"))
    whole, hurt = (
        [ranks.fabric.port(slot).name.split("/")[1] for slot in row] for row in channel_adapters(ranks).tolist()
    )
    assert patterns == dict.fromkeys(patterns, hurt)
    assert whole == [*catalog.server(server).compute][:-1], "a whole server leaves out its last adapter"


def test_rings_cross_rails_behind_an_adapter_that_one_server_lacks():
    """NCCL connects channels by their number, so they pass a spine; pairs meet on the rails that both have."""
    fabric = faults.remove_link(weft.load("superpod:su=1,servers=4"), "dgx2/mlx5_0/1")
    broken = place(route(fabric).fabric)
    intact = measure(place(routed("superpod:su=1,servers=4"))).networks
    networks = measure(broken).networks
    assert networks[Pattern.RING].step_us > 1.1 * intact[Pattern.RING].step_us
    assert networks[Pattern.PAIRS].step_us == pytest.approx(intact[Pattern.PAIRS].step_us, rel=0.01)


def test_rings_stay_on_their_rails_if_all_servers_lack_the_same_adapter():
    fabric = weft.load("superpod:su=1,servers=3")
    for name in fabric.servers:
        fabric = faults.remove_link(fabric, f"{name}/mlx5_4/1")
    ranks = place(fabric)
    assert (channel_adapters(ranks) == ranks.adapters).all()


def test_a_part_of_the_gpus_keeps_its_own_adapters():
    """Only a job on whole servers has all channels: with four GPUs of eight, each adapter is that of its GPU."""
    fabric = faults.remove_link(weft.load("superpod:su=1,servers=2"), "dgx2/mlx5_11/1")
    some = subset(place(fabric), (*range(4), *range(8, 12)))
    assert (channel_adapters(some) == some.adapters).all()


def test_an_oversubscribed_tree_halves_what_far_pairs_get():
    """Two uplinks for four hosts of a leaf."""
    thin = routed("fat-tree:hosts=16,radix=8,oversubscription=3")
    networks = measure(place(thin)).networks
    assert networks[Pattern.PAIRS].adapter_gbyte_s < 0.7 * 49.05
    assert networks[Pattern.RING].adapter_gbyte_s > networks[Pattern.PAIRS].adapter_gbyte_s


def test_tcp_is_bound_by_the_cores_that_copy():
    fabric = routed("superpod:su=1,servers=3,speed=100GbE")
    item, two = (
        measure(place(fabric), Options(network="tcp"), connections=connections).networks for connections in (1, 2)
    )
    for pattern in Pattern:
        assert two[pattern].adapter_gbyte_s == pytest.approx(2 * item[pattern].adapter_gbyte_s, rel=0.02)
        assert two[pattern].step_us > 30


def test_a_tree_has_edges_up_and_down_in_both_trees():
    traffic = pattern_traffic(place(weft.load("star:hosts=6")), Pattern.TREE, connections=1)
    pairs = set(zip(traffic.src.tolist(), traffic.dst.tolist(), strict=True))
    assert len(traffic) == 2 * 2 * 5
    assert {(b, a) for a, b in pairs} == pairs


def test_one_server_has_no_network():
    with pytest.raises(ConfigError, match="alone"):
        measure(place(routed("superpod:su=1,servers=1")))
