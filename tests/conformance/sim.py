"""Requirements for every engine of `weft.sim`, with any kind of clock."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.tables import NO_ROUTE
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.result import Engine, PortUse, Result
from weft.sim.traffic import Traffic

FABRICS = (
    "star:hosts=6",
    "fat-tree:hosts=16,radix=8",
    "torus:4x4",
    "dragonfly:p=1,a=4,h=1",
    "star:hosts=6,speed=400GbE",
)


def make_fabric(spec: str) -> weft.Fabric:
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def hosts_of(fabric: weft.Fabric) -> list[int]:
    return [int(fabric.first_port[node.index]) + 1 for node in fabric.hcas]


def shift(fabric: weft.Fabric, size_bytes: int, by: int = 1, **columns) -> Traffic:
    hosts = np.array(hosts_of(fabric))
    return Traffic.make(hosts, np.roll(hosts, -by), size_bytes, description=f"shift by {by}", **columns)


def check_engine(engine: Engine, spec: str) -> None:
    """Run all checks on one fabric."""
    fabric = make_fabric(spec)
    check_everything_arrives(engine, fabric)
    check_shapes(engine, fabric)
    check_repeats(engine, fabric)
    check_dependencies(engine, fabric)
    check_starts(engine, fabric)
    check_order_of_starts(engine, fabric)
    check_more_is_never_faster(engine, fabric)
    check_leaves_the_fabric_alone(engine, fabric)
    check_refusals(engine, fabric)


def check_everything_arrives(engine: Engine, fabric: weft.Fabric) -> None:
    traffic = shift(fabric, 100_000)
    result = engine.run(fabric, traffic)
    assert result.done
    assert result.last_arrival_ps == result.finish_ps.max()
    rate_gbit_s = fabric.link_rate_gbit_s[fabric.ports.link[traffic.src]]
    assert (result.latency_ps >= traffic.size_bytes * 8_000 / rate_gbit_s).all(), "faster than the line"
    assert 0 < result.goodput_gbit_s <= rate_gbit_s.sum()


def check_shapes(engine: Engine, fabric: weft.Fabric) -> None:
    traffic = shift(fabric, 10_000)
    result = engine.run(fabric, traffic)
    assert isinstance(result, Result)
    assert result.engine == engine.name
    assert result.traffic is traffic
    for column in (result.start_ps, result.finish_ps, result.acked_ps, result.retransmitted):
        assert column.shape == (len(traffic),)
    for field in fields(PortUse):
        column = getattr(result.use, field.name)
        assert column.shape == (len(fabric.ports),), field.name
        assert column.dtype == np.int64, field.name
    senders, idle = result.use.xmit_bytes[traffic.src], result.use.xmit_bytes[fabric.ports.peer < 0]
    assert (senders >= traffic.size_bytes).all(), "what was sent has passed the sender's port"
    assert (idle == 0).all(), "nothing leaves by a port without a cable"
    options = result.options
    for name in ("network", "paths", "congestion_control", "mtu_bytes"):
        assert getattr(options, name), f"{name} is returned filled in"
    report = result.report()
    assert (report["messages"], report["delivered"]) == (len(traffic), len(traffic))
    assert report["digest"] == result.digest()


def check_repeats(engine: Engine, fabric: weft.Fabric) -> None:
    traffic = shift(fabric, 50_000, by=2)
    item, other = (engine.run(fabric, traffic, Options(seed=3)) for _ in range(2))
    assert item.digest() == other.digest(), "the same seed gives the same run"
    assert item.options.seed == 3


def check_dependencies(engine: Engine, fabric: weft.Fabric) -> None:
    """Check a chain around the hosts, and a message that waits for all of the chain."""
    hosts = hosts_of(fabric)
    n = len(hosts)
    src, dst = [*hosts, hosts[0]], [*hosts[1:], hosts[0], hosts[1]]
    after = [[], *([i] for i in range(n - 1)), list(range(n))]
    result = engine.run(fabric, Traffic.make(src, dst, 5_000, after=after, delay_ps=700))
    for message, before in enumerate(after):
        if before:
            assert result.start_ps[message] == max(result.finish_ps[before]) + 700
    assert (result.finish_ps > result.start_ps).all()


def check_starts(engine: Engine, fabric: weft.Fabric) -> None:
    """Check that the time of a single message does not depend on its start."""
    ends = hosts_of(fabric)[:2]
    now, later = (
        engine.run(fabric, Traffic.make(ends[:1], ends[1:], 30_000, start_ps=start_ps)) for start_ps in (0, 123_456_789)
    )
    assert later.start_ps[0] == 123_456_789
    assert later.latency_ps[0] == now.latency_ps[0]


def check_order_of_starts(engine: Engine, fabric: weft.Fabric) -> None:
    """Check that a message with a later start delays none before it, even if its turn was known earlier."""
    a, b, c = hosts_of(fabric)[:3]
    later_ps = 10**9
    traffic = Traffic.make(
        [c, a, c, a],
        [a, b, a, b],
        [8, 8, 1 << 20, 8],
        after=[[], [0], [], [2]],
        delay_ps=[0, later_ps, 0, 0],
        qp=[0, 0, 1, 0],
    )
    result = engine.run(fabric, traffic)
    assert result.start_ps[3] < result.start_ps[1]
    assert result.finish_ps[3] < later_ps < result.finish_ps[1]


def check_more_is_never_faster(engine: Engine, fabric: weft.Fabric) -> None:
    """Check that more bytes, or more senders to the same receiver, do not end earlier."""
    hosts = hosts_of(fabric)
    ends = [
        engine.run(fabric, Traffic.make(hosts[1:2], hosts[:1], size_bytes)).last_arrival_ps
        for size_bytes in (0, 1, 4_096, 50_000, 400_000)
    ]
    assert ends == sorted(ends)
    ends = [engine.run(fabric, Traffic.make(hosts[1 : 1 + n], hosts[0], 200_000)).last_arrival_ps for n in range(1, 5)]
    assert ends == sorted(set(ends))


def check_leaves_the_fabric_alone(engine: Engine, fabric: weft.Fabric) -> None:
    lft, counters = fabric.tables.lft.copy(), fabric.counters.copy()
    engine.run(fabric, shift(fabric, 1_000))
    assert (fabric.tables.lft == lft).all()
    assert (fabric.counters == counters).all(), "counters are written only when the result is told to"


def check_refusals(engine: Engine, fabric: weft.Fabric) -> None:
    """Check that an impossible run is refused before it starts, with the message and the reason."""
    hosts = hosts_of(fabric)
    switch = int(fabric.first_port[fabric.switches[0].index]) + 1
    last = len(fabric.ports)
    for traffic, words in (
        (Traffic.make([], [], []), "no message"),
        (Traffic.make(hosts[:1], hosts[:1], 8), "are the same"),
        (Traffic.make(hosts[:1], last, 8), "receiver"),
        (Traffic.make([-1], hosts[:1], 8), "sender"),
        (Traffic.make([switch], hosts[:1], 8), "not an adapter port"),
        (Traffic.make(hosts[:1], hosts[1:2], -1), "size"),
        (Traffic.make(hosts[:1], hosts[1:2], 8, start_ps=-1), "negative"),
        (Traffic.make(hosts[:1], hosts[1:2], 8, sl=16), "service level"),
        (Traffic.make(hosts[:1], hosts[1:2], 8, after=[[1]]), "unknown one"),
        (Traffic.make(hosts[:2], hosts[1:3], 8, after=[[1], [0]]), "cycle"),
    ):
        with pytest.raises(ConfigError, match=words):
            engine.run(fabric, traffic)
    check_tables_are_needed(engine, fabric)


def check_tables_are_needed(engine: Engine, fabric: weft.Fabric) -> None:
    """Check the refusal of missing tables, of a missing entry, and of a cable removed after routing."""
    traffic = shift(fabric, 8)
    bare = fabric.configured(fabric.tables.like())
    torn = fabric.subset()
    torn.tables.lft[:, torn.tables.lid[traffic.dst[0]]] = NO_ROUTE
    pulled = faults.remove_link(fabric, fabric.port(int(traffic.dst[0])).name)
    for broken in (bare, torn, pulled):
        with pytest.raises(ConfigError):
            engine.run(broken, traffic)
    plain = route(weft.load(fabric.spec)).fabric
    with pytest.raises(ConfigError, match="groups"):
        engine.run(plain, traffic, Options(paths="adaptive"))
