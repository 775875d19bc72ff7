"""A lab in one network namespace, its host h3 in another, joined by one TCP connection over a veth pair."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.conftest import find_peer
from tests.interop.test_roce_namespaces import Namespaces, ip, why_not
from tests.patience import PATIENCE_S, wait_until

TALKER = Path(__file__).parents[1] / "lab" / "talker.py"
TURNS = 5


class Machines:
    """A pair of machines: A with a lab, B with only an address. They share neither sockets nor folders."""

    def __init__(self) -> None:
        self.namespaces = Namespaces(4)
        self._folders = [Path(tempfile.mkdtemp(prefix="weft-", dir="/tmp")) for _ in range(2)]
        self.address, self.token = "", ""

    def make(self) -> None:
        self.namespaces.make()
        local = self.namespaces.ends[0]
        words = ("fat-tree:hosts=8,radix=4", "--sm", "--daemon", "--name", "far", "--join", f"{local}:0")
        result = re.search(r"weft join (\S+) --token (\S+) --as h8", self.run(0, "up", *words).stdout)
        assert result
        self.address, self.token = result.groups()

    def remove(self) -> None:
        try:
            if self.token:
                self.run(0, "down", "--lab", "far")
        finally:
            self.namespaces.remove()
            for folder in self._folders:
                shutil.rmtree(folder, ignore_errors=True)

    def command(self, machine: int, *words: str) -> list[str]:
        inside = [find_peer("ip"), "netns", "exec", self.namespaces.names[machine]]
        variables = [f"XDG_RUNTIME_DIR={self._folders[machine]}", f"WEFT_JOIN_TOKEN={self.token}"]
        return [*inside, "env", *variables, sys.executable, "-m", "weft", *words]

    def run(self, machine: int, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(machine, *words), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def start(self, machine: int, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(machine, *words), stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def as_h3(self, *command: str) -> tuple[str, ...]:
        return "join", self.address, "--as", "h3", "--", *command

    def sent_by_h3(self) -> int:
        """Return the packets that h3 sent, by its port's counter."""
        counted = self.run(1, *self.as_h3(find_peer("perfquery"), "-x")).stdout
        result = re.search(r"PortXmitPkts:\.+(\d+)", counted)
        assert result
        return int(result[1])

    def cut(self) -> None:
        """Cut the cable, and its TCP connections so that both ends notice at once; without ss it takes some seconds."""
        ip("-n", self.namespaces.names[1], "link", "set", "wire", "down")
        for name in self.namespaces.names:
            command = [find_peer("ip"), "netns", "exec", name, "ss", "-K", "state", "established"]
            subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)

    def mend(self) -> None:
        ip("-n", self.namespaces.names[1], "link", "set", "wire", "up")


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    if (reason := why_not()) and os.environ.get("CI") != "true":
        pytest.skip(reason)
    assert not reason
    result = Machines()
    try:
        result.make()
        yield result
    finally:
        result.remove()


def test_unmodified_tools_see_the_fabric_from_the_other_machine(machines):
    script = f"{find_peer('ibstat')} && {find_peer('perfquery')} && {find_peer('sminfo')}"
    output = machines.run(1, *machines.as_h3("sh", "-c", script)).stdout
    assert "State: Active" in output
    assert "Port GUID: 0x0002c90300000301" in output, "that of h3"
    assert re.search(r"# Port counters: Lid \d+ port 1", output)
    assert "SMINFO_MASTER" in output


def test_messages_cross_to_the_other_machine_and_its_port_counts_them(machines, tmp_path):
    words = str(tmp_path), "RC", str(TURNS), "3000"
    players = [
        machines.start(0, "exec", "h1", sys.executable, str(TALKER), words[0], "a", "b", *words[1:]),
        machines.start(1, *machines.as_h3(sys.executable, str(TALKER), words[0], "b", "a", *words[1:])),
    ]
    output = [player.communicate(timeout=PATIENCE_S) for player in players]
    results = [json.loads(out.splitlines()[-1]) for out, _ in output]
    assert results == [{"turns": TURNS, "statuses": [0], "wrong": 0, "name": "mlx5_0"}] * 2, output
    assert machines.sent_by_h3() >= 3 * TURNS


def test_both_ends_agree_on_roce_and_data_go_past_the_lab(machines, tmp_path):
    """MADs still go to the lab."""
    local, present = machines.namespaces.ends
    words = "RC", "1", "3000", "global"
    talk = sys.executable, str(TALKER), str(tmp_path)
    sent = machines.sent_by_h3()
    players = [
        machines.start(0, "exec", "h1", "env", f"WEFT_VERBS_ROCE={local}", *talk, "a", "b", *words),
        machines.start(1, "join", machines.address, "--as", "h3", "--roce", present, "--", *talk, "b", "a", *words),
    ]
    output = [player.communicate(timeout=PATIENCE_S) for player in players]
    results = [json.loads(out.splitlines()[-1]) for out, _ in output]
    assert results == [{"turns": 1, "statuses": [0], "wrong": 0, "name": "mlx5_0"}] * 2, output
    assert machines.sent_by_h3() - sent < 3, "none but perfquery's own"


def test_a_cable_pulled_between_the_machines_is_one_pulled_in_the_fabric(machines):
    """rdma-core's ibv_asyncwatch, in C and unmodified, sees the port go down and come up again."""
    watch = find_peer("stdbuf"), "-oL", find_peer("ibv_asyncwatch")
    program = machines.start(1, *machines.as_h3(*watch))
    assert program.stdout is not None
    try:
        assert program.stdout.readline().startswith("mlx5_0: async event FD")
        machines.cut()
        assert "(10), port 1" in program.stdout.readline(), "IBV_EVENT_PORT_ERR"
        wait_until(lambda: "h3/1" in machines.run(0, "ps", "--json").stdout)
        assert "State: Down" in machines.run(0, "exec", "h3", find_peer("ibstat")).stdout
        machines.mend()
        assert "(9), port 1" in program.stdout.readline(), "IBV_EVENT_PORT_ACTIVE"
    finally:
        program.terminate()  # `weft exec` passes the signal on
        program.communicate(timeout=PATIENCE_S)
