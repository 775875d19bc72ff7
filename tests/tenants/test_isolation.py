"""The proof finds every pair that can talk and should not, and every one that should and cannot."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from tests.tenants.subnets import SMALL, cut, managed, packet

import weft
from weft.errors import ConfigError
from weft.fabric.forwarding import CHECKS, Plane, Reason, walk
from weft.mad import faults
from weft.mad.local import LocalCarrier
from weft.routing.patterns import host_ports
from weft.tenants.drivers.partition_files import write_partitions
from weft.tenants.isolation import _bits, _held, _ways, prove_isolation
from weft.tenants.pair_kernels import FULL, LIMITED
from weft.tenants.partitions import Allocation, Member
from weft.tenants.reading import read_fabric
from weft.wire.headers import LNH, LRH, RWH
from weft.wire.smp import SwitchInfo

SPEC = "fat-tree:hosts=16,radix=8"
RED, BLUE, DISKS = ("h2", "h6", "h10"), ("h3", "h7", "h11", "h15"), ("h4", "h8")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    fabric = weft.load(SPEC)
    allocation = cut(fabric, red=RED, blue=BLUE, storage=DISKS)
    return managed(fabric, allocation, tmp_path_factory.mktemp("sm")), allocation


@pytest.fixture
def net(made):
    """Return the subnet, restoring its keys and cables after each test."""
    net, _ = made
    tables = net.fabric.tables
    keys, infos, lanes = tables.pkey.copy(), tables.port_info.copy(), tables.sl2vl.copy()
    yield net
    tables.pkey[:], tables.port_info[:], tables.sl2vl[:] = keys, infos, lanes


def proof_of(net, allocation, **given):
    return prove_isolation(faults.fabric_now(net.devices), allocation, **given)


def slot(net, host: str) -> int:
    return net.fabric[f"{host}/1"].slot


def before(net, host: str) -> int:
    """Return the switch port at a host's cable."""
    return int(net.fabric.ports.peer[slot(net, host)])


def pairs(found) -> set[tuple[str, str]]:
    return {(item.sender.split("/")[0], item.receiver.split("/")[0]) for item in found}


def test_a_configured_subnet_is_isolated(net, made):
    proof = proof_of(net, made[1])
    assert proof.ok, proof.explain()
    full_with_all = 2 * len(DISKS) * len(RED + BLUE) + len(DISKS) * (len(DISKS) - 1)
    with_manager = 2 * 15
    assert proof.promised == proof.arrive == 3 * 2 + 4 * 3 + full_with_all + with_manager
    assert proof.unguarded == proof.raw == ()
    assert "isolated: 16 ports, 78 of 78 promised pairs arrive" in proof.explain()


def test_the_proof_agrees_with_the_forwarding_model(net, made):
    """All pairs and all P_Keys are compared one by one."""
    net.fabric.tables.pkey[slot(net, "h2"), 5] = 0x8102  # red's host, and its switch, hold blue's key
    net.fabric.tables.pkey[before(net, "h2"), 5] = 0x8102
    proof = proof_of(net, made[1])
    plane, slots = net.devices, host_ports(net.fabric).tolist()
    assert isinstance(plane, Plane)
    can = set()
    for sender, receiver in itertools.permutations(slots, 2):
        for key in {int(key) for key in net.fabric.tables.pkey[sender] if key & 0x7FFF}:
            way = walk(plane, sender, dlid=plane.lid(receiver), sl=0, p_key=key, size_bytes=0)
            if way.reason is Reason.ARRIVED:
                can.add((sender, receiver, key & 0x7FFF))
    assert len(can) == proof.arrive + proof.leak_count
    assert pairs(proof.leaks) == {("h2", far) for far in BLUE} | {(far, "h2") for far in BLUE}
    assert {leak.partition for leak in proof.leaks} == {"blue"}


def test_full_members_of_default_all_reach_each_other(tmp_path):
    net = managed(weft.load("star:hosts=6"), Allocation(), tmp_path)
    messages = Allocation(default_is_full=False)
    proof = proof_of(net, messages)
    assert (proof.is_isolated, proof.leak_count) == (False, 5 * 4)  # all but with the subnet manager
    assert proof_of(net, Allocation()).ok
    assert proof_of(net, Allocation()).explain().startswith("open, as all are full members of Default: 6 ports")
    assert "0xffff (Default): it arrived" in proof.explain()


