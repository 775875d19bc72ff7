"""NIXL and Mooncake, unmodified wheels from PyPI that move memory of inference servers, on weft's adapter."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.interop.c_programs import on, outside_of_labs, started
from tests.interop.conftest import do_without
from tests.interop.engine_program import SIZE
from tests.lab.rdma import running
from tests.patience import PATIENCE_S

from weft import compiler
from weft.fabric.counters import Counter

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
PROGRAM = Path(__file__).with_name("engine_program.py")


@pytest.fixture(scope="module")
def lab():
    with running() as up:
        yield up


def move(engine: str, folder: Path, *environments: dict[str, str]) -> str:
    """Return the output of both ends, after each has received the bytes of the other."""
    if importlib.util.find_spec(engine) is None:
        do_without(engine)
    with ExitStack() as both:
        ends = [
            both.enter_context(
                started(
                    [sys.executable, str(PROGRAM), engine, str(folder / "socket"), role],
                    environment | {"PYTHONPATH": f"{ROOT}:{environment['PYTHONPATH']}"},
                )
            )
            for role, environment in zip(("serve", "come"), environments, strict=True)
        ]
        output = [end.communicate(timeout=PATIENCE_S)[0] for end in ends]
        assert [end.returncode for end in ends] == [0, 0], output
    assert all("the bytes of the other end are here" in item for item in output), output
    assert "TcpTransport" not in output[0] + output[1]  # Mooncake's fallback without an adapter
    return output[0] + output[1]


@pytest.mark.parametrize("engine", ["nixl", "mooncake"])
def test_an_engine_moves_memory_between_processes(engine, tmp_path):
    move(engine, tmp_path, outside_of_labs(), outside_of_labs())


@pytest.mark.parametrize("engine", ["nixl", "mooncake"])
def test_it_goes_through_the_switches_of_a_lab(engine, lab, tmp_path):
    before = sent_bytes(lab)
    move(engine, tmp_path, on(lab, "h1"), on(lab, "h8"))
    assert all(after - earlier >= SIZE for earlier, after in zip(before, sent_bytes(lab), strict=True))


def sent_bytes(lab) -> list[int]:
    """Return the bytes that the ports of both ends sent."""
    ports = [lab.fabric[f"{host}/1"].slot for host in ("h1", "h8")]
    return (4 * lab.fabric_now().counters[ports, Counter.PORT_XMIT_DATA_WORDS]).tolist()


@pytest.mark.parametrize("engine", ["nixl", "mooncake", "verbs"])
def test_a_model_served_on_two_hosts_answers_as_one_process_while_a_cable_is_cut(engine, warm):
    """Run examples/serve_model.py, which compares the tokens, the bytes at the port and the route itself."""
    for module in (engine, "torch"):
        if module != "verbs" and importlib.util.find_spec(module) is None:
            do_without(module)
    with tempfile.TemporaryDirectory(prefix="weft-") as runtime:  # short: it holds sockets
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples/serve_model.py"), engine],
            env=os.environ | {"XDG_RUNTIME_DIR": runtime, "PATH": f"{warm.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "are bit-equal to those of one process" in done.stdout
    moved = re.search(r"moved by \w+: ([\d,]+) bytes.* sent ([\d,]+)", done.stdout)
    assert moved is not None, done.stdout
    kv_bytes, port_bytes = (int(number.replace(",", "")) for number in moved.groups())
    assert kv_bytes == 12 * 192 * 4 * 2 * 2 * 64 * 2  # requests x tokens x layers x 2 (K, V) x heads x size x bf16
    assert kv_bytes < port_bytes < 1.5 * kv_bytes  # headers, and retransmissions of data lost on the cut cable
