"""Messages to groups in the packet engine: copies, buffers, losses, and refusals."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.fabric.model import Fabric
from weft.fabric.rates import speed, speeds
from weft.ids import Lid
from weft.mad import faults
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.scenarios.managed import ManagedSubnet
from weft.sim.engine import Network, Options, Paths
from weft.sim.engines import ENGINES
from weft.sim.files import write_traffic
from weft.sim.layout.records import Selection
from weft.sim.packet.engine import Deadlock, PacketEngine
from weft.sim.packet.plan import _choices
from weft.sim.patterns import multicast
from weft.sim.traffic import Operation, Traffic, Transport
from weft.sm.conf.options import Options as SmOptions

MLID = Lid.FIRST_MULTICAST


def running(fabric: Fabric, *ports: str) -> Fabric:
    """Return a routed fabric with a group that has these ports at every switch, set by hand."""
    net = ManagedSubnet(fabric, SmOptions())
    tables = net.devices.tables
    tables.mft = np.zeros((len(tables.lft), 1, 256 // 16), np.uint16)
    for name in ports:
        port = fabric[name]
        number, row = int(fabric.ports.number[port.slot]), tables.switch_row[fabric.ports.node[port.slot]]
        tables.mft[row, 0, number // 16] |= 1 << number % 16
    return faults.fabric_now(net.devices)


def to_group(fabric: Fabric, *senders: str, size_bytes: int = 4096, **columns: object) -> Traffic:
    slots = [fabric[f"{name}/1"].slot for name in senders]
    kind = {"transport": Transport.UD, "operation": Operation.SEND} | columns
    return Traffic.make(slots, slots, size_bytes, mlid=MLID, **kind)


def star(*ports: int) -> Fabric:
    return running(weft.load("star:hosts=4,speed=NDR"), *(f"leaf1/{port}" for port in ports))


def test_copies_leave_all_ports_at_once():
    each, three = star(2), star(2, 3, 4)
    times = [PacketEngine().run(fabric, to_group(fabric, "h1")).last_arrival_ps for fabric in (each, three)]
    assert times[0] == times[1]


def test_a_message_is_as_many_datagrams_as_it_has_packets():
    fabric = star(1, 2, 3)
    result = PacketEngine().run(fabric, to_group(fabric, "h1", size_bytes=10_000))
    assert result.packets == 3
    assert result.report()["copies"] == {"h2/1": 3, "h3/1": 3}
    sent_bytes = result.use.xmit_bytes[fabric["h1/1"].slot]
    headers_bytes = 8 + 40 + 12 + 8 + 4 + 2  # LRH, GRH, BTH, DETH, ICRC, VCRC
    assert sent_bytes == 10_000 + 3 * headers_bytes


def test_the_slowest_member_sets_the_pace_of_all():
    """The input buffer is free when the last copy has left it."""
    fabric = weft.load("star:hosts=4,speed=NDR")
    slower = fabric.links.speed.copy()
    slower[fabric.ports.link[fabric["h4/1"].slot]] = speeds().index(speed("HDR"))
    slow = running(fabric.with_links(replace(fabric.links, speed=slower)), "leaf1/2", "leaf1/3", "leaf1/4")
    message = to_group(slow, "h1", size_bytes=4_000_000)
    fast_ps = PacketEngine().run(star(2, 3, 4), message).last_arrival_ps
    result = PacketEngine().run(slow, message)
    assert 1.9 < result.last_arrival_ps / fast_ps < 2.1
    assert result.use.xmit_wait_ps[fabric["h1/1"].slot] > 0


def test_a_corrupted_copy_is_lost_for_all_members_behind_the_cable():
    fabric = star(2, 3, 4)
    rate = fabric.links.bit_error_rate.copy()
    rate[fabric.ports.link[fabric["h3/1"].slot]] = 1e-6
    bad = fabric.with_links(replace(fabric.links, bit_error_rate=rate))
    result = PacketEngine().run(bad, to_group(bad, "h1", size_bytes=4_096_000))
    copies = result.report()["copies"]
    assert copies["h2/1"] == copies["h4/1"] == 1000
    assert copies["h3/1"] == 1000 - result.use.corrupted_packets.sum() < 1000
    assert not result.done
    before = bad.counters[bad["h3/1"].slot].copy()
    result.write_counters()
    counters = bad.counters[bad["h3/1"].slot] - before
    assert counters[Counter.PORT_MULTICAST_RCV_PKTS] == counters[Counter.PORT_RCV_PKTS] == 1000  # damaged ones too
    assert counters[Counter.PORT_UNICAST_RCV_PKTS] == 0


def test_packets_for_groups_and_for_hosts_share_a_port_fairly():
    fabric = star(2, 3)
    both = [to_group(fabric, "h1", size_bytes=1 << 20), Traffic.of(fabric, [("h4", "h2", 1 << 20)])]
    columns = ("src", "dst", "size_bytes", "transport", "operation", "mlid")
    result = PacketEngine().run(
        fabric, Traffic.make(**{name: np.concatenate([getattr(each, name) for each in both]) for name in columns})
    )
    assert result.done
    assert result.groups is not None
    assert result.groups.copies.sum() == 2 * 256


def test_groups_that_go_round_in_circles_deadlock_by_name():
    ring = weft.load("torus:4,hosts=1")
    switch_ports = [
        port for port in np.flatnonzero(ring.ports.peer >= 0) if ring.tables.switch_row[ring.ports.node[port]] >= 0
    ]
    fabric = running(ring, *(ring.port(int(port)).name for port in switch_ports))
    with pytest.raises(Deadlock, match="a cycle of"):
        PacketEngine().run(
            fabric, to_group(fabric, "h1", "h2", "h3", "h4", size_bytes=4_000_000), Options(buffer_bytes=8192)
        )


@pytest.mark.parametrize("name", ["flow", "analytic"])
def test_other_engines_refuse_and_name_the_one_that_can(name):
    fabric = star(2, 3)
    with pytest.raises(ConfigError, match="use --engine packet"):
        ENGINES[name].run(fabric, to_group(fabric, "h1"))


def test_invalid_options_are_refused(tmp_path):
    fabric = star(2, 3)
    with pytest.raises(ConfigError, match="needs transport UD"):
        PacketEngine().run(fabric, to_group(fabric, "h1", transport=Transport.RC))
    with pytest.raises(ConfigError, match=r"needs a network with a steady state.*no multicast"):
        PacketEngine().run(fabric, to_group(fabric, "h1"), Options(skip_tolerance=0.1))
    with pytest.raises(ConfigError, match="cannot hold multicast"):
        write_traffic(tmp_path / "some.csv", fabric, to_group(fabric, "h1"))
    with pytest.raises(ConfigError, match="weft traffic multicast"):
        multicast(star())
    with pytest.raises(ConfigError, match="--senders must be 1 to 2 \\(members of group 0xc000\\), got 3"):
        multicast(fabric, senders=3)


def test_only_infiniband_has_groups():
    fabric = weft.load("star:hosts=4,speed=400GbE")
    with pytest.raises(ConfigError, match="multicast and reductions are simulated on InfiniBand only, not on roce"):
        PacketEngine().run(fabric, to_group(fabric, "h1"), Options(network=Network.ROCE, paths=Paths.TABLE))


def test_multicast_leaves_adaptive_routing_its_choices():
    """Multicast packets find port 0 at LID 0, and unicast packets the same groups of ports as without multicast."""
    fabric = route(weft.load("fat-tree:hosts=8,radix=4"), RoutingOptions(adaptive=True)).fabric
    alone, beside = (_choices(fabric, Selection.BY_PACKET, copies=copies) for copies in (False, True))
    assert len(alone[3]) > len(fabric.switches)
    for without, with_multicast in zip(alone, beside, strict=True):
        np.testing.assert_array_equal(without, with_multicast)


@pytest.mark.parametrize("ports", [1, 253, 254])
def test_every_lid_has_its_ports_however_many_choices_a_switch_has(ports):
    """With port 0 and two groups 256 choices are the last that fit into a byte."""
    lids = np.arange(ports + 3)
    lft, ar_group = lids[None].astype(np.uint8), np.where(lids > ports, lids - ports - 1, -1)[None]
    ar_ports = np.zeros((2, 255), bool)
    ar_ports[0, [1, 2]] = ar_ports[1, [1, 3, 7]] = True
    numbers = {"port_numbers": 256, "no_route": 255}
    fabric = SimpleNamespace(tables=SimpleNamespace(lft=lft, ar_group=ar_group, ar_ports=ar_ports, **numbers))
    table, first, begins, members = _choices(fabric, Selection.BY_PACKET, copies=False)
    assert len(np.unique(table)) == ports + 3
    choices = first[0] + table[0].astype(int)
    own = [members[begins[choice] : begins[choice + 1]].tolist() for choice in choices]
    assert own == [*([port] for port in range(ports + 1)), [1, 2], [1, 3, 7]]