def test_a_port_without_switch_checks_is_unguarded(net, made):
    net.fabric.tables.port_info[before(net, "h2"), CHECKS] &= 0xF0
    proof = proof_of(net, made[1])
    assert proof.ok
    assert proof.unguarded == proof.raw == ("h2/1",)
    assert "no switch checks the P_Keys of h2/1" in proof.explain()


def test_raw_packets_are_dropped_where_keys_are_checked(net):
    """They have no P_Key: a switch that checks only P_Keys would forward them."""
    raw = LRH.pack(lnh=LNH.RAW, dlid=net.devices.lid(slot(net, "h3")), pkt_len=5) + RWH.pack(ether_type=0x0800)
    fate = net.subnet.send_packet(slot(net, "h2"), raw.ljust(22, b"\0"))
    assert [(drop.slot, drop.reason) for drop in fate.dropped] == [(before(net, "h2"), Reason.INBOUND)]


@pytest.mark.parametrize("key", [0x8102, 0x0102])
def test_keys_that_only_the_switch_port_has_are_a_leak(net, made, key):
    net.fabric.tables.pkey[before(net, "h2"), 7] = key
    proof = proof_of(net, made[1])
    assert pairs(proof.leaks) == {("h2", far) for far in BLUE}
    assert proof.leaks[0].sls == tuple(range(16))


def test_a_leak_counts_even_without_a_route(net, made):
    for at in (slot(net, "h2"), before(net, "h2")):
        net.fabric.tables.pkey[at, 7] = 0x8102
    net.fabric.tables.sl2vl[:] = 15
    proof = proof_of(net, made[1])
    assert pairs(proof.leaks) >= {("h2", far) for far in BLUE}
    assert {leak.sls for leak in proof.leaks} == {()}
    assert all("maps to no VL" in leak.why for leak in proof.leaks)
    assert proof.arrive == 0


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda net: net.fabric.tables.pkey[slot(net, "h2")].__setitem__(slice(1, None), 0), "does not hold the key"),
        (lambda net: net.fabric.tables.pkey[before(net, "h2")].fill(0), "P_Key enforcement drops it"),
        (lambda net: net.fabric.tables.sl2vl.fill(15), "maps to no VL"),
    ],
)
def test_a_cut_is_named_with_its_reason(net, made, spoil, why):
    spoil(net)
    proof = proof_of(net, made[1])
    assert ("h2", "h6") in pairs(proof.cuts)
    assert any(why in item.why for item in proof.cuts)
    assert not proof.ok


def test_two_limited_members_do_not_reach_each_other(net, made):
    """If one of them is made a full member in the devices, this is detected."""
    row = net.fabric.tables.pkey[slot(net, "h2")]
    row[row == 0x0103] = 0x8103
    row = net.fabric.tables.pkey[before(net, "h2")]
    row[row == 0x0103] = 0x8103
    result = pairs(proof_of(net, made[1]).leaks)
    assert result == {("h2", far) for far in (*RED[1:], *BLUE)} | {(far, "h2") for far in (*RED[1:], *BLUE)}


def test_foreign_partitions_are_not_checked(net, made):
    for host in ("h2", "h3"):
        for at in (slot(net, host), before(net, host)):
            net.fabric.tables.pkey[at, 7] = 0x8700
    assert pairs(proof_of(net, made[1]).leaks) == {("h2", "h3"), ("h3", "h2")}
    assert proof_of(net, made[1], foreign_p_keys={0x700}).ok


@pytest.mark.parametrize("leaver", ["h2", "h5"])  # before and after the new member, in the order of ports
def test_old_and_new_holders_of_a_p_key_never_reach_each_other(tmp_path, leaver):
    """They must not communicate before, during or after the change, while tables are written one by one."""
    fabric, comer = weft.load(SMALL), "h3"
    net = managed(fabric, cut(fabric, red=(leaver, "h7")), tmp_path)
    (tmp_path / "partitions.conf").write_text(write_partitions(cut(fabric, red=(comer, "h7"))))
    exchange, met = net.carrier.exchange, []

    def one_by_one(mads, *args, **given):
        answers = []
        for row in range(len(mads)):
            answers.append(exchange(mads[row : row + 1], *args, **given))
            ways = (leaver, comer), (comer, leaver)
            met.extend(net.subnet.send_packet(slot(net, a), packet(fabric, a, b, 0x8101)).delivered for a, b in ways)
        return tuple(np.concatenate(some) for some in zip(*answers, strict=True)) if answers else exchange(mads)

    net.carrier.exchange = one_by_one
    net.manager.reload()
    net.settle()
    net.carrier.exchange = exchange
    assert net.subnet.send_packet(slot(net, comer), packet(fabric, comer, "h7", 0x8101)).delivered
    assert len(met) > 100
    assert not any(met)
    assert proof_of(net, cut(fabric, red=(comer, "h7"))).ok


