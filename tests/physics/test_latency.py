"""A single flow: every term of its latency, to the picosecond."""

from __future__ import annotations

import pytest

import weft
from weft.fabric import faults
from weft.routing.route import route
from weft.sim.traffic import Operation, Transport

SEND = {"operation": Operation.SEND}  # no RETH: all full packets are equal


def ports_of_chain(switches):
    """Return the output ports of h1's packets to h2."""
    return ["h1/1", *(f"s{i + 1}/2" for i in range(switches - 1)), f"s{switches}/4"]


@pytest.mark.parametrize("size_bytes", [0, 1, 8, 220, 221, 4096])
@pytest.mark.parametrize("switches", [1, 3, 5])
def test_one_packet_takes_one_serialisation_all_wires_and_all_switches(switches, size_bytes, chain, arithmetic, run):
    fabric = chain(switches)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", size_bytes)])
    wire_bytes = -(-size_bytes // 4) * 4 + physics.headers + physics.reth
    assert result.finish_ps[0] == (
        physics.lead_ps("h1", size_bytes)
        + physics.serial_ps("h1/1", wire_bytes)
        + physics.path_ps(*ports_of_chain(switches))
        + physics.adapter_ps("h2", "receive")
    )


@pytest.mark.parametrize("switches", [1, 3, 5])
def test_store_and_forward_serialises_once_more_at_every_switch(switches, chain, arithmetic, run):
    fabric = chain(switches)
    physics = arithmetic(fabric)
    cut, stored = (
        run(fabric, [("h1", "h2", 4096)], columns=SEND, switching=switching)
        for switching in ("cut-through", "store-and-forward")
    )
    assert stored.finish_ps[0] - cut.finish_ps[0] == switches * physics.data_ps("h1/1")


@pytest.mark.parametrize(("switching", "more"), [("cut-through", 0), ("store-and-forward", 3)])
@pytest.mark.parametrize("packets", [2, 50])
def test_back_to_back_packets_fill_the_line(packets, switching, more, chain, arithmetic, run):
    """n packets take n serialisations; stored, one more at each of three switches."""
    fabric = chain(3)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", packets * 4096)], columns=SEND, switching=switching)
    assert result.finish_ps[0] == (
        physics.lead_ps("h1", packets * 4096)
        + (packets + more) * physics.data_ps("h1/1")
        + physics.path_ps(*ports_of_chain(3))
        + physics.adapter_ps("h2", "receive")
    )


def test_two_adapters_and_a_cable_need_no_tables(pair, arithmetic, run):
    fabric = pair(length_m=2)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", 3 * 4096), ("h2", "h1", 8)])
    sizes = [3 * 4096 + 3 * physics.headers + physics.reth, 8 + physics.headers + physics.reth]
    first_ps, full_ps = physics.serial_ps("h1/1", 4096 + sizes[1] - 8), physics.data_ps("h1/1")
    path_ps = physics.path_ps("h1/1") + physics.adapter_ps("h2", "receive")
    assert result.finish_ps[0] == physics.lead_ps("h1", 3 * 4096) + first_ps + 2 * full_ps + path_ps
    assert result.finish_ps[1] == physics.lead_ps("h2", 8) + physics.serial_ps("h2/1", sizes[1]) + path_ps
    assert result.use.xmit_bytes[fabric["h1/1"].slot] == sizes[0] + physics.ack_bytes


@pytest.mark.parametrize(("server", "speed"), [("host", "EDR"), ("host", "HDR"), ("host", "NDR"), ("host-xdr", "XDR")])
def test_a_generation_costs_its_own_line_switch_and_error_correction(server, speed, arithmetic, run):
    """A fabric out of the catalog: models have figures of their own."""
    fabric = route(weft.load(f"star:hosts=2,server={server},speed={speed}")).fabric
    physics, (local, present) = arithmetic(fabric), fabric.servers
    assert fabric[f"{local}/1"].link.label == f"4x{speed}"
    result = run(fabric, [(local, present, 4096)], columns=SEND | {"transport": Transport.UC})
    assert result.finish_ps[0] == (
        physics.lead_ps(local, 4096)
        + physics.data_ps(f"{local}/1")
        + physics.path_ps(f"{local}/1", "leaf1/2")
        + physics.adapter_ps(present, "receive")
    )


@pytest.mark.parametrize("label", ["1xNDR", "4xEDR"])
@pytest.mark.parametrize("port", ["h1/1", "s1/2", "s2/4"])
def test_a_slow_link_anywhere_sets_the_pace(port, label, chain, arithmetic, run):
    """n packets take n serialisations of the slowest link: cut-through hides the faster ones, before and after it."""
    fabric = faults.slow(chain(2), port, label)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", 20 * 4096)], columns=SEND)
    assert result.finish_ps[0] == (
        physics.lead_ps("h1", 4096)
        + 20 * physics.data_ps(port)
        + physics.path_ps("h1/1", "s1/2", "s2/4")
        + physics.adapter_ps("h2", "receive")
    )


def test_an_acknowledgement_tells_the_sender_one_way_later(chain, arithmetic, run):
    fabric = chain(2)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", 100_000)])
    arrived_ps = result.finish_ps[0] - physics.adapter_ps("h2", "receive")
    back_ps = physics.serial_ps("h2/1", physics.ack_bytes) + physics.path_ps("h2/1", "s2/1", "s1/3")
    assert result.acked_ps[0] == arrived_ps + physics.adapter_ps("h2", "ack") + back_ps
