"""Valiant, UGAL, PAR and LMC paths: throughput against the bounds of theory."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.routing.engine import Options as RoutingOptions
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.sim.auto import choose_engine
from weft.sim.engine import Options
from weft.sim.figures import carried_load
from weft.sim.packet.engine import PacketEngine
from weft.sim.patterns import make
from weft.sim.traffic import Traffic

DRAGONFLY, RING, HYPERX = "dragonfly:p=2,a=4,h=2", "torus:9", "hyperx:5,hosts=4"


@cache
def routed(spec: str, lmc: int = 0) -> weft.Fabric:
    return route(weft.load(spec), RoutingOptions(lmc=lmc)).fabric


def carried(spec: str, traffic: str, paths: str, load: float) -> float:
    fabric = routed(spec)
    sent = make(traffic, fabric, load=load, duration_ps=40_000_000)
    return carried_load(PacketEngine().run(fabric, sent, Options(paths=paths)))


@pytest.mark.parametrize(
    ("spec", "traffic", "minimal"),
    [
        (DRAGONFLY, "adversarial", 1 / 8),  # p * a hosts share a link to the next group
        (RING, "tornado", 1 / 4),  # each link carries packets of 4 hosts, the other direction none
        (HYPERX, "tornado", 1 / 4),  # 4 hosts share the link to another switch
    ],
)
def test_minimal_paths_saturate_at_the_bound_and_detours_above_it(spec, traffic, minimal):
    without = carried(spec, traffic, "minimal", 0.5)
    assert 0.85 * minimal < without <= minimal
    for paths in ("valiant", "ugal", "par"):
        assert carried(spec, traffic, paths, 0.5) > 1.25 * without, paths


def test_valiant_halves_the_throughput_of_uniform_traffic_and_ugal_does_not():
    """Each packet takes two global links of a dragonfly instead of one: at most half of the load."""
    valiant, ugal, par = (carried(DRAGONFLY, "uniform", paths, 0.75) for paths in ("valiant", "ugal", "par"))
    assert valiant < 0.56
    assert ugal > 0.7
    assert par > 0.7


def test_an_idle_fabric_is_crossed_on_minimal_paths_by_ugal_and_par_not_by_valiant():
    fabric = routed(DRAGONFLY)
    traffic = Traffic.of(fabric, [("h1", "h72", 64)])
    minimal, ugal, par, valiant = (
        PacketEngine().run(fabric, traffic, Options(paths=paths)).last_arrival_ps
        for paths in ("minimal", "ugal", "par", "valiant")
    )
    assert minimal == ugal == par < valiant


def test_messages_of_a_pair_take_all_lids_of_the_receiver_in_turn():
    """The LIDs of a dragonfly's hosts lead through different groups."""
    fabric = routed(DRAGONFLY, 2)
    hosts = host_ports(fabric)
    pairs = np.repeat(np.arange(8), 4)  # the first group sends to the second
    traffic = Traffic.make(hosts[pairs], hosts[pairs + 8], 60_000)
    table, by_lid = (PacketEngine().run(fabric, traffic, Options(paths=paths)) for paths in ("table", "lmc"))
    assert by_lid.last_arrival_ps < 0.5 * table.last_arrival_ps
    ports = [int((result.use.xmit_bytes > 0).sum()) for result in (table, by_lid)]
    assert ports[1] > ports[0]


def test_the_automatic_choice_of_an_engine_takes_packets_for_detours():
    fabric = routed(RING)
    engine, reason = choose_engine(fabric, Traffic.of(fabric, [("h1", "h2", 64)]), Options(paths="ugal"))
    assert (engine.name, reason) == ("packet", "flows have no queues to choose detours by")


def test_paths_by_lmc_need_several_lids():
    fabric = routed(RING)
    with pytest.raises(ConfigError, match="needs several LIDs for each port"):
        PacketEngine().run(fabric, Traffic.of(fabric, [("h1", "h2", 64)]), Options(paths="lmc"))


def test_detours_need_lanes_for_each_part():
    """With LMC the tables of a dragonfly alone need 3 lanes, and PAR has 3 parts."""
    fabric = routed(DRAGONFLY, 1)
    with pytest.raises(ConfigError, match="needs 9 VLs, 3 for each of the 3 parts of a path, and the ports have 8"):
        PacketEngine().run(fabric, Traffic.of(fabric, [("h1", "h72", 64)]), Options(paths="par"))
