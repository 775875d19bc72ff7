"""Reachability in a lab that weft's own subnet manager partitions: every pair, every key, and the violation counters.

    Red     h2 h3 full, h4 limited, h12 full          Storage   h10 full, all tenants limited
    Blue    h5 full, h6 h7 limited, h12 limited       Default   h1 full, where the subnet manager is; all limited
    Green   h8 full, h9 limited                       h10 is a full member of every tenant's, h11 of none

Expected deliveries follow from the members above, not from the manager's decisions.
"""

from __future__ import annotations

import io
import itertools
import os
import threading
from collections import Counter as Counts
from collections.abc import Iterator
from contextlib import closing
from random import Random

import pytest
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.fabric.counters import Counter
from weft.fabric.forwarding import Reason
from weft.ids import Gid
from weft.lab.lab import Lab
from weft.mad.carrier import Address, ask
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.packets import DeliveryResult
from weft.sm.conf.options import Options
from weft.sm.events import Event, Log
from weft.sm.run import SubnetManager
from weft.wire.headers import BTH, DETH, LRH, Opcode
from weft.wire.mad import Method
from weft.wire.packet import Packet
from weft.wire.port_info import PortInfo
from weft.wire.sa import SA_HEADER_BYTES, PathRecord, SaAttribute, SaMad
from weft.wire.sa_query import component_mask

pytestmark = pytest.mark.interop

HOSTS = [f"h{number}" for number in range(1, 13)]
DEFAULT, RED, BLUE, GREEN, STORAGE = 0x7FFF, 0x10, 0x20, 0x30, 0x40
FULL = 0x8000
TENANTS = {
    RED: {"h2": FULL, "h3": FULL, "h4": 0, "h12": FULL},
    BLUE: {"h5": FULL, "h6": 0, "h7": 0, "h12": 0},
    GREEN: {"h8": FULL, "h9": 0},
}
MEMBERS = {
    DEFAULT: dict.fromkeys(HOSTS, 0) | {"h1": FULL},
    **{p_key: members | {"h10": FULL} for p_key, members in TENANTS.items()},
    STORAGE: dict.fromkeys(sorted(set().union(*TENANTS.values())), 0) | {"h10": FULL},
}
KEYS = {
    host: [p_key | members[host] for p_key, members in MEMBERS.items() if host in members] for host in HOSTS
}  # that a host holds
EVERY_KEY = [p_key | member for p_key in MEMBERS for member in (0, FULL)]
BATCH, BATCHES = 10_000, {"both": 10, "off": 1}  # attempts at a time: MADs wait meanwhile


def partitions_conf(fabric: weft.Fabric) -> str:
    """Return the partitions in OpenSM's grammar."""
    guid = {host: f"0x{int(fabric.ports.guid[fabric[f'{host}/1'].slot]):016x}" for host in HOSTS}
    shared = ", ".join(guid[host] for host in MEMBERS[STORAGE] if host != "h10")
    return f"""# three tenants that share a storage service
Default = 0x7fff, ipoib : ALL, SELF=full ;
Red=0x10, ipoib, defmember=full : {guid["h2"]}, {guid["h3"]},
    {guid["h4"]}=limited, {guid["h12"]} ;
Blue=0x0020 : {guid["h5"]}=full, {guid["h6"]}, {guid["h7"]}=limi, {guid["h12"]}=limited ;
Green=48 : {guid["h8"]}=full, {guid["h9"]} ;
Storage=0x40 : {guid["h10"]}=full, {shared} ;
Red=0x10 : {guid["h10"]}=full ;  Blue=0x20 : {guid["h10"]}=full ;  Green=0x30 : {guid["h10"]}=full ;
"""


