"""RoCE v2 between two sockets of this machine."""

from __future__ import annotations

import ctypes
import io
import ipaddress
import random
import socket
import time
from collections.abc import Callable

import pytest
from tests.patience import PATIENCE_S
from tests.verbs.datagrams import Stranger
from tests.verbs.wires import ALL, Host, connect, loopback_address

from weft.errors import ConfigError
from weft.verbs.carriers.roce import carrier as roce
from weft.verbs.carriers.roce import layout
from weft.verbs.carriers.roce.carrier import RoceCarrier, address_of, gid_of
from weft.verbs.carriers.roce.interfaces import mtu_of
from weft.verbs.enums import IBV_SEND_SIGNALED, ibv_wc_status, ibv_wr_opcode
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hardware import present
from weft.verbs.hca.carrier import Arrival
from weft.verbs.hca.segment import Op, Segment, Service
from weft.verbs.hca.work import SendWork
from weft.verbs.shm.memory import Place
from weft.wire.headers import AETH, BTH, Opcode
from weft.wire.pcap import PcapWriter

OK = int(ibv_wc_status.IBV_WC_SUCCESS)
WRITE, READ = ibv_wr_opcode.IBV_WR_RDMA_WRITE, ibv_wr_opcode.IBV_WR_RDMA_READ


@pytest.fixture
def pair():
    carriers = RoceCarrier(loopback_address(1)), RoceCarrier(loopback_address(2))
    yield carriers
    for carrier in carriers:
        carrier.close()


@pytest.fixture
def stranger():
    result = Stranger(loopback_address(9))
    yield result
    result.close()


def ends(pair: tuple[RoceCarrier, RoceCarrier], **settings: int):
    """Return two hosts, and a queue pair of each, connected to each other."""
    a, b = (Host.over(carrier) for carrier in pair)
    return a, b, *connect(a, b, (pair[1].gid, pair[0].gid), (pair[0].gid, pair[1].gid), **settings)


def settle(*hosts: Host) -> None:
    """Run the hosts until they are idle."""
    for _ in range(50):
        for host in hosts:
            host.adapter.progress()


def until_done(asks: Host, answers: Host, seconds: float = PATIENCE_S) -> list[tuple[int, int]]:
    """Run both hosts; return the requester's first completions."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        asks.adapter.progress()
        answers.adapter.progress()
        if done := asks.done():
            return done
    return []


def sent_in_segments(carrier: RoceCarrier) -> list[Segment]:
    """Return the segments that the other end receives, while sending."""
    sent: list[Segment] = []
    send = carrier.send

    def note(segment: Segment, to: object, mtu_bytes: int) -> None:
        sent.append(segment)
        send(segment, to, mtu_bytes)

    carrier.send = note  # type: ignore[method-assign]
    return sent


def test_a_message_of_many_packets_arrives_over_udp(pair):
    a, b, mine, theirs = ends(pair)
    data = random.Random(1).randbytes(20_000)
    a.put(0, data)
    b.receive(theirs, 7, 0, 20_000)
    a.send(mine, 1, 0, 20_000)
    settle(a, b)
    assert b.get(0, 20_000) == data
    assert (a.done(), b.done()) == ([(1, OK)], [(7, OK)])
    assert pair[1].refused == 0


def test_a_read_comes_back(pair):
    a, b, mine, _ = ends(pair)
    b.put(0, random.Random(2).randbytes(5000))
    a.send(mine, 1, 100, 5000, READ, va=b.at, rkey=b.region.key)
    settle(a, b)
    assert a.get(100, 5000) == b.get(0, 5000)


@pytest.mark.parametrize("size", [0, 1, 3, 1023, 1024, 1025, 4096, 64 * 1024, 64 * 1024 + 5, 1_000_001])
@pytest.mark.parametrize("mtu_bytes", [256, 4096])
@pytest.mark.parametrize("opcode", [WRITE, READ])
def test_sizes_around_packets_and_messages_of_the_system(pair, size, mtu_bytes, opcode):
    a, b, mine, _ = ends(pair, mtu_bytes=mtu_bytes, timeout=18)
    source, target = (a, b) if opcode == WRITE else (b, a)
    source.put(0, random.Random(size).randbytes(size))
    a.send(mine, 1, 0, size, opcode, va=b.at, rkey=b.region.key)
    assert until_done(a, b) == [(1, OK)]
    assert target.get(0, size) == source.get(0, size)
    assert target.get(size, 8) == bytes(8)


def test_a_long_read_that_ends_past_the_region_is_an_access_error(pair):
    size = 16 << 20
    a, b, mine, _ = ends(pair, mtu_bytes=4096, timeout=18)
    regions = []
    for host in (a, b):
        memory = bytearray(size)
        at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        regions.append((memory, at, host.adapter.regions.register(host.pd, at, size, ALL)))
    (_, local, own), (_, existing, theirs) = regions
    place, flags = Place(local, size, own.key), IBV_SEND_SIGNALED
    work = SendWork(wr_id=1, opcode=READ, places=(place,), flags=flags, va=existing + 1, rkey=theirs.key)
    mine.post_send(work)
    a.adapter.wake(mine)
    assert until_done(a, b, 60) == [(1, int(ibv_wc_status.IBV_WC_REM_ACCESS_ERR))]


def test_a_long_message_arrives_in_few_runs_each_with_many_packets(pair):
    """244 packets: Python's work is per run, not per packet."""
    a, b, mine, _ = ends(pair, mtu_bytes=4096)
    a.send(mine, 1, 0, 1_000_000, WRITE, va=b.at, rkey=b.region.key)
    a.adapter.progress()
    came = pair[1].receive()
    assert sum(arrival.segment.count for arrival in came) == 245
    assert len(came) == 1
    assert (came[0].segment.first, came[0].segment.last) == (True, True)
    assert len(came[0].segment.payload) == 1_000_000


