"""Required behaviour of an InfiniBand transport, as in test_behaviours.py, visible only on the wire."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from tests.verbs.datagrams import Stranger
from tests.verbs.wires import Host, connect, loopback_address

from weft.verbs.carriers.roce import carrier as roce
from weft.verbs.carriers.roce.carrier import RoceCarrier
from weft.verbs.enums import ibv_wc_status
from weft.verbs.hca.segment import Op, Segment, Service
from weft.wire.headers import BTH, CNPPadding, Opcode

OK = int(ibv_wc_status.IBV_WC_SUCCESS)
HERE, THERE = 7, 8
_SO_NO_CHECK = 11
_CONGESTED = 3


@pytest.fixture
def carrier() -> Iterator[RoceCarrier]:
    result = RoceCarrier(loopback_address(HERE))
    yield result
    result.close()


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    result = Stranger(loopback_address(THERE))
    yield result
    result.close()


def a_write() -> Segment:
    return Segment(op=Op.WRITE, service=Service.RC, dest_qp=5, psn=9, va=1, rkey=2, length=11, payload=b"hello world")


def arrivals(carrier: RoceCarrier) -> int:
    """Return the number of segments that have arrived: within one machine delivery is immediate."""
    return len(carrier.receive())


def test_52_a_packet_with_any_other_byte_than_the_icrc_was_made_for_is_dropped(carrier, stranger):
    (right,) = stranger.datagrams(loopback_address(HERE), a_write(), 1024)
    stranger.send(loopback_address(HERE), right)
    assert arrivals(carrier) == 1
    for at in range(len(right)):
        wrong = bytearray(right)
        wrong[at] ^= 0x10
        stranger.send(loopback_address(HERE), bytes(wrong))
        is_variant = at == 4  # FECN, BECN and reserved bits of the BTH
        assert arrivals(carrier) == is_variant, at
    assert carrier.refused == len(right) - 1


def test_52_a_packet_that_came_from_another_port_is_dropped(carrier, stranger):
    (right,) = stranger.datagrams(loopback_address(HERE), a_write(), 1024)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((loopback_address(THERE), 0))
        other.sendto(right, (loopback_address(HERE), 4791))
    assert arrivals(carrier) == 0
    assert carrier.refused == 1


@pytest.mark.parametrize(
    ("level", "option", "value"),
    [
        (socket.IPPROTO_IP, socket.IP_TOS, 0xA0),
        (socket.IPPROTO_IP, socket.IP_TTL, 3),
        (socket.SOL_SOCKET, _SO_NO_CHECK, 1),
    ],
    ids=["type of service", "time to live", "UDP checksum"],
)
def test_52_what_routers_change_does_not_matter(carrier, stranger, level, option, value):
    (right,) = stranger.datagrams(loopback_address(HERE), a_write(), 1024)
    stranger.socket.setsockopt(level, option, value)
    stranger.send(loopback_address(HERE), right)
    assert arrivals(carrier) == 1
    assert carrier.refused == 0


def test_53_a_notice_of_congestion_is_counted_and_disturbs_nobody(stranger):
    ends = RoceCarrier(loopback_address(1)), RoceCarrier(loopback_address(2))
    try:
        a, b = (Host.over(carrier) for carrier in ends)
        mine, theirs = connect(a, b, (ends[1].gid, ends[0].gid), (ends[0].gid, ends[1].gid))
        b.receive(theirs, 7, 0, 5000)
        a.send(mine, 1, 0, 5000)
        notice = BTH(opcode=Opcode.CNP, m=1, becn=1, dest_qp=mine.number), CNPPadding()
        for _ in range(20):
            stranger.send(loopback_address(1), stranger.datagram(loopback_address(1), notice))
            a.adapter.progress()
            b.adapter.progress()
        assert (a.done(), b.done()) == ([(1, OK)], [(7, OK)])
        assert ends[0].counters["congestion_notices"] == 20
        assert ends[0].refused == 0
    finally:
        for carrier in ends:
            carrier.close()


@pytest.mark.parametrize("up_s", [0.0, 1e6], ids=["just booted", "up for days"])
def test_53_who_sends_marked_packets_is_told_but_not_for_each_of_them(monkeypatch, up_s):
    """At most one notice per interval, even if the machine has just booted and its clock is near 0."""
    monkeypatch.setattr(roce, "time", SimpleNamespace(monotonic=lambda: up_s, time_ns=time.time_ns))
    ends = RoceCarrier(loopback_address(1)), RoceCarrier(loopback_address(2))
    try:
        a, b = (Host.over(carrier) for carrier in ends)
        mine, _ = connect(a, b, (ends[1].gid, ends[0].gid), (ends[0].gid, ends[1].gid))
        ends[0]._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _CONGESTED)
        monkeypatch.setattr("weft.verbs.carriers.roce.carrier.NOTICE_S", 3600.0)
        for number in range(10):
            a.send(mine, number, 0, 100, 0, va=b.at, rkey=b.region.key)  # a WRITE
            for host in (a, b, a):
                host.adapter.progress()
        assert len(a.done()) == 10
        assert ends[1].counters["congestion_notices_sent"] == 1
        assert ends[0].counters["congestion_notices"] == 1
    finally:
        for carrier in ends:
            carrier.close()
