"""Unmodified programs in a lab with InfiniBand and Ethernet ports: ibv_devinfo, ibstat, perftest, and tshark's view."""

from __future__ import annotations

import os
import re
import subprocess
import threading

import pytest
from tests.interop.c_programs import on, program, run_pair
from tests.lab.rdma import managed
from tests.patience import PATIENCE_S

import weft
from weft import compiler
from weft.fabric.link_layers import as_ethernet
from weft.lab.lab import Lab

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
SPEC = "star:hosts=4,server=host-fdr,switch=SX6036"


@pytest.fixture(scope="module")
def lab():
    fabric = as_ethernet(weft.load(SPEC), ["host3", "host4"])
    with Lab(fabric, f"layers{os.getpid()}") as up, managed(up, at="host1"):
        yield up


def run(lab: Lab, host: str, *words: str) -> str:
    return subprocess.run(
        words, env=on(lab, host), capture_output=True, text=True, timeout=PATIENCE_S, check=True
    ).stdout


@pytest.mark.parametrize(("host", "layer"), [("host1", "InfiniBand"), ("host3", "Ethernet")])
def test_devinfo_and_ibstat_show_the_link_layer(lab, peer, host, layer):
    said = run(lab, host, program("ibv_devinfo"), "-v")
    assert re.search(rf"link_layer:\s+{layer}\n", said), said
    assert re.search(r"state:\s+PORT_ACTIVE", said), said
    assert ("GID[  3]:" in said and "RoCE v2" in said) == (layer == "Ethernet"), said
    assert f"Link layer: {layer}\n" in run(lab, host, peer("ibstat"))


@pytest.mark.parametrize(
    ("one", "two", "words", "kind"),
    [("host1", "host2", (), "IB"), ("host3", "host4", ("-x", "3"), "Ethernet")],
    ids=["InfiniBand", "RoCE v2"],
)
def test_perftest_runs_on_either_link_layer(lab, one, two, words, kind):
    command = [program("ib_write_bw"), "-s", "65536", "-n", "100", *words]
    for output in run_pair(command, on(lab, one), on(lab, two)):
        assert re.search(rf"Link type\s+: {kind}\n", output), output
        assert re.search(r"\n 65536 +100 +[1-9]", output), output


def test_tshark_reads_the_frames_of_perftest_as_roce_at_udp_port_4791(lab, peer, tmp_path):
    file = tmp_path / "roce.pcapng"
    recorded: list[dict] = []
    stop = threading.Event()

    def progress(*_: int) -> None:
        if stop.is_set():
            raise InterruptedError

    def capture() -> None:
        try:
            lab.capture("leaf1/3", str(file), packets=25, progress=progress)
        except InterruptedError:
            recorded.append({})

    thread = threading.Thread(target=capture)
    thread.start()
    try:
        run_pair([program("ib_write_bw"), "-x", "3", "-s", "10000", "-n", "20"], on(lab, "host3"), on(lab, "host4"))
    finally:
        thread.join(2)
        stop.set()
        thread.join()
    assert not recorded, "the capture ended before it had all packets"
    fields = ("eth.src", "ip.src", "ip.dst", "udp.dstport", "infiniband.bth.opcode", "_ws.malformed")
    command = [peer("tshark"), "-r", str(file), "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    output = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    rows = [line.split("\t") for line in output.splitlines()]
    assert len(rows) == 25
    assert {tuple(row[:3]) for row in rows} >= {("02:00:7f:02:00:02", "127.2.0.2", "127.2.0.1")}
    assert {row[3] for row in rows} == {"4791"}
    assert {row[4] for row in rows} >= {"6", "7", "8"}, "WRITE first, middle and last"
    assert not any(row[5] for row in rows)
