"""The ranks that wait for a killed rank get an error with its name, long before their timeout."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.patience import PATIENCE_S

from weft.collectives.live.link import Link
from weft.verbs import enums as e
from weft.verbs.pyverbs.wc import cqe_status_to_str

_PROGRAM = Path(__file__).with_name("dying_rank.py")


@pytest.mark.parametrize("items", ["100", "100000"], ids=["sent", "read"])
def test_a_rank_that_is_killed_is_named(tmp_path: Path, items: str) -> None:
    command = [sys.executable, str(_PROGRAM), str(tmp_path)]
    killed = subprocess.Popen([*command, "1", items])
    left = subprocess.run([*command, "0", items], capture_output=True, text=True, timeout=PATIENCE_S / 2, check=False)
    assert killed.wait(PATIENCE_S) == -signal.SIGKILL
    assert left.stdout.startswith("rank 1: no way to it any more"), left.stdout + left.stderr
    assert "in another sum" in left.stdout


@pytest.mark.parametrize(("status", "why"), [(e.IBV_WC_RETRY_EXC_ERR, "; h2 is down"), (e.IBV_WC_REM_ACCESS_ERR, "")])
def test_the_network_knows_why_a_rank_is_lost_only_where_no_answer_came(status: int, why: str) -> None:
    link = SimpleNamespace(broken=None, who="rank 1", why_lost=lambda: "; h2 is down")
    Link.on_completion(link, 0, status, 0, 0, 0)
    assert str(link.broken) == f"rank 1: no way to it any more: {cqe_status_to_str(status)}{why}"