class Divided:
    """A lab with the partitions above, and its subnet manager on h1."""

    def __init__(self, folder, enforce: str) -> None:
        self.enforce, self.fabric = enforce, weft.load("fat-tree:hosts=12,radix=8")
        path = folder / "partitions.conf"
        path.write_text(partitions_conf(self.fabric))
        self.lab = Lab(self.fabric, f"matrix-{os.getpid()}-{enforce}")
        self.lab.__enter__()
        self.log = Log(io.StringIO())
        self.carrier = IbsimCarrier("h1", self.lab.sockname)
        options = Options(partition_config_file=path, part_enforce=enforce)
        self.manager = SubnetManager(self.carrier, options, log=self.log)
        self.thread = threading.Thread(target=self.manager.run, daemon=True)
        self.thread.start()
        self.devices = self.lab.subnet.devices
        self.slot = {host: self.fabric[f"{host}/1"].slot for host in HOSTS}
        self.inbox: dict[str, list[bytes]] = {host: [] for host in HOSTS}
        self.wait_for(lambda: self.manager.report is not None)
        self.lid = {host: self.devices.lid(slot) for host, slot in self.slot.items()}
        for host, slot in self.slot.items():
            self.lab.subnet.attach_packets(slot, self.inbox[host].append)

    def close(self) -> None:
        self.manager.stop()
        self.thread.join(timeout=PATIENCE_S)
        self.carrier.close()
        self.lab.stop()

    def wait_for(self, done) -> None:
        wait_until(done, lambda: f"the manager said: {list(self.log.recent)[-5:]}; it")

    def packet(self, sender: str, receiver: str, p_key: int) -> bytes:
        lrh = LRH(slid=self.lid[sender], dlid=self.lid[receiver])
        bth = BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=0x48, p_key=p_key)
        return Packet((lrh, bth, DETH(q_key=0x1B, src_qp=0x47)), f"{sender} to {receiver}".encode()).pack()

    def send(self, sender: str, receiver: str, p_key: int) -> DeliveryResult:
        """Send a packet and return its result, which must agree with the receiver's inbox."""
        raw = self.packet(sender, receiver, p_key)
        fate = self.lab.send_packet(sender, raw)
        assert self.inbox[receiver] == [raw] * len(fate.delivered)
        assert len(fate.delivered) + len(fate.dropped) == 1
        self.inbox[receiver].clear()
        return fate

    def counted(self) -> Counts[str]:
        """Return the refusals so far, by the refusing port."""
        counters = self.fabric.counters
        return Counts(
            inbound=int(counters[:, Counter.PORT_RCV_CONSTRAINT_ERRORS].sum()),
            outbound=int(counters[:, Counter.PORT_XMIT_CONSTRAINT_ERRORS].sum()),
            at_hosts=sum(PortInfo.p_key_violations.get(self.devices.info(slot)) for slot in self.slot.values()),
        )

    def traps(self, number: int) -> list[str]:
        return [line for line in list(self.log.recent) if f" {Event.TRAP} {number} " in line]

    def path(self, carrier: IbsimCarrier, sender: str, receiver: str) -> PathRecord | None:
        """Return the path record as saquery requests it, from the sender."""
        sgid, dgid = (Gid.of(int(self.fabric.ports.guid[self.slot[host]])) for host in (sender, receiver))
        mad = SaMad.pack(
            method=Method.GET,
            attribute_id=SaAttribute.PATH_RECORD,
            component_mask=component_mask(PathRecord, "sgid", "dgid", "numb_path"),
            data=PathRecord(sgid=sgid, dgid=dgid, numb_path=1).raw,
        )
        answer = ask(carrier, mad, Address(self.lid["h1"]), timeout_ms=int(PATIENCE_S * 1000))  # kernels may be new
        assert answer is not None, "the SA does not answer"
        return None if SaMad.status.get(answer) else PathRecord.unpack(answer, SA_HEADER_BYTES)


def takes(receiver: str, p_key: int) -> bool:
    """Return whether the receiver has a matching key: the same partition, and one of the two a full member."""
    return any(key & 0x7FFF == p_key & 0x7FFF and (key | p_key) & FULL for key in KEYS[receiver])


@pytest.fixture(scope="module", params=["both", "off"])
def divided(request, tmp_path_factory) -> Iterator[Divided]:
    result = Divided(tmp_path_factory.mktemp("matrix"), request.param)
    yield result
    result.close()