@pytest.mark.parametrize("op", [Op.SEND, Op.WRITE])
def test_a_run_has_what_its_last_packet_has(pair, op):
    expected = Segment(
        op=op, service=Service.RC, dest_qp=5, psn=1, count=9, solicited=True, ack_request=True, immediate=77,
        va=3, rkey=4, length=9000, payload=bytes(9000),
    )  # fmt: skip
    pair[0].send(expected, (pair[1].gid, pair[0].gid), 1024)
    came = [arrival.segment for arrival in pair[1].receive()]
    assert [(item.first, item.last, item.count, item.solicited, item.ack_request, item.immediate) for item in came] == [
        (True, True, 9, True, True, 77)
    ]


def test_a_part_of_a_message_asks_for_an_acknowledgement_at_its_end(pair):
    part = Segment(op=Op.SEND, service=Service.RC, dest_qp=5, psn=1, count=4, last=False, payload=bytes(4096))
    part.ack_request = True
    pair[0].send(part, (pair[1].gid, pair[0].gid), 1024)
    (came,) = (arrival.segment for arrival in pair[1].receive())
    assert (came.first, came.last, came.count, came.ack_request) == (True, False, 4, True)


def test_runs_end_where_a_packet_is_missing_or_of_another_message(pair, stranger):
    local = loopback_address(1)
    item = Segment(op=Op.SEND, service=Service.RC, dest_qp=5, psn=0xFFFFFE, count=6, payload=bytes(600))
    datagrams = stranger.datagrams(local, item, 100)
    other = stranger.datagrams(local, Segment(op=Op.SEND, service=Service.RC, dest_qp=6, psn=0xFFFFFF), 100)
    for datagram in (*datagrams[:3], *other, datagrams[3], datagrams[5]):
        stranger.send(local, datagram)
    runs = [(arrival.segment.dest_qp, arrival.segment.psn, arrival.segment.count) for arrival in pair[0].receive()]
    assert runs == [(5, 0xFFFFFE, 3), (6, 0xFFFFFF, 1), (5, 1, 1), (5, 3, 1)]


def test_of_packets_that_came_together_only_the_wrong_one_is_dropped(pair, stranger):
    local = loopback_address(1)
    datagrams = [
        stranger.datagram(local, (header,), bytes(1000), identification=number)
        for number, header in enumerate(
            BTH(opcode=opcode, m=1, dest_qp=5, psn=10 + index)
            for index, opcode in enumerate([Opcode.RC_SEND_FIRST] + [Opcode.RC_SEND_MIDDLE] * 4)
        )
    ]
    unit = len(datagrams[0])
    whole = bytearray(b"".join(datagrams))
    whole[2 * unit + 100] ^= 1
    stranger.socket.sendmsg(
        [whole], [(layout.SOL_UDP, layout.UDP_SEGMENT, unit.to_bytes(2, "little"))], 0, (local, 4791)
    )
    came = [(arrival.segment.psn, arrival.segment.count) for arrival in pair[0].receive()]
    assert came == [(10, 2), (13, 2)]
    assert pair[0].refused == 1


