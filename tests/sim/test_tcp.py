"""TCP: windows that grow and are cut, queues that drop, kernels that copy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.model import Fabric
from weft.fabric.timing import timings
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.congestion import CONTROLS, Control, Parameters, Ports
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import Result
from weft.sim.traffic import Operation, Traffic, Transport

MIB = 1 << 20
JUMBO, USUAL = 8948, 1448  # payload in frames of 9000 and 1500 bytes
STAR = "star:hosts=31,switch=SN2700,speed=25GbE"  # two connections fill a line
DELAYED_ACK_PS = 40_000_000_000  # Linux: TCP_DELACK_MIN
PROBE_PS, TIMEOUT_PS = 8_000_000_000, 200_000_000_000  # Linux: two jiffies, TCP_RTO_MIN


@cache
def routed() -> Fabric:
    return route(weft.load(STAR), RoutingOptions(adaptive=True)).fabric


@cache
def far_apart(metres: float) -> Fabric:
    """Return the same star with long cables: a window is much less than a round trip."""
    links = routed().links
    return routed().with_links(replace(links, length_m=np.full_like(links.length_m, metres)))


def send(fabric: Fabric, messages: list[tuple[str, str, int]], mtu_bytes: int = JUMBO, **more: Any) -> Result:
    columns = {key: more.pop(key) for key in ("operation", "transport", "qp", "start_ps") if key in more}
    return PacketEngine().run(
        fabric,
        Traffic.of(fabric, messages, **columns),
        Options(network="tcp", mtu_bytes=mtu_bytes, **more),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("mtu_bytes", [USUAL, JUMBO])
def test_one_connection_is_as_fast_as_a_core_copies(mtu_bytes: int):
    result = send(routed(), [("h1", "h31", 64 * MIB)], mtu_bytes)
    wire_bytes = -(-mtu_bytes // 4) * 4 + 38 + 20 + 32
    assert result.goodput_gbit_s == pytest.approx(timings().tcp.copy_gbit_s * mtu_bytes / wire_bytes, rel=0.02)


def test_more_connections_use_more_cores_up_to_the_line():
    result = send(routed(), [("h1", "h31", 4 * MIB)] * 4, qp=list(range(4)))
    assert result.goodput_gbit_s > 23.5


def test_the_window_starts_at_ten_packets_and_doubles_each_round_trip():
    """10, then 20, then 40: so many packets more take just one round trip more."""
    fabric = far_apart(50_000)
    finish_ps = [send(fabric, [("h1", "h2", n * USUAL)], USUAL).last_arrival_ps for n in (10, 11, 30, 31, 70, 71)]
    steps = np.diff(finish_ps)
    assert steps[::2] == pytest.approx(4 * 50_000 * 4_500, rel=0.05)  # two cables of 50 km there, two back
    assert (steps[1::2] < 0.05 * steps[0]).all()


def test_a_window_with_losses_is_cut_once_and_resent_without_a_timeout():
    """Three connections need more than the line: the queue drops, fast retransmit repairs, the line stays busy."""
    result = send(routed(), [(f"h{i}", "h31", 32 * MIB) for i in (1, 2, 3)])
    dropped = int(result.use.dropped_packets.sum())
    assert dropped > 0
    assert result.retransmitted.sum() == dropped  # each once, none lost
    assert result.goodput_gbit_s > 20


def test_two_flows_come_to_equal_shares():
    """The second starts when the first has filled its window."""
    result = send(routed(), [("h1", "h31", 96 * MIB), ("h2", "h31", 64 * MIB)], start_ps=[0, 5_000_000_000])
    assert result.use.dropped_packets.sum() > 0
    assert 64 * MIB * 8_000 / result.latency_ps[1] == pytest.approx(12, rel=0.25)


def test_a_lost_single_packet_waits_for_linux_minimum_timeout_and_then_twice_as_long():
    bad = faults.degrade(routed(), "leaf1/2", 8e-6)
    clean_ps = send(routed(), [("h1", "h2", JUMBO)]).last_arrival_ps
    waits = set()
    for seed in range(1, 80):
        result = send(bad, [("h1", "h2", JUMBO)], seed=seed)
        waits.add((int(result.retransmitted[0]), round((result.last_arrival_ps - clean_ps) / TIMEOUT_PS, 1)))
    assert {(0, 0.0), (1, 1.0), (2, 3.0), (3, 7.0)} <= waits


def test_lost_last_packets_are_probed_for_after_two_jiffies():
    """The tail of a window: no later packet tells, but Linux does not wait for the whole timeout (RFC 8985)."""
    bad = faults.degrade(routed(), "leaf1/2", 4e-6)
    clean_ps = send(routed(), [("h1", "h2", 8 * JUMBO)]).last_arrival_ps
    late = [(send(bad, [("h1", "h2", 8 * JUMBO)], seed=seed).last_arrival_ps - clean_ps) for seed in range(1, 60)]
    probed = [each for each in late if PROBE_PS <= each < 1.01 * PROBE_PS]
    assert probed
    assert all(each < 0.1 * PROBE_PS or each >= PROBE_PS for each in late)


def _one_packet(ports: Ports, qps: Any) -> Parameters:
    qps.window_packets = 1.0
    return Parameters()


def _keep(qp, now_ps, table):
    """Keep the window unchanged."""


def test_a_window_of_one_packet_waits_for_a_delayed_ack_after_the_first_sixteen(monkeypatch):
    """Linux acknowledges 16 packets at once, then every second one, or a single one after 40 ms."""
    hooks = dict.fromkeys(("on_ack", "on_loss", "on_timeout"), _keep)
    one = Control(name="one", networks=("tcp",), prepare=_one_packet, **hooks)
    monkeypatch.setitem(CONTROLS._own, "one", one)  # type: ignore[arg-type]
    packets = 23
    result = send(routed(), [("h1", "h2", packets * JUMBO)], congestion_control="one")
    single_ps = send(routed(), [("h1", "h2", JUMBO)]).acked_ps[0]
    waits = packets - 16 - 1  # the last packet completes the message, which is acknowledged at once
    assert result.last_arrival_ps == pytest.approx(waits * DELAYED_ACK_PS, abs=packets * int(single_ps))
    assert result.retransmitted.sum() == 0


def test_an_incast_into_a_small_buffer_collapses():
    """The same bytes from more senders: whole windows are lost, and timeouts longer than all the rest decide."""
    goodput = [
        send(routed(), [(f"h{i}", "h31", 2 * MIB // n) for i in range(1, n + 1)], USUAL, buffer_bytes=64 << 10)
        for n in (2, 30)
    ]
    assert goodput[0].goodput_gbit_s > 15
    assert goodput[1].goodput_gbit_s < 0.05 * goodput[0].goodput_gbit_s
    assert all(result.done for result in goodput)


def test_many_flows_in_all_directions_arrive_complete_despite_drops():
    """Data and acknowledgements are dropped, by the queues and by a bad cable."""
    rng = np.random.default_rng(1)
    pairs = [(int(a), int(b)) for a, b in rng.integers(1, 9, (120, 2)) if a != b]
    bad = faults.degrade(routed(), "leaf1/3", 1e-6)
    messages = [(f"h{a}", f"h{b}", int(rng.integers(0, 300_000))) for a, b in pairs]
    result = send(bad, messages, USUAL, buffer_bytes=20_000)
    assert result.done
    assert (result.acked_ps >= result.start_ps).all()
    assert result.use.dropped_packets.sum() > 100
    assert result.use.corrupted_packets.sum() > 5


def test_reads_are_requests_and_answers_and_arrive():
    assert send(routed(), [("h1", "h31", MIB)], operation=Operation.READ).done


def test_tcp_refuses_unreliable_transports():
    with pytest.raises(ConfigError, match="TCP needs transport RC"):
        send(routed(), [("h1", "h31", MIB)], transport=Transport.UC)