def test_every_pair_talks_by_exactly_the_keys_that_they_share(divided):
    before, sent, delivered = divided.counted(), 0, 0
    for sender, receiver in itertools.permutations(HOSTS, 2):
        for p_key in KEYS[sender]:
            fate = divided.send(sender, receiver, p_key)
            assert bool(fate.delivered) == takes(receiver, p_key), (sender, receiver, hex(p_key), fate)
            sent += 1
            delivered += len(fate.delivered)
    refused = divided.counted() - before
    assert sent - delivered > 100
    assert refused == ({"outbound": sent - delivered} if divided.enforce == "both" else {"at_hosts": sent - delivered})
    divided.wait_for(lambda: divided.traps(259 if divided.enforce == "both" else 257))
    assert not divided.traps(257 if divided.enforce == "both" else 259)
    assert "does not fit, 0x" in "".join(divided.traps(257) + divided.traps(259))


def test_a_forged_key_passes_only_where_no_switch_looks(divided):
    """A host accepts any packet whose key matches. Only the switch at the forger's port knows the sender's keys."""
    before, sent, delivered = divided.counted(), 0, 0
    for sender, receiver in itertools.permutations(HOSTS, 2):
        for p_key in EVERY_KEY:
            if p_key in KEYS[sender] or p_key | FULL in KEYS[sender]:
                continue
            fate = divided.send(sender, receiver, p_key)
            passes = divided.enforce == "off" and takes(receiver, p_key)
            assert bool(fate.delivered) == passes, (sender, receiver, hex(p_key), fate)
            sent += 1
            delivered += len(fate.delivered)
    refused = divided.counted() - before
    assert refused == ({"inbound": sent} if divided.enforce == "both" else {"at_hosts": sent - delivered})
    assert (delivered == 0) == (divided.enforce == "both")


def test_the_administrator_knows_a_path_exactly_where_packets_arrive(divided):
    for sender in HOSTS:
        with closing(IbsimCarrier(sender, divided.lab.sockname)) as carrier:
            for receiver in HOSTS:
                path = divided.path(carrier, sender, receiver)
                shared = [p_key for p_key in KEYS[sender] if takes(receiver, p_key)]
                assert (path is not None) == bool(shared), (sender, receiver, path)
                if path is not None:
                    assert path.p_key in shared
                    assert (path.slid, path.dlid) == (divided.lid[sender], divided.lid[receiver])


def strangers() -> list[tuple[str, str]]:
    """Return the pairs of hosts that share no tenant's partition."""
    tenants = sorted(set().union(*TENANTS.values()))
    return [
        pair
        for pair in itertools.permutations(tenants, 2)
        if not any(set(pair) <= set(tenant) for tenant in TENANTS.values())
    ]


def test_nothing_crosses_tenants(divided):
    """All hosts of two tenants send with any key, held or forged; without checks in switches, only with held keys."""
    random, before, fates = Random(1), divided.counted(), Counts[Reason]()
    packets = [
        (divided.slot[sender], divided.packet(sender, receiver, p_key))
        for sender, receiver in strangers()
        for p_key in (KEYS[sender] if divided.enforce == "off" else (*EVERY_KEY, 0, FULL))
    ]

    def attempt() -> int:
        delivered = 0
        for slot, raw in random.choices(packets, k=BATCH):
            fate = divided.lab.subnet.send_packet(slot, raw)
            delivered += len(fate.delivered)
            fates.update(drop.reason for drop in fate.dropped)
        return delivered

    batches = BATCHES[divided.enforce]
    assert sum(divided.lab.server.call(attempt) for _ in range(batches)) == 0
    assert not any(divided.inbox.values())
    assert fates.total() == batches * BATCH
    refused = divided.counted() - before
    names = {"inbound": Reason.INBOUND, "outbound": Reason.OUTBOUND, "at_hosts": Reason.P_KEY}
    assert {name: refused[name] for name in names} == {name: fates[reason] for name, reason in names.items()}
    assert refused.total() == batches * BATCH