@pytest.mark.parametrize(("identification", "is_taken"), [(0, True), (1, True), (77, True), (127, True), (5000, False)])
def test_identifications_that_a_socket_makes_are_found_out(pair, stranger, identification, is_taken):
    """Identifications of hardware are not detected: packets of a trusted sender are then accepted unchecked."""
    headers = BTH(opcode=Opcode.RC_ACKNOWLEDGE, m=1, dest_qp=5), AETH(syndrome=0x1F)
    stranger.send(loopback_address(1), stranger.datagram(loopback_address(1), headers, b"", identification))
    assert len(pair[0].receive()) == is_taken
    trusting = RoceCarrier(loopback_address(3), trusts=True)
    try:
        stranger.send(loopback_address(3), stranger.datagram(loopback_address(3), headers, b"", identification))
        assert len(trusting.receive()) == 1
    finally:
        trusting.close()


def test_a_wrong_icrc_is_dropped_and_counted(pair):
    a, b = pair
    b._socket.sendto(bytes(40), (loopback_address(1), 4791))
    assert a.receive() == []
    assert a.refused == 1


@pytest.mark.parametrize("size", [0, 1, 4, 11, 15, 16, 30])
def test_malformed_packets_are_dropped(pair, size):
    pair[1]._socket.sendto(b"\x04\x00" * size, (loopback_address(1), 4791))
    assert pair[0].receive() == []


def test_ipv6_talks_to_itself():
    try:
        carrier = RoceCarrier("::1")
    except ConfigError:
        pytest.skip("this machine has no IPv6, or ::1 is in use")
    try:
        host = Host.over(carrier)
        way = carrier.gid, carrier.gid
        mine, theirs = connect(host, host, way, way)
        host.put(0, random.Random(1).randbytes(100_000))
        host.receive(theirs, 7, 200_000, 100_000)
        host.send(mine, 1, 0, 100_000)
        settle(host)
        assert sorted(host.done()) == [(1, OK), (7, OK)]
        assert host.get(200_000, 100_000) == host.get(0, 100_000)
        assert carrier.refused == 0
    finally:
        carrier.close()


# -- data in flight ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", [WRITE, READ])
def test_no_more_is_on_its_way_than_the_window(pair, opcode):
    """A message of 16 windows arrives without loss."""
    for carrier in pair:
        carrier.window_bytes = 64 << 10
    a, b, mine, _ = ends(pair, mtu_bytes=1024, timeout=20)
    source, target = (a, b) if opcode == WRITE else (b, a)
    source.put(0, random.Random(3).randbytes(1 << 20))
    sent = sent_in_segments(pair[0] if opcode == WRITE else pair[1])
    a.send(mine, 1, 0, 1 << 20, opcode, va=b.at, rkey=b.region.key)
    a.adapter.progress()
    b.adapter.progress()
    assert 0 < sum(len(item.payload) for item in sent) <= 64 << 10
    assert until_done(a, b) == [(1, OK)]
    assert target.get(0, 1 << 20) == source.get(0, 1 << 20)
    assert sum(len(item.payload) for item in sent) == 1 << 20


def test_the_window_is_no_more_than_the_socket_holds():
    carrier = RoceCarrier(loopback_address(3))
    try:
        held = carrier._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert 2 * carrier.window_bytes <= held
    finally:
        carrier.close()


def test_packets_dropped_by_a_full_socket_are_sent_again(pair):
    """The window assumes the buffer of a normal socket; this one is smaller."""
    pair[1]._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    a, b, mine, _ = ends(pair, mtu_bytes=4096, timeout=10)
    a.put(0, random.Random(4).randbytes(1 << 20))
    a.send(mine, 1, 0, 1 << 20, WRITE, va=b.at, rkey=b.region.key)
    assert until_done(a, b) == [(1, OK)]
    assert b.get(0, 1 << 20) == a.get(0, 1 << 20)


