"""Programs with pyverbs' interface in two network namespaces exchange RoCE v2 packets over a veth pair."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import find_peer
from tests.interop.roce_program import DATAGRAM_BYTES, READ_BYTES, SEND_BYTES, WRITE_BYTES, pattern
from tests.patience import PATIENCE_S

from weft.wire.headers import BTH, Opcode
from weft.wire.packet import Link, Packet, icrc_is_right
from weft.wire.roce import UDP_PORT

PROGRAM = Path(__file__).parent / "roce_program.py"
MTU, OK = 9000, 0
_GUESSES = ("rpcordma", "smb_direct", "smc", "nvme-rdma", "lnet", "iser")  # tshark's heuristic dissectors of payloads
_NUMBER = itertools.count()


def ip(*arguments: str) -> None:
    done = subprocess.run(
        [find_peer("ip"), *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


class Namespaces:
    """A pair of network namespaces, joined by a veth cable."""

    def __init__(self, version: int) -> None:
        name = f"weft{os.getpid()}x{next(_NUMBER)}"
        self.names = f"{name}a", f"{name}b"
        self.ends = ("10.77.0.1", "10.77.0.2") if version == 4 else ("fd00:77::1", "fd00:77::2")
        self._length = 24 if version == 4 else 64

    def make(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
        a, b = self.names
        cable = ("mtu", str(MTU), "type", "veth", "peer", "name", "wire", "netns", b, "mtu", str(MTU))
        ip("link", "add", "wire", "netns", a, *cable)
        for name, address in zip(self.names, self.ends, strict=True):
            no_wait = ("nodad",) if ":" in address else ()
            ip("-n", name, "addr", "add", f"{address}/{self._length}", "dev", "wire", *no_wait)
            ip("-n", name, "link", "set", "wire", "up")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(
                [find_peer("ip"), "netns", "del", name], capture_output=True, timeout=PATIENCE_S, check=False
            )


def why_not() -> str:
    """Return the reason why this process cannot create namespaces; empty if it can."""
    name = f"weft{os.getpid()}try"
    tried = subprocess.run(
        [find_peer("ip"), "netns", "add", name], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if tried.returncode:
        return f"network namespaces need root, and a system that allows them: {tried.stderr.strip()}"
    ip("netns", "del", name)
    return ""


BOTH = pytest.mark.parametrize("namespaces", [4, 6], ids=["IPv4", "IPv6"], indirect=True)


@pytest.fixture
def namespaces(request) -> Iterator[Namespaces]:
    if (reason := why_not()) and os.environ.get("CI") != "true":
        pytest.skip(reason)
    assert not reason
    result = Namespaces(getattr(request, "param", 4))
    try:
        result.make()
        yield result
    finally:
        result.remove()


class Program:
    """A program in a namespace."""

    def __init__(self, namespace: str, address: str, *arguments: str, capture: Path | None = None) -> None:
        environment = {**os.environ, "WEFT_VERBS_ROCE": address}
        if capture is not None:
            environment["WEFT_VERBS_CAPTURE"] = str(capture)
        command = [find_peer("ip"), "netns", "exec", namespace, sys.executable, str(PROGRAM), *arguments]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the program ended: {self.process.communicate()[1][-2000:]}"
        return dict(json.loads(line))

    def say(self, fields: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        print(json.dumps(fields), file=self.process.stdin, flush=True)

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def converse(asks: Program, answers: Program) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the results of both at the end."""
    both = asks, answers
    facts = [item.hear() for item in both]
    for item, far in zip(both, reversed(facts), strict=True):
        item.say(far)
    for item in both:
        assert item.hear() == {"is_ready": True}
    for item in both:
        item.say({})
    requests = asks.hear()
    answers.say({})
    return requests, answers.hear()


