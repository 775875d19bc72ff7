"""A run that cannot finish reports which message waits for which."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.errors import ConfigError, SimulationBug
from weft.fabric import faults
from weft.routing.engine import Options as RoutingOptions
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet.deadlock import Cycle, find_cycle
from weft.sim.packet.engine import Deadlock, PacketEngine, check_all_acknowledged
from weft.sim.packet.loop import run_events
from weft.sim.packet.parallel import grow_pools
from weft.sim.packet.plan import plan
from weft.sim.packet.state import Stop
from weft.sim.patterns import uniform
from weft.sim.traffic import Traffic


def around_the_torus(engine: str) -> tuple[weft.Fabric, Traffic]:
    """Send from every host two steps further along each ring: enough to fill every buffer of a ring."""
    fabric = route(weft.load("torus:6x6"), RoutingOptions(engine=engine)).fabric
    hosts = host_ports(fabric)
    n = len(hosts)
    to = np.concatenate([hosts[(np.arange(n) + step) % n] for step in (2, 12, 14)])
    return fabric, Traffic.make(np.tile(hosts, 3), to, 100_000)


def test_a_deadlock_names_the_ports_that_wait_for_each_other():
    fabric, traffic = around_the_torus("min-hop")
    with pytest.raises(Deadlock, match="Route with engine auto") as caught:
        PacketEngine().run(fabric, traffic, Options(buffer_bytes=8192))
    circle = caught.value.cycle
    assert len(circle) >= 3
    for name, following in zip(circle, circle[1:] + circle[:1], strict=True):
        peer = fabric.find_port(name).peer
        assert peer is not None
        assert peer.node.name == fabric.find_port(following).node.name


def test_a_deadlock_has_the_date_at_which_its_circle_closed_however_long_traffic_goes_on():
    fabric = route(weft.load("torus:4x4x4,hosts=2"), RoutingOptions(engine="min-hop")).fabric
    traffic = uniform(fabric, load=1.0, duration_ps=100_000_000)
    result = []
    for until_ps in (50_000_000, 75_000_000, 100_000_000):
        early = traffic.start_ps < until_ps
        some = Traffic.make(traffic.src[early], traffic.dst[early], 4096, start_ps=traffic.start_ps[early])
        with pytest.raises(Deadlock) as caught:
            PacketEngine().run(fabric, some)
        result.append((caught.value.since_ps, caught.value.cycle))
    assert result[0] == result[1] == result[2]
    since_ps = result[0][0]
    assert circle_at(fabric, traffic, since_ps - 1) is None
    circle = circle_at(fabric, traffic, since_ps + 2_000_000)  # packets in flight then have arrived
    assert circle is not None
    assert circle.since_ps == since_ps


def circle_at(fabric: weft.Fabric, traffic: Traffic, time_ps: int) -> Cycle | None:
    plan_of_run = plan(fabric, traffic, Options())
    plan_of_run.state.run.until_ps[0] = time_ps
    state, why = plan_of_run.state, Stop.ROOM
    while why is not Stop.MOMENT:
        state = grow_pools(state) if why is Stop.ROOM else state
        why = Stop(run_events(state, 100_000))
    return find_cycle(state)


def test_a_run_in_deadlock_does_not_go_on_for_as_long_as_traffic_comes():
    """Two hosts far from the ring exchange a lot of data; the run ends with the error long before they finish."""
    fabric, traffic = around_the_torus("min-hop")
    hosts = host_ports(fabric)
    n = 400_000
    talk = np.arange(n) * 1_000_000
    src, dst = (
        np.concatenate((column, np.full(n, hosts[end]))) for column, end in ((traffic.src, 0), (traffic.dst, 1))
    )
    both = Traffic.make(src, dst, 4096, start_ps=np.concatenate((traffic.start_ps, talk)))
    visited: list[int] = []
    with pytest.raises(Deadlock):
        PacketEngine().run(fabric, both, Options(buffer_bytes=4160), progress=lambda done, _all: visited.append(done))
    assert visited[-1] < n / 2


def test_the_same_traffic_arrives_with_tables_that_have_no_circle():
    fabric, traffic = around_the_torus("auto")
    assert PacketEngine().run(fabric, traffic, Options(buffer_bytes=8192)).done


def test_a_table_that_leads_to_a_pulled_cable_is_refused_before_the_clock_starts():
    fabric = route(weft.load("fat-tree:hosts=32,radix=8")).fabric
    used = next(name for name in (f"leaf1/{n}" for n in range(5, 9)) if used_by(fabric, name))
    broken = faults.remove_link(fabric, used)
    traffic = Traffic.make(*np.array([(a, b) for a in host_ports(broken)[:4] for b in host_ports(broken)[4:]]).T, 1000)
    with pytest.raises(ConfigError, match=rf"ends at {used}: the port has no link"):
        PacketEngine().run(broken, traffic)


def used_by(fabric: weft.Fabric, name: str) -> bool:
    port = fabric.find_port(name)
    return port.peer is not None and port.number in fabric.tables.lft[fabric.tables.switch_row[port.node.index]]


def test_a_run_that_ends_while_a_sender_waits_raises_simulation_bug():
    fabric = route(weft.load("star:hosts=2")).fabric
    plan_of_run = plan(fabric, Traffic.of(fabric, [("h1", "h2", 1000)]), Options())
    check_all_acknowledged(plan_of_run.state)
    plan_of_run.state.qps.oldest = 0  # it was sent, and nothing was heard
    with pytest.raises(SimulationBug, match="1 queue pairs still wait for acknowledgements"):
        check_all_acknowledged(plan_of_run.state)
