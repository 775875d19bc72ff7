"""The kernel's tasks for programs: timeouts, retries, delivery. Functions stand in for the programs."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

import pytest

import weft
from weft.lab.agents import Agent, Agents
from weft.mad import faults
from weft.mad.local import ManualClock
from weft.mad.subnet import Arrival, Subnet
from weft.wire.mad import Mad, Method, MgmtClass
from weft.wire.smp import DirectedSmp, NodeInfo, SmpAttribute

LID = 0xFFFF


@dataclass
class Program:
    """An agent and the MADs delivered to it."""

    agents: Agents
    slot: int
    got: list[tuple[bytes, int, int]] = field(default_factory=list)

    def register(self, mgmt_class: int, *methods: int, oui: int = 0) -> Agent:
        requests = Agent(
            slot=self.slot,
            push=lambda *given: self.got.append(given),
            mgmt_class=mgmt_class,
            version=1,
            methods=sum(1 << method for method in methods),
            oui=oui,
            does_rmpp=False,
        )
        return self.agents.register(requests)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def agents(clock) -> Agents:
    return Agents(Subnet(weft.load("fat-tree:hosts=8,radix=8"), clock=clock), clock)


def slot(agents: Agents, port: str) -> int:
    return agents.subnet.devices.fabric.find_port(port).slot


def smp(*path: int) -> bytes:
    return DirectedSmp.pack(
        method=Method.GET,
        attribute_id=SmpAttribute.NODE_INFO,
        hop_count=len(path),
        initial_path=bytes([0, *path]),
        transaction_id=0x1122_3344_5566_7788,
    )


def test_an_answer_finds_its_agent_and_nobody_else(agents):
    local = slot(agents, "h1/1")
    asks, beside = Program(agents, local), Program(agents, local)
    agent = asks.register(MgmtClass.SUBN_DIRECTED_ROUTE)
    beside.register(MgmtClass.SUBN_DIRECTED_ROUTE)
    agents.send(agent, smp(1), LID, 100, 0)
    ((answer, _, status, _),) = asks.got
    assert status == 0
    assert NodeInfo.unpack(answer, 64).num_ports == 8
    assert Mad.transaction_id.get(answer) & 0xFFFF_FFFF == 0x5566_7788  # the lower half is the program's
    assert not beside.got


def test_lost_mad_is_sent_again_and_then_times_out(agents, clock):
    devices = agents.subnet.devices
    faults.pull_cable(devices, slot(agents, "h2/1"))
    sent = []
    real, agents.subnet.send = agents.subnet.send, lambda *given: sent.append(clock()) or real(*given)
    asks = Program(agents, slot(agents, "h1/1"))
    agents.send(asks.register(MgmtClass.SUBN_DIRECTED_ROUTE), smp(1, 2), LID, 100, 2)
    while not asks.got and len(sent) < 10:
        clock.now_s = agents.next_deadline_s()
        agents.on_timer()
    assert sent == pytest.approx([0.0, 0.1, 0.2])
    ((back, _, status, _),) = asks.got
    assert (status, len(back)) == (errno.ETIMEDOUT, 24)
    assert clock() == pytest.approx(0.3)
    assert agents.next_deadline_s() is None


def test_requests_go_to_who_registered_for_class_method_and_vendor(agents):
    local = slot(agents, "h1/1")
    ours, rest = Program(agents, local), Program(agents, local)
    ours.register(0x32, Method.GET, oui=0x1405)
    rest.register(0x32, Method.GET, oui=0x2C9)
    sender = Program(agents, local)
    ping = bytearray(256)
    ping[:4], ping[37:40] = bytes((1, 0x32, 1, Method.GET)), (0x1405).to_bytes(3, "big")
    agents.send(sender.register(0x32), bytes(ping), LID, 0, 0)
    assert len(ours.got) == 1
    assert not rest.got
    ping[37:40] = (0x2C9).to_bytes(3, "big")
    agents.send(sender.register(0x32), bytes(ping), LID, 0, 0)
    assert (len(ours.got), len(rest.got)) == (1, 1)
    ping[3] = Method.SET
    agents.send(sender.register(0x32), bytes(ping), LID, 0, 0)
    assert len(ours.got) == 1


def test_an_answer_goes_to_the_program_that_asked_and_not_to_one_that_serves_the_class(agents, monkeypatch):
    local, sent = slot(agents, "h1/1"), []
    serves, asks = Program(agents, local), Program(agents, local)
    serves.register(0x32, Method.GET, oui=0x1405)
    monkeypatch.setattr(agents.subnet, "send", lambda slot, mad, lid, pkey_index: sent.append(bytes(mad)))
    ping = bytearray(256)
    ping[:4], ping[37:40] = bytes((1, 0x32, 1, Method.GET)), (0x1405).to_bytes(3, "big")
    agents.send(asks.register(0x32), bytes(ping), 7, 100, 0)
    answer = bytearray(sent[0])
    answer[3] = Method.GET_RESP
    assert agents.deliver(Arrival(local, 7, 8, bytes(answer)))
    assert (len(asks.got), len(serves.got)) == (1, 0)
    assert not agents.deliver(Arrival(local, 7, 8, bytes(answer))), "it was answered"


def test_two_programs_cannot_have_the_same_method_at_a_port(agents):
    Program(agents, slot(agents, "h1/1")).register(MgmtClass.SUBN_ADM, Method.GET)
    Program(agents, slot(agents, "h2/1")).register(MgmtClass.SUBN_ADM, Method.GET)
    with pytest.raises(OSError, match="another program"):
        Program(agents, slot(agents, "h1/1")).register(MgmtClass.SUBN_ADM, Method.GET, Method.SET)


def test_a_program_that_left_gets_nothing(agents, clock):
    faults.pull_cable(agents.subnet.devices, slot(agents, "h2/1"))
    asks = Program(agents, slot(agents, "h1/1"))
    agent = asks.register(MgmtClass.SUBN_DIRECTED_ROUTE)
    agents.send(agent, smp(1, 2), LID, 100, 0)
    agents.unregister(agent)
    clock.sleep(1)
    agents.on_timer()
    assert not asks.got


def test_a_mad_goes_by_the_p_key_that_the_program_chose_and_says_by_which_it_came(agents, monkeypatch):
    program, sent = Program(agents, slot(agents, "h1/1")), []
    monkeypatch.setattr(agents.subnet, "send", lambda slot, mad, lid, pkey_index: sent.append(pkey_index))
    agent = program.register(0x32, Method.GET, oui=0x1405)
    ping = bytearray(256)
    ping[:4], ping[37:40] = bytes((1, 0x32, 1, Method.GET)), (0x1405).to_bytes(3, "big")
    agents.send(agent, bytes(ping), 7, 0, 0, 1)
    assert sent == [1]
    assert agents.deliver(Arrival(program.slot, 7, 8, bytes(ping), 3))
    ((_, lid, _, pkey_index),) = program.got
    assert (lid, pkey_index) == (7, 3)


@pytest.mark.parametrize(
    ("method", "is_request"), [(Method.GET, True), (Method.GET_RESP, False), (Method.TRAP_REPRESS, False)]
)
def test_only_requests_get_the_transaction_id_of_their_agent_and_are_sent_again(
    agents, clock, monkeypatch, method, is_request
):
    program, sent = Program(agents, slot(agents, "h1/1")), []
    monkeypatch.setattr(agents.subnet, "send", lambda slot, mad, lid, pkey_index: sent.append(bytes(mad)))
    agent = program.register(0x32)
    message = bytes((1, 0x32, 1, method)).ljust(16, b"\x07").ljust(256, b"\0")
    agents.send(agent, message, 7, 100, 1)
    high_tid = agent.high_tid.to_bytes(4, "big") if is_request else message[8:12]
    assert sent == [message[:8] + high_tid + message[12:]]
    assert (agents.next_deadline_s() is not None) is is_request
