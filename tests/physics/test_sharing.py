"""Several flows at one port, and one flow against its credits."""

from __future__ import annotations

import pytest

import weft
from weft.fabric import faults
from weft.routing.route import route
from weft.sim.traffic import Operation, Transport

SEND = {"operation": Operation.SEND}  # no RETH: all full packets are equal
BLOCKS_BYTES = 4160  # buffer for a full packet: 65 blocks of 64


@pytest.mark.parametrize("senders", [2, 3, 7])
def test_incast_takes_as_many_serialisations_as_all_packets_together(senders, arithmetic, run):
    """The port of h1 is never idle after the first packet, and the flows finish one packet apart."""
    fabric = route(weft.load(f"star:hosts={senders + 1}")).fabric
    physics = arithmetic(fabric)
    result = run(fabric, [(f"h{i + 2}", "h1", 30 * 4096) for i in range(senders)], columns=SEND)
    first_ps = (
        physics.lead_ps("h2", 30 * 4096) + physics.path_ps("h2/1", "leaf1/1") + physics.adapter_ps("h1", "receive")
    )
    packets = senders * 30
    assert sorted(result.finish_ps) == [
        first_ps + (packets - i) * physics.data_ps("h2/1") for i in reversed(range(senders))
    ]
    assert result.use.busy_ps[fabric["leaf1/1"].slot] == pytest.approx(packets * physics.data_ps("h2/1"), rel=1e-4)


def test_two_flows_over_one_trunk_get_half_each(chain, arithmetic, run):
    """h1 to h2 and h3 to h4 share the trunk alone: twice the time, to the packet; a third flow is not touched."""
    fabric = chain(2, hosts=6)
    physics = arithmetic(fabric)
    alone = run(fabric, [("h1", "h2", 40 * 4096)], columns=SEND).finish_ps[0]
    ways = [("h1", "h2", 40 * 4096), ("h3", "h4", 40 * 4096), ("h6", "h5", 40 * 4096)]
    both = run(fabric, ways, columns=SEND | {"transport": Transport.UC})  # no acknowledgement comes the other way
    assert sorted(both.finish_ps[:2] - alone) == [39 * physics.data_ps("s1/2"), 40 * physics.data_ps("s1/2")]
    assert both.finish_ps[2] == alone


def test_a_shorter_flow_leaves_its_half_to_the_longer(chain, arithmetic, run):
    """Shared until the shorter is through, alone after that: the port never rests."""
    fabric = chain(2, hosts=4)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", 60 * 4096), ("h3", "h4", 10 * 4096)], columns=SEND)
    rest_ps = (
        physics.lead_ps("h1", 4096) + physics.path_ps("h1/1", "s1/2", "s2/4") + physics.adapter_ps("h2", "receive")
    )
    assert result.finish_ps[0] == rest_ps + 70 * physics.data_ps("s1/2")
    assert result.finish_ps[1] == rest_ps + 20 * physics.data_ps("s1/2")


@pytest.mark.parametrize("buffer_packets", [1, 2, 3, 5, 8, 13, 38, 39, 80])
def test_credits_over_the_round_trip_are_the_bandwidth(buffer_packets, chain, arithmetic, run):
    """Below one credit loop of buffer a burst goes each loop; above, the line is full.

    A packet takes its credits when it starts to leave; they are back one wire, one switch, its serialisation out of
    the switch and one wire later.
    """
    packets = 120
    fabric = chain(1, length_m=300)
    physics = arithmetic(fabric)
    serial_ps = physics.data_ps("h1/1")
    loop_ps = physics.hop_ps("h1/1") + serial_ps + physics.word_ps("h1/1")
    assert 38 * serial_ps < loop_ps < 39 * serial_ps, "the sweep goes round the edge"
    result = run(fabric, [("h1", "h2", packets * 4096)], columns=SEND, buffer_bytes=buffer_packets * BLOCKS_BYTES)
    loops, rest = divmod(packets - 1, buffer_packets)
    last_leaves_ps = max(loops * loop_ps + rest * serial_ps, (packets - 1) * serial_ps)
    assert result.finish_ps[0] == (
        physics.lead_ps("h1", 4096)
        + last_leaves_ps
        + serial_ps
        + physics.path_ps("h1/1", "s1/4")
        + physics.adapter_ps("h2", "receive")
    )
    starved = buffer_packets * serial_ps < loop_ps
    assert (result.use.xmit_wait_ps[fabric["h1/1"].slot] > 0) == starved


def test_the_usual_buffer_fills_the_longest_cable(chain, arithmetic, run):
    """Two round trips and four packets are enough at 10 km."""
    fabric = chain(2, trunk_m=10_000)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", 3000 * 4096)], columns=SEND)
    assert result.finish_ps[0] == (
        physics.lead_ps("h1", 4096)
        + 3000 * physics.data_ps("h1/1")
        + physics.path_ps("h1/1", "s1/2", "s2/4")
        + physics.adapter_ps("h2", "receive")
    )
    assert result.use.xmit_wait_ps.sum() == 0


def test_a_full_port_holds_back_its_senders_and_waits_are_counted(arithmetic, run):
    """A receiver at a quarter of the rate: the sender is stopped by credits, for three quarters of the time."""
    fabric = faults.slow(route(weft.load("star:hosts=2")).fabric, "h2/1", "1xNDR")
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", 400 * 4096)], columns=SEND)
    sender = fabric["h1/1"].slot
    sending_ps = 400 * physics.data_ps("h1/1")
    assert result.use.busy_ps[sender] == pytest.approx(sending_ps, rel=1e-4)
    assert result.use.xmit_wait_ps[sender] == pytest.approx(3 * sending_ps, rel=0.05)
    assert result.use.busy_ps[fabric["leaf1/2"].slot] == pytest.approx(4 * sending_ps, rel=1e-4)
