"""Another user of the machine has no access to a lab and its programs; the same attempts succeed for the owner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import intruder
from tests.patience import PATIENCE_S, wait_until

from weft import runtime
from weft.lab import control, registry

STRANGER = 54_321  # a user ID without an account
NAME = f"doors{os.getpid()}"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

PROGRAM = """
import sys
from weft.verbs.pyverbs.device import Context
ctx = Context(name="mlx5_0")
print("open", flush=True)
sys.stdin.read()
"""


def state() -> dict[str, Any]:
    result: dict[str, Any] = control.ask(registry.find(NAME), "state")
    return result


@pytest.fixture(scope="module")
def target() -> Iterator[dict[str, Any]]:
    """A lab with a subnet manager, and a program that has an adapter open."""
    up = [sys.executable, "-m", "weft", "up", "star:hosts=4", "--sm", "--daemon", "--name", NAME]
    subprocess.run(up, check=True, capture_output=True, timeout=PATIENCE_S)
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout
        assert program.stdout.readline() == "open\n"
        present = [path for path in runtime.folder().rglob("*") if path.is_socket()]
        # Without the sockets of other labs of this user, which may end during the test.
        sockets = [str(path) for path in present if NAME in str(path) or path.parent.name == "verbs"]
        yield {"sockname": state()["sockname"], "sockets": sockets, "processes": [program.pid]}
    finally:
        program.communicate("")
        control.end(registry.find(NAME))


def tried(target: dict[str, Any], user: int, timeout_s: float) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, intruder.__file__, str(user), str(timeout_s)],
        input=json.dumps(target),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, str] = json.loads(done.stdout)
    return result


def test_the_owner_gets_in_everywhere_but_speaks_for_no_other(target):
    result = tried(target, 0, PATIENCE_S)
    assert [name for name, how in result.items() if how == "in"] == list(intruder.DOORS)


def test_another_user_gets_in_nowhere(target):
    before = state()
    result = tried(target, STRANGER, 1.0)
    assert [name for name, how in result.items() if how == "in"] == []
    assert set(result) == set(intruder.DOORS | intruder.FOR_NOBODY)
    wait_until(lambda: state()["errors"].get("another user is not let in", 0) >= 2)
    assert state()["clients"] == before["clients"]


def test_a_program_has_no_socket_that_rights_do_not_guard(target):
    """Abstract socket names belong to the first process that binds them."""
    inodes = set()
    for process in target["processes"]:
        for file in os.listdir(f"/proc/{process}/fd"):
            inodes.add(os.readlink(f"/proc/{process}/fd/{file}").removeprefix("socket:[").removesuffix("]"))
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    names = [line[7] for line in lines if len(line) > 7 and line[6] in inodes]
    assert names
    assert [name for name in names if name.startswith("@")] == []


def test_root_and_the_owner_are_trusted_and_nobody_else(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert [uid for uid in (0, 999, 1000, 1001) if runtime.is_trusted(runtime.Credentials(1, uid, 0))] == [0, 1000]