def losing(receive: Callable[[], list[Arrival]], seed: int) -> Callable[[], list[Arrival]]:
    """Return a receive function whose runs lose packets at their start or end, or arrive twice."""
    dice = random.Random(seed)

    def taken() -> list[Arrival]:
        came = []
        for arrival in receive():
            segment, fate = arrival.segment, dice.random()
            if fate < 0.05:
                continue
            if fate < 0.3 and segment.count > 1:
                parts = segment.cut(dice.randrange(1, segment.count), 1024)
                segment = parts[dice.randrange(2)]
            came += [Arrival(segment=segment, source=arrival.source)] * (2 if fate > 0.9 else 1)
        return came

    return taken


@pytest.mark.parametrize("opcode", [WRITE, READ])
@pytest.mark.parametrize("seed", range(5))
def test_a_window_full_of_losses_delivers_all(pair, opcode, seed):
    for carrier in pair:
        carrier.window_bytes = 64 << 10
        carrier.receive = losing(carrier.receive, seed)  # type: ignore[method-assign]
    a, b, mine, _ = ends(pair, mtu_bytes=1024, timeout=8)
    source, target = (a, b) if opcode == WRITE else (b, a)
    source.put(0, random.Random(seed).randbytes(500_000))
    a.send(mine, 1, 0, 500_000, opcode, va=b.at, rkey=b.region.key)
    assert until_done(a, b) == [(1, OK)]
    assert target.get(0, 500_000) == source.get(0, 500_000)


# -- addresses, captures, devices -------------------------------------------------------------------------------------


def test_two_cannot_have_one_address(pair):
    with pytest.raises(ConfigError, match="UDP port 4791"):
        RoceCarrier(loopback_address(1))


def test_a_closed_carrier_sends_and_takes_nothing(pair):
    a, b, mine, _ = ends(pair)
    pair[0].close()
    a.send(mine, 1, 0, 10, WRITE, va=b.at, rkey=b.region.key)
    settle(a, b)
    assert a.done() == []
    assert pair[0].counters["lost"] > 0


def test_gids_are_addresses():
    for text in (loopback_address(1), "fe80::1"):
        address = ipaddress.ip_address(text)
        assert address_of(gid_of(address)) == address


def test_packets_are_as_long_as_the_interface_allows(monkeypatch):
    assert mtu_of(ipaddress.ip_address("127.3.2.1")) == mtu_of(ipaddress.ip_address("127.0.0.1"))
    assert mtu_of(ipaddress.ip_address("192.0.2.200")) is None or mtu_of(ipaddress.ip_address("192.0.2.200")) > 0
    for longest, expected in ((65536, 4096), (9000, 4096), (1500, 1024), (1280, 1024), (None, 4096)):
        monkeypatch.setattr(roce, "mtu_of", lambda _, longest=longest: longest)
        assert roce._mtu(ipaddress.ip_address("10.0.0.1")) == expected


def test_segmented_sends_are_captured_as_packets():
    file = io.BytesIO()
    a, b = RoceCarrier(loopback_address(3), capture=file), RoceCarrier(loopback_address(4))
    try:
        item, other, mine, theirs = ends((a, b))
        frames: list[bytes] = []
        write = PcapWriter.write
        a._pcap.write = lambda frame, time_ps: frames.append(frame) or write(a._pcap, frame, time_ps)
        other.receive(theirs, 1, 0, 5000)
        item.send(mine, 1, 0, 5000)
        settle(item, other)
        assert [len(frame) for frame in frames] == [42 + 12 + 1024 + 4] * 4 + [42 + 12 + 904 + 4, 42 + 12 + 4 + 4]
        assert len(file.getvalue()) == 24 + sum(16 + len(frame) for frame in frames)
    finally:
        a.close()
        b.close()


def test_a_device_that_cannot_be_is_named(monkeypatch):
    monkeypatch.setenv("WEFT_VERBS_ROCE", "nowhere")
    with pytest.raises(PyverbsRDMAError, match="WEFT_VERBS_ROCE=nowhere is no IP address"):
        present()
    monkeypatch.setenv("WEFT_VERBS_ROCE", "192.0.2.77")
    with pytest.raises(PyverbsRDMAError, match=r"cannot listen at 192\.0\.2\.77"):
        present()[0].adapter()
