"""The server of ibsim's protocol: requests are answered; invalid data are counted, logged once and do no harm."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.fabric.running import activate
from tests.patience import PATIENCE_S, wait_until

import weft
from weft import runtime
from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.fabric.files import ibnetdiscover
from weft.lab import protocol
from weft.lab.ibsim import Server
from weft.lab.lab import Lab
from weft.lab.protocol import CLIENT_INFO, CONTROL, DATA_BYTES, MAGIC, Control
from weft.mad.carrier import Address
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.subnet import Subnet
from weft.routing.route import route
from weft.wire.mad import Method, MgmtClass
from weft.wire.port_info import Capability, PortInfo
from weft.wire.sa import SaAttribute, SaMad
from weft.wire.smp import NodeInfo

_NUMBER = itertools.count()
SPEC = "fat-tree:hosts=4,radix=4,speed=NDR"
PERMISSIVE = 0xFFFF


OPEN: list[Program] = []


class Program:
    """A client like libumad2sim, in Python."""

    def __init__(self, lab: Lab, pid: int | None = None) -> None:
        self.base, self.pid = lab.sockname, pid or 1_000_000 + next(_NUMBER)
        self.control, self.data = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        for item, end in ((self.control, f"ctl{self.pid}"), (self.data, f"in{self.pid}")):
            item.bind(protocol.address(self.base, end))
            item.settimeout(PATIENCE_S)
        self.control.connect(protocol.address(self.base, "ctl"))
        self.number = 0
        OPEN.append(self)

    def ask(self, kind: int, data: bytes = b"", number: int | None = None) -> tuple[int, bytes]:
        number = self.number if number is None else number
        self.control.send(CONTROL.pack(MAGIC, number, kind, len(data), data))
        _, _, kind, _, data = CONTROL.unpack(self.control.recv(512))
        return kind, data

    def attach(self, host: str, *, is_sm: bool = False) -> Program:
        kind, data = self.ask(Control.CONNECT, CLIENT_INFO.pack(self.pid, 0, is_sm, host.encode()))
        assert kind == Control.CONNECT
        self.number, self.host = (
            CLIENT_INFO.unpack_from(data)[0],
            CLIENT_INFO.unpack_from(data)[3].rstrip(b"\0").decode(),
        )
        self.data.connect(protocol.address(self.base, f"out{self.number}"))
        return self

    def send(self, mad: bytes, dlid: int = PERMISSIVE) -> None:
        self.data.send(dlid.to_bytes(2, "big") + bytes(22) + protocol.WHOLE_MAD + mad)

    def receive(self) -> tuple[int, bytes]:
        """Return the status and the MAD."""
        raw = self.data.recv(512)
        return int.from_bytes(raw[16:20], "big"), raw[32:]

    def close(self) -> None:
        self.control.close()
        self.data.close()


def smp(attribute: int, *path: int, method: int = 1, tid: int = 7, mgmt_class: int = 0x81) -> bytes:
    mad = bytearray(256)
    mad[0:4] = bytes([1, mgmt_class, 1, method])
    mad[7] = len(path)
    mad[12:16] = tid.to_bytes(4, "big")
    mad[16:18] = attribute.to_bytes(2, "big")
    mad[32:36] = b"\xff" * 4
    mad[129 : 129 + len(path)] = bytes(path)
    return bytes(mad)


def answers(program: Program) -> bool:
    """Return whether the lab answers a NodeInfo with the request's transaction ID."""
    tid = 100 + next(_NUMBER)
    program.send(smp(0x11, tid=tid))
    status, mad = program.receive()
    return status == 0 and mad[3] == 0x81 and mad[12:16] == tid.to_bytes(4, "big")


@pytest.fixture(autouse=True)
def _close_programs() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture
def lab(tmp_path, monkeypatch) -> Iterator[Lab]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Lab(weft.load(SPEC), f"server-{os.getpid()}-{next(_NUMBER)}") as running:
        yield running


@pytest.fixture
def host(lab) -> Program:
    return Program(lab).attach("h1")


# -- valid requests --


def test_a_client_is_told_what_goes_into_its_sysfs(lab, host):
    _, data = host.ask(Control.GET_NODEINFO)
    assert NodeInfo.node_guid.get(data) == int(lab.fabric["h1"].guid)
    assert NodeInfo.port_guid.get(data) == int(lab.fabric["h1/1"].guid)
    _, data = host.ask(Control.GET_PORTINFO, b"\0")
    assert PortInfo.local_port_num.get(data) == 1
    assert host.ask(Control.GET_PKEYS)[1][:2] == b"\xff\xff"
    for kind in (Control.GET_VENDOR, Control.GET_PORT, Control.GET_GID, Control.GET_GUID):
        assert host.ask(kind)[0] == kind


