"""Routers between two subnets: forwarded and dropped packets, and their counters."""

from __future__ import annotations

import numpy as np
import pytest
from tests.mad.conftest import Bench, suite

from weft.fabric.counters import Counter
from weft.fabric.forwarding import Reason
from weft.fabric.subnets import subnets_of
from weft.mad import faults
from weft.mad.carrier import ask
from weft.mad.routers import walk_global
from weft.wire.crc import vcrc_bytes
from weft.wire.headers import BTH, DETH, GRH, LRH, Opcode
from weft.wire.mad import Method, Status
from weft.wire.notice import Trap
from weft.wire.packet import Link, Packet, icrc_is_right
from weft.wire.port_info import PortInfo
from weft.wire.router import (
    AdjacentRouterLids,
    AdjacentSiteLocalSubnetsTable,
    AdjacentSubnet,
    AdjacentSubnetsRouterLidInfo,
    RouterInfo,
    RouterLidTable,
)
from weft.wire.smp import PERMISSIVE_LID, SmpAttribute, SwitchInfo

P_KEY = 0xFFFF
RELAY_ERRORS = Counter.PORT_RCV_SWITCH_RELAY_ERRORS


@pytest.fixture
def bench():
    """Return two subnets that are up, each with its own prefix and LIDs; routers have all paths at once."""
    bench = Bench("subnets:2,of=star:hosts=2", host="s1-h1").bring_up()
    other = bench.carrier_at(bench.slot_of("s2-h1/1"))
    suite.bring_up(other, suite.discover(other))
    devices = bench.devices
    for part in subnets_of(devices.fabric):
        for slot, number in enumerate(devices.subnet_of):
            if number == part.number and devices.port_info[slot] is not None:
                PortInfo.gid_prefix.set(devices.info(slot), part.prefix)
    devices.routers.watch(devices.traps)
    devices.traps.forget(range(len(devices.cable)))
    devices.fabric.counters[:] = 0
    devices.routers.ask = lambda slot, gid: bench.subnet.learn_neighbor(slot, gid, lid_of(bench, gid), 0)
    return bench


def gid_of(bench: Bench, port: str) -> int:
    slot = bench.slot_of(port)
    return PortInfo.gid_prefix.get(bench.devices.info(slot)) << 64 | int.from_bytes(
        bench.devices.port_guid(slot), "big"
    )


def lid_of(bench: Bench, gid: int) -> int:
    """Return the LID of the port with this GUID, 0 if there is none."""
    guids = bench.devices.fabric.ports.guid
    slots = [slot for slot in range(len(guids)) if int(guids[slot]) == gid & (1 << 64) - 1]
    return bench.devices.lid(slots[0]) if slots else 0


def packet(bench: Bench, to: str | int, *, hop_limit: int = 64, p_key: int = P_KEY) -> bytes:
    """Return a datagram from s1-h1 to a port or a GID by the router's LID."""
    dgid = gid_of(bench, to) if isinstance(to, str) else to
    lrh = LRH(slid=bench.lid("s1-h1"), dlid=bench.devices.lid(bench.slot_of("router1/1")))
    grh = GRH(sgid=gid_of(bench, "s1-h1/1"), dgid=dgid, hop_lmt=hop_limit)
    bth = BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=7, p_key=p_key)
    return Packet((lrh, grh, bth, DETH(q_key=0x1234, src_qp=5)), b"x" * 64).pack()


def drops(bench: Bench, raw: bytes) -> list[tuple[str, Reason]]:
    result = bench.subnet.send_packet(bench.slot, raw)
    assert not result.delivered
    return [(bench.devices.name(drop.slot), drop.reason) for drop in result.dropped]


def relay_errors(bench: Bench, port: str) -> int:
    return int(bench.devices.fabric.counters[bench.slot_of(port), RELAY_ERRORS])


def test_lids_of_both_subnets_are_the_same(bench):
    assert bench.lid("s1-h2") == bench.lid("s2-h2")


