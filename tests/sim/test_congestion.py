"""DCQCN on RoCE and InfiniBand's congestion control: the causing flows slow down, the others regain their share."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.layout import congestion
from weft.sim.packet.congestion import dcqcn
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import Result
from weft.sim.traffic import Traffic

MIB = 1 << 20
ROCE = "star:hosts=9,switch=SN4700"  # 400 Gbit/s
TREE = "fat-tree:hosts=16,switch=QM8700,radix=8"
INCAST = [(f"h{i}", "h16", 8 * MIB) for i in (1, 5, 6, 7)]


@cache
def routed(spec: str) -> Fabric:
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def send(spec: str, messages: list[tuple[str, str, int]], start_ps: Any = 0, **options: Any) -> Result:
    fabric = routed(spec)
    return PacketEngine().run(fabric, Traffic.of(fabric, messages, start_ps=start_ps), Options(**options))


@pytest.mark.parametrize("flows", [2, 4, 8])
def test_dcqcn_shares_a_port_fairly_near_its_rate_with_hardly_a_pause(flows: int):
    messages = [(f"h{i}", "h9", 320 * MIB // flows) for i in range(1, flows + 1)]
    paused = send(ROCE, messages, congestion_control="none")
    controlled = send(ROCE, messages)
    assert controlled.use.marked_packets.sum() > 0
    assert paused.use.marked_packets.sum() == 0
    assert controlled.use.pauses.sum() < 0.05 * paused.use.pauses.sum()
    assert controlled.goodput_gbit_s > 0.85 * paused.goodput_gbit_s
    assert controlled.finish_ps.min() > 0.85 * controlled.finish_ps.max()


def test_dcqcn_leaves_a_lossless_network_in_order():
    """A mark is no gap in the sequence: nothing is sent again."""
    result = send(ROCE, [(f"h{i}", "h9", 4 * MIB) for i in range(1, 9)])
    assert result.use.marked_packets.sum() > 100
    assert result.retransmitted.sum() == 0


def test_after_the_congestion_a_flow_finds_its_way_back_to_the_line():
    """h1 sends on after h2 has stopped: without ever coming back it would stay at half."""
    result = send(ROCE, [("h1", "h9", 256 * MIB), ("h2", "h9", 16 * MIB)])
    assert result.use.marked_packets.sum() > 0
    late_ps = result.finish_ps[0] - result.finish_ps[1]
    late_bytes = 256 * MIB - 20 * MIB
    assert late_bytes * 8_000 / late_ps > 0.8 * 390


def test_a_flow_alone_is_never_marked():
    result = send(ROCE, [("h1", "h9", 32 * MIB)])
    assert result.use.marked_packets.sum() == 0
    assert result.goodput_gbit_s > 385


@pytest.mark.parametrize(
    ("low", "high", "least_share", "most_share"),
    [(0.01, 4.0, 0.0002, 0.01), (0.01, 0.011, 0.6, 1.0)],
    ids=["below the high threshold at most 1 %", "above the high threshold all"],
)
def test_ecn_marks_one_percent_up_to_the_high_threshold_and_all_above(low, high, least_share, most_share, monkeypatch):
    monkeypatch.setattr(dcqcn, "ECN_PPM", 10_000)  # 1 %, as in the paper
    monkeypatch.setattr(dcqcn, "ECN_LOW_BYTES", 1 << 40)
    monkeypatch.setattr(dcqcn, "ECN_HIGH_BYTES", 1 << 40)
    monkeypatch.setattr(dcqcn, "ECN_LOW_PART", low)
    monkeypatch.setattr(dcqcn, "ECN_HIGH_PART", high)
    monkeypatch.setattr(dcqcn, "NOTIFY_PS", 1 << 50)  # each sender slows down once, so the queue stays long
    packets = 4 * 16 * MIB / 4096
    result = send(ROCE, [(f"h{i}", "h9", 16 * MIB) for i in range(1, 5)])
    assert least_share < result.use.marked_packets.sum() / packets <= most_share


# -- InfiniBand -------------------------------------------------------------------------------------------------------


def test_infiniband_marks_where_the_congestion_begins():
    """All four cross spine1 to reach h16: its port 7 is the root, and packets that queue behind it are not marked."""
    result = send(TREE, INCAST, congestion_control="ib")
    marks = result.use.marked_packets
    assert marks[result.fabric.find_port("spine1/7").slot] > 0.8 * marks.sum() > 20


def test_a_victim_behind_an_incast_gets_its_share_back():
    """h4 shares an uplink with h1, which the incast holds back; slowed down at its source h1 leaves the uplink free."""
    victim = ("h4", "h12", 8 * MIB)
    alone = send(TREE, [victim]).latency_ps[-1]
    lost = send(TREE, [*INCAST, victim]).latency_ps[-1] - alone
    controlled = [
        send(TREE, [*INCAST, victim], congestion_control="ib", seed=seed).latency_ps[-1] - alone for seed in range(4)
    ]
    assert lost > 0.9 * alone
    assert max(controlled) < 0.95 * lost
    assert np.mean(controlled) < 0.8 * lost


def test_the_index_decays_when_the_congestion_is_over():
    """20 ms later the flow starts with its full rate again: the timer has taken back even 127 times a BECN."""
    later_ps = 20_000_000_000
    incast = [(f"h{i}", "h16", 2 * MIB) for i in (1, 5, 6, 7)]
    messages = [*incast, ("h1", "h16", 2 * MIB)]
    result = send(TREE, messages, start_ps=[0] * 4 + [later_ps], congestion_control="ib")
    alone = send(TREE, [("h1", "h16", 2 * MIB)])
    assert result.use.marked_packets.sum() > 0
    assert result.latency_ps[-1] == alone.latency_ps[0]
    soon = send(TREE, messages, start_ps=[0] * 4 + [int(result.finish_ps[:4].max())], congestion_control="ib")
    assert soon.latency_ps[-1] > 1.05 * alone.latency_ps[0]


def test_a_moderate_incast_keeps_most_of_the_line_at_ndr():
    """The timer is scaled to the line: with that of QDR two to four senders would get 0.73 to 0.83 of it."""
    for senders in (2, 3, 4):
        messages = [(f"h{i}", "h9", 16 * MIB) for i in range(1, senders + 1)]
        assert send("star:hosts=9", messages, congestion_control="ib").goodput_gbit_s > 0.88 * 386


def test_a_switch_that_marks_one_in_a_thousand_packets_marks_some():
    marks = np.full((len(routed(TREE).ports), 3), (15, 1000, 512))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(congestion, "switch_marks", lambda fabric: marks)
        result = send(TREE, [(source, sink, 64 * MIB) for source, sink, _ in INCAST], congestion_control="ib")
    packets = 4 * 64 * MIB / 4096
    assert 0.0002 * packets < result.use.marked_packets.sum() < 0.004 * packets


def test_each_control_belongs_to_its_network():
    with pytest.raises(ConfigError, match="dcqcn is for roce and roce-v1, not for"):
        send(TREE, INCAST, congestion_control="dcqcn")
    with pytest.raises(ConfigError, match="ib is for infiniband and omni-path, not for roce: use dcqcn"):
        send(ROCE, [("h1", "h2", 1)], congestion_control="ib")
    assert np.all(send(TREE, INCAST[:1], congestion_control="ib").use.marked_packets == 0)
