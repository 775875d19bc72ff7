"""UCX, unmodified, on weft's libibverbs: its list of transports, and the transfers of its own benchmarks."""

from __future__ import annotations

import re
import subprocess

import pytest
from tests.interop.c_programs import on, outside_of_labs, program, run_pair
from tests.lab.rdma import running
from tests.patience import PATIENCE_S

from weft import compiler
from weft.fabric.counters import Counter

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
BATCH = """\
short -t tag_lat -s 8 -n 20 -w 2
long -t tag_bw -s 65536 -n 20 -w 2
put -t ucp_put_bw -s 8192 -n 20 -w 2
get -t ucp_get -s 8192 -n 20 -w 2
add -t ucp_fadd -s 8 -n 20 -w 2
"""


def only(transport: str) -> dict[str, str]:
    """Return variables that limit UCX to one transport: neither sockets nor its own shared memory."""
    return {"UCX_TLS": f"{transport},self", "UCX_NET_DEVICES": "mlx5_0:1"}


@pytest.fixture(scope="module")
def lab():
    with running() as up:
        yield up


@pytest.mark.parametrize("where", ["outside", "in a lab"])
def test_ucx_finds_the_adapter_and_both_its_transports(where, request):
    environment = outside_of_labs() if where == "outside" else on(request.getfixturevalue("lab"), "h2")
    done = subprocess.run(
        [program("ucx_info"), "-d"], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = re.findall(r"Transport: (\w+)\n#\s+Device: (\S+)", done.stdout)
    assert {("rc_verbs", "mlx5_0:1"), ("ud_verbs", "mlx5_0:1")} <= set(result), done.stdout


def measured(said: str) -> list[str]:
    """Return the stages of the benchmark that printed a result."""
    return re.findall(r"^\+(\w+)-+\+.*\nFinal: +20 ", said, re.M)


@pytest.mark.parametrize("transport", ["rc_v", "ud_v"])
def test_tags_puts_gets_and_atomics_go_between_processes(transport, tmp_path):
    (tmp_path / "batch").write_text(BATCH)
    words = [program("ucx_perftest"), "-b", str(tmp_path / "batch")]
    output = run_pair(words, *[outside_of_labs() | only(transport)] * 2)
    assert measured(output[1]) == ["short", "long", "put", "get", "add"], output


def test_they_go_through_the_switches_of_a_lab(lab, tmp_path):
    (tmp_path / "batch").write_text(BATCH)
    words = [program("ucx_perftest"), "-b", str(tmp_path / "batch")]
    before = packets(lab)
    output = run_pair(words, on(lab, "h1") | only("rc_v"), on(lab, "h8") | only("rc_v"))
    assert measured(output[1]) == ["short", "long", "put", "get", "add"], output
    hops, mtu_bytes = 4, 4096
    assert packets(lab) - before >= hops * 20 * (65536 + 2 * 8192) // mtu_bytes


def packets(lab) -> int:
    """Return the number of data packets that all ports sent."""
    sent = Counter.PORT_XMIT_PKTS
    return int(lab.server.call(lambda: (lab.metered_paths.collect(), lab.fabric.counters[:, sent].sum())[1]))
