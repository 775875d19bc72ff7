"""Controls that see every acknowledgement: HPCC, Swift, TIMELY and DCTCP, against the theory of their papers."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from numpy.typing import NDArray

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.congestion import CONTROLS, Control, Parameters, Ports
from weft.sim.engine import Options
from weft.sim.figures import goodput_per_sender_gbit_s
from weft.sim.packet.congestion import hpcc, swift, timely
from weft.sim.packet.congestion.credits import WINDOW_PS
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import Result
from weft.sim.traffic import Traffic

MIB = 1 << 20
STAR = "star:hosts=17,switch=SN4700"  # 400 Gbit/s
PAYLOAD = 4096 / (4096 + 38 + 20 + 8 + 12 + 4)  # share of a packet on the wire


@cache
def routed(spec: str) -> Fabric:
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def send(control: str, senders: int, size_bytes: int, spec: str = STAR, **options: Any) -> Result:
    fabric = routed(spec)
    receiver = fabric.port(int(Traffic.of(fabric, [("h1", "h2", 1)]).dst[0])).peer.name
    traffic = Traffic.of(fabric, [(f"h{i}", "h2", size_bytes) for i in (1, *range(3, senders + 2))])
    watch = {"watch": (receiver,), "watch_every_ps": 500_000}
    return PacketEngine().run(fabric, traffic, Options(congestion_control=control, **(watch | options)))


def line_gbit_s(result: Result) -> float:
    """Return the rate of packets on the line: bytes sent over the time they took."""
    slot = int(result.use.xmit_bytes.argmax())
    return float(result.use.xmit_bytes[slot] * 8_000 / result.use.busy_ps[slot])


def second_half(result: Result, samples: NDArray[Any]) -> NDArray[Any]:
    """Return the samples of the receiver's port in the second half of the run, while all send."""
    until, times_ps = int(result.finish_ps.min()), result.samples.time_ps
    return samples[(times_ps > until // 2) & (times_ps < until), 0]


def queue_bytes(result: Result) -> NDArray[Any]:
    return second_half(result, result.samples.queue_bytes)


@pytest.mark.parametrize("senders", [1, 2])
def test_hpcc_keeps_the_line_at_its_target_of_95_percent(senders: int):
    result = send("hpcc", senders, 16 * MIB // senders)
    expected = hpcc.TARGET * line_gbit_s(result) * PAYLOAD
    assert result.goodput_gbit_s == pytest.approx(expected, rel=0.03)


def test_hpcc_queue_of_an_incast_is_near_zero():
    """Sixteen senders begin at the line rate; from then on less than one packet per sender waits."""
    result = send("hpcc", 16, 4 * MIB)
    assert queue_bytes(result).mean() < 16 * 4096
    assert queue_bytes(send("none", 16, 4 * MIB)).mean() > 100 * queue_bytes(result).mean()


@pytest.mark.parametrize("control", ["hpcc", "swift"])
def test_two_flows_that_start_together_get_equal_shares(control: str):
    result = send(control, 2, 16 * MIB)
    rates = goodput_per_sender_gbit_s(result)
    assert rates.sum() ** 2 / (2 * (rates**2).sum()) > 0.98  # Jain's index
    assert result.goodput_gbit_s > 0.9 * line_gbit_s(result) * PAYLOAD


@pytest.mark.parametrize("senders", [2, 4])
def test_swift_keeps_the_queue_at_its_target_delay(senders: int):
    """Queue = line rate x (target - shortest round trip), and the packets by which additive increase exceeds it.

    Every round trip n flows add n packets, and the decrease by 0.8 of the excess takes as many away: n / 0.8 packets.
    """
    packet_bytes = 4096 / PAYLOAD
    result = send("swift", senders, 16 * MIB)
    bytes_per_us = line_gbit_s(result) / 8e-3
    slower = swift.LINE_GBIT_S / line_gbit_s(result)
    queued = float(queue_bytes(result).mean())
    shortest_us = 1.42128  # shortest time in this star: cables, switch, adapters and one packet
    window = (queued + bytes_per_us * shortest_us) / senders / packet_bytes
    scaling_ps = getattr(swift._scaling_ps, "py_func", swift._scaling_ps)(window)
    target_bytes = bytes_per_us * slower * (swift.HOP_PS + scaling_ps) / 1e6
    assert queued == pytest.approx(target_bytes + senders / swift.DECREASE * packet_bytes, rel=0.15)


def test_timely_queue_stays_below_its_high_threshold_while_the_line_is_busy():
    """TIMELY has no unique fixed point, so shares are not equal (Zhu et al., "ECN or Delay", CoNEXT 2016)."""
    result = send("timely", 4, 8 * MIB, "star:hosts=9,switch=SN2700,speed=25GbE", watch_every_ps=20_000_000)
    high_bytes = timely.HIGH_PS * timely.LINE_GBIT_S / 8_000
    assert 0 < queue_bytes(result).mean() < queue_bytes(result).max() < high_bytes
    assert second_half(result, result.samples.utilisation).mean() > 0.85


def test_timely_keeps_the_line_busy_after_the_first_collapse():
    """All begin at the line rate and are slowed to a few percent; steps of 1/1000 of the line bring them back.

    The paper: near the line rate. A gradient counts in units of its round trip of 20 µs at 10 Gbit/s, the same bytes at
    any rate: with a shorter unit each packet in the queue would cost most of a rate, and a fifth of the line.
    """
    result = send("timely", 4, 24 * MIB, "star:hosts=9,switch=SN2700,speed=25GbE", watch_every_ps=100_000_000)
    assert second_half(result, result.samples.utilisation).mean() > 0.9
    low_bytes = (timely.LOW_PS + timely.LEAST_PS) * timely.LINE_GBIT_S / 8_000
    assert queue_bytes(result).mean() < queue_bytes(result).max() < low_bytes


@pytest.mark.parametrize("senders", [2, 8])
def test_dctcp_queue_stays_near_k_without_losses(senders: int):
    """The paper: at most K + N packets, and it oscillates by half of the root of 2 N (C x RTT + K) below that."""
    options: dict[str, Any] = {"network": "tcp", "watch_every_ps": 20_000_000, "mtu_bytes": 1448}
    spec = "star:hosts=9,switch=SN2700,speed=25GbE"
    result = send("dctcp", senders, 4 * MIB, spec, **options)
    reno = send("reno", senders, 4 * MIB, spec, **options)
    k_bytes = 25 * 3000
    assert result.use.dropped_packets.sum() == result.retransmitted.sum() == 0
    assert queue_bytes(result).mean() == pytest.approx(k_bytes, rel=0.15)
    assert queue_bytes(reno).mean() > 2 * k_bytes
    assert result.goodput_gbit_s > 0.97 * reno.goodput_gbit_s


# -- the interface ----------------------------------------------------------------------------------------------------


def _prepare(ports: Ports, qps: Any) -> Parameters:
    return Parameters(fields=4)


def _two_packets(qp, now_ps, table, fields, hops):
    """Keep two packets in flight, and check the arguments of the hook."""
    fields[0] += 1
    if qp.ack_psn != fields[0] - 1 or qp.sent_psn <= qp.ack_psn or qp.rtt_ps <= 0 or len(hops) != 1:
        fields[1] += 1
    if hops[0].time_ps >= now_ps or hops[0].sent_bytes < fields[2]:
        fields[1] += 1
    fields[2] = hops[0].sent_bytes
    qp.window_bytes = 2 * qp.packet_bytes
    qp.rate = 1.0 if fields[1] == 0 else 0.001


def test_a_window_in_bytes_limits_a_flow_to_two_packets_per_round_trip(monkeypatch):
    control = Control(name="two", networks=("roce",), prepare=_prepare, on_packet=_two_packets)
    monkeypatch.setitem(CONTROLS._own, "two", control)  # type: ignore[index]
    packets = 400
    result = send("two", 1, packets * 4096)
    shortest_ps = 1_421_280
    assert result.last_arrival_ps == pytest.approx(packets / 2 * shortest_ps, rel=0.05)


def test_a_control_of_each_packet_recovers_from_losses():
    """Lost packets leave the window when they are sent again: it neither leaks nor stays closed."""
    fabric = faults.degrade(routed("star:hosts=17,switch=SN4700"), "leaf1/2", 1e-6)
    traffic = Traffic.of(fabric, [("h1", "h2", 4 * MIB), ("h3", "h2", 4 * MIB)])
    for paths in ("ecmp", "spray"):
        options = Options(congestion_control="hpcc", paths=paths, ack_timeout_exponent=4)
        result = PacketEngine().run(fabric, traffic, options)
        assert result.done
        assert result.retransmitted.sum() > 10


def test_credits_of_the_receiver_serve_an_incast_at_the_line_rate():
    """The queue holds the unasked windows of all senders at first, and then next to nothing; the line is never idle."""
    result, bound = send("credits", 16, 4 * MIB), send("none", 16, 4 * MIB)
    assert result.last_arrival_ps == pytest.approx(bound.last_arrival_ps, rel=0.001)
    unasked_bytes = WINDOW_PS * line_gbit_s(result) / 8_000
    assert result.samples.queue_bytes.max() < 16 * unasked_bytes
    assert queue_bytes(result).mean() < unasked_bytes < queue_bytes(bound).mean() / 20
    rates = goodput_per_sender_gbit_s(result)
    assert rates.max() / rates.min() < 1.02


def test_a_sender_with_all_credits_has_the_line():
    result = send("credits", 1, 16 * MIB)
    assert result.goodput_gbit_s == pytest.approx(line_gbit_s(result) * PAYLOAD, rel=0.01)


def test_credits_pause_for_a_message_that_begins():
    """A second sender starts when the first has long had the whole line: then both have half of it."""
    fabric = routed(STAR)
    rows = [("h1", "h2", 16 * MIB), ("h3", "h2", 4 * MIB)]
    traffic = Traffic.of(fabric, rows, start_ps=[0, 100_000_000])
    result = PacketEngine().run(fabric, traffic, Options(congestion_control="credits"))
    second = 4 * MIB * 8_000 / (result.finish_ps[1] - result.start_ps[1])
    assert second == pytest.approx(line_gbit_s(result) * PAYLOAD / 2, rel=0.05)


def test_on_arrival_needs_on_packet():
    with pytest.raises(ConfigError, match="needs on_packet"):
        Control(name="late", networks=("roce",), on_arrival=lambda qp, now_ps, table, fields, hops: 5)
