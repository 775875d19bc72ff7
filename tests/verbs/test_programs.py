"""Typical programs for pyverbs and mlx5 adapters, in two processes: `weft verbs python app.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.warm import WARM

pytestmark = pytest.mark.usefixtures("warm")
PROGRAMS = Path(__file__).parent / "programs"
SERVICE = "18517"  # a service number of the connection manager: no socket uses it
LINK_LOCAL, IPV4 = "fe80:0000:0000:0000:0077:65ff:fe66:7401", "0000:0000:0000:0000:0000:ffff:7f00:0001"


def launch(program: str, *words: str, roce: str = "") -> subprocess.Popen[str]:
    before = ["--roce", roce] if roce else []
    command = [os.environ[WARM], "verbs", *before, sys.executable, str(PROGRAMS / program), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ends(server: subprocess.Popen[str], client: subprocess.Popen[str]) -> list[str]:
    """Return the last line of each output; if one program fails, end the other, which would wait for it."""
    both = (client, server)
    wait_until(lambda: any(one.poll() for one in both) or all(one.poll() == 0 for one in both), "both ends to end")
    for item in both:
        item.kill()
    output = [item.communicate() for item in both]
    assert [item.returncode for item in both] == [0, 0], output
    return [out.splitlines()[-1] for out, _ in output]


@pytest.mark.parametrize(("index", "gid"), [(1, LINK_LOCAL), (3, IPV4)])
def test_a_reliable_connection_by_the_gid_that_the_program_wants(index, gid):
    server = launch("rc_pingpong.py", "--gid", str(index))
    client = launch("rc_pingpong.py", "--gid", str(index), "127.0.0.1", server.stdout.readline().strip())
    assert ends(server, client) == [f"10 rounds by {gid}"] * 2


def test_a_program_that_waits_for_events():
    server = launch("rc_pingpong.py", "--events")
    client = launch("rc_pingpong.py", "--events", "127.0.0.1", server.stdout.readline().strip())
    assert ends(server, client) == [f"10 rounds by {IPV4}"] * 2


def test_the_same_program_over_udp():
    server = launch("rc_pingpong.py", roce="127.0.0.21")
    client = launch("rc_pingpong.py", "127.0.0.1", server.stdout.readline().strip(), roce="127.0.0.22")
    assert ends(server, client) == [f"10 rounds by 0000:0000:0000:0000:0000:ffff:7f00:00{end}" for end in (16, 15)]


@pytest.mark.parametrize(("index", "gid"), [(1, LINK_LOCAL), (3, IPV4)])
def test_datagrams_answered_by_what_came_with_them(index, gid):
    server = launch("ud_pingpong.py", "--gid", str(index))
    client = launch("ud_pingpong.py", "--gid", str(index), "127.0.0.1", server.stdout.readline().strip())
    assert ends(server, client) == [f"10 rounds by {gid}"] * 2


def test_connections_by_address_and_port():
    server = launch("cm_pingpong.py", SERVICE)
    server.stdout.readline()
    assert ends(server, launch("cm_pingpong.py", SERVICE, "127.0.0.1")) == ["10 rounds by mlx5_0"] * 2
