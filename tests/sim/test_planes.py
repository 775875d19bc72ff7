"""Traffic over planes: closed forms of sprayed, alternating and hashed messages, and of lost planes."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.errors import ConfigError, SubnetError
from weft.fabric.model import Fabric
from weft.sim.engine import Options
from weft.sim.engines import ENGINES
from weft.sim.traffic import Traffic

ONE, FOUR = "star:hosts=4,planes=1", "star:hosts=4,planes=4,radix=64"
SIZE = 6 << 20
MTU = 4096


def routed(spec: str, *parts: str) -> Fabric:
    return weft.route(weft.load(spec).without(*parts)).fabric


def arrival_ps(fabric: Fabric, messages: list[tuple[str, str, int]], **options: object) -> int:
    result = ENGINES["analytic"].run(fabric, Traffic.of(fabric, messages), Options(**options))  # type: ignore[arg-type]
    assert result.traffic.size_bytes.tolist() == [size for _, _, size in messages]
    return result.last_arrival_ps


def test_one_plane_gives_the_digest_of_no_planes() -> None:
    digests = set()
    for spec in (ONE, "star:hosts=4"):
        fabric = routed(spec)
        digests.add(ENGINES["flow"].run(fabric, Traffic.of(fabric, [("h1", "h2", SIZE)])).digest())
    assert len(digests) == 1


def test_a_sprayed_message_is_as_fast_as_on_one_port_of_the_whole_rate() -> None:
    message = [("h1", "h2", SIZE)]
    assert arrival_ps(routed(FOUR), message) == pytest.approx(arrival_ps(routed(ONE), message), rel=0.01)


@pytest.mark.parametrize("choice", ["message", "queue-pair"])
def test_one_message_in_one_plane_gets_its_share_of_the_rate(choice: str) -> None:
    message = [("h1", "h2", SIZE)]
    whole = arrival_ps(routed(FOUR), message)
    assert arrival_ps(routed(FOUR), message, plane_choice=choice) == pytest.approx(4 * whole, rel=0.02)


def test_messages_that_take_turns_fill_all_planes() -> None:
    four = [("h1", "h2", SIZE // 4)] * 4
    sprayed = arrival_ps(routed(FOUR), [("h1", "h2", SIZE)])
    assert arrival_ps(routed(FOUR), four, plane_choice="message") == pytest.approx(sprayed, rel=0.01)


def test_a_small_message_takes_one_plane_and_pays_its_slower_serialisation() -> None:
    """A packet of 4 KiB at 100 Gbit/s takes 0.33 us, at 400 a quarter of it, on each of two links."""
    one, four = (arrival_ps(routed(spec), [("h1", "h2", MTU)]) for spec in (ONE, FOUR))
    packet_ps = MTU * 8000 / 100
    assert 0.7 * packet_ps < four - one < 2 * packet_ps


@pytest.mark.parametrize("part", ["plane2", "p2-leaf1", "h1/2"])
def test_a_lost_plane_costs_its_share_and_no_connection(part: str) -> None:
    """The same holds for a dead switch of a plane, and for one port of an adapter."""
    message = [("h1", "h2", SIZE)]
    whole, broken = arrival_ps(routed(FOUR), message), arrival_ps(routed(FOUR, part), message)
    assert broken / whole == pytest.approx(4 / 3, rel=0.01)


def test_pairs_without_the_broken_port_keep_all_planes() -> None:
    message = [("h3", "h4", SIZE)]
    assert arrival_ps(routed(FOUR, "h1/2"), message) == pytest.approx(arrival_ps(routed(FOUR), message), rel=0.002)


def test_messages_that_wait_for_others_wait_for_all_their_parts() -> None:
    fabric = routed(FOUR, "h3/2")  # written out
    chain = [("h1", "h2", SIZE), ("h2", "h1", SIZE)]
    traffic = Traffic.of(fabric, chain, after=[[], [0]])
    result = ENGINES["analytic"].run(fabric, traffic)
    assert result.start_ps[1] >= result.finish_ps[0]
    assert result.last_arrival_ps == pytest.approx(2 * result.finish_ps[0], rel=0.01)


def test_the_engines_agree_on_sprayed_messages() -> None:
    fabric = routed("fat-tree:hosts=8,radix=4,planes=2")
    traffic = Traffic.of(fabric, [(f"h{i}", f"h{i % 8 + 1}", SIZE) for i in range(1, 9)])
    times = [ENGINES[name].run(fabric, traffic).last_arrival_ps for name in ("analytic", "flow")]
    assert times[0] == pytest.approx(times[1], rel=0.05)


def test_bytes_in_all_planes_add_up_to_the_message() -> None:
    from weft.sim.planes import _plane_bytes

    for size in (1, MTU, MTU + 1, 7 * MTU, 8 * MTU, 9 * MTU - 5, SIZE + 3):
        sizes = np.array([size])
        packets = -(-sizes // MTU)
        shares = [int(_plane_bytes(sizes, packets, 4, turn, MTU)[0]) for turn in range(4)]
        assert sum(shares) == size
        assert max(shares) <= min(size, -(-int(packets[0]) // 4) * MTU)


def test_a_choice_of_planes_needs_planes() -> None:
    with pytest.raises(ConfigError, match="--plane-choice changes nothing"):
        arrival_ps(routed(ONE), [("h1", "h2", SIZE)], plane_choice="packet")


def test_hosts_without_a_common_plane_cannot_talk() -> None:
    fabric = routed("star:hosts=3,planes=2", "h1/1", "h2/2")
    with pytest.raises(SubnetError, match=r"h1/2 and h2/1 have no plane in common"):
        arrival_ps(fabric, [("h1", "h2", SIZE)])
    assert arrival_ps(fabric, [("h1", "h3", SIZE)]) > 0


def test_a_plane_without_a_way_through_its_router_costs_its_share_between_subnets_alone() -> None:
    spec = "subnets:2,of=star:hosts=4,planes=2"
    whole, broken = routed(spec), routed(spec, "p2-router1/1")
    across, within = [("s1-h1", "s2-h1", SIZE)], [("s1-h1", "s1-h2", SIZE)]
    assert arrival_ps(broken, across) == pytest.approx(2 * arrival_ps(whole, across), rel=0.02)
    assert arrival_ps(broken, within) == arrival_ps(whole, within)
    with pytest.raises(SubnetError, match=r"s1-h1/1 and s2-h1/1 have no plane in common .* and a route"):
        arrival_ps(routed(spec, "p2-router1/1", "p1-router1/2"), across)


def test_nccl_loses_the_share_of_a_lost_plane() -> None:
    """Data of the adapters: three quarters of the bandwidth, so 4/3 of the time of large messages at most."""
    spec = "superpod:su=1,server=dgx-b300,servers=4,planes=4"
    none = weft.time(spec.replace(",planes=4", ""), "all_reduce", "4G").time_us
    whole = weft.time(spec, "all_reduce", "4G").time_us
    broken = weft.time(weft.load(spec).without("plane1"), "all_reduce", "4G").time_us
    assert whole == pytest.approx(none, rel=0.01)
    assert 1.2 < broken / whole < 1.4


def test_adapters_that_place_in_order_send_each_queue_pair_over_one_plane() -> None:
    message, fabric = [("h1", "h2", SIZE)], routed(FOUR)
    assert arrival_ps(fabric, message, in_order=True) == arrival_ps(fabric, message, plane_choice="queue-pair")
    with pytest.raises(ConfigError, match="--plane-choice packet sends one message by several planes"):
        arrival_ps(fabric, message, in_order=True, plane_choice="packet")


@pytest.mark.parametrize("paths", ["adaptive", "spray"])
def test_packets_that_overtake_are_sent_again_where_adapters_place_in_order(paths: str) -> None:
    fabric = weft.route(weft.load("fat-tree:hosts=12,radix=6"), adaptive=True).fabric
    messages = [(f"h{n}", f"h{12 - n % 2}", 1 << 16) for n in range(1, 9)]  # queues of two ports fill unevenly
    runs = [
        ENGINES["packet"].run(fabric, Traffic.of(fabric, messages), Options(paths=paths, in_order=in_order))
        for in_order in (False, True)
    ]
    assert [bool(run.retransmitted.sum()) for run in runs] == [False, True]
    assert runs[1].last_arrival_ps > runs[0].last_arrival_ps
    with pytest.raises(ConfigError, match="packets that overtake: use weft sim --engine packet"):
        ENGINES["flow"].run(fabric, Traffic.of(fabric, messages), Options(paths=paths, in_order=True))


@pytest.mark.parametrize(
    ("options", "says"), [({}, "take one path here"), ({"network": "tcp", "paths": "table"}, "TCP puts its bytes")]
)
def test_placement_in_order_is_refused_where_it_changes_nothing(options: dict[str, str], says: str) -> None:
    spec = "star:hosts=4,speed=400GbE" if options else ONE
    with pytest.raises(ConfigError, match=says):
        arrival_ps(routed(spec), [("h1", "h2", SIZE)], in_order=True, **options)
