"""Killed at any moment, a ledger loses nothing that was acknowledged and doubles nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from tests.serve.crash_program import FileFabric

from weft.serve.ledger import Ledger
from weft.serve.store import Store

PROGRAM = Path(__file__).with_name("crash_program.py")
KILLS = 2


def test_after_a_kill_and_restart_the_fabric_matches_the_database(database, tmp_path):
    chance, acknowledged, place = random.Random(1), set[int](), tmp_path / "fabric.json"
    for kill in range(KILLS):
        words = [sys.executable, str(PROGRAM), database, str(place), f"run{kill}"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writers:
            for _ in range(chance.randrange(1, 60)):
                acknowledged.add(int(writers.stdout.readline()))
            writers.kill()
            rest = writers.stdout.read()
        acknowledged |= {int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")}
    with Ledger(Store(database), FileFabric(place)) as ledger:
        desired, lines = ledger.desired(), ledger.store.audit_lines(most=10_000)
        present = FileFabric(place).read().allocation
    assert acknowledged <= desired.partitions.keys()
    assert present == desired.allocation()
    done = [line for line in lines if line.what == "make" and line.result == "done"]
    assert len(done) == len(desired.partitions)  # each is in the audit log once
    assert desired.revision == len(done) + 1  # and the fabric was taken over
