"""The rules of the built-in congestion controls, step by step, on a queue pair without a simulation."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from weft.sim.layout.records import FlowControl
from weft.sim.packet import pacing, switch
from weft.sim.packet.congestion import dcqcn, ib, reno, timely
from weft.sim.packet.congestion.credits import on_arrival
from weft.sim.packet.state import Carries, PacketEvent

TABLE = np.array([1.0, 0.5, 0.25, 0.125])  # rate by index
STEP_PS = 100
G = 1 / 256  # the gain of the estimate in the paper


def queue_pair(**values: float) -> SimpleNamespace:
    usual = {"rate": 1.0, "target": 1.0, "alpha": 1.0, "rounds": 0, "byte_rounds": 0, "paced_bytes": 0}
    return SimpleNamespace(**(usual | {"rate_timer": 0, "rate_due_ps": 0, "step_ps": STEP_PS} | values))


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """A compiled kernel takes no queue pair of Python."""
    monkeypatch.setattr(dcqcn, "_raise_rate", getattr(dcqcn._raise_rate, "py_func", dcqcn._raise_rate))


# -- DCQCN ------------------------------------------------------------------------------------------------------------


def test_dcqcn_halves_the_rate_at_the_first_notification_and_aims_at_the_rate_before():
    qp = queue_pair(target=0.1, rounds=3, byte_rounds=2, paced_bytes=9)
    dcqcn.on_notification(qp, 500, TABLE)
    assert (qp.rate, qp.target, qp.alpha, qp.rate_due_ps) == (0.5, 1.0, 1.0, 600)
    assert (qp.rounds, qp.byte_rounds, qp.paced_bytes) == (0, 0, 0)


def test_dcqcn_cuts_by_half_of_its_estimate_but_not_below_a_thousandth():
    qp = queue_pair(rate=0.8, alpha=0.5, rate_timer=1, rate_due_ps=600)
    dcqcn.on_notification(qp, 500, TABLE)
    assert (qp.rate, qp.alpha) == pytest.approx((0.6, 0.5 * (1 - G) + G))
    qp = queue_pair(rate=0.0015, rate_timer=1)
    dcqcn.on_notification(qp, 500, TABLE)
    assert qp.rate == 0.001


@pytest.mark.parametrize(("idle_steps", "decays"), [(0, 0), (3, 3), (5000, 4096)])
def test_dcqcn_estimate_decays_at_full_speed_once_per_step(idle_steps, decays):
    qp = queue_pair(alpha=0.5, rate_due_ps=600)
    dcqcn.on_notification(qp, 600 + idle_steps * STEP_PS + STEP_PS - 1, TABLE)
    assert qp.rate == pytest.approx(1 - 0.5 * (1 - G) ** decays / 2)
    slowed = queue_pair(alpha=0.5, rate_due_ps=600, rate_timer=1)  # its timer decays the estimate
    dcqcn.on_notification(slowed, 600 + idle_steps * STEP_PS, TABLE)
    assert slowed.rate == 0.75


def test_dcqcn_recovers_halfway_to_the_target_for_five_rounds_and_then_raises_the_target():
    qp = queue_pair(rate=0.25, target=0.5)
    for step in range(1, 6):
        assert dcqcn.on_timer(qp, 0, TABLE)
        assert (qp.rate, qp.target, qp.rounds) == pytest.approx((0.5 - 0.25 / 2**step, 0.5, step))
    assert qp.alpha == pytest.approx((1 - G) ** 5)
    rate = qp.rate
    dcqcn.on_timer(qp, 0, TABLE)
    assert (qp.rate, qp.target) == pytest.approx(((rate + 0.501) / 2, 0.501))


def test_dcqcn_counts_ten_megabytes_as_a_round_and_is_faster_once_both_counters_are_beyond_five():
    qp = queue_pair(rate=0.25, target=0.5, rounds=5, byte_rounds=4, paced_bytes=2 * 10**7 + 7)
    dcqcn.on_timer(qp, 0, TABLE)  # by time: 0.001 more; the 5th 10 MB: the same; the 6th: 0.01
    assert (qp.rounds, qp.byte_rounds, qp.paced_bytes) == (6, 6, 7)
    assert qp.target == pytest.approx(0.5 + 0.001 + 0.001 + 0.01)
    exact = queue_pair(rate=0.25, target=0.5, paced_bytes=10**7)
    dcqcn.on_timer(exact, 0, TABLE)
    assert (exact.byte_rounds, exact.paced_bytes, exact.rate) == (1, 0, 0.4375)


def test_dcqcn_ends_at_the_line_rate():
    qp = queue_pair(rate=0.9985, target=0.9999, rounds=9, byte_rounds=9)
    dcqcn.on_timer(qp, 0, TABLE)
    assert (qp.rate, qp.target) == (1.0, 1.0)
    slower = queue_pair(rate=0.9979, target=1.0)
    dcqcn.on_timer(slower, 0, TABLE)
    assert slower.rate == pytest.approx(0.99895)


def test_dcqcn_timers_scale_with_the_line_and_thresholds_are_shares_of_a_small_buffer():
    ports = SimpleNamespace(slot=np.zeros(2), pause_bytes=np.array([400_000, 10**8]), line_gbit_s=400)
    qps = SimpleNamespace()
    parameters = dcqcn.prepare(ports, qps)
    assert (qps.step_ps, parameters.notify_ps) == (5_500_000, 5_000_000)
    assert parameters.marks.tolist() == [[100_000, 300_000, 1_000_000, 0], [150_000, 1_500_000, 1_000_000, 0]]


# -- InfiniBand and TCP -----------------------------------------------------------------------------------------------


def test_ib_moves_along_the_table_within_its_ends():
    qp = queue_pair(ccti_increase=2, ccti_min=1)
    positions = []
    for _ in range(2):
        ib.on_notification(qp, 0, TABLE)
        positions.append((qp.rounds, qp.rate))
    assert positions == [(2, 0.25), (3, 0.125)]
    assert [(ib.on_timer(qp, 0, TABLE), qp.rounds, qp.rate) for _ in range(3)] == [
        (True, 2, 0.25),
        (False, 1, 0.5),
        (False, 1, 0.5),
    ]


@pytest.mark.parametrize(
    ("window", "threshold", "in_flight", "after"),
    [
        (10, 64, 5, 13),  # slow start: half of the window is used
        (10, 64, 4, 10),
        (10, 10, 9, 10.3),  # congestion avoidance: all of it is used
        (10, 10, 8, 10),
    ],
)
def test_reno_raises_only_a_window_that_is_used(window, threshold, in_flight, after):
    qp = SimpleNamespace(window_packets=window, threshold=threshold, in_flight=in_flight, newly_acked=3)
    reno.on_ack(qp, 0, TABLE)
    assert qp.window_packets == after


@pytest.mark.parametrize(("window", "threshold"), [(10.0, 5.0), (3.0, 2.0)])
def test_reno_halves_its_window_at_a_loss_and_starts_again_at_one_after_a_timeout(window, threshold):
    lost, timed_out = SimpleNamespace(window_packets=window), SimpleNamespace(window_packets=window)
    reno.on_loss(lost, 0, TABLE)
    reno.on_timeout(timed_out, 0, TABLE)
    assert (lost.window_packets, lost.threshold) == (threshold, threshold)
    assert (timed_out.window_packets, timed_out.threshold) == (1.0, threshold)


# -- TIMELY and credits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "rtt_us", "after"), [(1.0, 20, 1.0), (0.001, 10_000, 0.001), (0.5, 20, 0.501)])
def test_timely_stays_between_a_thousandth_of_the_line_and_the_line(rate, rtt_us, after):
    qp = SimpleNamespace(rate=rate, rtt_ps=rtt_us * 1e6, line_ps_per_kib=819_200)
    timely.on_packet(qp, 0, TABLE, np.array([20e6, 0, 0, 0, timely.SEGMENT_PACKETS - 1]), 0)
    assert qp.rate == pytest.approx(after)


@pytest.mark.parametrize("packets", [1, 4, 5, 10])
def test_a_receiver_books_its_line_once_for_each_packet(packets):
    """The sender of a message sends a window of four packets unasked."""
    qp, window_ps = SimpleNamespace(line_ps_per_kib=1_000), np.array([4_000.0])
    fields = np.array([0.0, packets, 1024, 0.0])
    for fields[0] in reversed(range(packets)):
        on_arrival(qp, 0, window_ps, fields, 0)
    assert fields[3] == 1_000 * packets


# -- pace and timer ---------------------------------------------------------------------------------------------------


@pytest.fixture
def paced(monkeypatch):
    """A simulation of one queue pair at a time of 500 ps; `scheduled` has the events of its timer."""
    for name in ("slow_down", "speed_up", "set_pace"):
        monkeypatch.setattr(pacing, name, getattr(getattr(pacing, name), "py_func", getattr(pacing, name)))
    for name in ("call", "ask"):
        monkeypatch.setattr(pacing, name, lambda function, *arguments: function(*arguments))
    scheduled: list[tuple[int, int]] = []
    monkeypatch.setattr(pacing, "schedule", lambda s, time_ps, kind, qp, _: scheduled.append((time_ps, kind)))
    run = SimpleNamespace(now_ps=500, on_notification=dcqcn.on_notification, on_timer=dcqcn.on_timer)
    qp = queue_pair(line_ps_per_kib=20_000, slowed=0, pace_ps_per_kib=0)
    return SimpleNamespace(run=[run], qps=[qp], control_table=TABLE, scheduled=scheduled)


def test_a_notification_paces_packets_and_starts_the_timer_once(paced):
    qp = paced.qps[0]
    for pace_ps_per_kib in (40_000, 80_000):
        pacing.slow_down(paced, 0)
        assert (qp.pace_ps_per_kib, qp.rate_timer) == (pace_ps_per_kib, 1)
    assert paced.scheduled == [(600, PacketEvent.RATE)]


def test_without_a_rule_for_notifications_nothing_is_paced(paced):
    paced.run[0].on_notification = 0
    pacing.slow_down(paced, 0)
    assert (paced.qps[0].rate, paced.scheduled) == (1.0, [])
    paced.run[0].on_notification, paced.run[0].on_timer = dcqcn.on_notification, 0
    pacing.slow_down(paced, 0)
    assert (paced.qps[0].rate, paced.scheduled, paced.qps[0].rate_timer) == (0.5, [], 0)


def test_the_timer_waits_after_a_new_notification_and_ends_at_the_line_rate(paced):
    qp = paced.qps[0]
    qp.rate, qp.rate_timer, qp.rate_due_ps = 0.5, 1, 501
    pacing.speed_up(paced, 0)
    assert (qp.rate, paced.scheduled) == (0.5, [(501, PacketEvent.RATE)])
    qp.rate_due_ps = 500
    pacing.speed_up(paced, 0)
    assert (qp.rate, qp.rate_timer, qp.rate_due_ps) == (0.75, 1, 600)
    assert qp.pace_ps_per_kib == int(20_000 / 0.75)
    assert paced.scheduled[1:] == [(600, PacketEvent.RATE)]
    qp.rate, qp.rate_due_ps = 0.999, 500
    pacing.speed_up(paced, 0)
    assert (qp.rate, qp.rate_timer, qp.pace_ps_per_kib, len(paced.scheduled)) == (1.0, 0, 0, 2)
    paced.run[0].on_timer = ib.on_timer  # says that no further step is needed
    qp.rate, qp.rounds, qp.ccti_min, qp.rate_due_ps = 0.25, 2, 1, 500
    pacing.speed_up(paced, 0)
    assert (qp.rate, qp.rate_timer, len(paced.scheduled)) == (0.5, 0, 2)


def test_an_adapter_that_is_slower_than_its_line_is_always_paced(paced):
    paced.qps[0].slowed = 1
    pacing.set_pace(paced, 0)
    assert paced.qps[0].pace_ps_per_kib == 20_000


# -- marks of switches ------------------------------------------------------------------------------------------------

LOW_BYTES, HIGH_BYTES, SHARE_PPM, SMALLEST_BYTES = 100, 300, 400_000, 64


@pytest.fixture
def is_marked(monkeypatch):
    """Return whether a switch marks a packet that leaves so many bytes in its queue, if it draws this number."""
    for name in ("_mark", "blocks_bytes"):
        monkeypatch.setattr(switch, name, getattr(getattr(switch, name), "py_func", getattr(switch, name)))

    def run(
        queue_bytes: int, draw: int, flow=FlowControl.PAUSE, free_bytes=1 << 20, carries=Carries.DATA, size=64
    ) -> bool:
        monkeypatch.setattr(switch, "draw_below", lambda s, n: draw if n == 1_000_000 else -1)
        packet, plug = SimpleNamespace(carries=carries, bytes=size, marked=0), SimpleNamespace(marked=0)
        queue = SimpleNamespace(port=0, bytes=queue_bytes, credits=free_bytes)
        state = SimpleNamespace(run=[SimpleNamespace(flow=flow)], queues=[queue], packets=[packet], plugs=[plug])
        state.marks = [(LOW_BYTES, HIGH_BYTES, SHARE_PPM, SMALLEST_BYTES)]
        switch._mark(state, 0, 0)
        assert packet.marked == plug.marked
        return bool(packet.marked)

    return run


@pytest.mark.parametrize(
    ("queue_bytes", "marked_ppm"),
    [(100, 0), (101, 2_000), (200, 200_000), (299, 398_000), (300, 1_000_000), (5_000, 1_000_000)],
)
def test_ecn_marks_a_share_that_rises_from_the_low_to_the_high_threshold_and_then_all(
    queue_bytes, marked_ppm, is_marked
):
    assert not marked_ppm or is_marked(queue_bytes, marked_ppm - 1)
    assert marked_ppm == 1_000_000 or not is_marked(queue_bytes, marked_ppm)


def test_infiniband_marks_a_fixed_share_where_a_packet_waits_although_the_port_may_send(is_marked):
    """A port without credits is a victim of congestion elsewhere."""
    for queue_bytes, draw, expected in (
        (100, 0, False),
        (101, 399_999, True),
        (101, 400_000, False),
        (9000, 400_000, False),
    ):
        assert is_marked(queue_bytes, draw, flow=FlowControl.CREDITS) == expected
    assert is_marked(101, 0, flow=FlowControl.CREDITS, free_bytes=64)
    assert not is_marked(101, 0, flow=FlowControl.CREDITS, free_bytes=63)


def test_acknowledgements_and_packets_below_the_smallest_size_are_not_marked(is_marked):
    assert is_marked(5_000, 0, size=64)
    assert not is_marked(5_000, 0, size=63)
    assert not is_marked(5_000, 0, carries=Carries.ACK)
