"""Virtual lanes keep traffic apart, as far as their arbitration says; and without them rings deadlock."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.routing.check import check
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.packet.engine import Deadlock
from weft.sim.traffic import Operation, Transport

UC_SEND = {"operation": Operation.SEND, "transport": Transport.UC}
BULK = 6  # senders


def star_with_lanes(lanes, *, low=(), high=(), limit=0):
    """Return a star where SL n uses VL n modulo `lanes`, with arbitration tables of (VL, weight) at all ports."""
    fabric = route(weft.load(f"star:hosts={BULK + 2}")).fabric
    tables = fabric.tables
    tables.sl2vl[:] = np.arange(16) % lanes
    for side, entries in enumerate((low, high)):
        for i, entry in enumerate(entries):
            tables.vl_arbitration[:, side, i] = entry
    tables.vl_high_limit[:] = limit
    return fabric


def run_probe(run, fabric, later_ps):
    """Run six hosts that send a packet to h1 at once on SL 0; h8 sends 8 bytes on SL 1 a nanosecond later."""
    messages = [(f"h{i + 2}", "h1", 4096) for i in range(BULK)] + [(f"h{BULK + 2}", "h1", 8)]
    columns = UC_SEND | {"sl": [0] * BULK + [1], "start_ps": [0] * BULK + [later_ps + 1_000]}
    return run(fabric, messages, columns=columns)


@pytest.mark.parametrize(
    ("lanes", "tables", "packets_before"),
    [
        (1, {}, BULK),
        (2, {}, 1),
        (2, {"low": [(0, 65)], "high": [(1, 1)], "limit": 255}, 1),
        (2, {"low": [(0, 255), (1, 1)]}, 4),
        (2, {"low": [(0, 129), (1, 1)]}, 2),
    ],
    ids=["one lane", "two lanes in turn", "high priority", "weight of four packets", "weight of two"],
)
def test_a_small_message_waits_for_as_many_packets_as_its_lane_lets_ahead(
    lanes, tables, packets_before, arithmetic, run
):
    """A single lane waits for all earlier packets; two lanes for the packet on the link, or the rest of the other
    lane's weight.
    """
    fabric = star_with_lanes(lanes, **tables)
    physics = arithmetic(fabric)
    result = run_probe(run, fabric, physics.lead_ps("h2", 4096) - physics.lead_ps("h8", 8))
    first_ps = physics.lead_ps("h2", 4096) + physics.path_ps("h2/1")
    assert result.finish_ps[BULK] == (
        first_ps
        + packets_before * physics.data_ps("leaf1/1")
        + physics.data_ps("leaf1/1", 8)
        + physics.path_ps("leaf1/1")
        + physics.adapter_ps("h1", "receive")
    )


@pytest.mark.parametrize(("limit", "high_first"), [(0, 1), (1, 1), (2, 2), (3, 3), (255, 40)])
def test_high_priority_lets_the_others_in_after_its_limit(limit, high_first, arithmetic, run):
    """Limit × 4 KiB of 4,160 for each packet: the one that exceeds it still goes, then a low one.

    h2 and h4 send with high priority, h3 and h5 without, so that both lanes always have packets.
    """
    fabric = star_with_lanes(2, low=[(0, 65)], high=[(1, 65)], limit=limit)
    physics = arithmetic(fabric)
    columns = UC_SEND | {"sl": [1, 1, 0, 0]}
    messages = [(sender, "h1", 20 * 4096) for sender in ("h2", "h4", "h3", "h5")]
    result = run(fabric, messages, columns=columns)
    rest_ps = physics.lead_ps("h2", 4096) + physics.path_ps("h2/1", "leaf1/1") + physics.adapter_ps("h1", "receive")
    done = int(max(result.finish_ps[:2]) - rest_ps) // physics.data_ps("leaf1/1")
    assert done == 40 + (40 - 1) // high_first


@pytest.mark.parametrize(
    ("weights", "packets"),
    [((48, 16), (1, 1)), ((65, 1), (1, 1)), ((66, 65), (2, 1)), ((192, 64), (3, 1)), ((255, 64), (4, 1))],
    ids=["less than a packet", "a packet and less", "a block more than a packet", "multiples of a packet", "most"],
)
@pytest.mark.parametrize("order", [1, -1], ids=["lanes in order", "lanes in another order"])
def test_entries_send_whole_packets_and_start_each_turn_with_their_full_weight(
    weights, packets, order, arithmetic, run
):
    """A packet of 4 KiB with headers takes 65 blocks. If turns made up for what the last packet exceeds, 66 to 65 would
    be nearly 1 to 1, and 48 to 16 would be 3 to 1.
    """
    fabric = star_with_lanes(2, low=[*enumerate(weights)][::order])
    physics = arithmetic(fabric)
    columns = UC_SEND | {"sl": [0, 0, 1, 1]}
    result = run(fabric, [(sender, "h1", 60 * 4096) for sender in ("h2", "h3", "h4", "h5")], columns=columns)
    rest_ps = physics.lead_ps("h2", 4096) + physics.path_ps("h2/1", "leaf1/1") + physics.adapter_ps("h1", "receive")
    done = (int(max(result.finish_ps[:2])) - rest_ps) / physics.data_ps("leaf1/1")
    assert done == pytest.approx(120 * (1 + packets[1] / packets[0]), abs=packets[0] + 1)


def test_lanes_with_equal_weights_get_equal_parts(arithmetic, run):
    """Three flows on VL 0 and one on VL 1: the one gets half, each of the three a sixth."""
    fabric = star_with_lanes(2, low=[(0, 65), (1, 65)])
    physics = arithmetic(fabric)
    messages = [(sender, "h1", 30 * 4096) for sender in ("h2", "h3", "h4", "h5")]
    result = run(fabric, messages, columns=UC_SEND | {"sl": [0, 0, 0, 1]})
    rest_ps = physics.lead_ps("h2", 4096) + physics.path_ps("h2/1", "leaf1/1") + physics.adapter_ps("h1", "receive")
    packets = (result.finish_ps - rest_ps) / physics.data_ps("leaf1/1")
    assert packets[3] == pytest.approx(60, abs=1)
    assert packets[:3].max() == pytest.approx(120, abs=0.01)


def shift(fabric, by):
    """Return messages from every host to the one `by` places further on the ring."""
    names = [node.name for node in fabric.hcas]
    return [(name, names[(i + by) % len(names)], 200_000) for i, name in enumerate(names)]


@pytest.mark.parametrize("spec", ["torus:6", "torus:5x5"])
def test_min_hop_deadlocks_on_a_ring_and_weft_s_own_tables_do_not(spec, run):
    """All hosts send two hops with buffers of one packet: each waits for the next. Dimension order uses two VLs."""
    fabric = weft.load(spec)
    bare = route(fabric, RoutingOptions(engine="min-hop")).fabric
    assert not check(bare).ok
    with pytest.raises(Deadlock):
        run(bare, shift(bare, 2), buffer_bytes=4160)
    safe = route(fabric).fabric
    assert check(safe).ok
    assert run(safe, shift(safe, 2), buffer_bytes=4160).done
