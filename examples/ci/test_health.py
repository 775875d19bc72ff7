"""A node's health check finds missing cables and slow ports."""

import sys
import time
from pathlib import Path

import pytest

CHECK = (sys.executable, str(Path(__file__).with_name("health.py")), "--adapters", "1", "--rate", "400")


def test_a_healthy_node_passes(host):
    ended = host("h1").run(*CHECK)
    assert (ended.returncode, ended.stdout) == (0, "healthy\n"), ended.stderr


@pytest.mark.weft_lab("star:hosts=3")  # the subnet manager runs at h1: its cable stays
def test_a_pulled_cable_and_a_slow_port_are_reported(lab, host, break_cable):
    break_cable("h3/1")
    lab.degrade("h2/1", "--to", "4xEDR")
    assert host("h3").run(*CHECK).stdout == "mlx5_0: port 1 is not active\n"
    until_s = time.monotonic() + 60
    while "State: Active" not in host("h2").run("ibstat").stdout and time.monotonic() < until_s:
        time.sleep(0.2)  # the link has trained anew, and waits for the subnet manager
    slow = host("h2").run(*CHECK)
    assert slow.returncode == 1
    assert slow.stdout == "mlx5_0: port 1 runs at 100 Gbit/s instead of 400\n"
