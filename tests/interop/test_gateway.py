"""IPoIB to Ethernet: real sockets cross a host with a port of each kind, and tshark reads both cables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.interop.c_programs import on, started
from tests.interop.conftest import do_without
from tests.lab.rdma import managed, wait_until
from tests.patience import PATIENCE_S

import weft
from weft import compiler
from weft.fabric.link_layers import as_ethernet
from weft.lab.lab import Lab

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
SPEC = "star:hosts=3,server=dgx-h100+2rails,switch=SX6036"
INFINIBAND_HOST, GATEWAY, ETHERNET_HOST = "dgx1", "dgx2", "dgx3"
_RUN = """
import json, os, sys
from weft.lab.ip import program
from weft.lab.ip.addresses import IpPort
program.run([IpPort(**port) for port in json.loads(sys.argv[1])], sys.argv[2:], os.environ, None)
"""
_ECHO = """
import socket
server = socket.create_server(("10.2.0.2", 7))
print("ready", flush=True)
while True:
    one, peer = server.accept()
    print(peer[0], flush=True)
    with one:
        while data := one.recv(65536):
            one.sendall(data)
"""
_CLIENT = """
import os, socket, threading
data = os.urandom(300_000)
with socket.create_connection(("10.2.0.2", 7), timeout=60) as one:
    threading.Thread(target=lambda: (one.sendall(data), one.shutdown(socket.SHUT_WR))).start()
    came = b""
    while part := one.recv(65536):
        came += part
print(came == data)
"""


@pytest.fixture(scope="module")
def lab():
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        do_without("/dev/net/tun")
    fabric = as_ethernet(weft.load(SPEC), [f"{GATEWAY}/mlx5_6", ETHERNET_HOST])
    with Lab(fabric, f"gw{os.getpid()}") as up, managed(up, at=INFINIBAND_HOST):
        yield up


def words(lab: Lab, host: str, *command: str) -> list[str]:
    return [sys.executable, "-c", _RUN, json.dumps(lab.ip_ports(host)), *command]


@contextmanager
def running(lab: Lab, host: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the end of the block; it has printed a line by then."""
    with started(words(lab, host, *command), on(lab, host)) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process


@contextmanager
def network(lab: Lab) -> Iterator[subprocess.Popen[str]]:
    """Run the gateway, and a server on the Ethernet host."""
    up = "import time; print('up', flush=True); time.sleep(10**6)"
    with (
        running(lab, GATEWAY, sys.executable, "-c", up),
        running(lab, ETHERNET_HOST, sys.executable, "-c", _ECHO) as server,
    ):
        yield server


def client(lab: Lab, program: str = _CLIENT) -> subprocess.CompletedProcess[str]:
    command = words(lab, INFINIBAND_HOST, sys.executable, "-c", program)
    return subprocess.run(
        command, env=on(lab, INFINIBAND_HOST), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def captured(lab: Lab, peer, port: str, file, fields: tuple[str, ...]) -> list[list[str]]:
    """Return fields of the packets on a cable while a client runs, by tshark."""
    recording = threading.Thread(target=lambda: lab.capture(port, str(file), packets=40))
    recording.start()
    wait_until(lambda: lab.subnet.devices.tap is not None)
    while recording.is_alive():
        assert client(lab).stdout == "True\n"
    command = [peer("tshark"), "-r", str(file), "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    output = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    return [line.split("\t") for line in output.splitlines()]


def test_tcp_crosses_the_gateway_and_returns(lab):
    with network(lab) as server:
        done = client(lab)
        assert done.stdout == "True\n", done.stderr
        assert server.stdout is not None
        assert server.stdout.readline() == "10.1.0.1\n", "the server sees the InfiniBand host's address"


def test_nothing_crosses_without_the_gateway(lab):
    with running(lab, ETHERNET_HOST, sys.executable, "-c", _ECHO):
        done = client(lab, _CLIENT.replace("timeout=60", "timeout=3"))
    assert done.returncode != 0
    assert "TimeoutError" in done.stderr


def test_tshark_reads_arp_and_ip_over_infiniband(lab, peer, tmp_path):
    fields = ("infiniband.bth.destqp", "infiniband.deth.q_key", "arp.hw.type", "arp.hw.size", "ip.dst", "ip.ttl")
    with network(lab):
        rows = captured(lab, peer, f"{GATEWAY}/mlx5_0/1", tmp_path / "ib.pcapng", (*fields, "_ws.malformed"))
    arp = [row for row in rows if row[2]]
    assert {tuple(row[1:4]) for row in arp} == {("0x0000000000000b1b", "32", "20")}
    assert "0xffffff" in {row[0] for row in arp}, "the request goes to the group"
    assert {("10.2.0.2", "64"), ("10.1.0.1", "63")} <= {tuple(row[4:6]) for row in rows}, "the gateway lowers the TTL"
    assert not any(row[-1] for row in rows)


def test_tshark_reads_ip_in_ethernet_frames_behind_the_gateway(lab, peer, tmp_path):
    fields = ("eth.src", "eth.dst", "ip.src", "ip.dst", "ip.ttl", "tcp.port", "_ws.malformed")
    with network(lab):
        rows = captured(lab, peer, f"{GATEWAY}/mlx5_6/1", tmp_path / "eth.pcapng", fields)
    gateway, host = "02:00:7f:02:00:01", "02:00:7f:02:00:02"
    ways = {tuple(row[:5]) for row in rows}
    assert ways == {(gateway, host, "10.1.0.1", "10.2.0.2", "63"), (host, gateway, "10.2.0.2", "10.1.0.1", "64")}
    assert not any(row[-1] for row in rows)
