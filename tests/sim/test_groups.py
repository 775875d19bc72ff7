"""Packet runs in several groups of switches: any number of threads gives the same result."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.routing.engine import Options as RoutingOptions
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.layout.rules import fill_in
from weft.sim.layout.wiring import make_wiring
from weft.sim.packet import groups
from weft.sim.packet.engine import Deadlock, PacketEngine
from weft.sim.traffic import Operation, Traffic, Transport

TREE, RING = "fat-tree:hosts=16,radix=8", "torus:4x4"


@cache
def routed(spec, engine="auto"):
    return route(weft.load(spec), RoutingOptions(engine=engine, adaptive=engine == "auto")).fabric


@pytest.fixture(autouse=True)
def several_groups(monkeypatch):
    """Divide small fabrics too."""
    monkeypatch.setattr(groups, "LEAST_HOSTS", 4)
    monkeypatch.setattr(groups, "HOSTS_OF_A_GROUP", 2)


def run(fabric, traffic, threads=1, **options):
    return PacketEngine().run(fabric, traffic, Options(threads=threads, **options))


def run_in_one_group(fabric, traffic, **options):
    least, groups.LEAST_HOSTS = groups.LEAST_HOSTS, 1 << 30
    try:
        return PacketEngine().run(fabric, traffic, Options(**options))
    finally:
        groups.LEAST_HOSTS = least


@st.composite
def runs(draw):
    """Draw a fabric, its traffic, and options."""
    fabric = routed(draw(st.sampled_from([TREE, RING])))
    options = {"seed": draw(st.integers(1, 9)), "ack_timeout_exponent": 4}
    options["paths"] = draw(st.sampled_from(["table", "adaptive", "spray"])) if fabric.spec == TREE else "table"
    options["congestion_control"] = draw(st.sampled_from(["none", "ib", "swift"]))
    options["buffer_bytes"] = draw(st.sampled_from([0, 10_000]))
    if fabric.spec == TREE:
        if draw(st.booleans()):
            fabric = faults.degrade(fabric, "leaf1/5", 3e-6)
        vls = draw(st.sampled_from([1, 2, 4]))
        fabric = fabric.subset()
        fabric.tables.sl2vl = np.tile(np.arange(16) % vls, (len(fabric.tables.sl2vl), 1)).astype(np.uint8)
        options["faults"] = draw(st.sampled_from([(), ("cut:leaf2/5@2us-4us",)]))
    n = draw(st.integers(2, 24))
    hosts = host_ports(fabric)
    src = draw(st.lists(st.integers(0, 15), min_size=n, max_size=n))
    shift = draw(st.lists(st.integers(1, 15), min_size=n, max_size=n))
    after = [sorted(draw(st.sets(st.integers(0, at - 1), max_size=2))) if at else [] for at in range(n)]
    traffic = Traffic.make(
        hosts[src],
        hosts[(np.array(src) + shift) % 16],
        np.array(draw(st.lists(st.sampled_from([0, 300, 5_000, 40_000]), min_size=n, max_size=n))),
        start_ps=np.array(draw(st.lists(st.sampled_from([0, 0, 1_000, 700_000]), min_size=n, max_size=n))),
        sl=np.arange(n) % 4 if fabric.spec == TREE else -1,
        operation=draw(st.sampled_from([Operation.WRITE, Operation.READ])),
        transport=Transport.RC,
        after=after if draw(st.booleans()) else [],
    )
    return fabric, traffic, options


@settings(max_examples=25, deadline=None)
@given(runs())
def test_any_number_of_threads_gives_the_same_result(case):
    fabric, traffic, options = case
    results = [run(fabric, traffic, threads, **options) for threads in (1, 2, 4)]
    assert len({result.digest() for result in results}) == 1
    assert len({result.events for result in results}) == 1
    assert results[0].done


def shift(fabric, by, size_bytes, **columns):
    hosts = host_ports(fabric)
    return Traffic.make(hosts, np.roll(hosts, by), size_bytes, **columns)


@pytest.mark.parametrize("spec", [TREE, RING])
def test_groups_deliver_the_same_bytes_in_nearly_the_same_time_as_one_group(spec):
    fabric = routed(spec)
    traffic = shift(fabric, 5, 400_000)
    several, one = run(fabric, traffic, 2), run_in_one_group(fabric, traffic)
    assert several.threads == 2
    assert several.use.xmit_bytes.tolist() == one.use.xmit_bytes.tolist()
    assert several.last_arrival_ps == pytest.approx(one.last_arrival_ps, rel=0.1)


def test_lone_message_takes_as_long_in_groups_as_in_one():
    fabric = routed(TREE)
    traffic = Traffic.of(fabric, [("h1", "h16", 100_000)])
    assert run(fabric, traffic, 2).digest() == run_in_one_group(fabric, traffic).digest()


def test_packets_that_all_move_to_other_groups_come_back():
    """Free packets collect at the receivers, and the senders get them back."""
    fabric = routed(TREE)
    hosts = host_ports(fabric)
    traffic = Traffic.make(hosts[:8], hosts[8:], 8_000_000, transport=Transport.UC)
    result = run(fabric, traffic, 2)
    assert result.done
    assert result.packets == 8 * 1954


def test_small_packets_grow_the_space_for_events_that_cross():
    fabric = routed(TREE)
    traffic = shift(fabric, 8, 60_000, transport=Transport.UC)
    small = {"mtu_bytes": 256, "buffer_bytes": 1 << 20}
    digests = {run(fabric, traffic, threads, **small).digest() for threads in (1, 2)}
    assert len(digests) == 1


def test_watched_ports_are_sampled_in_groups_as_in_one():
    fabric = routed(TREE)
    traffic, watch = Traffic.of(fabric, [("h1", "h16", 100_000)]), {"watch": ("leaf1/1",), "watch_every_ps": 300_000}
    several, one = run(fabric, traffic, 2, **watch), run_in_one_group(fabric, traffic, **watch)
    assert several.samples.utilisation[: len(one.samples.time_ps)].tolist() == one.samples.utilisation.tolist()


def test_deadlock_across_groups_is_found():
    fabric = routed("torus:6x1", "min-hop")
    traffic = shift(fabric, 2, 400_000)
    with pytest.raises(Deadlock) as several:
        run(fabric, traffic, 2, buffer_bytes=4160)
    with pytest.raises(Deadlock) as one:
        run_in_one_group(fabric, traffic, buffer_bytes=4160)
    assert set(several.value.cycle) == set(one.value.cycle)


def test_tcp_runs_in_one_group_and_says_so():
    fabric = routed("fat-tree:hosts=16,radix=8,speed=100GbE")
    traffic = shift(fabric, 5, 10_000)
    assert run(fabric, traffic, 0, network="tcp").note == "on one thread: TCP"
    with pytest.raises(ConfigError, match="--threads 2: TCP runs on one thread; leave --threads out"):
        run(fabric, traffic, 2, network="tcp")


def test_groups_of_a_tree_are_its_pods(monkeypatch):
    monkeypatch.undo()
    fabric = weft.load("fat-tree:hosts=1024,radix=16")
    options, rules = fill_in(fabric, Options())
    wiring = make_wiring(fabric, rules, options.switching)
    port_group = groups.assign_groups(wiring)
    hosts = np.bincount(port_group[wiring.host_ports])
    assert hosts.tolist() == [64] * 16
    used = wiring.ports.peer >= 0
    cables = np.bincount(port_group[used])
    assert cables.max() < 1.1 * cables.mean()
    near, far = port_group[used], port_group[wiring.ports.peer[used]]
    assert (near != far).mean() < 1 / 3  # only cables of the upper tier cross


def test_fabric_of_few_hosts_is_one_group(monkeypatch):
    monkeypatch.undo()
    fabric = routed(TREE)
    options, rules = fill_in(fabric, Options())
    assert not groups.assign_groups(make_wiring(fabric, rules, options.switching)).any()
