"""Every packet arrives once, without needless retransmissions and endless waits."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.fabric import faults
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.traffic import Operation, Transport


def star(hosts=5, speed="NDR"):
    return route(weft.load(f"star:hosts={hosts},speed={speed}"), RoutingOptions(adaptive=True)).fabric


@pytest.mark.parametrize(
    ("speed", "options"),
    [("NDR", {"congestion_control": "ib", "buffer_bytes": 200_000}), ("100GbE", {"network": "roce"})],
    ids=["infiniband", "roce"],
)
def test_a_mark_of_congestion_is_no_loss(speed, options, run):
    """Marked packets slow their senders down; they are not sent again, and every packet counts once."""
    fabric = star(speed=speed)
    result = run(fabric, [(f"h{i}", "h1", 400_000) for i in range(2, 6)], **options)
    assert result.use.marked_packets.sum() > 0
    assert result.retransmitted.sum() == 0
    assert result.use.xmit_packets[fabric["leaf1/1"].slot] >= 4 * -(-400_000 // 4096)


def test_a_good_cable_loses_nothing(run):
    """A bit error rate of 1e-15 gives one error in 125 terabytes."""
    fabric = faults.degrade(star(), "h2/1", 1e-15)
    result = run(fabric, [("h1", "h2", 1_000_000), ("h2", "h1", 1_000_000)])
    assert result.use.corrupted_packets.sum() == 0


def test_bit_errors_come_as_often_as_their_rate_says(run):
    """50 MB at 1e-7 are 40 errors, give or take three deviations of a Poisson count."""
    fabric = faults.degrade(star(), "h2/1", 1e-7)
    columns = {"transport": Transport.UC, "operation": Operation.SEND}
    result = run(fabric, [("h1", "h2", 50_000_000)], columns=columns)
    expected = result.use.xmit_bytes[fabric["leaf1/2"].slot] * 8 * 1e-7
    assert abs(result.use.corrupted_packets.sum() - expected) < 3 * expected**0.5


@pytest.mark.parametrize("paths", ["table", "adaptive"])
def test_a_read_survives_bit_errors(paths, run):
    fabric = faults.degrade(star(), "h2/1", 1e-6)
    columns = {"operation": Operation.READ}
    result = run(fabric, [("h1", "h2", 200_000)] * 5, columns=columns, paths=paths, ack_timeout_exponent=4)
    assert result.use.corrupted_packets.sum() > 0
    assert result.done


def test_a_lost_question_is_asked_again_and_counts_as_no_data(run):
    """Out of order, a sender without acknowledgement asks whether the message came; the question can be lost too."""
    fabric = faults.degrade(star(2), "h2/1", 3e-4)
    columns = {"qp": np.arange(500)}
    result = run(fabric, [("h1", "h2", 8)] * 500, columns=columns, paths="spray", ack_timeout_exponent=2)
    assert result.done
    assert (result.acked_ps > 0).all()


@pytest.mark.parametrize("network", ["roce", "tcp"])
def test_a_port_without_credits_is_never_used_up(network, run):
    """Pause frames and drops keep no account that a long run could empty."""
    fabric = star(2, "400GbE")
    assert run(fabric, [("h1", "h2", 1 << 30)], network=network).done


@pytest.mark.parametrize("transport", [Transport.UC, Transport.UD])
def test_unreliable_sends_wait_for_no_acknowledgement(transport, run):
    columns = {"operation": Operation.SEND, "transport": transport, "outstanding": 1}
    assert run(star(2), [("h1", "h2", 8)] * 5, columns=columns).done


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.READ])
@pytest.mark.parametrize("spec", ["torus:6x6", "dragonfly:p=2,a=4,h=2"])
def test_answers_take_the_lanes_of_their_own_path(spec, operation, run):
    """Tables that are free of deadlock are so for acknowledgements and read data too, whose path is the other one."""
    fabric = route(weft.load(spec), RoutingOptions(engine="dfsssp")).fabric
    names = [node.name for node in fabric.hcas]
    n = len(names)
    pairs = np.random.default_rng(1).permutation([(i, j) for i in range(n) for j in range(n) if i != j])[:1500]
    messages = [(names[i], names[j], 256) for i, j in pairs]
    columns = {"operation": operation, "qp": np.arange(len(messages))}
    assert run(fabric, messages, columns=columns, buffer_bytes=64, mtu_bytes=256).done
