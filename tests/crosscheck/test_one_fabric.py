"""One fabric: who reaches whom, on which VLs, with what counters, is the same whoever is asked.

A subnet manager brings up a fabric with partitions, QoS and faults drawn at random. Then the subnet administrator,
packets hop by hop, the way that an adapter writes along, the packet engine, the flow engine and `weft check` are asked
of every pair of hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pytest

import weft
from weft.fabric.counters import Counter
from weft.fabric.forwarding import ANY, Reason, walk
from weft.fabric.kernels.forwarding import arrays, walk_all
from weft.fabric.model import Fabric
from weft.fabric.paths import HostPaths
from weft.lab.lanes import clean_way
from weft.mad import faults
from weft.mad.carrier import Address
from weft.mad.devices import NONE
from weft.mad.host_paths import ask_paths, known
from weft.mad.local import LocalCarrier
from weft.mad.packets import carry
from weft.routing.check import check
from weft.scenarios.managed import ManagedSubnet
from weft.sim.engine import Options as RunOptions
from weft.sim.engines import find_engine
from weft.sim.packet.plan import plan
from weft.sim.traffic import Traffic, Transport
from weft.sm.options import Options
from weft.wire.headers import BTH, LRH, RETH, Opcode
from weft.wire.packet import Packet
from weft.wire.port_info import PortInfo

SPECS = [
    "fat-tree:hosts=12,radix=4,levels=3",
    "torus:5x5",
    "torus:6x5,hosts=2",
    "dragonfly:p=2,a=4,h=2",
    "hyperx:3x3,hosts=2",
    "star:hosts=5",
]
SIZE_BYTES = 600
WORDS, PACKETS = Counter.PORT_XMIT_DATA_WORDS, Counter.PORT_XMIT_PKTS


@dataclass
class Running:
    """A managed subnet, and what hangs together in it."""

    net: ManagedSubnet
    left: Fabric
    slots: dict[int, int]  # of hosts that are left: slot in `left` -> in the devices

    @property
    def paths(self) -> HostPaths:
        assert self.left.tables.paths is not None
        return self.left.tables.paths

    def pairs(self) -> list[tuple[int, int]]:
        return [(a, b) for a in self.slots for b in self.slots if a != b]


def partitions(fabric: Fabric, hosts: list[int], random: Random) -> str:
    """Up to three tenants beside the default partition, in which all but the manager are limited."""
    lines = ["Default=0x7fff, ipoib : ALL, SELF=full ;"]
    for number in range(random.randint(0, 3)):
        members = random.sample(hosts, random.randint(1, len(hosts)))
        guids = [f"0x{int(fabric.ports.guid[one]):016x}" for one in members]
        named = ", ".join(f"{guid}={random.choice(['full', 'limited'])}" for guid in guids)
        lines.append(f"tenant{number}=0x{0x10 + number:x}, sl={random.randint(0, 3)} : {named} ;")
    return "\n".join(lines) + "\n"


def bring_up(spec: str, seed: int, folder: Path) -> Running:
    random = Random(seed)
    fabric = weft.load(spec)
    hosts = [slot for slot in range(len(fabric.ports)) if fabric.ports.number[slot] and is_host(fabric, slot)]
    conf = folder / "partitions.conf"
    conf.write_text(partitions(fabric, hosts, random))
    enforce = random.choice(["both", "in", "out", "off"])
    net = ManagedSubnet(fabric, Options(partition_config_file=conf, part_enforce=enforce, qos=random.random() < 0.5))
    between = [s for s in range(len(fabric.ports)) if net.devices.cable[s] != NONE and not is_host(fabric, s)]
    between = [s for s in between if not is_host(fabric, net.devices.cable[s])]
    for slot in random.sample(between, min(len(between), random.randint(0, 2))):
        if net.devices.peer(slot) != NONE:
            faults.pull_cable(net.devices, slot)
            net.settle()
    left, _ = net.connected()
    by_guid = {int(fabric.ports.guid[slot]): slot for slot in hosts}
    here = [slot for slot in np.flatnonzero(left.ports.peer >= 0).tolist() if is_host(left, slot)]
    slots = {slot: by_guid[int(left.ports.guid[slot])] for slot in here}
    left.tables.paths = learn_paths(net, slots)
    return Running(net, left, slots)


def learn_paths(net: ManagedSubnet, slots: dict[int, int]) -> HostPaths:
    """What each host hears when it asks."""
    told: list[np.ndarray] = []
    for slot in slots.values():
        info = net.devices.info(slot)
        sgid = PortInfo.gid_prefix.get(info) << 64 | int(net.fabric.ports.guid[slot])
        carrier = LocalCarrier(net.subnet, slot, sleep=net.clock.sleep)
        sm = Address(PortInfo.master_sm_lid.get(info))
        told.append(ask_paths(carrier, sm, sgid, meanwhile=net.manager.step))
        carrier.close()
    return known(np.repeat(list(slots), list(map(len, told))), np.concatenate(told))


def is_host(fabric: Fabric, slot: int) -> bool:
    return bool(fabric.tables.switch_row[fabric.ports.node[slot]] < 0)


def packet(devices, source: int, dlid: int, sl: int, p_key: int) -> bytes:
    lrh = LRH(slid=devices.lid(source), dlid=dlid, sl=sl)
    bth = BTH(opcode=Opcode.UC_RDMA_WRITE_ONLY, dest_qp=0x48, p_key=p_key)
    return Packet((lrh, bth, RETH(dma_len=SIZE_BYTES)), bytes(SIZE_BYTES)).pack()


@pytest.fixture(params=[(spec, seed) for spec in SPECS for seed in range(3)], ids=lambda one: f"{one[0]}-{one[1]}")
def running(request, tmp_path) -> Running:
    return bring_up(*request.param, tmp_path)


def test_every_view_of_the_fabric_is_of_the_same_fabric(running: Running) -> None:
    devices, left, paths = running.net.devices, running.left, running.paths
    lid = left.tables.lid
    told = [(a, b, int(row)) for a, b in running.pairs() if (row := paths.find(a, lid[b])) >= 0]
    out_of: dict[tuple[int, int], tuple[int, ...]] = {}
    for a, b, row in told:  # hop by hop, as a packet and as the way that an adapter writes along
        source, sl, p_key = running.slots[a], int(paths.sl[row]), int(paths.p_key[row])
        before = devices.fabric.counters[:, PACKETS].copy()
        fate = carry(devices, source, packet(devices, source, int(lid[b]), sl, p_key))
        assert fate.delivered == (running.slots[b],)
        crossed = np.flatnonzero(devices.fabric.counters[:, PACKETS] - before).tolist()
        way = clean_way(devices, source, int(lid[b]), sl, p_key, int(paths.mtu_bytes[row]))
        assert way is not None
        assert sorted(way.out) == crossed
        assert way.vls[-1] == fate.vls[0]
        out_of[a, b] = way.out
    for a, b in set(running.pairs()) - out_of.keys():  # whom no path leads to, no key of the sender reaches
        source = running.slots[a]
        for p_key in {key for key in devices.keys(source) if key}:
            path = walk(devices, source, dlid=int(lid[b]), sl=0, p_key=p_key, size_bytes=256)
            assert path.reason is not Reason.ARRIVED
    _assert_engines_agree(running, told, out_of)
    verdict = check(left, hosts_only=True)
    every = np.array([(a, int(lid[b]), 0, ANY, 64) for a, b in running.pairs()])
    if not left.tables.path_sl.any():  # all take SL 0
        reached = (walk_all(arrays(left), every).reason == Reason.ARRIVED).sum()
        assert verdict.arrived == reached


def _assert_engines_agree(running: Running, told: list, out_of: dict[tuple[int, int], tuple[int, ...]]) -> None:
    """Each pair by itself and all together: the ports that the engines count at are those of the packets."""
    left, both = running.left, [(a, b) for a, b, _ in told if (b, a) in out_of]
    if not both:
        return
    src, dst = np.array(both).T
    traffic = Traffic.make(src, dst, SIZE_BYTES, transport=Transport.UC)
    row = running.paths.find(src, left.tables.lid[dst])
    assert plan(left, traffic, RunOptions()).posting.messages.sl.tolist() == running.paths.sl[row].tolist()
    expected = np.zeros(len(left.ports), np.int64)
    name_of = running.net.fabric.port
    for pair in both:
        for slot in out_of[pair]:
            expected[left.find_port(name_of(slot).name).slot] += 1
    for name in ("packet", "flow"):
        left.counters[:] = 0
        result = find_engine(name).run(left, traffic)
        assert result.report()["delivered"] == len(both), name
        result.write_counters()
        assert left.counters[:, PACKETS].tolist() == expected.tolist(), name
    words = LRH.size + BTH.size + RETH.size + SIZE_BYTES + 4
    assert left.counters[:, WORDS].tolist() == (expected * (words // 4)).tolist()