def test_packet_gets_a_new_local_route_header_and_a_lower_hop_limit(bench):
    received = []
    end = bench.slot_of("s2-h2/1")
    bench.subnet.attach_packets(end, received.append)
    result = bench.subnet.send_packet(bench.slot, packet(bench, "s2-h2/1"))
    assert result.delivered == (end,)
    (raw,) = received
    out = bench.slot_of("router1/2")
    assert (LRH.slid.get(raw), LRH.dlid.get(raw)) == (bench.devices.lid(out), bench.lid("s2-h2"))
    assert GRH.hop_lmt.get(raw, LRH.size) == 63
    assert icrc_is_right(raw, Link.INFINIBAND)
    counters = bench.devices.fabric.counters
    assert counters[bench.slot_of("router1/1"), Counter.PORT_RCV_PKTS] == 1
    assert counters[out, Counter.PORT_XMIT_PKTS] == 1
    assert not bench.subnet.send_packet(bench.slot, packet(bench, "router1/2")).dropped  # for the router itself


@pytest.mark.parametrize(("hop_limit", "passes"), [(0, False), (1, False), (2, True)])
def test_hop_limit_of_one_is_dropped_and_counted(bench, hop_limit, passes):
    raw = packet(bench, "s2-h1/1", hop_limit=hop_limit)
    if passes:
        assert bench.subnet.send_packet(bench.slot, raw).delivered
    else:
        assert drops(bench, raw) == [("router1/1", Reason.HOP_LIMIT)]
    assert relay_errors(bench, "router1/1") == (not passes)


def test_prefix_of_no_port_and_unknown_destination_are_dropped_and_counted(bench):
    assert drops(bench, packet(bench, 0xFEC0_0000_0000_0009 << 64 | 1)) == [("router1/1", Reason.NO_SUBNET)]
    unknown = gid_of(bench, "s2-h1/1") >> 64 << 64 | 0xABC_0000_0000_0001
    assert drops(bench, packet(bench, unknown)) == [("router1/1", Reason.NO_NEIGHBOR)]
    assert drops(bench, packet(bench, "s1-h2/1")) == [("router1/1", Reason.NO_SUBNET)]  # back to its own subnet
    assert relay_errors(bench, "router1/1") == 3


def test_router_whose_other_port_is_down_drops_and_tells_its_manager(bench):
    raw = packet(bench, "s2-h1/1")
    faults.pull_cable(bench.devices, bench.slot_of("router1/2"))
    assert drops(bench, raw) == [("router1/1", Reason.NO_SUBNET)]
    bench.devices.routers.watch(bench.devices.traps)
    ends = {(key[0], key[1]) for key in bench.devices.traps.pending}
    assert (bench.slot_of("router1/1"), Trap.LOCAL_CHANGES) in ends


@pytest.mark.parametrize("port", ["router1/1", "router1/2", "s2-h1/1"])
def test_p_key_is_needed_at_both_ports_of_the_router_and_at_the_end(bench, port):
    keys = bench.devices.tables.pkey
    for name in ("s1-h1/1", "router1/1", "router1/2", "s2-h1/1"):
        keys[bench.slot_of(name), 1] = 0x8010
    raw = packet(bench, "s2-h1/1", p_key=0x8010)
    assert bench.subnet.send_packet(bench.slot, raw).delivered
    keys[bench.slot_of(port), 1] = 0
    assert drops(bench, raw) == [(port, Reason.P_KEY)]
    assert PortInfo.p_key_violations.get(bench.devices.info(bench.slot_of(port))) == 1


def test_packets_wait_until_the_administrator_answers(bench):
    asked, received = [], []
    bench.devices.routers.ask = lambda slot, gid: asked.append((slot, gid))
    bench.subnet.attach_packets(bench.slot_of("s2-h1/1"), received.append)
    raw, out, gid = packet(bench, "s2-h1/1"), bench.slot_of("router1/2"), gid_of(bench, "s2-h1/1")
    for _ in range(2):
        assert drops(bench, raw) == [("router1/2", Reason.NOT_RESOLVED)]
    assert asked == [(out, gid)]
    bench.subnet.learn_neighbor(out, gid, bench.lid("s2-h1"), 0)
    assert len(received) == 2
    assert relay_errors(bench, "router1/1") == 0


