"""Two subnets joined by a router: OpenSM manages one, weft the other, and unmodified programs connect across."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.c_programs import free_port, on, output, program, run_pair, started
from tests.interop.test_c_rdmacm import services
from tests.lab.rdma import load_shm_paths
from tests.lab.test_subnets import PREFIXES, is_up, knows, managed
from tests.patience import PATIENCE_S, wait_until

import weft
from weft import compiler
from weft.lab.lab import Lab
from weft.sm.conf.options import Options
from weft.sm.process import warm_up

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
NEAR, FAR = "fec0:0:0:1:2:c903:0:201", "fec0:0:0:2:2:c903:0:501"  # s1-h2 and s2-h2
FAR_ADDRESS = "127.1.0.4"


class OpenSm:
    """An OpenSM on a host of subnet 2, with a route to every other prefix."""

    def __init__(self, lab: Lab, folder: Path, binary: str) -> None:
        self._lab, self._folder, self._binary = lab, folder, binary
        (folder / "prefix-routes.conf").write_text("* *\n")
        self._conf = folder / "opensm.conf"
        self._conf.write_text(f"subnet_prefix {PREFIXES[1]:#x}\nprefix_routes_file {folder / 'prefix-routes.conf'}\n")
        self._starts = 0
        self.start()

    def start(self) -> None:
        """Start OpenSM and wait until the subnet is up."""
        self._starts += 1
        folder = self._folder / str(self._starts)
        folder.mkdir()
        log = folder / "opensm.log"
        caches = {"OSM_CACHE_DIR": str(folder), "OSM_TMP_DIR": str(folder)}
        words = (self._binary, "-F", str(self._conf), "-f", str(log), "-D", "0x83", "-d", "2")
        self.process = self._lab.start("s2-h1", *words, folder=folder, **caches)
        wait_until(lambda: log.is_file() and "SUBNET UP" in log.read_text(errors="replace"))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    warm_up(Options())
    load_shm_paths()
    name = f"routed{time.monotonic_ns() % 10**9}"
    with Lab(weft.load("subnets:2,of=star:hosts=2"), name) as up, managed(up, "s1-h1", PREFIXES[0]) as first:
        up.first = first
        yield up


def test_programs_connect_across_subnets_of_opensm_and_weft(
    lab: Lab, peer: Callable[[str], str], tmp_path: Path
) -> None:
    opensm = OpenSm(lab, tmp_path, peer("opensm"))
    wait_until(lambda: is_up(lab, 1) and is_up(lab, 2) and knows(lab.first, PREFIXES[1]))

    def run(host: str, *words: str) -> str:
        result = lab.run(host, *words, timeout_s=PATIENCE_S)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    # Both administrators return the router's LID and a hop limit above one.
    saquery = peer("saquery")
    for host, sgid, dgid, port in (("s1-h2", NEAR, FAR, "router1/1"), ("s2-h2", FAR, NEAR, "router1/2")):
        text = run(host, saquery, "PR", "--sgid", sgid, "--dgid", dgid)
        lid = lab.subnet.lid(lab.fabric.find_port(port).slot)
        assert f"dlid....................{lid}\n" in text
        assert "hop_flow_raw............0xFF\n" in text
    # Tools discover their own subnet and the router.
    for number, host in ((1, "s1-h2"), (2, "s2-h2")):
        seen = run(host, peer("ibnetdiscover"))
        assert f"s{number}-leaf1" in seen
        assert f"s{3 - number}-" not in seen
        assert 'Rt\t2 "R-' in seen
    # A program runs on while OpenSM dies and a new one starts.
    port = str(free_port())
    words = [program("ib_write_bw"), "-R", "-D", "6", "-p", port]
    before = services(on(lab, "s2-h2"))
    with started(words, on(lab, "s2-h2")) as server:
        wait_until(lambda: services(on(lab, "s2-h2")) - before, lambda: output(server), lambda: server.poll() is None)
        with started([*words, FAR_ADDRESS], on(lab, "s1-h2")) as client:
            opensm.stop()
            opensm.start()
            text = client.communicate(timeout=PATIENCE_S)[0]
            assert client.returncode == 0, text
        assert server.wait(PATIENCE_S) == 0
    assert "65536" in text
    # Datagrams to the other subnet, sent to the LID of the router, which is the same in both subnets.
    lid = lab.subnet.lid(lab.fabric.find_port("router1/1").slot)
    assert lid == lab.subnet.lid(lab.fabric.find_port("router1/2").slot)
    words = [program("ib_send_lat"), "-c", "UD", "-x", "0", "--dlid", str(lid), "-n", "20"]
    run_pair(words, on(lab, "s2-h2"), on(lab, "s1-h2"))
    opensm.stop()
