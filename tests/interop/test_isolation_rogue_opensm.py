"""Packets across tenants beside a real OpenSM on a tenant's host: `benchmarks/isolation.py` with fewer packets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

BENCHMARK = Path(__file__).parents[2] / "benchmarks/isolation.py"
PACKETS = 50_000
pytestmark = [pytest.mark.interop, pytest.mark.slow]


def test_m_key_stops_opensm_and_without_it_partitions_are_repaired(peer):
    peer("opensm")
    command = [sys.executable, str(BENCHMARK), str(PACKETS), "--opensm-runs", "2", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=5 * PATIENCE_S, check=True)
    protected, unprotected = json.loads(done.stdout)
    for row in (protected, unprotected):
        assert row["sent_beside_opensm"] + row["sent_after_repair"] > PACKETS
        assert row["delivered_after_repair"] == row["controls_lost"] == 0
        assert row["controls_sent"] > 0
    assert protected["delivered_beside_opensm"] == protected["repaired_ports"] == 0
    assert protected["refused_smps"] > 0
    assert unprotected["delivered_beside_opensm"] > PACKETS // 10, "else the test would show nothing"
    assert unprotected["repaired_ports"] >= 2 * 15, "all hosts but the manager's, in each run of OpenSM"
