"""RoCE v2 between two sockets of this machine."""

from __future__ import annotations

import io
import random

import pytest
from tests.verbs.wires import Host, connect, loopback_address

from weft.errors import ConfigError
from weft.verbs.carriers.roce import RoceCarrier, address_of, gid_of
from weft.verbs.enums import ibv_wc_status, ibv_wr_opcode

OK = int(ibv_wc_status.IBV_WC_SUCCESS)


@pytest.fixture
def pair():
    carriers = RoceCarrier(loopback_address(1)), RoceCarrier(loopback_address(2))
    yield carriers
    for carrier in carriers:
        carrier.close()


def settle(*hosts: Host) -> None:
    """Until both have nothing to do for a while."""
    for _ in range(50):
        for host in hosts:
            host.adapter.progress()


def test_a_message_of_many_packets_arrives_over_udp(pair):
    a, b = (Host.over(carrier) for carrier in pair)
    mine, theirs = connect(a, b, (pair[1].gid, pair[0].gid), (pair[0].gid, pair[1].gid))
    data = random.Random(1).randbytes(20_000)
    a.put(0, data)
    b.receive(theirs, 7, 0, 20_000)
    a.send(mine, 1, 0, 20_000)
    settle(a, b)
    assert b.get(0, 20_000) == data
    assert (a.done(), b.done()) == ([(1, OK)], [(7, OK)])
    assert pair[1].refused == 0


def test_a_read_comes_back(pair):
    a, b = (Host.over(carrier) for carrier in pair)
    mine, _ = connect(a, b, (pair[1].gid, pair[0].gid), (pair[0].gid, pair[1].gid))
    b.put(0, random.Random(2).randbytes(5000))
    a.send(mine, 1, 100, 5000, ibv_wr_opcode.IBV_WR_RDMA_READ, va=b.at, rkey=b.region.key)
    settle(a, b)
    assert a.get(100, 5000) == b.get(0, 5000)


def test_a_wrong_icrc_is_dropped_and_counted(pair):
    a, b = pair
    b._socket.sendto(bytes(40), (loopback_address(1), 4791))
    assert a.receive() == []
    assert a.refused == 1


def test_two_cannot_have_one_address(pair):
    with pytest.raises(ConfigError, match="UDP port 4791"):
        RoceCarrier(loopback_address(1))


def test_gids_are_addresses():
    import ipaddress

    for text in (loopback_address(1), "fe80::1"):
        address = ipaddress.ip_address(text)
        assert address_of(gid_of(address)) == address


def test_what_is_sent_can_be_captured():
    file = io.BytesIO()
    a, b = RoceCarrier(loopback_address(3), capture=file), RoceCarrier(loopback_address(4))
    try:
        one, other = Host.over(a), Host.over(b)
        mine, theirs = connect(one, other, (b.gid, a.gid), (a.gid, b.gid))
        other.receive(theirs, 1, 0, 100)
        one.send(mine, 1, 0, 10)
        settle(one, other)
        assert len(file.getvalue()) > 24
    finally:
        a.close()
        b.close()
