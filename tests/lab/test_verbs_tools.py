"""perftest's and rdma-core's programs by their names on hosts of a lab, by `weft exec`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.lab.rdma import running, wait_until
from tests.patience import PATIENCE_S

from weft.fabric.counters import Counter
from weft.lab.lab import Lab
from weft.verbs.perftest.exchange import free_port
from weft.verbs.perftest.perftest import WAITING


@pytest.fixture(scope="module")
def lab():
    with running() as up:
        yield up


def words_sent(lab: Lab, port: str) -> int:
    slot = lab.fabric[port].slot
    return lab.server.call(lambda: int(lab.fabric.counters[slot, Counter.PORT_XMIT_DATA_WORDS]))


def test_a_server_and_a_client_are_two_commands_and_their_ports_count(lab, tmp_path):
    port = str(free_port())
    server = lab.start("h8", "ib_write_bw", "-p", port, folder=tmp_path)
    try:
        output = Path(tmp_path / "output")
        wait_until(lambda: WAITING in output.read_text())
        before = words_sent(lab, "h1/1")
        done = lab.run("h1", "ib_write_bw", "h8", "-p", port, "-n", "20", "-s", "4K", "--json", timeout_s=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        assert server.wait(PATIENCE_S) == 0
    finally:
        server.kill()
        server.wait()
    facts = json.loads(done.stdout)
    assert (facts["client"], facts["server"], facts["device"]) == ("h1", "h8", "mlx5_0")
    assert facts["verified"]
    assert words_sent(lab, "h1/1") - before > 20 * 4096 // 4
    assert " Link type       : IB" in output.read_text()


def test_ibv_devinfo_shows_what_the_subnet_manager_has_set(lab):
    text = lab.run("h3", "ibv_devinfo", timeout_s=PATIENCE_S).stdout
    assert "hca_id:\tmlx5_0" in text
    assert f"\t\t\tport_lid:\t\t{lab.subnet.lid(lab.fabric['h3/1'].slot)}\n" in text
    assert "\t\t\tlink_layer:\t\tInfiniBand" in text
