"""A rolling reboot of all switches under traffic loses no message between pairs that keep a route."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.fabric.forwarding import Reason
from weft.fabric.kinds import NodeKind
from weft.mad import faults
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.many_packets import carry_many
from weft.mad.subnet import Subnet
from weft.sm.run import SubnetManager
from weft.twin.rounds import split_rounds
from weft.wire.headers import BTH, DETH, LRH, Opcode
from weft.wire.packet import Packet

DUMPS = Path(os.environ.get("WEFT_DUMPS", Path(__file__).parents[3] / "shared" / "dumps"))
REAL = DUMPS / "topograph_example.out"
PAIRS = 2000


class Traffic:
    """Messages of random pairs of hosts, sent all at once."""

    def __init__(self, subnet: Subnet, seed: int) -> None:
        self.devices, rng = subnet.devices, random.Random(seed)
        fabric = self.devices.fabric
        hosts = [port.slot for hca in fabric.hcas for port in hca.ports if port.link is not None]
        pairs = [rng.sample(hosts, 2) for _ in range(PAIRS)]
        self.sources = np.array([source for source, _ in pairs])
        self.targets = np.array([target for _, target in pairs])
        raw = [
            Packet(
                (
                    LRH(slid=self.devices.lid(source), dlid=self.devices.lid(target)),
                    BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=7, p_key=0xFFFF),
                    DETH(q_key=1, src_qp=5),
                ),
                b"x" * 64,
            ).pack()
            for source, target in pairs
        ]
        self.rows = np.frombuffer(b"".join(raw), np.uint8).reshape(PAIRS, -1)

    def send(self) -> np.ndarray:
        """Return which messages arrive."""
        result = carry_many(self.devices, self.sources, self.rows)
        return (result.reason == Reason.ARRIVED) & (result.end == self.targets)

    def connected(self) -> np.ndarray:
        """Return the pairs whose ports are up."""
        up = np.array([peer >= 0 for peer in map(self.devices.peer, range(len(self.devices.cable)))])
        return up[self.sources] & up[self.targets]


class Watched(LocalCarrier):
    """A carrier of a subnet manager that sends traffic after each of its batches."""

    traffic: Traffic | None = None
    kept: np.ndarray
    sent = lost = 0

    def exchange(self, mads, to=None, **options):
        answers = super().exchange(mads, to, **options)
        if self.traffic is not None:
            arrived = self.traffic.send()
            self.sent += int(self.kept.sum())
            self.lost += int((self.kept & ~arrived).sum())
        return answers


def reboot_all(path: str, rounds: int) -> tuple[int, int]:
    """Reboot all switches but that of the subnet manager, leaves and spines in turn; return messages sent and lost."""
    clock = ManualClock()
    subnet = Subnet(weft.load(path), clock=clock)
    devices, fabric = subnet.devices, subnet.devices.fabric
    own = next(port.slot for hca in fabric.hcas for port in hca.ports if port.link is not None)
    sent = lost = 0

    def sweep(traffic: Traffic | None, kept: np.ndarray) -> None:
        nonlocal sent, lost
        carrier = Watched(subnet, own, sleep=clock.sleep)
        carrier.traffic, carrier.kept = traffic, kept
        SubnetManager(carrier).run(once=True)
        carrier.close()
        sent, lost = sent + carrier.sent, lost + carrier.lost

    sweep(None, np.zeros(0))
    traffic = Traffic(subnet, seed=1)
    assert traffic.send().all()
    first = devices.node_of[devices.cable[own]]
    has_hosts = {
        devices.node_of[devices.cable[port.slot]] for hca in fabric.hcas for port in hca.ports if port.link is not None
    }
    switches = [
        node for node, kind in enumerate(fabric.nodes.kind.tolist()) if kind == NodeKind.SWITCH and node != first
    ]
    leaves = [fabric.nodes.name[node] for node in switches if node in has_hosts]
    spines = [fabric.nodes.name[node] for node in switches if node not in has_hosts]
    for names in (*split_rounds(leaves, rounds), *split_rounds(spines, min(rounds, len(spines)) if spines else 1)):
        nodes = [fabric.node_index[name] for name in names]
        for node in nodes:
            faults.kill(devices, node)
        kept = traffic.send()
        assert 0 < kept.sum() < PAIRS
        sweep(traffic, kept)
        assert (traffic.send() == traffic.connected()).all()
        for node in nodes:
            faults.revive(devices, node)
        sweep(traffic, traffic.send())
        assert traffic.send().all()
    return sent, lost


def test_a_rolling_reboot_of_a_tree_loses_no_message_between_pairs_that_keep_a_route():
    sent, lost = reboot_all("fat-tree:hosts=64,radix=16", rounds=2)
    assert sent > 10 * PAIRS
    assert lost == 0


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason=f"{REAL} is not there: set WEFT_DUMPS")
def test_a_rolling_reboot_of_a_real_dump_loses_no_message_between_pairs_that_keep_a_route():
    sent, lost = reboot_all(str(REAL), rounds=4)
    assert sent > 100 * PAIRS
    assert lost == 0
