"""Programs on a machine that has just booted: clocks count from boot, and 0 is a valid time."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.patience import PATIENCE_S

PROGRAM = """
import os, time
began_s, began_ns = time.monotonic(), time.monotonic_ns()
real_s, real_ns = time.monotonic, time.monotonic_ns
time.monotonic, time.monotonic_ns = lambda: real_s() - began_s, lambda: real_ns() - began_ns

from tests.verbs.hosts import Node, connect, poll
from weft.verbs import enums as e
from weft.verbs.pyverbs.wr import SendWR

with Node() as node:
    a, b = connect(node, e.IBV_QPT_RC)
    work = SendWR(1, e.IBV_WR_RDMA_WRITE, 1, 0, [node.sge(0, 8)], e.IBV_SEND_SIGNALED)
    work.set_wr_rdma(node.mr.rkey, node.mr.buf + 2048)
    for _ in range(20):
        a.post_send(work)
        poll(node.cq, 1, seconds=300)
    print("a shared-memory path", a.core.shm_path is not None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes share memory on Linux only")
def test_a_program_finds_its_short_way_right_after_boot():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout == "a shared-memory path True\n", done.stderr
