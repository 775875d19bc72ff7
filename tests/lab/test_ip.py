"""IPv4 on ports of a lab: addresses, the gateway between both networks, ARP and datagrams of IPoIB."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from tests.lab.rdma import managed, wait_until

import weft
from weft.errors import ConfigError, SubnetError
from weft.fabric.link_layers import as_ethernet
from weft.lab.ip.addresses import ip_ports
from weft.lab.ip.infiniband import InfinibandLink
from weft.lab.ip.interfaces import Interface
from weft.lab.ip.program import _interfaces
from weft.lab.lab import Lab
from weft.mad.power_up import switch_on
from weft.verbs.carriers.lab.carrier import LabCarrier
from weft.verbs.carriers.lab.connection import Line
from weft.verbs.carriers.lab.port_facts import Facts

SPEC = "star:hosts=3,server=dgx-h100+2rails,switch=SX6036"
ONE, TWO = 0x0A010001, 0x0A010002


@pytest.fixture(scope="module")
def devices():
    return switch_on(as_ethernet(weft.load(SPEC), ["dgx2/mlx5_6", "dgx3"]))


def shown(devices, host: str) -> list[tuple[str, bool, str, str]]:
    def text(address: int) -> str:
        return ".".join(map(str, address.to_bytes(4, "big")))

    return [(p.device, p.is_ethernet, text(p.address), text(p.gateway)) for p in ip_ports(devices, host)]


def test_ports_are_numbered_on_each_network_and_know_the_gateway(devices):
    assert shown(devices, "dgx1") == [
        ("mlx5_0", False, "10.1.0.1", "10.1.0.3"),
        ("mlx5_6", False, "10.1.0.2", "10.1.0.3"),
    ]
    assert shown(devices, "dgx3") == [
        ("mlx5_0", True, "10.2.0.2", "10.2.0.1"),
        ("mlx5_6", True, "10.2.0.3", "10.2.0.1"),
    ]


def test_a_host_with_ports_of_both_kinds_is_the_gateway_and_needs_none(devices):
    assert shown(devices, "dgx2") == [
        ("mlx5_0", False, "10.1.0.3", "0.0.0.0"),
        ("mlx5_6", True, "10.2.0.1", "0.0.0.0"),
    ]


def test_interfaces_have_the_mtu_of_their_network_and_one_route_behind_the_gateway(devices):
    assert _interfaces(ip_ports(devices, "dgx1")) == [
        Interface(name="ib0", address=ONE, mtu_bytes=2044, behind=0x0A020000),
        Interface(name="ib1", address=TWO, mtu_bytes=2044),
    ]
    assert [(each.name, each.mtu_bytes, each.behind) for each in _interfaces(ip_ports(devices, "dgx2"))] == [
        ("ib0", 2044, 0),
        ("eth0", 1500, 0),
    ]


def test_without_a_host_of_both_kinds_there_is_no_gateway():
    devices = switch_on(as_ethernet(weft.load(SPEC), ["dgx3"]))
    assert [port.gateway for host in ("dgx1", "dgx3") for port in ip_ports(devices, host)] == [0] * 4


def test_switches_have_no_ip(devices):
    with pytest.raises(ConfigError, match="leaf1 is a switch: --ip is for hosts"):
        ip_ports(devices, "leaf1")


# -- IPoIB ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab():
    with Lab(weft.load("star:hosts=3"), f"ip{time.monotonic_ns() % 10**9}") as up, managed(up):
        yield up


@pytest.fixture
def links(lab):
    with ExitStack() as stack:

        def make(host: str, address: int) -> tuple[InfinibandLink, list[bytes]]:
            line = Line(lab.host(host)["verbs"])
            stack.callback(line.close)
            answer = line.ask("attach", host=host, device="mlx5_0")
            came: list[bytes] = []
            facts = Facts.unpack(bytes.fromhex(answer["facts"]))
            return InfinibandLink(LabCarrier(line, answer["program"], facts, None), address, came.append), came

        yield make


def test_packets_that_wait_for_arp_arrive_in_order_and_later_ones_go_at_once(links):
    (one, _), (two, came) = links("h1", ONE), links("h2", TWO)
    third, others = links("h3", TWO + 1)
    for number in range(3):
        one.send(b"packet %d" % number, TWO)

    def settle() -> bool:
        for link in (two, third, one):
            link.receive(0.01)
        return len(came) >= 3

    wait_until(settle)
    assert came == [b"packet 0", b"packet 1", b"packet 2"]
    one.send(b"more", TWO)
    wait_until(lambda: two.receive(0.01) or len(came) == 4)
    assert others == [], "the third host has the broadcast alone, and does not answer it"


def test_at_most_sixteen_packets_wait_for_an_address_that_nobody_has(links):
    one, _ = links("h1", ONE)
    for number in range(40):
        one.send(b"%d" % number, TWO + 7)
    waiting = one._neighbors[TWO + 7].waiting
    assert waiting == [b"%d" % number for number in range(24, 40)]


def test_a_partition_without_ipoib_has_no_interface(lab, links, monkeypatch):
    monkeypatch.setattr("weft.lab.ip.infiniband.group_of", lambda p_key: 0xFF12_401B_0123 << 80 | 0xFFFF_FFFF)
    with pytest.raises(SubnetError, match="refuses the IPv4 broadcast group"):
        links("h1", ONE)