@pytest.mark.parametrize(
    ("name", "found"),
    [("", "h1"), ("h3", "h3"), ("h3 mlx5_0", "h3"), ("h2/1", "h2"), ("leaf1", "leaf1"), ("0x0002c90300000200", "h2")],
)
def test_a_host_is_found_by_name_description_port_or_guid(lab, name, found):
    program = Program(lab).attach(name)
    assert program.host == found
    assert answers(program)


def test_the_second_port_of_an_adapter_is_a_place_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    net = tmp_path / "two.net"
    net.write_text('Switch\t8 "S1"\n[1]\t"H1"[1]\n[2]\t"H1"[2]\n\nHca\t2 "H1"\n[1]\t"S1"[1]\n[2]\t"S1"[2]\n')
    with Lab(ibnetdiscover.read(net), f"two-{os.getpid()}") as running:
        for port in (1, 2):
            program = Program(running).attach(f"H1/{port}")
            _, data = program.ask(Control.GET_PORTINFO, b"\0")
            assert PortInfo.local_port_num.get(data) == port
            program.send(smp(0x11, port))
            assert NodeInfo.local_port_num.get(program.receive()[1], 64) == port  # the request's input port


def test_more_than_ten_programs_attach_and_each_gets_its_own_answers(lab):
    programs = [Program(lab).attach(f"h{1 + n % 4}") for n in range(40)]
    for number, program in enumerate(programs):
        program.send(smp(0x11, tid=number))
    for number, program in enumerate(programs):
        assert program.receive()[1][12:16] == number.to_bytes(4, "big")
    assert len(lab.state()["clients"]) == 40


def test_mad_without_a_route_times_out(host):
    host.send(smp(0x11, 1, 3, 9, tid=5))
    status, mad = host.receive()
    assert (status, mad[3], mad[12:16]) == (110, 1, b"\0\0\0\5")


def test_a_request_that_a_program_never_answers_comes_back_as_timed_out(lab, host):
    manager = Program(lab).attach("h2", is_sm=True)
    host.send(smp(0x20, 1, 2, tid=6))  # SMInfo, to a client that receives but does not answer
    assert manager.receive()[1][16:18] == b"\0\x20"
    status, mad = host.receive()
    assert (status, mad[12:16]) == (110, b"\0\0\0\6")


def test_an_administrator_that_needs_longer_than_libibmad_waits_is_heard(tmp_path, monkeypatch):
    """The lab returns the request as timed out before that."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("weft.lab.ibsim.ANSWER_S", 0.0)
    with (
        Lab(route(weft.load("star:hosts=2")).fabric, f"server-{os.getpid()}-{next(_NUMBER)}") as lab,
        closing(IbsimCarrier("h1", lab.sockname)) as manager,
        closing(IbsimCarrier("h2", lab.sockname)) as asker,
    ):
        activate(lab.subnet.devices)
        manager.set_is_sm(True)
        manager.register(MgmtClass.SUBN_ADM, [Method.GET], class_version=2)
        question = SaMad.pack(method=Method.GET, attribute_id=SaAttribute.CLASS_PORT_INFO)
        lid = lab.subnet.lid(lab.fabric["h1/1"].slot)
        token = asker.send(question, Address(lid), timeout_ms=int(PATIENCE_S * 1000), retries=0)
        requests = wait_until(manager.arrivals)[0]
        wait_until(lambda: not lab.server._pending)
        manager.post(requests.mad[:3] + bytes([Method.GET_RESP]) + requests.mad[4:], requests.source)
        assert [(number, answer is not None) for number, answer in asker.poll(PATIENCE_S, only=token)] == [
            (token, True)
        ]


def test_reports_reach_who_has_just_sent_something(tmp_path, monkeypatch):
    """A manager with another protocol, as OpenSM with weft's preload, is at the same port and reports twice."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with (
        Lab(route(weft.load("star:hosts=2")).fabric, f"server-{os.getpid()}-{next(_NUMBER)}") as lab,
        closing(IbsimCarrier("h1", lab.sockname)) as watcher,
    ):
        activate(lab.subnet.devices)
        slot = lab.fabric["h1/1"].slot
        lid = lab.subnet.lid(slot)
        watcher.register(MgmtClass.SUBN_ADM, [Method.REPORT], class_version=2)
        output = SaMad.pack(method=Method.SET, attribute_id=SaAttribute.INFORM_INFO)
        report = SaMad.pack(method=Method.REPORT, attribute_id=SaAttribute.NOTICE)
        for _ in range(2):
            before = lab.subnet.mads
            watcher.post(output, Address(lid))
            wait_until(lambda before=before: lab.subnet.mads > before)
            lab.server.call(lambda: lab.subnet.send(slot, report, lid))
            arrived = wait_until(watcher.arrivals)[0]
            output = SaMad.unpack(arrived.mad).replace(method=Method.REPORT_RESP).raw


