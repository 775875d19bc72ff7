"""Multicast: receivers, links, VLs and counters are the same hop by hop and in the packet engine.

A subnet manager brings up a fabric with partitions, QoS and faults drawn at random, and hosts join groups. Then
some members send packets to a group, hop by hop as real bytes (`mad.packets`), and as messages of the engine.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

import weft
from weft.fabric.counters import Counter
from weft.fabric.forwarding import matching_key
from weft.fabric.model import Fabric
from weft.fabric.tables import HostPaths
from weft.ids import Lid
from weft.mad import faults
from weft.mad.administrator import join_group
from weft.mad.devices import NONE
from weft.mad.local import LocalCarrier
from weft.mad.packets import DeliveryResult, carry
from weft.scenarios.managed import ManagedSubnet
from weft.sim.engine import Options as RunOptions
from weft.sim.packet.engine import PacketEngine
from weft.sim.packet.plan import plan
from weft.sim.traffic import Operation, Traffic, Transport
from weft.sm.conf.options import Options
from weft.wire.headers import BTH, DETH, GRH, LNH, LRH, Opcode
from weft.wire.packet import Packet
from weft.wire.port_info import PortInfo
from weft.wire.sa import MCMemberRecord

SPECS = [
    "fat-tree:hosts=12,radix=4,levels=3",
    "torus:4x3,hosts=2",
    "dragonfly:p=2,a=4,h=2",
    "star:hosts=5",
]
SIZE_BYTES = 600
FIRST_GROUP = 0xFF12_401B << 96 | 0xFFFF_FFFF  # IPv4's broadcast group, without the P_Key


def is_host(fabric: Fabric, slot: int) -> bool:
    return bool(fabric.tables.switch_row[fabric.ports.node[slot]] < 0)


class Host(LocalCarrier):
    """A host's carrier; the subnet manager in this thread takes a step whenever the host waits for an answer."""

    def __init__(self, net: ManagedSubnet, slot: int) -> None:
        super().__init__(net.subnet, slot, sleep=net.clock.sleep)
        self._net = net

    def poll(self, wait_s: float = 0.0, *, only: int | None = None) -> list[tuple[int, bytes | None]]:
        self._net.manager.step()
        return super().poll(0.0, only=only)


class Running:
    """A managed subnet in which hosts have joined groups."""

    def __init__(self, spec: str, seed: int, folder: Path) -> None:
        self.random = random = Random(seed)
        self.fabric = fabric = weft.load(spec)
        ends = np.flatnonzero(fabric.ports.peer >= 0).tolist()
        self.hosts = [slot for slot in ends if is_host(fabric, slot)]
        conf = folder / "partitions.conf"
        conf.write_text(self._partitions())
        enforce = random.choice(["both", "in", "out", "off"])
        options = Options(partition_config_file=conf, part_enforce=enforce, qos=random.random() < 0.5)
        self.net = ManagedSubnet(fabric, options)
        self.devices = self.net.devices
        between = [slot for slot in ends if slot not in self.hosts and fabric.ports.peer[slot] not in self.hosts]
        self.between = random.sample(between, min(len(between), random.randint(0, 3)))
        if self.between and random.random() < 0.5:  # a fault that the subnet manager detects
            faults.pull_cable(self.devices, self.between.pop())
            self.net.settle()
        self.members: dict[int, MCMemberRecord] = {}  # by slot, for one group at a time

    def _partitions(self) -> str:
        lines = ["Default=0x7fff, ipoib : ALL=full, SELF=full ;"]
        for number in (1, 2):
            named = self.random.sample(self.hosts, self.random.randint(2, len(self.hosts)))
            guids = [f"0x{int(self.fabric.ports.guid[item]):016x}" for item in named]
            members = ", ".join(f"{guid}={self.random.choice(['full', 'full', 'limited'])}" for guid in guids)
            lines.append(f"tenant{number}=0x{number:x}, ipoib, sl={self.random.randint(0, 3)} : {members} ;")
        return "\n".join(lines) + "\n"

    def join(self, mgid: int) -> None:
        self.members = {}
        for slot in self.random.sample(self.hosts, self.random.randint(2, len(self.hosts))):
            info = self.devices.info(slot)
            if not self.devices.is_active(slot):
                continue
            gid = PortInfo.gid_prefix.get(info) << 64 | int(self.fabric.ports.guid[slot])
            carrier = Host(self.net, slot)
            member = join_group(carrier, gid, 0xFFFF, mgid)
            carrier.close()
            if member is not None:
                self.members[slot] = member
        for _ in range(20):  # until it has built the tree
            self.net.manager.step()

    def some(self) -> list[int]:
        """Return a few members, to save time."""
        return list(self.members)[:3]

    def p_key(self, slot: int) -> int:
        """Return the port's P_Key for the group."""
        keys = self.devices.keys(slot)
        return keys[matching_key(keys, self.members[slot].p_key)]

    def by_hop(self, slot: int) -> DeliveryResult:
        member = self.members[slot]
        headers = (
            LRH(slid=self.devices.lid(slot), dlid=member.mlid, sl=member.sl, lnh=LNH.GRH),
            GRH(dgid=member.mgid),
            BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=0xFFFFFF, p_key=self.p_key(slot)),
            DETH(q_key=member.q_key),
        )
        return carry(self.devices, slot, Packet(headers, bytes(SIZE_BYTES)).pack())

    def now(self) -> Fabric:
        """Return a snapshot with its own counters and the members' paths to the group."""
        left = faults.fabric_now(self.devices)
        recorded = list(self.members.items())
        left.tables.paths = HostPaths.of(
            [slot for slot, _ in recorded],
            [member.mlid for _, member in recorded],
            [member.sl for _, member in recorded],
            [self.p_key(slot) for slot, _ in recorded],
            [128 << member.mtu for _, member in recorded],
        )
        return left


