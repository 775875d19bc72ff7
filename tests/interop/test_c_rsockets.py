"""rsockets of weft's librdmacm: Debian's rdmacm-utils and librspreload, unmodified, and both ends in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.c_programs import free_port, on, output, outside_of_labs, program, started
from tests.interop.conftest import do_without
from tests.interop.test_c_rdmacm import run_pair, services
from tests.lab.rdma import running
from tests.patience import PATIENCE_S, wait_until

from weft import compiler

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
PROGRAM = [sys.executable, str(Path(__file__).with_name("rsocket_program.py"))]
LITTLE = ["-S", "100000", "-C", "3", "-I", "3", "-T", "v"]  # bytes, transfers, iterations; each byte is verified


def preload() -> str:
    """Return the path of Debian's librspreload, which replaces sockets by rsockets."""
    result = next(Path("/usr/lib").rglob("librspreload.so"), None)
    if result is None:
        do_without("librdmacm1 (librspreload.so)")
    return str(result)


@pytest.mark.parametrize(
    "words",
    [["rstream", "-T", "a"], ["rstream", "-T", "s", "-T", "n"], ["riostream", "-T", "b"]],
    ids=["polls", "sockets", "mapped"],
)
def test_streams_of_others_carry_every_byte(words):
    """The programs use rpoll, sockets under librspreload, and remote memory."""
    command = [program(words[0]), *words[1:], *LITTLE, "-p", str(free_port())]
    environment = outside_of_labs()
    if "s" in words:
        environment["LD_PRELOAD"] = f"{preload()} {environment['LD_PRELOAD']}"
    text = run_pair(command, [*command, "-s", "127.0.0.1"], environment, environment)
    assert all("custom    97k     3       3 " in item for item in text)


def test_a_file_is_copied(tmp_path):
    source, copy, port = tmp_path / "source", tmp_path / "copy", str(free_port())
    source.write_bytes(os.urandom(3_000_000))
    environment = outside_of_labs()
    before = services(environment)
    with started([program("rcopy"), "-p", port], environment) as server:
        wait_until(lambda: services(environment) - before, lambda: output(server), lambda: server.poll() is None)
        words = [program("rcopy"), str(source), f"127.0.0.1:{copy}", "-p", port]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr + output(server)
    assert copy.read_bytes() == source.read_bytes()


def test_hosts_of_a_lab_stream_to_each_other():
    command = [program("rstream"), "-T", "b", *LITTLE]
    with running() as lab:
        run_pair(command, [*command, "-s", "127.1.0.1"], on(lab, "h1"), on(lab, "h8"))


def test_they_refuse_hold_back_and_end_as_sockets_do():
    done = subprocess.run(
        PROGRAM, env=outside_of_labs(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout == "well\n", done.stderr


def test_killed_process_resets_the_connection():
    port, environment = str(free_port()), outside_of_labs()
    before = services(environment)
    with started([*PROGRAM, "wait", port], environment) as server:
        wait_until(lambda: services(environment) - before, lambda: output(server), lambda: server.poll() is None)
        with started([*PROGRAM, "stay", port], environment):
            assert server.stdout is not None
            assert server.stdout.readline() == "hello\n"
        assert server.communicate(timeout=PATIENCE_S)[0] == "ECONNRESET\n"
