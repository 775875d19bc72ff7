"""libfabric over weft's libibverbs and librdmacm: Debian's fi_info and fi_pingpong, unmodified."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

import pytest
from tests.interop.c_programs import free_port, listening_ports, on, output, outside_of_labs, program, started
from tests.lab.rdma import running
from tests.patience import PATIENCE_S, wait_until

from weft import compiler

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]


@pytest.fixture(scope="module")
def lab():
    with running() as up:
        yield up


def ping(kind: str, one: Mapping[str, str], other: Mapping[str, str], address: str) -> None:
    """Run fi_pingpong, which compares every byte (`-c`), with its TCP control connection on a free port."""
    port, words = free_port(), [program("fi_pingpong"), "-p", "verbs", "-e", kind, "-c", "-I", "20", "-S", "4096"]
    with started([*words, "-B", str(port)], one) as server:
        wait_until(lambda: port in listening_ports(), lambda: output(server), lambda: server.poll() is None)
        client = subprocess.run(
            [*words, "-P", str(port), address],
            env=dict(other),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        text = server.communicate(timeout=PATIENCE_S)[0]
    assert (client.returncode, server.returncode) == (0, 0), client.stdout + client.stderr + text
    assert "4k      20      =20 " in client.stdout


@pytest.mark.parametrize("kind", ["rdm", "dgram"])
def test_endpoints_of_each_kind_talk(kind):
    ping(kind, *[outside_of_labs()] * 2, "127.0.0.1")


@pytest.mark.parametrize("kind", ["msg", "dgram"])
def test_endpoints_of_each_kind_talk_between_hosts(lab, kind):
    """Connections use AF_IB: libfabric finds no IP interface of the adapter."""
    ping(kind, on(lab, "h1"), on(lab, "h8"), "127.1.0.1")


def test_fi_info_lists_the_adapter(lab):
    for environment in (outside_of_labs(), on(lab, "h1")):
        words = [program("fi_info"), "-p", "verbs"]
        text = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        for line in ("domain: mlx5_0", "type: FI_EP_MSG", "type: FI_EP_DGRAM", "type: FI_EP_RDM"):
            assert line in text.stdout