def test_an_absent_member_is_no_cut(net, made):
    red = made[1].partitions[0x101]
    more = replace(red, members={**red.members, 0xABC: Member()})
    proof = proof_of(net, replace(made[1], partitions={**made[1].partitions, 0x101: more}))
    assert proof.ok
    assert proof.absent == ("0x0000000000000abc",)


def test_a_dropped_service_level_cuts_only_its_partition(net, made):
    from weft.sm.conf.qos_options import QosOptions

    net.fabric.tables.sl2vl[:, 3], net.fabric.tables.sl2vl[:, 2], net.fabric.tables.sl2vl[:, 1] = 15, 1, 15
    partitions = {
        key: replace(item, sl={"red": 3, "blue": 2}.get(item.name, 0)) for key, item in made[1].partitions.items()
    }
    proof = proof_of(net, replace(made[1], partitions=partitions, lanes=QosOptions()))
    assert {item.partition for item in proof.cuts} == {"red"}
    assert (proof.vls["blue"], proof.vls["storage"], proof.vls["red"]) == ((1,), (0,), ())
    assert proof.vls["Default"] == (0,)


def test_a_proof_over_a_carrier_is_the_same(net, made):
    fabric = read_fabric(LocalCarrier(net.subnet, slot(net, "h1"), sleep=net.clock.sleep))
    proof = prove_isolation(fabric, made[1])
    assert proof.ok, proof.explain()
    local = net.fabric.tables
    names = [f"{name}/1" for name in (*RED, *BLUE, *DISKS)]
    assert all((fabric.tables.pkey[fabric[item].slot] == local.pkey[net.fabric[item].slot]).all() for item in names)
    assert sorted(map(bytes, fabric.tables.sl2vl)) == sorted(map(bytes, local.sl2vl))
    lft = [row[1:].tolist() for row in fabric.tables.lft]
    assert sorted(lft) == sorted(row[1 : len(lft[0]) + 1].tolist() for row in local.lft)


def test_lanes_of_service_levels_are_read_over_a_carrier(net):
    lanes = 3 * np.arange(16) % 8
    net.fabric.tables.sl2vl[:] = lanes
    fabric = read_fabric(LocalCarrier(net.subnet, slot(net, "h1"), sleep=net.clock.sleep))
    read = [row for row in fabric.tables.sl2vl if row.any()]  # other rows are of ports without a cable
    assert len(read) > len(fabric.links)
    assert all((row == lanes).all() for row in read)


def test_forwarding_tables_of_several_blocks_are_read_over_a_carrier(tmp_path):
    net = managed(weft.load("fat-tree:hosts=64,radix=16"), Allocation(), tmp_path)
    fabric = read_fabric(LocalCarrier(net.subnet, slot(net, "h1"), sleep=net.clock.sleep))
    ends = int(net.fabric.tables.lid.max()) + 1
    assert ends > 64
    assert sorted(map(bytes, fabric.tables.lft[:, 1:ends])) == sorted(map(bytes, net.fabric.tables.lft[:, 1:ends]))


def test_a_fabric_that_is_not_running_cannot_be_proved():
    with pytest.raises(ConfigError, match="is not running"):
        prove_isolation(weft.load("star:hosts=3"), Allocation())


def test_every_pair_is_counted_when_not_all_are_named(net, made, monkeypatch):
    monkeypatch.setattr("weft.tenants.isolation.MOST_NAMED", 3)
    net.fabric.tables.sl2vl[:] = 15
    proof = proof_of(net, made[1])
    assert (proof.cut_count, len(proof.cuts)) == (78, 3)


def test_empty_entries_of_a_table_and_p_key_0_are_no_membership():
    keys = np.array([[0x8001, 0, 0x8000], [0, 0x0001, 0xFFFF]], np.uint16)
    assert _held(keys).tolist() == [[1, 0, FULL], [1, 1, LIMITED], [0x7FFF, 1, FULL]]


