"""The routes and the traffic that functions of the Python interface take and pass on."""

from __future__ import annotations

from dataclasses import replace

import pytest

import weft
from weft.api.routes import read_routed
from weft.api.traffic import make_traffic, read_parameters, read_ps, route_traffic
from weft.errors import ConfigError
from weft.routing.quality import measure
from weft.sim.engine import Options, Paths

TORUS = weft.load("torus:4x4")


def test_two_hosts_are_enough_to_measure():
    assert weft.rate("star:hosts=2").all_to_all.max_load > 0


def test_tables_of_a_fabric_are_kept_unless_an_engine_is_to_replace_them():
    routing = weft.route(TORUS, routing_engine="up-down")
    own = weft.rate(routing).all_to_all.max_load
    assert own == measure(routing.fabric, seed=1).all_to_all.max_load != weft.rate(TORUS).all_to_all.max_load
    assert read_routed(routing.fabric, engine="auto") == (routing.fabric, True)
    assert read_routed(routing.fabric, engine="auto", again=True)[0] is not routing.fabric
    assert weft.check(routing).lanes_known
    for adaptive in (False, True):
        routed, _ = read_routed(TORUS, engine="auto", adaptive=adaptive)
        assert ("ar_group" in vars(routed.tables)) == adaptive
    assert "ar_group" not in vars(read_routed(TORUS, engine="auto")[0].tables)


def test_times_are_read_in_microseconds_within_limits():
    assert [read_ps("--duration-us", us) for us in (1e-6, 2, 1e9)] == [1, 2_000_000, 10**15]
    for us in (0.9e-6, 1.1e9):
        with pytest.raises(ConfigError, match=r"--duration-us .* is not from"):
            read_ps("--duration-us", us)


def test_parameters_are_passed_on_under_the_names_of_traffic_patterns():
    assert read_parameters() == {}
    parameters = read_parameters(
        size="4K", load=0.5, duration_us=3, senders=2, receiver="h1", distance=5, sl=1, operation="read", transport="ud"
    )
    expected = {"size_bytes": 4096, "load": 0.5, "duration_ps": 3_000_000, "senders": 2, "receiver": "h1"}
    assert {name: parameters.pop(name) for name in expected} == expected
    assert {name: str(getattr(value, "name", value)) for name, value in parameters.items()} == {
        "distance": "5",
        "sl": "1",
        "operation": "READ",
        "transport": "UD",
    }


def test_the_seed_reaches_random_traffic_only():
    routed = weft.route(TORUS).fabric
    by_seed = [make_traffic("permutation", routed, {}, seed).dst.tolist() for seed in (1, 1, 2)]
    assert by_seed[0] == by_seed[1] != by_seed[2]
    assert len(make_traffic("incast", routed, {"senders": 3}, 2).src) == 3


def test_tables_without_groups_of_ports_allow_no_other_paths():
    routed = weft.route(TORUS).fabric
    assert "ar_group" not in vars(routed.tables)
    for paths in (None, Paths.TABLE):
        assert route_traffic(routed, [Options(paths=paths)])[1] == "tables of torus:4x4"
    with pytest.raises(ConfigError, match="paths adaptive needs groups of ports"):
        route_traffic(routed, [Options(), replace(Options(), paths=Paths.ADAPTIVE)])
    assert route_traffic(routed, [Options(paths=Paths.ADAPTIVE)], routing_engine="min-hop")[1] == "routed by min-hop"
