"""Cables that are cut or slow for a time during a run, and come back."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.counters import Counter
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.layout.wiring import _refuse_dead_links
from weft.sim.link_faults import NO_END_PS, parse_link_fault
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import NEVER, XMIT_WAIT_TICK_PS, Result
from weft.sim.traffic import Traffic, Transport

MTU = 4096
TIMEOUT_EXPONENT = 6
TIMEOUT_PS = 4_096_000 << TIMEOUT_EXPONENT


@cache
def routed(spec: str) -> Fabric:
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def send(fabric: Fabric, packets: int, *fault: str, transport: Transport = Transport.RC, **options: Any) -> Result:
    fabric_hosts = ("h1", "h16") if "h16" in fabric else ("h1", "h2")
    traffic = Traffic.of(fabric, [(*fabric_hosts, packets * MTU)], transport=transport)
    return PacketEngine().run(fabric, traffic, Options(faults=fault, ack_timeout_exponent=TIMEOUT_EXPONENT, **options))


def test_a_fault_with_times_is_parsed_and_others_are_refused():
    fault = parse_link_fault("slow:leaf1/33=1xNDR@1.5us-2ms")
    assert (fault.port, fault.label, fault.begin_ps, fault.end_ps) == ("leaf1/33", "1xNDR", 1_500_000, 2 * 10**9)
    assert parse_link_fault("cut:leaf1/33@0ns-").end_ps == NO_END_PS
    for bad in (
        "cut:leaf1/3",
        "cut:leaf1/3=1xNDR@1us-2us",
        "slow:leaf1/3@1us-2us",
        "cut:leaf1/3@2us",
        "dead:x@1us-2us",
    ):
        with pytest.raises(ConfigError, match="write cut:leaf1/33@20us-80us"):
            Options(faults=(bad,))
    for times in ("2us-1us", "2us-2us", "1us-4504s", "4504s-"):  # NO_END_PS is 4503.6 s
        with pytest.raises(ConfigError, match="ends before it begins"):
            parse_link_fault(f"cut:leaf1/3@{times}")


@pytest.mark.parametrize(
    ("unit", "unit_ps"), [("ns", 10**3), ("us", 10**6), ("µs", 10**6), ("ms", 10**9), ("s", 10**12)]
)
def test_times_of_a_fault_have_units(unit, unit_ps):
    fault = parse_link_fault(f"cut:leaf1/33@1.5{unit}-4{unit}")
    assert (fault.begin_ps, fault.end_ps) == (1.5 * unit_ps, 4 * unit_ps)


def test_packets_during_a_cut_are_lost_and_sent_again_once_the_cable_is_back():
    """The first packet after the cut shows the gap: a NAK, and all packets from the lost one on are sent again."""
    cut_ps = 10_000_000
    clean = send(routed("star:hosts=2"), 600)
    result = send(routed("star:hosts=2"), 600, "cut:leaf1/2@10us-20us")
    alone_ps = int(send(routed("star:hosts=2"), 1).acked_ps[0])
    late_ps = int(result.finish_ps[0] - clean.finish_ps[0])
    assert cut_ps <= late_ps < cut_ps + 2 * alone_ps
    packet_ps = int(clean.use.busy_ps.max()) / int(clean.use.xmit_packets.max())
    leaf = result.fabric.find_port("leaf1/2").slot
    assert result.use.dropped_packets[leaf] == pytest.approx(cut_ps / packet_ps, abs=2)
    assert result.retransmitted[0] > result.use.dropped_packets[leaf]


def test_counters_of_ports_have_what_the_other_end_sent_and_what_a_cut_dropped():
    fabric = routed("star:hosts=2")
    result = send(fabric, 600, "cut:leaf1/2@10us-20us", "slow:leaf1/2=1xNDR@30us-")
    before = fabric.counters.copy()
    result.write_counters()
    added, use, peer = (fabric.counters - before).T, result.use, fabric.ports.peer
    plugged = np.flatnonzero(peer >= 0)
    assert added[Counter.PORT_XMIT_DATA_WORDS].sum() > 600 * MTU // 4
    for sent, received in (
        (Counter.PORT_XMIT_DATA_WORDS, Counter.PORT_RCV_DATA_WORDS),
        (Counter.PORT_XMIT_PKTS, Counter.PORT_RCV_PKTS),
        (Counter.PORT_UNICAST_XMIT_PKTS, Counter.PORT_UNICAST_RCV_PKTS),
    ):
        assert added[received][plugged].tolist() == added[sent][peer[plugged]].tolist()
    assert added[Counter.PORT_XMIT_DISCARDS].tolist() == use.dropped_packets.tolist()
    assert added[Counter.PORT_XMIT_DISCARDS].sum() > 0
    assert added[Counter.PORT_XMIT_PKTS].tolist() == use.xmit_packets.tolist()
    assert added[Counter.PORT_XMIT_WAIT].tolist() == (use.xmit_wait_ps // XMIT_WAIT_TICK_PS).tolist()
    assert added[Counter.PORT_XMIT_WAIT].sum() > 0  # h1 waits for credits of the slow link
    assert result.report()["latency_us"]["max"] == pytest.approx(result.latency_ps.max() / 1e6)


def test_a_message_that_ends_during_a_cut_waits_for_the_timeout():
    result = send(routed("star:hosts=2"), 1, "cut:leaf1/2@0us-20us")
    clean = send(routed("star:hosts=2"), 1)
    assert result.finish_ps[0] - clean.finish_ps[0] == TIMEOUT_PS


def test_an_unreliable_connection_loses_what_was_sent_during_a_cut():
    result = send(routed("star:hosts=2"), 600, "cut:leaf1/2@10us-20us", transport=Transport.UC)
    assert result.finish_ps[0] == NEVER
    assert result.retransmitted[0] == 0


def test_a_slow_cable_carries_its_lower_rate_until_it_is_back():
    """Between 10 and 40 µs a quarter of the rate: three quarters of that time are added."""
    fabric = routed("star:hosts=2")
    clean = send(fabric, 1000)
    result = send(fabric, 1000, "slow:leaf1/2=1xNDR@10us-40us")
    packet_ps = int(clean.use.busy_ps.max()) // int(clean.use.xmit_packets.max())
    late_ps = int(result.finish_ps[0] - clean.finish_ps[0])
    assert late_ps == pytest.approx(0.75 * 30_000_000, abs=4 * 4 * packet_ps)
    leaf = fabric.find_port("leaf1/2").slot
    assert result.use.busy_ps[leaf] - clean.use.busy_ps[leaf] == pytest.approx(late_ps, abs=4 * 4 * packet_ps)
    always = send(faults.slow(fabric, "leaf1/2", "1xNDR"), 1000)
    assert send(fabric, 1000, "slow:leaf1/2=1xNDR@0us-").finish_ps[0] == always.finish_ps[0]


def test_adaptive_routing_avoids_a_port_that_is_down_and_a_table_does_not():
    fabric = routed("fat-tree:hosts=16,radix=8")
    ups = [fabric.find_port(f"leaf1/{n}").slot for n in range(5, 9)]
    used = send(fabric, 400).use.xmit_packets[ups]
    fault = f"cut:{fabric.port(ups[int(np.argmax(used))]).name}@0us-20us"
    lost = {paths: send(fabric, 400, fault, paths=paths).use.dropped_packets.sum() for paths in ("table", "adaptive")}
    assert lost["table"] > 100 > 5 > lost["adaptive"]


def test_a_fault_that_changes_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"cut:leaf1/2@1s- begins after the end of the run"):
        send(routed("star:hosts=2"), 10, "cut:leaf1/2@1s-")
    with pytest.raises(ConfigError, match="has no cable"):
        send(routed("star:hosts=2"), 10, "cut:leaf1/9@1us-")


@pytest.mark.parametrize(("rates_gbit_s", "refused"), [((400, 1), False), ((400, 0), True), ((0, 400), False)])
def test_a_used_link_without_a_rate_is_refused(rates_gbit_s: tuple[float, float], refused: bool):
    used, fabric = np.array([False, True]), routed("star:hosts=2")
    with pytest.raises(ConfigError, match=r"link h2.* has a rate of 0") if refused else nullcontext():
        _refuse_dead_links(fabric, used, np.array(rates_gbit_s, float))
