"""Figures of a run: shares, busy links, and words that are short and true."""

from __future__ import annotations

import pytest

import weft
from weft.routing.route import route
from weft.sim.figures import busiest_links, carried_load, describe_traffic, format_size, goodput_per_sender_gbit_s
from weft.sim.packet.engine import PacketEngine
from weft.sim.patterns import incast, uniform
from weft.sim.result import Result
from weft.sim.traffic import Traffic


@pytest.fixture(scope="module")
def fabric() -> weft.Fabric:
    return route(weft.load("fat-tree:hosts=16,radix=8")).fabric


@pytest.fixture(scope="module")
def run(fabric) -> Result:
    return PacketEngine().run(fabric, incast(fabric, size_bytes=65_536, senders=6))


def test_the_busiest_link_of_an_incast_is_the_receivers(run):
    first, *rest = busiest_links(run, 5)
    assert (first.port, first.peer) == ("leaf1/1", "h1/1")
    assert 0.7 < first.utilisation <= 1
    assert all(link.utilisation <= first.utilisation for link in rest)
    assert first.queue_peak_bytes > 4096


def test_idle_links_are_not_busy(fabric):
    lonely = PacketEngine().run(fabric, Traffic.of(fabric, [("h1", "h2", 8)]))
    assert {link.port for link in busiest_links(lonely, 99)} == {"h1/1", "leaf1/2", "h2/1", "leaf1/1"}


def test_senders_of_an_incast_share_the_line(run):
    each = goodput_per_sender_gbit_s(run)
    assert len(each) == 6
    assert 6 * each.min() < 400


def test_a_light_load_is_carried(fabric):
    result = PacketEngine().run(fabric, uniform(fabric, load=0.3, duration_ps=100_000_000))
    assert carried_load(result) == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1 << 20, "1 MiB"), (5 << 40, "5 TiB")],
)
def test_sizes_are_written_short(size_bytes, words):
    assert format_size(size_bytes) == words


def test_traffic_is_described_in_a_line(fabric):
    assert describe_traffic(Traffic.of(fabric, [("h1", "h2", 2048)])) == "1 message of 2 KiB"
    mixed = Traffic.of(fabric, [("h1", "h2", 1024), ("h2", "h3", 2048)], description="mine")
    assert describe_traffic(mixed) == "mine: 2 messages with 3 KiB in all"
