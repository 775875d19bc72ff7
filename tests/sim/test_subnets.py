"""Traffic across routers: closed forms for 40 bytes more in each packet and for the share of a router's port."""

from __future__ import annotations

import pytest

import weft
from weft.errors import ConfigError
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options, PlaneChoice
from weft.sim.engines import ENGINES
from weft.sim.traffic import Traffic

MTU, PACKETS = 4096, 256
HEADER_BYTES, GRH_BYTES = 26, 40  # LRH, BTH, ICRC and VCRC
SPEC = "subnets:2,of=star:hosts=4"
each_engine = pytest.mark.parametrize("engine", ["packet", "flow", "analytic"])


def arrival_ps(engine: str, messages: list[tuple[str, str, int]], spec: str = SPEC) -> int:
    fabric = weft.route(spec).fabric
    return ENGINES[engine].run(fabric, Traffic.of(fabric, messages), Options(seed=1)).last_arrival_ps


def growth_ps(engine: str, destination: str) -> int:
    """Return the time of as many packets again."""
    once, twice = (
        arrival_ps(engine, [("s1-h1", destination, count * PACKETS * MTU)], "subnets:2,of=star:hosts=4")
        for count in (1, 2)
    )
    return twice - once


@each_engine
def test_each_packet_to_another_subnet_has_a_global_header(engine):
    near, far = growth_ps(engine, "s1-h2"), growth_ps(engine, "s2-h2")
    whole = MTU + HEADER_BYTES
    assert far / near == pytest.approx((whole + GRH_BYTES) / whole, rel=1e-4)


@each_engine
def test_all_engines_agree_on_one_message(engine):
    """The flow and analytic engines give the picosecond of the packet engine, as on one subnet."""
    message = [("s1-h1", "s2-h3", MTU)]
    assert arrival_ps(engine, message) == arrival_ps("packet", message)


@each_engine
def test_hosts_share_the_port_of_the_router(engine):
    shift = [(f"s1-h{number}", f"s2-h{number}", PACKETS * MTU) for number in range(1, 5)]
    alone = arrival_ps(engine, shift[:1])
    packet_ps = growth_ps(engine, "s2-h1") / PACKETS
    assert arrival_ps(engine, shift) - alone == pytest.approx(3 * PACKETS * packet_ps, rel=0.02)


def test_a_router_adds_the_delay_of_a_switch_and_its_cables():
    """From the far end of the first leaf on: a router and a leaf, two cables of 30 m, and 40 bytes on each link."""
    joined = arrival_ps("packet", [("s1-h1", "s2-h1", 64)])
    local = arrival_ps("packet", [("s1-h1", "s1-h2", 64)])
    assert 200_000 < joined - local < 1_000_000


def test_collectives_run_over_the_router(tmp_path):
    result = weft.simulate("subnets:2,of=star:hosts=4", "all_reduce:ring", size="1M", engine="packet")
    assert result.last_arrival_ps > weft.simulate("star:hosts=8", "all_reduce:ring", size="1M").last_arrival_ps


def test_subnets_without_a_common_router_have_no_route():
    fabric = weft.load("subnets:2,of=star:hosts=2")
    cut = route(fabric.without("router1/2"), RoutingOptions()).fabric
    with pytest.raises(ConfigError, match="no route: a packet from s1-h1/1 to s2-h1/1"):
        ENGINES["flow"].run(cut, Traffic.of(cut, [("s1-h1", "s2-h1", MTU)]))


@pytest.mark.parametrize("choice", [PlaneChoice.PACKET, PlaneChoice.QUEUE_PAIR])
def test_planes_of_several_subnets_cross_their_own_router(choice):
    """Twice the packets take as long again, with 40 bytes more in each across the router, in one plane or in both."""
    fabric = weft.route(f"{SPEC},planes=2").fabric

    def growth_ps(destination: str) -> int:
        times_ps = [
            ENGINES["flow"]
            .run(
                fabric,
                Traffic.of(fabric, [("s1-h1", destination, count * PACKETS * MTU)]),
                Options(seed=1, plane_choice=choice),
            )
            .last_arrival_ps
            for count in (1, 2)
        ]
        return times_ps[1] - times_ps[0]

    whole = MTU + HEADER_BYTES
    assert growth_ps("s2-h2") / growth_ps("s1-h2") == pytest.approx((whole + GRH_BYTES) / whole, rel=1e-4)
    one_plane_ps = PACKETS * whole * 8 * 1000 // 200
    planes = 2 if choice is PlaneChoice.PACKET else 1
    assert growth_ps("s1-h2") == pytest.approx(one_plane_ps / planes, rel=0.05)
