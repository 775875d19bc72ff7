"""Forged traps of a host: none is accepted for another port, and none causes repeated sweeps."""

from __future__ import annotations

import io

import pytest
from tests.sm.conftest import Net

from weft.mad.carrier import Address
from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.inform.traps import requester
from weft.sm.run import SubnetManager
from weft.wire.mad import Method
from weft.wire.notice import BadKeyDetails, BadMKeyDetails, LocalChangesDetails, Notice, NoticeType, Trap
from weft.wire.smp import DirectedSmp, Smp, SmpAttribute


class Attacked:
    """A manager at h1 that has swept, and a hostile program at h5."""

    def __init__(self) -> None:
        self.net = Net("fat-tree:hosts=16,radix=8")
        self.log = Log(io.StringIO(), clock=self.net.clock)
        options = Options(sweep_interval_s=0)
        self.manager = SubnetManager(self.net.carrier, options, log=self.log, clock=self.net.clock)
        self.manager.open()
        while not self.manager.sweeps:
            self.manager.step()
        self.rogue = self.net.at("h5/1")

    def lid(self, name: str) -> int:
        return int(self.net.devices.lid(self.net.fabric[name].slot))

    def forge(self, number: Trap, issuer: str, details: bytes = b"") -> None:
        notice = Notice(
            type=NoticeType.URGENT,
            producer_type=1,
            trap_number=number,
            issuer_lid=self.lid(issuer),
            data_details=details.ljust(54, b"\0"),
        )
        mad = Smp.pack(method=Method.TRAP, attribute_id=SmpAttribute.NOTICE, transaction_id=7, data=notice.raw)
        self.rogue.post(mad, Address(lid=self.lid("h1/1"), qp=0))

    def work(self, seconds: float) -> None:
        until_s = self.net.clock() + seconds
        while self.net.clock() < until_s:
            self.manager.step()


@pytest.fixture(scope="module")
def attacked() -> Attacked:
    return Attacked()


@pytest.mark.parametrize(
    ("number", "issuer", "addressee"),
    [
        (Trap.BAD_P_KEY, "h3/1", "h3/1"),  # for another port
        (Trap.LINK_STATE_CHANGED, "leaf1/0", ""),
        (Trap.LINK_STATE_CHANGED, "h5/1", ""),  # a trap for switches, sent by a host
        (Trap.BAD_SWITCH_P_KEY, "h5/1", ""),
        (Trap.BAD_P_KEY, "h5/1", "h3/1"),  # about a packet that it cannot have received
    ],
)
def test_trap_that_its_sender_cannot_know_of_is_ignored(attacked, number, issuer, addressee):
    details = BadKeyDetails(lid_addr1=attacked.lid("h2/1"), lid_addr2=attacked.lid(addressee)).raw if addressee else b""
    before = attacked.manager.sweeps
    attacked.forge(number, issuer, details)
    attacked.work(0.5)
    assert f"{int(number)} from h5/1 (LID {attacked.lid('h5/1')}) is forged: ignored" in attacked.log.recent[-1]
    assert attacked.manager.sweeps == before


@pytest.mark.parametrize(
    ("method", "attribute"), [(Method.TRAP, SmpAttribute.NODE_INFO), (Method.SEND, SmpAttribute.NOTICE)]
)
def test_only_a_trap_with_a_notice_is_a_trap(attacked, method, attribute):
    details = LocalChangesDetails(lid_addr=attacked.lid("h5/1")).raw.ljust(54, b"\0")
    fields = {"issuer_lid": attacked.lid("h5/1"), "trap_number": Trap.LOCAL_CHANGES, "data_details": details}
    notice = Notice(type=NoticeType.URGENT, producer_type=1, **fields)
    before, lines = attacked.manager.sweeps, len(attacked.log.recent)
    mad = Smp.pack(method=method, attribute_id=attribute, transaction_id=8, data=notice.raw)
    attacked.rogue.post(mad, Address(lid=attacked.lid("h1/1"), qp=0))
    attacked.work(10)
    assert (attacked.manager.sweeps, len(attacked.log.recent)) == (before, lines)


def test_flood_of_traps_causes_few_sweeps(attacked):
    """A port may report a change; for repeated reports the manager sweeps only every five seconds."""
    before, began_s = attacked.manager.sweeps, attacked.net.clock()
    details = LocalChangesDetails(lid_addr=attacked.lid("h5/1")).raw
    for _ in range(500):
        attacked.forge(Trap.LOCAL_CHANGES, "h5/1", details)
        attacked.work(0.06)
    assert 1 <= attacked.manager.sweeps - before <= (attacked.net.clock() - began_s) / 5 + 6


def test_attempt_without_the_m_key_is_traced_along_its_way(attacked):
    """Switches write their input ports into the request, here from h5 to h2 over a spine."""
    devices, fabric = attacked.net.devices, attacked.net.fabric
    h2, hops = fabric["h2/1"].slot, [fabric["h5/1"].peer.slot]
    leaf = devices.node_of[hops[0]]
    up = next(port for port in range(1, 9) if "spine" in str(fabric.port(int(fabric.first_port[leaf]) + port).peer))
    spine = fabric.port(int(fabric.first_port[leaf]) + up).peer
    down = next(
        port for port in range(1, 9) if str(fabric.port(spine.slot - spine.number + port).peer).startswith("leaf1/")
    )
    path = bytes([1, up, down, fabric["h2/1"].peer.number])
    fields = {"hop_count": len(path), "initial_path": b"\0" + path}
    requests = DirectedSmp.pack(method=Method.GET, attribute_id=SmpAttribute.NODE_INFO, **fields)
    attacked.rogue.send(requests)
    entered = devices.directed_paths[fabric["h5/1"].slot, path].entered
    details = BadMKeyDetails(dr_notice=1, dr_hop_count=len(path), dr_notice_return_path=bytes(entered).ljust(30, b"\0"))
    view = attacked.manager.state.view.fabric
    at = requester(view, view[str(fabric.port(h2))].slot, details)
    assert view.port(at).name == "h5/1"