def test_old_answer_is_used_while_it_is_asked_for_again(bench):
    raw = packet(bench, "s2-h1/1")
    assert bench.subnet.send_packet(bench.slot, raw).delivered
    asked = []
    bench.devices.routers.ask = lambda slot, gid: asked.append(gid)
    bench.clock.sleep(10)
    for _ in range(2):
        assert bench.subnet.send_packet(bench.slot, raw).delivered
    assert len(asked) == 1


def test_alias_gid_names_its_lid(bench):
    bench.devices.routers.ask = lambda slot, gid: pytest.fail("the LID is in the GID")
    prefix = gid_of(bench, "s2-h2/1") >> 64
    result = bench.subnet.send_packet(bench.slot, packet(bench, prefix << 64 | bench.lid("s2-h2")))
    assert result.delivered == (bench.slot_of("s2-h2/1"),)


def test_walk_takes_the_path_of_a_packet(bench):
    end, dlid = bench.slot_of("s2-h2/1"), bench.devices.lid(bench.slot_of("router1/1"))
    common = {"dlid": dlid, "sl": 0, "p_key": P_KEY, "size_bytes": 256}
    way = walk_global(bench.devices, bench.slot, dgid=gid_of(bench, "s2-h2/1"), hop_limit=64, **common)
    assert (way.path.end, way.path.reason) == (end, Reason.ARRIVED)
    assert (way.slid, way.hop_limit) == (bench.devices.lid(bench.slot_of("router1/2")), 63)
    assert [bench.devices.name(slot) for slot in way.path.out] == ["s1-h1/1", "s1-leaf1/3", "router1/2", "s2-leaf1/2"]
    assert walk_global(bench.devices, bench.slot, dgid=-1, hop_limit=0, **common).path.reason is Reason.NO_SUBNET


def test_mads_do_not_cross_a_router(bench):
    """A directed SMP through the router, and a MAD by a LID, end in the subnet."""
    path = suite.smp(bytes((1, 3, 2)), 1, 0x11)
    assert bench.subnet.send(bench.slot, bytearray(path), PERMISSIVE_LID) is None
    assert bench.subnet.lost


def test_router_describes_adjacent_subnets(bench):
    status, data = bench.ask((1, 3), 1, SmpAttribute.ROUTER_INFO)
    info = RouterInfo.unpack(data)
    assert (status, info.adjacent_subnets_top, info.adjacent_subnets_cap, info.next_hop_table_cap) == (0, 1, 5, 0)
    status, data = bench.ask((1, 3), 1, SmpAttribute.ADJACENT_SITE_LOCAL_SUBNETS_TABLE)
    first, second, *_ = AdjacentSiteLocalSubnetsTable.unpack(data).subnet
    assert (first.subnet_prefix, first.p_key, first.master_sm_lid) == (2, P_KEY, bench.lid("s2-h1"))
    assert second == AdjacentSubnet()
    assert bench.ask((1,), 1, SmpAttribute.ROUTER_INFO)[0] == Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    faults.pull_cable(bench.devices, bench.slot_of("router1/2"))
    assert RouterInfo.unpack(bench.ask((1, 3), 1, SmpAttribute.ROUTER_INFO)[1]).adjacent_subnets_top == 0


