"""Bit errors, and the reaction of each transport."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import SubnetError
from weft.fabric import faults
from weft.fabric.counters import Counter
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import NEVER, Result
from weft.sim.traffic import Operation, Traffic, Transport

MTU = 4096
TIMEOUT_EXPONENT = 6
TIMEOUT_PS = 4_096_000 << TIMEOUT_EXPONENT


@cache
def routed(spec: str) -> Fabric:
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def send(
    fabric: Fabric, messages: list[tuple[str, str, int]], seed: int = 1, paths: str = "table", **columns: Any
) -> Result:
    options = Options(seed=seed, paths=paths, ack_timeout_exponent=TIMEOUT_EXPONENT)  # type: ignore[arg-type]
    return PacketEngine().run(fabric, Traffic.of(fabric, messages, **columns), options)


def bad_star(bit_error_rate: float) -> Fabric:
    """Return a star whose cable between leaf1 and h2 has bit errors."""
    return faults.degrade(routed("star:hosts=2"), "leaf1/2", bit_error_rate)


def corrupted(result: Result) -> dict[str, int]:
    slots = np.flatnonzero(result.use.corrupted_packets)
    return {result.fabric.port(int(slot)).name: int(result.use.corrupted_packets[slot]) for slot in slots}


def find_seed(fabric: Fabric, messages: list[tuple[str, str, int]], wanted: dict[str, int], **columns: Any) -> Result:
    """Find a seed for which exactly these ports count that many corrupted packets."""
    for seed in range(1, 300):
        result = send(fabric, messages, seed, **columns)
        if corrupted(result) == wanted:
            return result
    raise AssertionError(f"no seed gives {wanted}")


@pytest.mark.parametrize(("src", "dst", "hurt"), [("h1", "h2", set()), ("h2", "h1", {"leaf1/2"})])
def test_a_cable_with_errors_in_one_direction_corrupts_only_that_direction(src, dst, hurt):
    bad = faults.degrade(routed("star:hosts=2"), "leaf1/2", 3e-7, one_way=True)
    result = corrupted(send(bad, [(src, dst, 1 << 23)]))
    assert set(result) == hurt


RECEIVER = routed("star:hosts=2").find_port("leaf1/2").peer.name  # the port of h2
assert RECEIVER


def test_every_message_of_a_reliable_connection_arrives_over_a_bad_cable():
    messages = [("h1", "h2", 50 * MTU)] * 20 + [("h2", "h1", 3 * MTU)] * 20
    result = send(bad_star(1e-6), messages)
    assert result.done
    assert (result.acked_ps != NEVER).all()
    assert result.use.corrupted_packets.sum() > 10


def test_after_a_nak_all_is_sent_again_from_the_missing_packet_on():
    """The sender continues until the NAK arrives: the packets of a round trip are sent twice."""
    n = 1000
    result = find_seed(bad_star(2e-8), [("h1", "h2", n * MTU)], {RECEIVER: 1})
    each = send(routed("star:hosts=2"), [("h1", "h2", MTU)])
    lead_ps = int(each.finish_ps[0]) - one_way_ps(each)
    round_trip_ps = int(each.acked_ps[0]) - lead_ps
    serial_ps = (result.use.busy_ps / np.maximum(result.use.xmit_packets, 1)).max()
    again = int(result.retransmitted[0])
    assert again == result.use.xmit_packets.max() - n
    assert abs(again - round_trip_ps / serial_ps) <= 2


@pytest.mark.parametrize(("paths", "waits_for_timeout"), [("table", False), ("adaptive", True)])
def test_one_lost_packet_inside_a_message_costs_a_round_trip_where_order_is_kept_and_the_timeout_elsewhere(
    paths: str, waits_for_timeout: bool
):
    """A gap is a loss only on a path that keeps order; an adapter that takes packets out of order sends no NAK."""
    messages = [("h1", "h2", 1000 * MTU)]
    clean = send(routed("star:hosts=2"), messages)
    alone = send(routed("star:hosts=2"), [("h1", "h2", MTU)])
    lost = find_seed(bad_star(2e-8), messages, {RECEIVER: 1}, paths=paths)
    late_ps = int(lost.finish_ps[0] - clean.finish_ps[0])
    assert (late_ps > 0.8 * TIMEOUT_PS) == waits_for_timeout
    assert waits_for_timeout or late_ps < alone.acked_ps[0]


def one_way_ps(each: Result) -> int:
    """Return the time from the first byte of a packet until the program has it, without the adapter's own lead."""
    from weft.fabric.rates import Technology
    from weft.fabric.timing import timings

    adapter = each.fabric.models[each.fabric.nodes.model[each.fabric.ports.node[each.traffic.src[0]]]]
    timing = timings().of_adapter(adapter, Technology.INFINIBAND)
    return int(each.finish_ps[0]) - round(1000 * (timing.post_ns + timing.read_ns))


