"""The packet engine against an independent simulator: every message finishes at the same picosecond."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.fabric import faults
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Operation, Traffic, Transport

_SPEC = importlib.util.spec_from_file_location("packet_oracle", Path(__file__).with_name("oracle.py"))
assert _SPEC is not None
oracle = importlib.util.module_from_spec(_SPEC)
sys.modules["packet_oracle"] = oracle  # dataclasses look up their module
assert _SPEC.loader is not None
_SPEC.loader.exec_module(oracle)

SHAPES = ("star:hosts=6", "star:hosts=5,speed=EDR", "fat-tree:hosts=16,radix=8", "torus:6x6", "dragonfly:p=1,a=4,h=1")


@cache
def routed(shape):
    return route(weft.load(shape)).fabric


def host_ports(fabric):
    return [int(fabric.first_port[node.index]) + 1 for node in fabric.hcas]


def with_lanes(fabric, lanes, weights, high, limit):
    """Map SL n to VL n modulo `lanes`, with a weight for each VL; `high`: the last VL has high priority too."""
    fabric = fabric.subset()
    tables = fabric.tables
    tables.sl2vl = np.tile(np.arange(16) % lanes, (len(tables.sl2vl), 1)).astype(np.uint8)
    for vl, weight in enumerate(weights[:lanes]):
        tables.vl_arbitration[:, 0, vl] = vl, weight
    if high:
        tables.vl_arbitration[:, 1, 0] = lanes - 1, high
    tables.vl_high_limit[:] = limit
    return fabric


def check_same(fabric, traffic, *, mtu_bytes=4096, buffer_bytes=0, stored=False, paths="table"):
    switching = "store-and-forward" if stored else "cut-through"
    options = Options(mtu_bytes=mtu_bytes, buffer_bytes=buffer_bytes, switching=switching, paths=paths)
    result = PacketEngine().run(fabric, traffic, options)
    expected = oracle.Oracle(
        fabric, traffic, mtu_bytes=mtu_bytes, buffer_bytes=buffer_bytes, store_and_forward=stored, paths=paths
    ).run()
    assert result.finish_ps.tolist() == expected


@st.composite
def fabrics(draw):
    fabric = routed(draw(st.sampled_from(SHAPES)))
    if draw(st.booleans()):
        slowest = "1xEDR" if "EDR" in fabric.spec else draw(st.sampled_from(["1xHDR", "4xEDR"]))
        for host in draw(st.lists(st.sampled_from(["h1/1", "h2/1", "h3/1"]), unique=True)):
            fabric = faults.slow(fabric, host, slowest)
    if not fabric.spec.startswith(("torus", "dragonfly")) and draw(st.booleans()):  # those need their own VLs
        weight = st.sampled_from([1, 3, 64, 255])
        weights = draw(st.one_of(st.just([]), st.lists(weight, min_size=3, max_size=3)))
        high = draw(st.sampled_from([0, 1, 200])) if weights else 0
        fabric = with_lanes(fabric, draw(st.integers(2, 3)), weights, high, draw(st.sampled_from([0, 1, 3, 255])))
    return fabric


@st.composite
def traffics(draw, fabric, mtu_bytes):
    n = draw(st.integers(1, 20))

    def column(one):
        return np.array(draw(st.lists(one, min_size=n, max_size=n)))

    hosts = host_ports(fabric)
    ends = column(st.lists(st.sampled_from(hosts), min_size=2, max_size=2, unique=True))
    if draw(st.booleans()):  # incast
        ends[ends[:, 0] != hosts[0], 1] = hosts[0]
    outstanding = draw(st.sampled_from([0, 0, 1, 2]))
    kinds = [Transport.RC] if outstanding else list(Transport)
    transport = column(st.sampled_from(kinds))
    size_bytes = column(st.one_of(st.sampled_from([0, 1, 220, 221, 4096, 4097]), st.integers(0, 100_000)))
    by_path = fabric.spec.startswith(("torus", "dragonfly"))
    return Traffic.make(
        ends[:, 0],
        ends[:, 1],
        np.where(transport == Transport.UD, np.minimum(size_bytes, mtu_bytes), size_bytes),
        start_ps=column(st.one_of(st.just(0), st.integers(0, 3_000).map(lambda ns: ns * 1000))),
        delay_ps=column(st.sampled_from([0, 5_000])),
        sl=-1 if by_path else column(st.integers(0, 2)),
        operation=column(st.sampled_from([Operation.WRITE, Operation.SEND])),
        transport=transport,
        qp=column(st.integers(0, 1)),
        after=[draw(st.lists(st.integers(0, i - 1), max_size=2)) if i else [] for i in range(n)],
        outstanding=outstanding,
    )


@settings(max_examples=40, derandomize=True)
@given(st.data())
def test_any_traffic_finishes_when_the_oracle_says(data):
    fabric = data.draw(fabrics())
    mtu_bytes = data.draw(st.sampled_from([4096, 1024]))
    traffic = data.draw(traffics(fabric, mtu_bytes))
    buffer_bytes = data.draw(st.sampled_from([0, 0, 4160, 20_000]))
    check_same(fabric, traffic, mtu_bytes=mtu_bytes, buffer_bytes=buffer_bytes, stored=data.draw(st.booleans()))


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("buffer_bytes", [0, 4160, 9_000])
@pytest.mark.parametrize("shape", ["fat-tree:hosts=16,radix=8", "torus:6x6"])
def test_a_shift_by_every_distance_finishes_when_the_oracle_says(shape, buffer_bytes, stored):
    """Every link is busy in both directions, and credits run out."""
    fabric = routed(shape)
    hosts = np.array(host_ports(fabric))
    for distance in (1, 5, len(hosts) // 2):
        check_same(
            fabric, Traffic.make(hosts, np.roll(hosts, -distance), 50_000), buffer_bytes=buffer_bytes, stored=stored
        )


@pytest.mark.parametrize("paths", ["valiant", "ugal", "par"])
@pytest.mark.parametrize(
    "shape", ["dragonfly:p=2,a=4,h=1", "dragonfly+:p=2,leaves=2,spines=2,h=2,g=3", "torus:5x3", "hyperx:3x3,hosts=2"]
)
def test_detours_finish_when_the_oracle_says(shape, paths):
    """All hosts of a group or a switch send to the next group or switch, so that queues grow and detours pay off."""
    fabric = routed(shape)
    hosts = np.array(host_ports(fabric))
    together = {"dragonfly": 8, "dragonfly+": 4, "hyperx": 2}.get(shape.split(":")[0], 3)
    check_same(fabric, Traffic.make(hosts, np.roll(hosts, -together), 50_000), paths=paths)
    check_same(fabric, Traffic.make(hosts, np.roll(hosts, -together), 30_000), paths=paths, buffer_bytes=9_000)


@pytest.mark.parametrize("limit", [0, 1, 255])
def test_priorities_under_an_incast_finish_when_the_oracle_says(limit):
    fabric = with_lanes(routed("star:hosts=6"), 3, [10, 65, 130], 65, limit)
    hosts = host_ports(fabric)
    rows = [(src, sl) for src in hosts[1:] for sl in range(3)]
    size_bytes = [60_000 + 5_000 * i for i in range(len(rows))]
    check_same(fabric, Traffic.make([src for src, _ in rows], hosts[0], size_bytes, sl=[sl for _, sl in rows]))
