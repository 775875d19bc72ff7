"""Frames go on shortest paths to the port with their MAC; both ends of each cable count them."""

from __future__ import annotations

from collections import Counter as Tally

import pytest

import weft
from weft.fabric.counters import Counter
from weft.fabric.link_layers import as_ethernet
from weft.mad import faults
from weft.mad.power_up import switch_on
from weft.wire.roce import UDP, Ethernet, EtherType, IPv4, local_mac

SPEC = "fat-tree:hosts=40,server=host-fdr,switch=SX6036"


@pytest.fixture
def devices():
    fabric = weft.load(SPEC)
    hosts = [name for name in fabric.servers or fabric.nodes.name if name.startswith("host")]
    switches = [node.name for node in fabric.switches]
    return switch_on(as_ethernet(fabric, [name for name in switches if name.startswith("spine")] + hosts[1:]))


def ports(devices) -> list[int]:
    return list(devices.ethernet.address)


def frame(devices, start: int, end: int, source_port: int = 0xC000, size_bytes: int = 100) -> bytes:
    own, to = devices.ethernet.address[start], devices.ethernet.address[end]
    ip = IPv4(total_length=size_bytes, source=own, destination=to).with_checksum()
    head = Ethernet.pack(destination=local_mac(to), source=local_mac(own), ether_type=EtherType.IPV4) + ip.raw
    return (head + UDP.pack(source_port=source_port, length=8)).ljust(size_bytes, b"\0")


def far_pair(devices) -> tuple[int, int]:
    """Return two ports on different leaves."""
    first, *others = ports(devices)
    leaf = {slot: devices.node_of[devices.ethernet.far[slot]] for slot in ports(devices)}
    return first, next(slot for slot in others if leaf[slot] != leaf[first])


def test_addresses_are_numbered_in_the_fabrics_order(devices):
    assert [hex(address) for address in list(devices.ethernet.address.values())[:2]] == ["0x7f020001", "0x7f020002"]


def test_a_frame_arrives_unchanged_and_every_port_counts_it(devices):
    start, end = far_pair(devices)
    came: list[bytes] = []
    devices.ethernet.attach(end, came.append)
    sent = frame(devices, start, end, size_bytes=101)
    assert devices.ethernet.send(start, sent) == end
    assert came == [sent]
    out, _ = devices.ethernet.path(start, local_mac(devices.ethernet.address[end]), sent[26:38])
    assert len(out) == 4, "host, leaf, spine, leaf"
    counters = devices.fabric.counters
    for slot in out:
        far = devices.ethernet.far[slot]
        assert counters[slot, [Counter.PORT_XMIT_DATA_WORDS, Counter.PORT_XMIT_PKTS]].tolist() == [26, 1]
        assert counters[far, [Counter.PORT_RCV_DATA_WORDS, Counter.PORT_RCV_PKTS]].tolist() == [26, 1]
    assert counters[:, Counter.PORT_XMIT_PKTS].sum() == 4


def test_flows_spread_over_equal_paths_and_one_flow_stays_on_its_path(devices):
    start, end = far_pair(devices)
    mac = local_mac(devices.ethernet.address[end])

    def spine(source_port: int) -> int:
        out, _ = devices.ethernet.path(start, mac, frame(devices, start, end, source_port)[26:38])
        return devices.node_of[out[2]]

    spines = Tally(spine(0xC000 + number) for number in range(200))
    n_spines = sum(name.startswith("spine") for name in devices.fabric.nodes.name)
    assert n_spines > 1
    assert len(spines) == n_spines
    assert min(spines.values()) > 200 / n_spines / 3
    assert len({spine(0xC000) for _ in range(5)}) == 1


def test_pulled_cables_are_avoided_and_the_last_one_drops(devices):
    start, end = far_pair(devices)
    data = frame(devices, start, end)
    out, _ = devices.ethernet.path(start, local_mac(devices.ethernet.address[end]), data[26:38])
    faults.pull_cable(devices, out[1])
    around, arrived = devices.ethernet.path(start, local_mac(devices.ethernet.address[end]), data[26:38])
    assert (arrived, out[1] in around) == (end, False)
    faults.pull_cable(devices, end)
    assert devices.ethernet.send(start, data) is None
    relay = devices.fabric.counters[:, Counter.PORT_RCV_SWITCH_RELAY_ERRORS]
    assert (relay.sum(), relay[devices.ethernet.far[start]]) == (1, 1)
    assert len(faults.fabric_now(devices).links) == len(devices.fabric.links) - 2
    faults.plug_cable(devices, devices.ethernet.far[end])
    assert devices.ethernet.send(start, data) == end


def test_a_port_that_is_down_discards_its_own_frames(devices):
    start, end = far_pair(devices)
    faults.pull_cable(devices, start)
    assert devices.ethernet.send(start, frame(devices, start, end)) is None
    assert devices.fabric.counters[start, Counter.PORT_XMIT_DISCARDS] == 1


def test_a_dead_switch_carries_nothing_until_it_is_back(devices):
    start, end = far_pair(devices)
    leaf = devices.node_of[devices.ethernet.far[start]]
    faults.kill(devices, leaf)
    assert devices.ethernet.send(start, frame(devices, start, end)) is None
    faults.revive(devices, leaf)
    assert devices.ethernet.send(start, frame(devices, start, end)) == end


def test_infiniband_does_not_see_ethernet_cables(devices):
    assert all(devices.cable[slot] < 0 for slot in devices.ethernet.far)
    assert all(devices.peer(slot) < 0 for slot in devices.ethernet.far)
