"""Real infiniband-diags and perftest on planarised ports, in a lab of two planes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

import pytest
from tests.interop.c_programs import on, program, run_pair
from tests.lab.rdma import load_shm_paths
from tests.lab.test_planes import SPEC, both, is_whole
from tests.lab.test_subnets import managed
from tests.patience import wait_until

import weft
from weft import compiler
from weft.lab.lab import Lab
from weft.sm.conf.options import Options
from weft.sm.process import warm_up

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    warm_up(Options())
    load_shm_paths()
    with both(f"planar{time.monotonic_ns() % 10**9}") as up:
        yield up


def run(lab: Lab, *words: str) -> str:
    done = lab.run("h2", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ibstat_shows_a_pair_with_one_port_guid(lab):
    printed = run(lab, "ibstat")
    assert re.findall(r"^CA '(.*)'", printed, re.M) == ["mlx5_0", "smi0"]
    assert re.findall(r"Number of ports: (\d)", printed) == ["1", "2"]
    assert re.findall(r"Rate: (\d+)", printed) == ["400", "200", "200"]
    assert len(set(re.findall(r"Port GUID: (\S+)", printed))) == 1


@pytest.mark.parametrize("plane", [1, 2])
def test_tools_look_at_one_plane_through_the_smi_device(lab, plane):
    at = ("-C", "smi0", "-P", str(plane))
    assert re.findall(r'^Switch.*"(.*)"', run(lab, "ibnetdiscover", *at, "-l"), re.M) == [f"p{plane}-leaf1"]
    links = run(lab, "iblinkinfo", *at)
    assert re.findall(r"^Switch: \S+ (\S+):", links, re.M) == [f"p{plane}-leaf1"]
    assert links.count("2X        106.25 Gbps Active") == 4
    assert "SMINFO_MASTER" in run(lab, "sminfo", *at)
    assert f"port {plane} " in run(lab, "perfquery", "-x", *at, "3", str(plane))
    assert "p1-leaf1" in run(lab, "ibnetdiscover", "-l"), "without a name, the first plane"


def test_gsi_device_queries_the_administrator_and_refuses_smps(lab):
    assert "PathRecord dump" in run(lab, "saquery", "-C", "mlx5_0", "-P", "1", "PR", "--dlid", "3")
    refused = lab.run("h2", "ibnetdiscover", "-C", "mlx5_0")
    assert refused.returncode
    assert "client_register for mgmt 1 failed" in refused.stderr


@pytest.mark.parametrize("dead", ["", "p1-leaf1", "p2-leaf1"])
def test_perftest_runs_over_all_planes_that_are_left(lab, dead):
    words = [program("ib_write_bw"), "-F", "-n", "500", "-s", "4096"]
    if dead:
        lab.break_cable(dead)
    try:
        _, printed = run_pair(words, on(lab, "h1"), on(lab, "h2"))
        assert "LID 0x03" in printed
        assert re.search(r"^ 4096 +500 ", printed, re.M)
    finally:
        if dead:
            lab.fix()
        wait_until(lambda: is_whole(lab))


def test_opensm_manages_one_plane_and_weft_the_other(peer, tmp_path):
    """With the LIDs of weft's manager (guid2lid) both planes carry data; no connection breaks when OpenSM dies."""
    warm_up(Options())
    load_shm_paths()
    name = f"both{time.monotonic_ns() % 10**9}"
    with Lab(weft.load(SPEC), name) as lab, managed(lab, "h1/1", Options().subnet_prefix):
        devices = lab.subnet.devices
        slots = [lab.fabric.find_port(f"h{number}/1").slot for number in (1, 2)]
        wait_until(lambda: all(devices.is_active(slot) for slot in slots))
        lids = [(int(lab.fabric.ports.guid[slot]), devices.lid(slot)) for slot in slots]
        (tmp_path / "guid2lid").write_text("".join(f"{guid:#018x} {lid:#06x} {lid:#06x}\n\n" for guid, lid in lids))
        caches = {"OSM_CACHE_DIR": str(tmp_path), "OSM_TMP_DIR": str(tmp_path)}
        words = (peer("opensm"), "-F", os.devnull, "-x", "-f", str(tmp_path / "log"))
        opensm = lab.start("h1/2", *words, folder=tmp_path, **caches)
        try:
            wait_until(lambda: is_whole(lab), lambda: (tmp_path / "output").read_text())
            assert "SMINFO_MASTER" in run(lab, "sminfo", "-C", "smi0", "-P", "2")
            words = [program("ib_write_bw"), "-F", "-n", "500", "-s", "4096"]
            run_pair(words, on(lab, "h1"), on(lab, "h2"))
        finally:
            opensm.kill()
            opensm.wait()
        run_pair(words, on(lab, "h1"), on(lab, "h2"))