def floating(bench: Bench, port: int, everywhere: tuple[int, int], local: tuple[int, int], flids: tuple[int, ...]):
    """Set ranges and enabled floating LIDs of a router port, one Set for each attribute; return the status."""
    path = (1, 3) if port == 1 else ()
    carrier = bench.carrier if port == 1 else bench.carrier_at(bench.slot_of("router1/2"))
    names = ("global_router_lid_base", "global_router_lid_top", "local_router_lid_base", "local_router_lid_top")
    info = RouterInfo(**dict(zip(names, (*everywhere, *local), strict=True)))
    mad = suite.smp(bytes(path), Method.SET, SmpAttribute.ROUTER_INFO, 0, info.raw)
    status = suite.status_of(ask(carrier, mad, timeout_ms=10, retries=0))
    for block in range(96):
        bits = sum(1 << 511 - flid % 512 for flid in flids if flid // 512 == block)
        if bits:
            data = RouterLidTable(enabled=bits).raw
            mad = suite.smp(bytes(path), Method.SET, SmpAttribute.ROUTER_LID_TABLE, block, data)
            assert suite.status_of(ask(carrier, mad, timeout_ms=10, retries=0)) == 0
    return status


def test_router_shows_the_floating_lids_of_an_adjacent_subnet(bench):
    watched = bench.devices.traps.pending
    assert floating(bench, 1, (1000, 2999), (1000, 1999), ()) == 0
    assert floating(bench, 2, (1000, 2999), (2000, 2999), (2000, 2047, 2048, 1500)) == 0  # 1500 is outside its range
    bench.devices.routers.watch(bench.devices.traps)
    assert {key[0] for key in watched} >= {bench.slot_of("router1/1")}
    info = RouterInfo.unpack(bench.ask((1, 3), 1, SmpAttribute.ROUTER_INFO)[1])
    assert (info.global_router_lid_base, info.global_router_lid_top, info.local_router_lid_top) == (1000, 2999, 1999)
    assert info.adjacent_router_lid_top == 1
    status, data = bench.ask((1, 3), 1, SmpAttribute.ADJACENT_SUBNETS_ROUTER_LID_INFO)
    first, second, *_ = AdjacentSubnetsRouterLidInfo.unpack(data).subnet
    assert (status, first.subnet_prefix, first.first, first.last) == (0, 2, 2000, 2999)
    assert second == AdjacentRouterLids()
    blocks = [RouterLidTable.unpack(bench.ask((1, 3), 1, SmpAttribute.ROUTER_LID_TABLE, at)[1]) for at in (2, 3, 4)]
    assert [block.enabled for block in blocks] == [0, 1 << 511 - 2000 % 512 | 1 << 511 - 2047 % 512, 1 << 511]
    assert bench.ask((1, 3), 1, SmpAttribute.ROUTER_LID_TABLE, 96)[0] == Status.INVALID_FIELD
    assert bench.ask((1,), 1, SmpAttribute.ROUTER_LID_TABLE)[0] == Status.METHOD_ATTRIBUTE_NOT_SUPPORTED


@pytest.mark.parametrize(
    ("everywhere", "local"),
    [((1000, 999), (0, 0)), ((1000, 0xC000), (0, 0)), ((1000, 1999), (900, 1100)), ((0, 0), (1000, 1000))],
)
def test_router_refuses_ranges_that_are_not_within_each_other(bench, everywhere, local):
    assert floating(bench, 1, everywhere, local, ()) == Status.INVALID_FIELD
    assert RouterInfo.unpack(bench.ask((1, 3), 1, SmpAttribute.ROUTER_INFO)[1]).global_router_lid_base == 0


def test_packet_for_an_enabled_floating_lid_is_taken_by_the_router(bench):
    floating(bench, 2, (1000, 2999), (2000, 2999), (2001,))
    leaf, router = bench.slot_of("s1-leaf1/3"), bench.devices.routers
    tables = bench.devices.tables
    tables.lft = np.pad(tables.lft, ((0, 0), (0, 3000)), constant_values=255)
    tables.lft[:, 2001:2003] = 3
    SwitchInfo.linear_fdb_top.set(bench.devices.switch_info[bench.devices.node_of[leaf]], 2999)
    prefix = 0xFEC0_0000_0000_0002 | 2001 << 16
    raw = bytearray(packet(bench, prefix << 64 | bench.lid("s2-h2"))[:-2])
    for dlid, delivered in ((2001, (bench.slot_of("s2-h2/1"),)), (2002, ())):
        LRH.dlid.set(raw, dlid)
        assert bench.subnet.send_packet(bench.slot, bytes(raw) + vcrc_bytes(raw)).delivered == delivered
    assert router.takes(bench.slot_of("router1/1"), 2001)
    assert not router.takes(bench.slot_of("router1/2"), 2001)  # its own port leads there
    faults.pull_cable(bench.devices, bench.slot_of("router1/2"))
    assert not router.takes(bench.slot_of("router1/1"), 2001)
