"""tshark reads a capture of a lab's cable: every frame, nothing malformed, directions by name."""

from __future__ import annotations

import subprocess
import threading
from contextlib import closing

import pytest
from tests.patience import PATIENCE_S

import weft
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.sm.run import SubnetManager

pytestmark = pytest.mark.interop


def test_tshark_reads_the_sweep_of_a_subnet_manager(peer, tmp_path):
    file = tmp_path / "link.pcapng"
    with Lab(weft.load("fat-tree:hosts=8,radix=4"), "tshark") as lab:
        capture = threading.Thread(target=lambda: lab.capture("leaf1/3", str(file), packets=60))
        capture.start()
        with closing(IbsimCarrier("h1", lab.sockname)) as carrier:
            while capture.is_alive():  # the first sweep may be over before the capture begins
                SubnetManager(carrier).run(once=True)
    command = [peer("tshark"), "-r", str(file), "-T", "fields", "-e", "frame.interface_name", "-e", "_ws.col.Info"]
    command += ["-e", "_ws.malformed"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    lines = [line.split("\t") for line in output.splitlines()]
    assert len(lines) == 60
    assert {(name, "Resp" in info) for name, info, _ in lines} >= {("leaf1/3", False), ("spine1/1", True)}
    assert not any(malformed for *_, malformed in lines)
