"""The master subnet manager as a monitor finds it."""

from __future__ import annotations

import pytest
from tests.monitor.watched import Watched

from weft.mad.carrier import Address
from weft.mad.walk import DATA
from weft.monitor.watch import Manager, find_manager
from weft.wire.mad import MadHeader
from weft.wire.port_info import PortInfo
from weft.wire.smp import SMInfo, Smp, SmpAttribute, SMState

GUID = 0x0002C90300000101


class Answering:
    """A carrier on which the port that is asked for its SMInfo has a subnet manager, or answers with a status."""

    def __init__(self, carrier, status: int = 0) -> None:
        self.carrier, self.status, self.asked = carrier, status, Address(0)

    def send(self, mad, to, **how):
        self.asked = to if MadHeader.attribute_id.get(mad) == SmpAttribute.SM_INFO else None
        return self.carrier.send(mad, to, **how) if self.asked is None else 0

    def poll(self, *args, **how):
        if self.asked is None:
            return self.carrier.poll(*args, **how)
        info = SMInfo.pack(guid=GUID, priority=5, act_count=9, sm_state=SMState.MASTER)
        answer = bytearray(Smp.pack(attribute_id=SmpAttribute.SM_INFO, status=self.status))
        answer[DATA : DATA + len(info)] = info
        return [(0, bytes(answer))]


@pytest.fixture(scope="module")
def watched() -> Watched:
    return Watched()


def test_the_master_is_asked_at_the_lid_that_ports_know(watched):
    carrier = Answering(watched.carrier.carrier)
    reading = watched.poller.poll()
    lid = int(watched.fabric.tables.lid[watched.slot("h1/1")])
    assert find_manager(carrier, reading) == Manager(
        node="h1", guid=GUID, lid=lid, priority=5, state=int(SMState.MASTER), activity=9
    )
    assert carrier.asked == Address(lid)


def test_a_port_that_refuses_or_does_not_answer_is_no_manager(watched):
    reading = watched.poller.poll()
    assert find_manager(Answering(watched.carrier.carrier, status=0x0C), reading) is None
    assert find_manager(watched.carrier.carrier, reading) is None


def test_ports_that_know_no_master_have_no_manager(watched):
    reading = watched.poller.poll()
    for port_info in watched.fabric.tables.port_info:
        PortInfo.master_sm_lid.set(port_info, 0)
    assert find_manager(Answering(watched.carrier.carrier), reading) is None