def test_a_leak_lists_the_service_levels_on_which_packets_arrive(net, made):
    for at in (slot(net, "h2"), before(net, "h2")):
        net.fabric.tables.pkey[at, 7] = 0x8102
    net.fabric.tables.sl2vl[:, 3] = net.fabric.tables.sl2vl[:, 7] = 15
    net.fabric.tables.sl2vl[:, 5] = 1
    proof = proof_of(net, made[1])
    assert {leak.sls for leak in proof.leaks} == {tuple(sl for sl in range(16) if sl not in (3, 7))}
    assert {leak.why for leak in proof.leaks} == {"it arrived"}


def test_ways_are_groups_of_service_levels_with_equal_tables():
    fabric = weft.load("star:hosts=2")
    first, groups = _ways(fabric)
    assert (first.tolist(), groups) == ([0], [tuple(range(16))])
    fabric.tables.sl2vl[:] = np.arange(16) % 3
    first, groups = _ways(fabric)
    assert first.tolist() == [0, 1, 2]
    assert groups == [tuple(range(n, 16, 3)) for n in range(3)]


@pytest.mark.parametrize(("mask", "bits"), [(0, ()), (1, (0,)), (0b1010, (1, 3)), (1 << 15, (15,))])
def test_bits_of_a_mask_are_lanes(mask, bits):
    assert _bits(mask) == bits


def test_the_tables_of_each_port_are_read_over_a_carrier(net):
    """Every row differs, so a misplaced row is detected."""
    local, tables = net.fabric, net.fabric.tables
    random = np.random.default_rng(7)
    lanes = tables.sl2vl.copy()
    tables.sl2vl[:] = random.integers(0, 15, lanes.shape)
    fabric = read_fabric(LocalCarrier(net.subnet, slot(net, "h1"), sleep=net.clock.sleep))
    compared = 0
    for name, node in fabric.node_index.items():
        there, ports = local.node_index[name], int(fabric.nodes.n_ports[node]) + 1
        pairs = ports**2 if fabric.tables.switch_row[node] >= 0 else ports
        first, other = int(fabric.tables.first_pair[node]), int(tables.first_pair[there])
        for row in range(pairs):
            read = fabric.tables.sl2vl[first + row]
            if read.any():
                compared += 1
                assert (read == tables.sl2vl[other + row]).all()
    plugged = [int((fabric.ports.peer[fabric.ports.node == node] >= 0).sum()) for node in range(len(fabric.nodes))]
    switches = fabric.tables.switch_row >= 0
    # Port 0 of a switch is active too.
    assert compared == sum((n + 1) ** 2 if is_switch else n for n, is_switch in zip(plugged, switches, strict=True))
    for name, node in fabric.node_index.items():
        if switches[node]:
            info = SwitchInfo.unpack(
                fabric.tables.switch_info[fabric.tables.switch_row[node]].tobytes()[: SwitchInfo.size]
            )
            assert info.linear_fdb_top == 63  # a block
            row, other = fabric.tables.switch_row[node], tables.switch_row[local.node_index[name]]
            width = min(fabric.tables.lft.shape[1], tables.lft.shape[1])
            assert (fabric.tables.lft[row, :width] == tables.lft[other, :width]).all()


def test_each_lane_of_a_path_is_counted(net, made):
    """The last hop to every host is on a lane of its own."""
    tables, ports = net.fabric.tables, net.fabric.ports
    tables.sl2vl[:] = 0
    for node in np.flatnonzero(tables.switch_row >= 0).tolist():
        width = int(net.fabric.nodes.n_ports[node]) + 1
        first, port_0 = int(tables.first_pair[node]), int(net.fabric.first_port[node])
        for number in range(1, width):
            peer = int(ports.peer[port_0 + number])
            if peer >= 0 and tables.switch_row[ports.node[peer]] < 0:
                tables.sl2vl[first + number : first + width**2 : width] = 1
    proof = proof_of(net, made[1])
    assert proof.ok
    assert (proof.vls["red"], proof.vls["Default"]) == ((0, 1), (0, 1))


def test_a_full_key_in_a_ports_own_table_alone_lets_limited_members_reach_it(net, made):
    net.fabric.tables.pkey[slot(net, "h5"), 7] = 0x8103
    proof = proof_of(net, made[1])
    assert pairs(proof.leaks) == {(far, "h5") for far in (*RED, *BLUE, *DISKS)}
    assert {leak.partition for leak in proof.leaks} == {"storage"}
