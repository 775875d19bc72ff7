"""Partitions isolate tenants by the subnet manager's keys, at switches and at ports."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.lab.rdma import Q_KEY, SPEC, Host, managed, pair, wait_until
from tests.patience import PATIENCE_S

import weft
from weft.fabric.counters import Counter
from weft.lab.lab import Lab
from weft.mad.carrier import Address, ask
from weft.mad.ibsim_client import IbsimCarrier
from weft.sm.control import ManagerSocket, socket_of
from weft.tenants.apply import apply
from weft.tenants.drivers.subnet_manager import ManagerDriver
from weft.tenants.intent import parse_intent
from weft.verbs import enums as e
from weft.verbs import hardware
from weft.verbs.carriers.lab.carrier import LabCarrier
from weft.verbs.carriers.lab.connection import FRAME
from weft.verbs.carriers.lab.device import LabDevice
from weft.verbs.carriers.lab.memory_grants import MemoryGrants
from weft.verbs.carriers.lab.paths import group_of
from weft.verbs.carriers.lab.port_facts import Facts
from weft.verbs.perftest.exchange import free_port
from weft.verbs.pyverbs.addr import AH
from weft.verbs.pyverbs.qp import QP
from weft.verbs.pyverbs.wr import SGE, SendWR
from weft.wire.mad import Method
from weft.wire.sa import SaAttribute, SaMad

RED, BLUE = ("h2", "h5", "h6"), ("h3", "h4", "h7", "h8")  # h1 has the subnet manager, which all can reach
ATTEMPTS, BATCH = 10_016, 32  # for each kind of enforcement: each pair a hundred times


@pytest.fixture(params=["both", "off"])
def enforce(request) -> str:
    """The place of enforcement: in switches, or in ports only."""
    return request.param


@contextmanager
def tenants(spec: str, enforce: str, folder: Path) -> Iterator[Lab]:
    with Lab(weft.load(spec), f"t{time.monotonic_ns() % 10**12}") as lab:
        guid = {name: f"{int(lab.fabric.ports.guid[lab.fabric[f'{name}/1'].slot]):#x}" for name in (*RED, *BLUE)}
        lines = ["Default=0x7fff : ALL=limited, SELF=full ;"]
        for name, key, members in (("red", 1, RED), ("blue", 2, BLUE)):
            lines.append(f"{name}={key:#x} : {', '.join(f'{guid[member]}=full' for member in members)} ;")
        (folder / "partitions.conf").write_text("\n".join(lines))
        with managed(lab, partition_config_file=folder / "partitions.conf", part_enforce=enforce):
            yield lab


def index_of(host: Host, key: int) -> int:
    return next(n for n in range(128) if host.ctx.query_pkey(1, n) & 0x7FFF == key)


@pytest.fixture
def lab(enforce, tmp_path):
    with tenants(SPEC, enforce, tmp_path) as up:
        yield up


def test_a_tenant_reaches_its_own_and_nobody_else(lab, enforce, monkeypatch):
    red, red_too, blue = (Host(lab, name, monkeypatch) for name in ("h2", "h6", "h8"))
    item, other = pair(e.IBV_QPT_RC, red, red_too, pkey_index=index_of(red, 1))
    red_too.post_receive(other, 10)
    red.send(item, b"hello")
    assert [done.status for done in red.poll() + red_too.poll()] == [e.IBV_WC_SUCCESS] * 2
    assert item.core.shm_peer() is not None
    item, other = red.qp(e.IBV_QPT_RC), blue.qp(e.IBV_QPT_RC)
    red.connect(item, blue, other, pkey_index=index_of(red, 1), timeout=8, retry_cnt=1)
    blue.connect(other, red, item, pkey_index=index_of(blue, 2))
    assert item.core.shm_peer() is None
    blue.post_receive(other, 10)
    before = lab.fabric.counters.sum(axis=0)
    red.send(item, b"hello")
    assert [done.status for done in red.poll()] == [e.IBV_WC_RETRY_EXC_ERR]
    assert blue.poll(seconds=0.01) == []
    if enforce == "both":  # sent twice, stopped by the last switch
        counter = Counter.PORT_XMIT_CONSTRAINT_ERRORS
        wait_until(lambda: (lab.fabric.counters.sum(axis=0) - before)[counter] == 2)
        assert blue.ctx.query_port(1).bad_pkey_cntr == 0
    else:  # switches let it pass, the port does not
        wait_until(lambda: blue.ctx.query_port(1).bad_pkey_cntr == 2)


class Direct:
    """A connection without a socket: the lab is called in this thread."""

    is_down = is_closed = False

    def __init__(self, lab: Lab, slot: int) -> None:
        self._ports, self._came, self._never = lab.verbs, deque(), threading.Event()
        self.path = str(lab.verbs_socket)
        self.program = lab.verbs.attach(slot, lambda data: self._came.append((FRAME.unpack_from(data)[1], data[6:])))

    def put(self, packets) -> None:
        self._ports.send(self.program, list(packets))
        self._ports.deliver()

    @property
    def is_idle(self) -> bool:
        return not self._came

    def take(self):
        return [self._came.popleft() for _ in range(len(self._came))]

    def wait(self, seconds: float | None) -> None:
        """Block the adapter's own thread for ever.

        If it took a batch between post_send and progress, poll would return before the batch is complete, and the last
        batch would be missing from the count.
        """
        self._never.wait()

    def ring(self) -> None:
        pass


class DirectDevice(LabDevice):
    def __init__(self, lab: Lab, name: str) -> None:
        super().__init__("", name, "mlx5_0", 1, 1)
        self._direct, self._at = lab, lab.fabric[f"{name}/1"].slot

    def _attach(self) -> LabCarrier:
        line = Direct(self._direct, self._at)
        grants = MemoryGrants(line, self._at, line.program.number, os.dup(line.program.meters.file))
        return LabCarrier(line, line.program.number, Facts.unpack(self._direct.verbs.facts(self._at)), grants)


class DirectHost(Host):
    def __init__(self, lab: Lab, name: str, monkeypatch) -> None:
        device = DirectDevice(lab, name)
        monkeypatch.setattr(hardware, "present", lambda: (device,))
        super().__init__(lab, name, monkeypatch)


@pytest.mark.slow
def test_20_000_attempts_across_tenants_deliver_nothing(enforce, tmp_path, monkeypatch):
    """Datagrams go to the right queue pairs with the right Q_Key, by any P_Key of the sender."""
    with tenants("star:hosts=8", enforce, tmp_path) as lab:
        pass  # tables stay, and the lab is called only in this thread now
    hosts = {name: DirectHost(lab, name, monkeypatch) for name in (*RED, *BLUE)}
    ends = {name: [listening(host, index) for index in range(2)] for name, host in hosts.items()}
    handles = {(a, b): AH(hosts[a].pd, attr=hosts[b].address()) for a in hosts for b in hosts}
    dice, sent, before = random.Random(1), 0, lab.fabric.counters.sum(axis=0)
    for _ in range(ATTEMPTS // BATCH):
        own, rest = (RED, BLUE) if dice.random() < 0.5 else (BLUE, RED)
        name = dice.choice(own)
        targets = [(handles[name, far], dice.choice(ends[far]).qp_num) for far in dice.choices(rest, k=BATCH)]
        dice.choice(ends[name]).post_send(chain(hosts[name], targets))
        for host in hosts.values():
            done = host.cq.poll(2 * BATCH)[1]
            assert not any(wc.opcode & e.IBV_WC_RECV for wc in done), "it was delivered"
            sent += len(done)
    new = lab.fabric.counters.sum(axis=0) - before
    assert sent == new[Counter.PORT_XMIT_PKTS] - (enforce == "off") * sent == ATTEMPTS
    hosts["h2"].send(ends["h2"][1], b"hello", handles["h2", "h6"], ends["h6"][1].qp_num)
    assert len(hosts["h6"].poll(1)) == 1, "within a tenant it goes"


def listening(host: Host, index: int) -> QP:
    assert host.ctx.query_pkey(1, index), "the key of all, limited, and the tenant's"
    qp = host.qp(e.IBV_QPT_UD)
    host.connect(qp, host, qp, pkey_index=index)
    host.post_receive(qp, 200)
    return qp


def chain(host: Host, targets: list[tuple[AH, int]]) -> SendWR:
    first = None
    for handle, number in targets:
        place = [SGE(host.mr.buf, 6, host.mr.lkey)]
        first = SendWR(num_sge=1, sg=place, opcode=e.IBV_WR_SEND, send_flags=e.IBV_SEND_SIGNALED, next_wr=first)
        first.set_wr_ud(handle, number, Q_KEY)
    assert first is not None
    return first


# -- programs that choose no P_Key ------------------------------------------------------------------------------------

INTENT = {"tenant": {"red": {"hosts": ["h[2-3]"]}, "blue": {"hosts": ["h[4-5]"], "ipoib": True}}}


def pingpong(lab: Lab, client: str, server: str, folder: Path) -> tuple[int, str]:
    """Return the client's status and its output."""
    words = ("ibv_rc_pingpong", "-p", str(free_port()), "-n", "20")
    folder.mkdir()
    serving = lab.start(server, *words, folder=folder)
    try:
        wait_until(lambda: "local address" in (folder / "output").read_text())
        done = lab.run(client, *words, server, timeout_s=PATIENCE_S)
        return done.returncode, done.stdout + done.stderr
    finally:
        serving.kill()
        serving.wait()