def to_group(slots: list[int], mlid: int, size_bytes: int = SIZE_BYTES) -> Traffic:
    return Traffic.make(slots, slots, size_bytes, mlid=mlid, transport=Transport.UD, operation=Operation.SEND)


def counted(counters: np.ndarray) -> np.ndarray:
    """Return the counters without the time."""
    remaining = counters.copy()
    remaining[:, Counter.PORT_XMIT_WAIT] = 0
    return remaining


def assert_the_same(running: Running, slot: int) -> None:
    """Send one packet from one member and compare."""
    counters, mlid = running.fabric.counters, running.members[slot].mlid
    counters[:] = 0
    fate = running.by_hop(slot)
    expected, snapshot = counted(counters), running.now()
    counters[:] = 0
    result = PacketEngine().run(snapshot, to_group([slot], mlid))
    assert result.groups is not None
    used = np.bincount(fate.delivered, minlength=len(running.fabric.ports))
    assert used.tolist() == result.groups.copies.tolist()
    result.write_counters()
    assert counted(counters).tolist() == expected.tolist()
    created = plan(snapshot, to_group([slot], mlid), RunOptions())
    vls = created.trees.branches.queue % int(created.state.run.n_vls[0])
    vl_at = dict(zip(created.trees.slot.tolist(), vls.tolist(), strict=True))
    for end, vl in zip(fate.delivered, fate.vls, strict=True):  # a switch can receive several, on several ports
        assert vl == vl_at.get(end, vl)


@pytest.fixture(params=[(spec, seed) for seed, spec in enumerate(SPECS)], ids=lambda one: f"{one[0]}-{one[1]}")
def running(request, tmp_path) -> Running:
    return Running(*request.param, tmp_path)


def test_every_copy_goes_the_same_way_hop_by_hop_and_in_time(running: Running) -> None:
    joined = 0
    for p_key in (0xFFFF, 0x8001, 0x8002):
        running.join(FIRST_GROUP | p_key << 80)
        joined += len(running.members)
        for slot in running.some():
            assert_the_same(running, slot)
    assert joined


def test_cables_that_broke_before_the_tables_changed_are_counted_the_same(running: Running) -> None:
    running.join(FIRST_GROUP | 0xFFFF << 80)
    for slot in running.between:
        if running.devices.peer(slot) != NONE:
            faults.pull_cable(running.devices, slot)
    for slot in running.some():
        assert_the_same(running, slot)


def test_tables_that_lead_in_circles_end(running: Running) -> None:
    running.join(FIRST_GROUP | 0xFFFF << 80)
    mft = running.devices.tables.mft
    mlid = next(iter(running.members.values())).mlid
    mft[:, mlid - Lid.FIRST_MULTICAST] |= np.random.default_rng(running.random.randint(0, 99)).integers(
        0, 1 << 16, mft[:, 0].shape, np.uint16
    )
    for slot in running.some():
        assert_the_same(running, slot)


def test_all_members_at_once_cross_what_each_crosses_alone(running: Running) -> None:
    running.join(FIRST_GROUP | 0xFFFF << 80)
    counters, slots = running.fabric.counters, running.some()
    mlid = running.members[slots[0]].mlid
    counters[:] = 0
    for slot in slots:
        running.by_hop(slot)
    expected, snapshot = 3 * counted(counters), running.now()
    counters[:] = 0
    options = RunOptions(mtu_bytes=1024)
    result = PacketEngine().run(snapshot, to_group(slots, mlid, 3 * 1024), options)
    result.write_counters()
    for name in ("XMIT_PKTS", "MULTICAST_XMIT_PKTS", "MULTICAST_RCV_PKTS", "UNICAST_XMIT_PKTS", "RCV_PKTS"):
        column = Counter[f"PORT_{name}"]
        assert counters[:, column].tolist() == expected[:, column].tolist(), name