def test_the_loss_of_the_last_packet_costs_the_timeout():
    """No later packet shows the gap: 4.096 µs times 2 to the exponent pass before it is sent again."""
    clean = send(routed("star:hosts=2"), [("h1", "h2", MTU)])
    lost = find_seed(bad_star(5e-6), [("h1", "h2", MTU)], {RECEIVER: 1})
    assert lost.finish_ps[0] - clean.finish_ps[0] == TIMEOUT_PS
    assert lost.retransmitted[0] == 1


def test_a_lost_acknowledgement_delays_only_the_completion_at_the_sender():
    clean = send(routed("star:hosts=2"), [("h1", "h2", MTU)])
    lost = find_seed(bad_star(1e-4), [("h1", "h2", 0)], {"leaf1/2": 1})
    short = send(routed("star:hosts=2"), [("h1", "h2", 0)])
    assert lost.finish_ps[0] == short.finish_ps[0]
    assert lost.acked_ps[0] - short.acked_ps[0] == TIMEOUT_PS
    assert clean.done


@pytest.mark.parametrize("paths", ["adaptive", "spray"])
def test_where_packets_overtake_only_the_lost_ones_are_sent_again(paths: str):
    fabric = faults.degrade(routed("fat-tree:hosts=16,radix=8"), "leaf4/4", 1e-7)
    result = send(fabric, [("h1", "h16", 2000 * MTU), ("h5", "h16", 2000 * MTU)], seed=3, paths=paths)
    data = sum(n for port, n in corrupted(result).items() if not port.startswith("leaf"))
    assert result.done
    assert data > 0
    assert result.retransmitted.sum() == data


@pytest.mark.parametrize("transport", [Transport.UC, Transport.UD])
def test_unreliable_transports_lose_messages_silently(transport: Transport):
    result = send(bad_star(1e-6), [("h1", "h2", MTU)] * 200, transport=transport)
    lost = result.finish_ps == NEVER
    assert 0 < lost.sum() == corrupted(result)[RECEIVER] < 200
    assert not result.done
    assert result.retransmitted.sum() == 0


def test_after_seven_retries_the_run_ends_and_names_both_ends():
    with pytest.raises(SubnetError, match=r"h1.* got no acknowledgement from h2.* 7 retries"):
        send(bad_star(0.01), [("h1", "h2", MTU)])


def test_as_many_packets_are_corrupted_as_the_bit_error_rate_says():
    """Each with the chance of its bits, on the port that received them; four deviations at most."""
    rate, n, size_bytes = 2e-6, 8_000, MTU + 26
    result = send(bad_star(rate), [("h1", "h2", MTU)] * n, transport=Transport.UC)
    expected = n * -np.expm1(-rate * 8 * size_bytes)
    assert abs(corrupted(result)[RECEIVER] - expected) < 4 * np.sqrt(expected)
    result.write_counters()
    counters = result.fabric.counters[result.traffic.dst[0]]
    assert counters[Counter.PORT_RCV_ERRORS] == corrupted(result)[RECEIVER]
    assert counters[Counter.PORT_RCV_PKTS] == counters[Counter.PORT_UNICAST_RCV_PKTS] == n  # damaged ones too


def test_rdma_reads_survive_losses_both_ways():
    result = send(bad_star(1e-6), [("h1", "h2", 20 * MTU), ("h2", "h1", 20 * MTU)] * 20, operation=Operation.READ)
    assert result.done
    assert set(corrupted(result)) == {RECEIVER, "leaf1/2"}


def test_a_timeout_shorter_than_the_round_trip_wastes_packets_but_loses_none():
    """Acknowledgements arrive for packets that wait for retransmission: the queue pair leaves the queue."""
    fabric = faults.degrade(routed("star:hosts=25"), "leaf1/25", 1e-9)
    messages = [(f"h{i}", "h25", size) for i in range(1, 25) for size in (MTU, 9 * MTU, 0, 7 * MTU) * 2]
    options = Options(ack_timeout_exponent=1, buffer_bytes=1 << 15, seed=2)
    traffic = Traffic.of(fabric, messages, qp=np.arange(len(messages)) % 5)
    result = PacketEngine().run(fabric, traffic, options)
    assert result.done
    assert 100 < result.retransmitted.sum() < 500
    packets = np.maximum(-(-traffic.size_bytes // MTU), 1).sum()
    sent = result.use.xmit_packets[np.unique(traffic.src)].sum()
    assert sent == packets + result.retransmitted.sum()
