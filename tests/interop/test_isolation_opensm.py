"""Isolation of tenants on tables that OpenSM wrote, and OpenSM's reports of attempts to cross."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from tests.patience import wait_until
from tests.tenants.subnets import BLUE, RED, SMALL, cut, packet

import weft
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.tenants.drivers.partition_files import write_partitions
from weft.tenants.isolation import prove_isolation
from weft.tenants.reading import read_fabric
from weft.tenants.violations import Watch, attribute, count_violations

pytestmark = pytest.mark.interop


def test_opensm_isolates_slices_and_tells_who_tried(peer, tmp_path):
    fabric = weft.load(SMALL)
    allocation = cut(fabric, red=RED, blue=BLUE)
    conf, log = tmp_path / "partitions.conf", tmp_path / "osm.log"
    conf.write_text(write_partitions(allocation))
    words = [peer("opensm"), "-f", str(log), "-P", str(conf), "-D", "0x43", "-d", "2"]  # flushed at once
    places = {"OSM_CACHE_DIR": str(tmp_path), "OSM_TMP_DIR": str(tmp_path)}
    with Lab(fabric, f"iso{time.monotonic_ns() % 10**12}") as lab:
        opensm = lab.start("h1", *words, folder=tmp_path, **places)
        try:
            wait_until(lambda: log.exists() and "SUBNET UP" in log.read_text(), going=lambda: opensm.poll() is None)
            with closing(IbsimCarrier("h1", lab.sockname)) as carrier, Watch(carrier) as watch:
                observed = read_fabric(carrier)
                proof = prove_isolation(observed, allocation)
                assert proof.ok, proof.explain()
                assert proof.unguarded == ()
                assert len(proof.raw) == 8, "OpenSM leaves FilterRaw alone"
                for sender, key in (("h2", 0x8102), ("h5", 0x8101)):
                    lab.send_packet(sender, packet(lab.fabric, sender, "h3", key))
                heard: set[str] = set()

                def hears_both() -> bool:
                    heard.update(str(attribute(notice, observed, allocation)) for notice in watch.notices(0.05))
                    return len(heard) == 2

                wait_until(hears_both)
                assert heard == {
                    "h2/1 (red) to h3/1 (blue) with P_Key 0x8102: dropped at leaf1/2",
                    "h5/1 (red) to h3/1 (blue) with P_Key 0x8101: dropped at leaf2/1",
                }
                counts = {
                    item.port: (item.from_port, item.to_port)
                    for item in count_violations(carrier, observed, allocation)
                }
                assert counts == {"h2/1": (1, 0), "h3/1": (0, 1)}
        finally:
            opensm.kill()
            opensm.wait()
