"""rdma-core's own tests run on weft's adapter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.conftest import do_without
from tests.interop.rdma_core import find_tests, peers_folder
from tests.patience import PATIENCE_S

from weft import compiler
from weft.verbs import launch

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(("ways", "count"), [([], 140), (["--shm"], 130)], ids=["packets", "shm"])
def test_rdma_cores_own_tests_pass_or_skip_for_a_reason(ways, count):
    script = Path(__file__).with_name("rdma_core.py")
    assert run([sys.executable, str(script), *ways], dict(os.environ)) >= count


def run(command: list[str], environment: dict[str, str]) -> int:
    """Return the number of cases that passed, and assert that none failed."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode == 2 and os.environ.get("CI") != "true":
        pytest.skip(done.stderr.strip())
    *before, last = done.stdout.splitlines() or [done.stderr]
    counts = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", last)
    assert counts, done.stdout[-2000:] + done.stderr[-2000:]
    passed, failed, _ = map(int, counts.groups())
    assert failed == 0, "\n".join(before)
    return passed


def test_they_pass_with_the_real_pyverbs_on_wefts_libibverbs():
    """With rdma-core's pyverbs (Cython) the same suite tests weft's libibverbs, without connection management."""
    if compiler.find() is None:
        pytest.skip("no C compiler")
    python = find_python()
    cases = [path.name.split(".")[0] for path in (find_tests() or Path()).glob("test_*.py*")]
    rest = [name for name in cases if "rdmacm" not in name and "flow" not in name]
    environment = os.environ | launch.environment()
    environment["PYTHONPATH"] = str(peers_folder() / "usr/lib/python3/dist-packages")
    assert run([python, str(Path(__file__).with_name("rdma_core.py")), "--real", *rest], environment) >= 130


def find_python() -> str:
    """Return a Python that has the real pyverbs and can run weft's libibverbs in the same process."""
    python = "/usr/bin/python3"
    recorded = "import sys, pyverbs.device; print(*sys.version_info[:2])"
    folder = str(peers_folder() / "usr/lib/python3/dist-packages")
    done = subprocess.run(
        [python, "-c", recorded], env=os.environ | {"PYTHONPATH": folder}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        do_without("python3-pyverbs")
    if done.stdout.split() != [str(number) for number in sys.version_info[:2]]:
        pytest.skip(f"pyverbs is of Python {'.'.join(done.stdout.split())}, and weft runs with another")
    return python