def test_programs_that_choose_no_key_use_their_tenants(tmp_path, monkeypatch):
    """An exclusive tenant's key is at index 0, and Default's after it: queries to the subnet manager use the latter."""
    state = tmp_path / "sm.json"
    name = f"t{time.monotonic_ns() % 10**12}"
    with Lab(weft.load("star:hosts=5"), name) as lab, managed(lab, state_file=state):
        apply(ManagerDriver(ManagerSocket(socket_of(state))), parse_intent(INTENT))
        red = Host(lab, "h2", monkeypatch)
        assert [red.ctx.query_pkey(1, index) for index in range(2)] == [0x8001, 0x7FFF]
        status, output = pingpong(lab, "h3", "h2", tmp_path / "within")
        assert (status, "20 iters in" in output) == (0, True), output
        status, output = pingpong(lab, "h4", "h2", tmp_path / "across")
        assert (status != 0, "retry exceeded" in output) == (True, True), output
        group, own = group_of(0xFFFF << 32 | 0xE0010203, 0x8001), int.from_bytes(red.ctx.query_gid(1, 0).raw, "big")
        assert red.ctx.adapter.carrier.join(group, own) == group  # requested with Default's key, not index 0
        with closing(IbsimCarrier("h3", lab.sockname)) as door:  # ibsim's protocol has no P_Key
            manager = Address(lab.subnet.devices.lid(lab.fabric["h1/1"].slot))
            question = SaMad.pack(method=Method.GET, attribute_id=SaAttribute.CLASS_PORT_INFO)
            assert ask(door, question, manager, timeout_ms=int(PATIENCE_S * 1000), retries=0) is not None
        # h3 to h4; h1 has the subnet manager, which all reach in Default.
        assert lab.traffic("shift", 4096)["without_path"] == 1