def check(asked: dict[str, Any], answered: dict[str, Any]) -> None:
    """Assert that all operations succeeded with the right bytes."""
    expected = {
        name: hashlib.sha256(pattern(seed, size)).hexdigest()
        for name, seed, size in (
            ("sent", 1, SEND_BYTES),
            ("written", 2, WRITE_BYTES),
            ("read", 3, READ_BYTES),
            ("datagram", 4, DATAGRAM_BYTES),
        )
    }
    assert asked["done"] == [[1, OK], [2, OK], [3, OK], [4, OK]]
    assert answered["done"] == [[5, OK], [6, OK]]
    result = {**asked, **answered}
    assert {name: result[name] for name in expected} == expected


@BOTH
def test_send_write_read_and_datagrams_cross_a_cable_and_tshark_reads_them(namespaces, peer, tmp_path):
    capture = tmp_path / "live.pcap"
    (a, b), (local, present) = namespaces.names, namespaces.ends
    programs = [Program(a, local, "asks", capture=capture), Program(b, present, "answers")]
    try:
        check(*converse(*programs))
    finally:
        for program in programs:
            program.stop()
    opcodes = seen_by_tshark(peer("tshark"), capture)
    assert opcodes.count(Opcode.RC_RDMA_WRITE_FIRST) == opcodes.count(Opcode.RC_RDMA_WRITE_LAST) == 1
    assert opcodes.count(Opcode.RC_RDMA_WRITE_MIDDLE) == -(-WRITE_BYTES // 4096) - 2
    assert opcodes.count(Opcode.RC_SEND_MIDDLE) == -(-SEND_BYTES // 4096) - 2
    assert opcodes.count(Opcode.UD_SEND_ONLY) == 1
    reads = [opcode for opcode in opcodes if "READ_RESPONSE" in opcode.name]
    assert len(reads) == -(-READ_BYTES // 4096)
    scapy_agrees(capture)


def seen_by_tshark(tshark: str, capture: Path) -> list[Opcode]:
    """Return the opcode of each packet once: on a busy machine packets are sent again."""
    switched_off = [word for guess in _GUESSES for word in ("--disable-protocol", guess)]
    fields = ["-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-e", "_ws.malformed"]
    command = [tshark, "-r", str(capture), "-T", "fields", *fields, *switched_off]
    output = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    rows = {tuple(line.split("\t")) for line in output.splitlines()}
    assert not [row for row in rows if len(row) > 2 and row[2]]
    return [Opcode(int(row[0], 0)) for row in rows]


def scapy_agrees(capture: Path) -> None:
    """Assert that scapy computes the same ICRCs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("scapy.contrib.roce", reason="scapy is not installed: pip install scapy")
        from scapy.contrib import roce
        from scapy.utils import rdpcap

        for frame in rdpcap(str(capture), count=100):
            again = frame.copy()
            again[roce.BTH].icrc = None
            assert bytes(again)[-4:] == bytes(frame)[-4:]


def test_packets_that_the_system_makes_of_a_long_message_have_right_icrcs_on_the_wire(namespaces):
    """The kernel sends each packet with its own IP header, which the ICRC covers."""
    (a, b), (local, present) = namespaces.names, namespaces.ends
    for name in (a, b):
        ip("-n", name, "link", "set", "wire", "gso_max_segs", "1")
    programs = [Program(a, local, "asks"), Program(b, present, "answers", "wire")]
    try:
        check(*converse(*programs))
        frames = [bytes.fromhex(frame) for frame in programs[1].hear()["frames"]]
    finally:
        for program in programs:
            program.stop()
    port = UDP_PORT.to_bytes(2, "big")
    packets = [frame for frame in frames if frame[36:38] == port]
    writes = [item for item in packets if Packet.parse(item, Link.ETHERNET)[BTH].opcode == Opcode.RC_RDMA_WRITE_MIDDLE]
    assert len(writes) >= 100
    assert all(len(item) < MTU for item in packets)
    assert len({item[18:20] for item in writes}) > 10  # identifications
    assert all(icrc_is_right(item, Link.ETHERNET) for item in packets)
