"""Slices by way of unmodified OpenSM, in a lab: its files, its signal, and the tables that its ports have then."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.drivers import CHECKS, Bench
from tests.patience import wait_until

import weft
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.tenants.drivers.opensm import OpenSmDriver

pytestmark = pytest.mark.interop
_NUMBER = itertools.count()
THEIRS = "# mine\nown=0x0200 : 0x1234=full ;"  # without an end of line


class Opensm:
    """OpenSM at h1 of a lab, and a driver at h6."""

    def __init__(self, folder: Path, opensm: str) -> None:
        self.folder = folder
        self.lab = Lab(weft.load("star:hosts=6"), f"osm-{next(_NUMBER)}-{folder.name[-12:]}")
        self.partitions, self.options = folder / "partitions.conf", folder / "opensm.conf"
        self.partitions.write_text(THEIRS)
        self.options.write_text("sweep_interval 0\nqos_policy_file (null)\n")
        self.log = folder / "osm.log"
        self.words = [opensm, "-f", str(self.log), "-D", "0x83", "-d", "2"]
        self.words += ["-F", str(self.options), "-P", str(self.partitions)]

    def start(self) -> None:
        self.lab.__enter__()
        places = {"OSM_CACHE_DIR": str(self.folder), "OSM_TMP_DIR": str(self.folder)}
        self.process: subprocess.Popen[str] = self.lab.start("h1", *self.words, folder=self.folder, **places)
        wait_until(lambda: self.log.exists() and "SUBNET UP" in self.log.read_text(), "SUBNET UP")
        self.carrier = IbsimCarrier("h6", self.lab.sockname)

    def driver(self, patience_s: float = 600) -> OpenSmDriver:
        return OpenSmDriver(
            partitions=self.partitions,
            options=self.options,
            signal=self.process.pid,
            carrier=self.carrier,
            patience_s=patience_s,
        )

    def held(self, guid: int) -> list[int]:
        fabric = self.lab.fabric
        return fabric.tables.pkey[fabric.ports.guid.tolist().index(guid)].tolist()

    def bench(self, patience_s: float = 600) -> Bench:
        fabric = self.lab.fabric
        guids = {f"h{number}": int(fabric[f"h{number}/1"].guid) for number in range(2, 7)}
        return Bench(driver=self.driver(patience_s), guids=guids, held=self.held, taken=0x200, sets_default=False)

    def end(self) -> None:
        self.carrier.close()
        self.process.kill()
        self.process.wait()
        self.lab.stop()


@pytest.fixture(scope="module")
def opensm(peer, tmp_path_factory) -> Iterator[Opensm]:
    made = Opensm(tmp_path_factory.mktemp("osm"), peer("opensm"))
    made.start()
    yield made
    made.end()


@pytest.fixture
def bench(opensm) -> Bench:
    return opensm.bench()


@pytest.mark.parametrize("name", CHECKS)
def test_a_driver_of_opensm_keeps_to_the_suite(bench, opensm, name):
    CHECKS[name](bench)
    assert opensm.partitions.read_text() == THEIRS