def test_answers_of_programs_find_who_asked(lab, host):
    """Two programs at one port use the same transaction ID; a manager on another host answers the second first."""
    manager, other = Program(lab).attach("h2", is_sm=True), Program(lab).attach("h1")
    requests = []
    for program, mark in ((host, b"one"), (other, b"two")):
        mad = bytearray(smp(0x20, 1, 2))
        mad[64:67] = mark
        program.send(bytes(mad))
        requests.append(bytearray(manager.receive()[1]))
    for mad in reversed(requests):
        mad[3:5] = b"\x81\x80"  # a response
        manager.send(bytes(mad))
    assert host.receive()[1][64:67] == b"one"
    assert other.receive()[1][64:67] == b"two"


def test_an_answer_goes_by_the_p_key_of_the_question(tmp_path, monkeypatch):
    """ibsim's protocol has no P_Key: a manager whose first key is a tenant's must answer the default partition."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Lab(route(weft.load("star:hosts=2")).fabric, f"server-{os.getpid()}-{next(_NUMBER)}") as lab:
        activate(lab.subnet.devices)
        at, to = (lab.fabric.find_port(f"{name}/1").slot for name in ("h1", "h2"))
        pkey, lid = lab.subnet.devices.tables.pkey, lab.subnet.devices.lid
        pkey[to, :2] = 0x8001, 0xFFFF
        asker, manager = Program(lab).attach("h1"), Program(lab).attach("h2", is_sm=True)
        asker.send(smp(0x35, mgmt_class=MgmtClass.SUBN_ADM), lid(to))
        question = bytearray(manager.receive()[1])
        question[3] |= 0x80
        manager.send(bytes(question), lid(at))
        assert asker.receive() == (0, bytes(question))


def test_a_client_that_does_not_read_holds_nobody_up(lab, host):
    """Data that do not fit into its socket are queued and arrive when it reads."""
    lazy, count = Program(lab).attach("h2"), 2000
    lab.server.clients[lazy.number].socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
    for number in range(count):
        lazy.send(smp(0x11, tid=number))
        if number % 500 == 0:
            assert answers(host)
    assert [lazy.receive()[1][12:16] for _ in range(count)] == [number.to_bytes(4, "big") for number in range(count)]


def test_is_sm_is_set_and_cleared_and_two_managers_do_not_share_a_port(lab, host):
    def is_manager() -> bool:
        slot = lab.fabric["h1/1"].slot
        return bool(PortInfo.capability_mask.get(lab.subnet.devices.info(slot)) & Capability.IS_SM)

    item = (1).to_bytes(4, "little")
    assert host.ask(Control.SET_ISSM, item)[0] == Control.SET_ISSM
    assert is_manager()
    other = Program(lab).attach("h1")
    assert other.ask(Control.SET_ISSM, item)[0] == Control.ERROR
    assert host.ask(Control.DISCONNECT)[0] == Control.DISCONNECT
    assert not is_manager()


# -- invalid requests --


def test_wrong_names_kinds_and_numbers_are_refused(lab, host):
    stranger = Program(lab)
    assert stranger.ask(Control.CONNECT, CLIENT_INFO.pack(stranger.pid, 0, 0, b"h99"))[0] == Control.ERROR
    assert stranger.ask(Control.CONNECT, CLIENT_INFO.pack(4_000_000, 0, 0, b"h1"))[0] == Control.ERROR
    assert stranger.ask(Control.GET_NODEINFO, number=4711)[0] == Control.ERROR
    assert host.ask(77)[0] == Control.ERROR
    assert lab.errors.counts["a control request is refused"] == 4
    assert answers(host)


def test_a_carrier_is_refused_in_words(lab):
    with pytest.raises(ConfigError, match=f"{lab.sockname} refuses a program at node 'h99': there is no host 'h99'"):
        IbsimCarrier("h99", lab.sockname)


def test_a_carrier_learns_that_the_lab_has_too_many_open_files(lab):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with closing(IbsimCarrier("h1", lab.sockname)) as first:
        used = max(map(int, os.listdir("/proc/self/fd")))
        files = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 4, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    files.append(os.dup(0))
            for file in files[-2:]:  # for the two sockets of the carrier, which is in the lab's process
                os.close(file)
            del files[-2:]
            with pytest.raises(ConfigError, match="at node 'h2': Too many open files; close programs"):
                IbsimCarrier("h2", lab.sockname)
        finally:
            for file in files:
                os.close(file)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert first.host == "h1"


def test_garbage_is_counted_logged_once_and_the_lab_goes_on(lab, host, caplog):
    chance = random.Random(1)
    with caplog.at_level(logging.WARNING, logger="weft.lab"):
        for _ in range(300):
            host.control.send(chance.randbytes(chance.choice([0, 1, 79, 80, 81, 200])))
            host.data.send(chance.randbytes(chance.choice([0, 1, 32, 287, 289, 500])))
        assert answers(host)  # after all of the data
        assert host.ask(Control.GET_NODEINFO)[0] == Control.GET_NODEINFO  # and after all of the control requests
    counts = lab.errors.counts
    assert counts["a control datagram is none"] == 300
    assert counts["a data datagram has the wrong size"] == 300
    assert len(caplog.records) == 2


def test_mads_of_random_bytes_are_answered_or_come_back(lab, host):
    """Each MAD whose method requires an answer gets one, or its timeout; none makes an agent fail."""
    chance = random.Random(2)
    for number in range(2000):
        mad = bytearray(chance.randbytes(256))
        mad[1] = chance.choice([0x01, 0x81, 0x03, 0x04, 0x21, 0x32, 0x0A, mad[1]])
        mad[3] = chance.choice([1, 2])
        if chance.random() < 0.9:
            mad[0], mad[2], mad[7] = 1, 1, chance.choice([0, 1, 2, 3, 63, 64, 255])
            mad[16] = 0
            mad[32:36] = b"\xff" * 4
        mad[12:16] = number.to_bytes(4, "big")
        if protocol.is_receipt(mad):
            continue
        host.send(bytes(mad), chance.choice([PERMISSIVE, 0, 1, 7, 0xC000]))
        assert host.receive()[1][12:16] == number.to_bytes(4, "big"), mad.hex()
    assert [kind for kind in lab.errors.counts if "broke" in kind] == []
    assert answers(host)


def test_a_length_that_cannot_be_is_refused_and_a_short_mad_is_filled(lab, host):
    for length in (0, 23, 257, 1 << 40):
        host.data.send(b"\xff\xff" + bytes(22) + length.to_bytes(8, "big") + smp(0x11))
        assert host.receive()[0] == 110
    host.data.send(b"\xff\xff" + bytes(22) + (64).to_bytes(8, "big") + smp(0x11)[:64] + b"\xee" * 192)
    assert host.receive()[0] == 0
    assert lab.errors.counts["a MAD has an impossible length"] == 4


def test_an_error_in_an_agent_is_logged_and_the_lab_goes_on(lab, host, monkeypatch, caplog):
    def broken(*_: object) -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, logger="weft.lab"):
        patch.setattr(lab.subnet, "send", broken)
        for _ in range(3):
            host.send(smp(0x11))
            assert host.receive()[0] == 110
    assert answers(host)
    assert lab.errors.counts["a MAD broke an agent: RuntimeError"] == 3
    assert len(caplog.records) == 1


def test_an_error_in_the_server_itself_is_logged_and_the_lab_goes_on(lab, host, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(lab.server, "_carry", broken)
        host.send(smp(0x11))
        while not lab.errors.counts:
            time.sleep(0.01)
    assert lab.errors.counts["the server failed on an event: RuntimeError"] == 1
    assert answers(host)


@pytest.mark.parametrize("by", ["its process", "its socket"])
def test_a_client_that_is_killed_is_noticed_and_is_no_manager_any_more(lab, host, by, monkeypatch):
    """No message to it is needed: the kernel reports its end, or, if it cannot watch processes, its socket is gone."""
    if by == "its process":
        lab.server.call(lambda: setattr(lab.server, "_check_at_s", float("inf")))
    else:
        monkeypatch.setattr("weft.lab.ibsim.os.pidfd_open", lambda pid: -1)
    code = (
        "import os, socket, sys, time\n"
        "from weft.lab.protocol import *\n"
        "ends = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]\n"
        "[one.bind(address(sys.argv[1], f'{end}{os.getpid()}')) for one, end in zip(ends, ('ctl', 'in'))]\n"
        "ends[0].connect(address(sys.argv[1], 'ctl'))\n"
        "ends[0].send(CONTROL.pack(MAGIC, 0, 1, 44, CLIENT_INFO.pack(os.getpid(), 0, 1, b'h2')))\n"
        "ends[0].recv(99); print('attached', flush=True); time.sleep(9999)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, lab.sockname], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    assert child.stdout.readline() == "attached\n"
    slot = lab.fabric["h2/1"].slot
    assert PortInfo.capability_mask.get(lab.subnet.devices.info(slot)) & Capability.IS_SM
    child.kill()
    child.communicate()
    wait_until(lambda: len(lab.state()["clients"]) == 1)
    assert [client["at"] for client in lab.state()["clients"]] == ["h1"]
    assert not PortInfo.capability_mask.get(lab.subnet.devices.info(slot)) & Capability.IS_SM
    assert answers(host)


def test_a_mad_for_a_class_that_a_program_does_not_speak_is_not_forced_on_it(lab, host):
    """libumad2sim would crash: the sender gets a timeout instead, and a registered listener gets the MAD."""
    asker = Program(lab).attach("h1")
    assert answers(asker)  # it uses class 0x81
    ping = smp(0, mgmt_class=MgmtClass.OPENIB_PING)
    host.send(ping)  # to its own port
    assert host.receive()[0] == 110
    assert answers(asker)
    listener = Program(lab).attach("h1")
    host.send(ping)
    assert listener.receive()[1][1] == MgmtClass.OPENIB_PING


def test_a_datagram_has_the_size_that_ibsim_has():
    assert (DATA_BYTES, CONTROL.size, CLIENT_INFO.size) == (288, 80, 44)


def test_a_server_that_has_ended_can_be_told_to_end():
    """Its loop may read the flag before it is woken."""
    server = Server(Subnet(weft.load("star:hosts=2")), f"ended-{os.getpid()}")
    server.close()
    server.stop()


# -- other clients --


def test_only_who_attached_a_client_may_end_it(lab, host):
    other = Program(lab).attach("h2")
    assert other.ask(Control.DISCONNECT, number=host.number)[0] == Control.ERROR
    assert other.ask(Control.SET_ISSM, b"\1\0\0\0", number=host.number)[0] == Control.ERROR
    assert answers(host)
    assert host.ask(Control.DISCONNECT)[0] == Control.DISCONNECT


def test_a_request_that_is_repeated_keeps_nobody_else_waiting(lab, host):
    """Both clients send to a silent manager."""
    Program(lab).attach("h2", is_sm=True)
    other = Program(lab).attach("h3")
    host.send(smp(0x20, 1, 2, tid=6))
    other.send(smp(0x20, 1, 2, tid=8))
    other.data.settimeout(0.25)
    for _ in range(240):  # a minute at most; a second is enough
        host.send(smp(0x20, 1, 2, tid=6))
        try:
            status, mad = other.receive()
        except TimeoutError:
            continue
        break
    assert (status, mad[12:16]) == (110, b"\0\0\0\x08")
    assert host.receive()[0] == 110  # each repeated request times out


def test_mads_for_a_program_that_never_reads_are_lost_and_counted(lab, host, monkeypatch):
    monkeypatch.setattr("weft.lab.ibsim._QUEUE", 20)
    monkeypatch.setattr("weft.lab.ibsim.ANSWER_S", 3600.0)
    deaf = Program(lab).attach("h2", is_sm=True)
    slot = lab.fabric["h2/1"].slot
    sent = 0
    while not lab.errors.counts["a program does not read its MADs"]:
        host.send(smp(0x20, 1, 2, tid=(sent := sent + 1)))
        assert answers(host)
    assert len(lab.server.clients[deaf.number].queue) == 20
    assert lab.fabric.counters[slot, Counter.VL15_DROPPED] == lab.errors.counts["a program does not read its MADs"]
    for _ in range(sent - 1):
        assert deaf.receive()[1][16:18] == b"\0\x20"
    assert answers(deaf)


def test_client_of_another_user_is_removed_at_its_first_mad(lab, host, monkeypatch):
    """Another user may have taken the socket name of a client that died while it attached."""
    stranger = runtime.Credentials(os.getpid(), 54_321, 54_321)
    monkeypatch.setattr(runtime, "sender", lambda ancillary: stranger)
    host.send(smp(0x11))
    wait_until(lambda: not lab.server.clients)
    assert lab.errors.counts["another user is not let in"] == 1


def test_only_the_client_can_send_to_its_socket(lab, host):
    assert answers(host)
    other = Program(lab)
    with pytest.raises(PermissionError):
        other.data.connect(protocol.address(lab.sockname, f"out{host.number}"))
