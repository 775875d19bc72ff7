"""Valiant, UGAL, PAR and LMC paths: throughput against the bounds of theory."""

from __future__ import annotations

from functools import cache
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.routing.detours import TO_DESTINATION, TO_INTERMEDIATE, UNDECIDED, Detour
from weft.routing.engine import Options as RoutingOptions
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.sim.auto import choose_engine
from weft.sim.engine import Options
from weft.sim.figures import carried_load
from weft.sim.packet import detours
from weft.sim.packet.engine import PacketEngine
from weft.sim.packet.state import PART_BITS, Carries
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


# -- the choice at a switch, without a simulation ----------------------------------------------------------------------

MINIMAL, OTHER, OWN = 1, 2, 3  # LIDs of the destination, of an intermediate switch and of the first switch
FAR, HERE, THERE = 0, 1, 2
LEVEL = 3  # service level


@pytest.fixture
def state(monkeypatch):
    """A ring of three switches, each a group: HERE reaches THERE by port 1 directly, or by port 2 through FAR.

    Port 3 of each switch has a host; the destination is the host of THERE, the intermediate switch is FAR.
    """
    for name, function in vars(detours).copy().items():
        if hasattr(function, "py_func"):
            monkeypatch.setattr(detours, name, function.py_func)
    turn = count()
    monkeypatch.setattr(detours, "draw_below", lambda s, n: next(turn) % n)
    peer = {5: 10, 10: 5, 9: 2, 2: 9, 6: 1, 1: 6}  # ports of the ring, from 4 * switch; others lead to hosts
    run = SimpleNamespace(detour=Detour.UGAL, bias_bytes=0, ends_in_group=0, in_first_group=0, vl_bits=2)
    return SimpleNamespace(
        run=[run],
        lft=np.array([[0, 2, 0, 1], [0, 1, 2, 0], [0, 3, 1, 2]]),  # [switch, LID]; 0: the switch itself
        switch_first=[0, 4, 8],
        ports=[SimpleNamespace(peer=peer.get(port, 12)) for port in range(12)],
        plugs=[SimpleNamespace(owner=port // 4) for port in range(12)] + [SimpleNamespace(owner=-1)],
        loads={5: SimpleNamespace(bytes=0), 6: SimpleNamespace(bytes=0)},
        buffers=[SimpleNamespace(owner=HERE)] * 12,
        queues={},
        in_port=7,
        packets=[SimpleNamespace(sl=0, dlid=MINIMAL, carries=Carries.DATA, message=0)],
        path_sl=np.zeros((1, 1), np.int64),
        switch_group=[2, 0, 1],
        lid_group=[-1, 1, 2, 0],
        intermediate_lid=[OWN, MINIMAL, OTHER],  # including the groups of both ends, which give no detour
    )


def diverts(state) -> bool:
    """Return whether an undecided packet takes the detour."""
    packet = state.packets[0]
    packet.sl, packet.dlid = UNDECIDED << PART_BITS | LEVEL, MINIMAL
    begins = detours.begin_next_part(state, state.in_port << 2, 0)
    number = packet.sl >> PART_BITS
    assert packet.dlid == (OTHER if number == TO_INTERMEDIATE else MINIMAL)
    assert begins == (number != UNDECIDED)
    assert number in (TO_INTERMEDIATE, UNDECIDED if state.run[0].detour == Detour.PAR else TO_DESTINATION)
    return number == TO_INTERMEDIATE


@pytest.mark.parametrize(
    ("direct_bytes", "around_bytes", "bias_bytes", "expected"),
    [
        (0, 0, 0, False),  # an idle fabric
        (2000, 1000, 0, False),  # two links instead of one: half of the queue is as long
        (2001, 1000, 0, True),
        (2001, 1000, 1, False),
        (2002, 1000, 1, True),
    ],
)
def test_ugal_takes_a_detour_if_its_queue_times_its_hops_is_shorter(
    state, direct_bytes, around_bytes, bias_bytes, expected
):
    state.run[0].bias_bytes = bias_bytes
    state.loads[5].bytes, state.loads[6].bytes = direct_bytes, around_bytes
    assert diverts(state) == expected
    state.run[0].detour = Detour.PAR
    assert diverts(state) == expected
    state.run[0].detour = Detour.VALIANT
    assert diverts(state)


@pytest.mark.parametrize("path_sl", [np.zeros((1, 1), np.int64), np.full((3, 4), LEVEL)], ids=["one", "by path"])
@pytest.mark.parametrize(("detour", "lane"), [(Detour.UGAL, 1), (Detour.PAR, 0)])
def test_behind_one_port_the_queues_of_the_lanes_are_compared(state, detour, lane, path_sl):
    """Here both ways begin with port 1: the detour has three links. Lane 2 is that of detours."""
    state.run[0].detour = detour
    state.lft[HERE, OTHER] = 1
    state.path_sl = path_sl
    state.first_pair, state.pair_row = {HERE: 10}, {11: 5}
    lanes = {TO_DESTINATION: 1, UNDECIDED: 0, TO_INTERMEDIATE: 2}
    state.sl2vl = {(5, number << PART_BITS | LEVEL): vl for number, vl in lanes.items()}
    for direct_bytes, expected in ((300, False), (301, True)):
        state.queues |= {5 * 4 + vl: SimpleNamespace(bytes=9999) for vl in lanes.values()}
        state.queues[5 * 4 + 2].bytes, state.queues[5 * 4 + lane].bytes = 100, direct_bytes
        assert diverts(state) == expected
    assert state.packets[0].sl == TO_INTERMEDIATE << PART_BITS | LEVEL


def test_a_detour_ends_at_its_intermediate_switch_or_in_its_group(state):
    state.messages = [SimpleNamespace(dlid=MINIMAL, slid=7)]
    packet = state.packets[0]
    for carries, lid in ((Carries.DATA, MINIMAL), (Carries.ACK, 7)):
        packet.sl, packet.dlid, packet.carries = TO_INTERMEDIATE << PART_BITS, OTHER, carries
        for state.run[0].ends_in_group in (0, 1):
            assert not detours.begin_next_part(state, 0, 0)  # still on the way
        state.buffers[0].owner = FAR
        assert detours.begin_next_part(state, 0, 0)
        assert (packet.sl >> PART_BITS, packet.dlid) == (TO_DESTINATION, lid)
        assert not detours.begin_next_part(state, 0, 0)  # a packet takes one detour
        state.buffers[0].owner = HERE
    state.switch_group[HERE] = state.lid_group[OTHER]
    for state.run[0].ends_in_group in (0, 1):
        packet.sl, packet.dlid = TO_INTERMEDIATE << PART_BITS, OTHER
        assert detours.begin_next_part(state, 0, 0) == bool(state.run[0].ends_in_group)


def test_packets_within_a_group_and_behind_the_first_group_take_no_detour(state):
    state.loads[5].bytes = 1 << 20
    assert diverts(state)
    state.in_port = 6  # from FAR, which is another group
    assert diverts(state)
    state.run[0].in_first_group = 1
    assert not diverts(state)
    state.in_port = 7  # from a host
    assert diverts(state)
    state.switch_group[THERE] = state.switch_group[HERE]
    state.in_port = 5  # from a switch of the same group
    assert diverts(state)
    state.lid_group[MINIMAL] = state.switch_group[HERE]
    assert not diverts(state)


@pytest.mark.parametrize("paths", ["valiant", "ugal", "par"])
def test_a_lost_packet_is_sent_again_on_a_new_path(paths: str):
    """It was lost on the last part of its path, to the LID and on the lane of that part; its copy begins anew."""
    fabric = faults.degrade(routed(DRAGONFLY), "h2/1", 8e-6)
    far = Traffic.of(fabric, [(f"h{host}", "h2", 40_000) for host in range(20, 26)])
    result = PacketEngine().run(fabric, far, Options(paths=paths, ack_timeout_exponent=2))
    assert result.done
    assert result.retransmitted.sum() > 0
