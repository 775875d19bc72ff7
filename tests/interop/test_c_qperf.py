"""qperf, unmodified: it addresses by LID alone, so it measures between hosts of a lab; elsewhere with `-cm 1`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

import pytest
from tests.interop.c_programs import free_port, listening_ports, on, output, outside_of_labs, program, started
from tests.lab.rdma import running
from tests.patience import PATIENCE_S, wait_until

from weft import compiler

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]


def measure(one: Mapping[str, str], other: Mapping[str, str], *words: str) -> dict[str, str]:
    """Return the client's results of each test; `quit` ends the server."""
    qperf, port = program("qperf"), str(free_port())
    with started([qperf, "--listen_port", port], one) as server:
        wait_until(lambda: int(port) in listening_ports(), lambda: output(server), lambda: server.poll() is None)
        client = subprocess.run(
            [qperf, "127.0.0.1", "--listen_port", port, "--timeout", "60", *words, "quit"],
            env=dict(other),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert client.returncode == 0, client.stdout + client.stderr + output(server)
        server.wait(timeout=PATIENCE_S)
    return dict(re.findall(r"^(\w+):\n((?: .*\n)*)", client.stdout, re.M))


def test_between_hosts_of_a_lab_it_measures():
    """RC and UD run with a number of messages, which not all of its tests use; `ver_` compares the returned data."""
    with running() as lab:
        ends = on(lab, "h1"), on(lab, "h8")
        counted = measure(*ends, "--no_msgs", "200", "rc_bw", "ud_bw")
        timed = measure(*ends, "--time", "1", "conf", "uc_bw", "ver_rc_fetch_add")
    for name, says in {"rc_bw": "bw  =", "ud_bw": "recv_bw  ="}.items():
        assert says in counted[name]
    assert "loc_qperf" in timed["conf"]
    for name, says in {"uc_bw": "recv_bw", "ver_rc_fetch_add": "msg_rate"}.items():
        assert re.search(rf"\b{says}  =  +[1-9.]", timed[name]), timed


def test_outside_of_labs_the_connection_manager_knows_the_way():
    """The server binds port 0 and sends its port number to the client."""
    text = measure(*[outside_of_labs()] * 2, "-cm", "1", "--time", "1", "rc_rdma_write_bw")
    assert re.search(r"\bbw  =  +[1-9.]", text["rc_rdma_write_bw"]), text


def test_outside_of_labs_lids_are_refused_as_by_any_adapter_of_ethernet():
    with pytest.raises(AssertionError, match="an address needs a global route"):
        measure(*[outside_of_labs()] * 2, "rc_lat")
