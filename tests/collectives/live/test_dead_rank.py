"""A rank that is killed is named to who waits for it, long before the time is over."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

_PROGRAM = Path(__file__).with_name("dying_rank.py")


@pytest.mark.parametrize("items", ["100", "100000"], ids=["sent", "read"])
def test_a_rank_that_is_killed_is_named(tmp_path: Path, items: str) -> None:
    command = [sys.executable, str(_PROGRAM), str(tmp_path)]
    killed = subprocess.Popen([*command, "1", items])
    left = subprocess.run([*command, "0", items], capture_output=True, text=True, timeout=PATIENCE_S / 2, check=False)
    assert killed.wait(PATIENCE_S) == -signal.SIGKILL
    assert left.stdout.startswith("rank 1: no way to it any more"), left.stdout + left.stderr
    assert "in another sum" in left.stdout
