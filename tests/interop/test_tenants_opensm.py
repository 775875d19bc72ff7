"""Tenants' partitions through unmodified OpenSM, in a lab: its files, its signal, and the ports' tables after it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.drivers import CHECKS, LANES, Bench, partition_of
from tests.patience import PATIENCE_S, wait_until
from tests.tenants.drivers import killed
from tests.tenants.drivers.test_killed import kill_everywhere

import weft
from weft.errors import SubnetError
from weft.ids import Gid
from weft.lab.lab import Lab
from weft.mad.administrator import ask_paths
from weft.mad.ibsim_client import IbsimCarrier
from weft.tenants.drivers.opensm import OpenSmDriver
from weft.tenants.partitions import Allocation
from weft.wire.sa import PathRecord

pytestmark = pytest.mark.interop
_NUMBER = itertools.count()
THEIRS = "# mine\nown=0x0200 : 0x1234=full ;"  # without an end of line


class Opensm:
    """An OpenSM at h1 of a lab, and a driver at h6."""

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

    def driver(self, **words: Any) -> OpenSmDriver:
        same = {"partitions": self.partitions, "options": self.options, "signal": self.process.pid}
        return OpenSmDriver(**{**same, "carrier": self.carrier, "timeout_s": PATIENCE_S, **words})

    def held(self, guid: int) -> list[int]:
        fabric = self.lab.fabric
        return fabric.tables.pkey[fabric.ports.guid.tolist().index(guid)].tolist()

    def bench(self) -> Bench:
        fabric = self.lab.fabric
        guids = {f"h{number}": int(fabric[f"h{number}/1"].guid) for number in range(2, 7)}
        return Bench(driver=self.driver(), guids=guids, held=self.held, taken=0x200, sets_default=False)

    def end(self) -> None:
        self.carrier.close()
        self.process.kill()
        self.process.wait()
        self.lab.stop()


@pytest.fixture(scope="module")
def opensm(peer, tmp_path_factory) -> Iterator[Opensm]:
    result = Opensm(tmp_path_factory.mktemp("osm"), peer("opensm"))
    result.start()
    yield result
    result.end()


@pytest.fixture
def bench(opensm) -> Iterator[Bench]:
    yield opensm.bench()
    assert opensm.partitions.read_text() == THEIRS


@pytest.mark.parametrize("name", CHECKS)
def test_a_driver_of_opensm_keeps_to_the_suite(bench, name):
    CHECKS[name](bench)


def test_without_a_file_of_the_operator_default_becomes_limited_and_full_again(bench, opensm):
    opensm.partitions.write_text("")
    expected = bench.allocation(partition_of(bench, "red", 0x101, "h2"))
    bench.put(expected)
    bench.expect(expected)
    bench.put(Allocation())
    bench.expect(Allocation())
    assert opensm.partitions.read_text() == ""
    opensm.partitions.write_text(THEIRS)


def test_paths_within_a_slice_have_its_service_level_and_ports_its_lanes(bench, opensm):
    """No policy file is needed; a port outside the slice has no path."""
    bench.put(bench.allocation(partition_of(bench, "fast", 0x101, "h2 h3", sl=1), lanes=LANES))
    fabric = opensm.lab.fabric
    gid = {host: Gid.LINK_LOCAL_PREFIX << 64 | guid for host, guid in bench.guids.items()}
    carrier = IbsimCarrier("h2", opensm.lab.sockname)
    rows = ask_paths(carrier, gid["h2"], gid["h3"])
    assert [(PathRecord.p_key.get(row.tobytes()), PathRecord.sl.get(row.tobytes())) for row in rows] == [(0x8101, 1)]
    assert len(ask_paths(carrier, gid["h2"], gid["h4"])) == 0
    carrier.close()
    row = int(fabric.tables.first_pair[fabric.find_node("h2").index]) + 1
    wait_until(lambda: fabric.tables.sl2vl[row].tolist() == list(LANES.sl2vl), "lanes at h2")  # the sweep's last write
    bench.empty()


def all_stand_still(process: int) -> bool:
    """Return whether all threads have stopped: one on another processor may still run after the signal was sent."""
    states = [Path(task, "stat").read_text().rpartition(") ")[2][0] for task in Path(f"/proc/{process}/task").iterdir()]
    return set(states) == {"T"}


def test_stopped_opensm_gets_no_change(bench, opensm):
    expected = bench.allocation(partition_of(bench, "red", 0x101, "h2"))
    os.kill(opensm.process.pid, signal.SIGSTOP)
    wait_until(lambda: all_stand_still(opensm.process.pid), "that OpenSM is stopped")
    with pytest.raises(SubnetError, match=r"partitions\.conf: the subnet manager at LID \d+ does not answer"):
        bench.put(expected)
    assert opensm.partitions.read_text() == THEIRS
    os.kill(opensm.process.pid, signal.SIGCONT)
    wait_until(lambda: opensm.driver().inventory().ports)
    bench.put(expected)
    bench.expect(expected)
    bench.empty()


def test_files_are_restored_if_opensm_cannot_be_signalled(bench, opensm, tmp_path):
    (tmp_path / "opensm.pid").write_text("none\n")
    driver = opensm.driver(signal=tmp_path / "opensm.pid")
    with pytest.raises(SubnetError, match=r"cannot signal the process in .*opensm\.pid"):
        driver.write(bench.allocation(partition_of(bench, "red", 0x101, "h2")), over=driver.read())
    assert opensm.driver().read().allocation == bench.allocation()


@pytest.fixture
def another() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """A function that starts a process that is not OpenSM."""
    with ExitStack() as ends:

        def start(*words: str) -> subprocess.Popen[bytes]:
            result = ends.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE))
            ends.callback(result.kill)
            return result

        yield start


def test_a_process_that_sighup_would_end_is_not_told(bench, opensm, another):
    """The process has the ID of an OpenSM that has ended."""
    other = another("tail", "-n", "1", "-f", __file__)
    assert other.stdout
    other.stdout.readline()  # now the process has the name of its program
    driver = opensm.driver(signal=other.pid, timeout_s=2.0)
    with pytest.raises(SubnetError, match=rf"process {other.pid} is tail, which SIGHUP would kill, not OpenSM"):
        driver.write(bench.allocation(partition_of(bench, "red", 0x101, "h2")), over=driver.read())
    assert other.poll() is None
    assert opensm.partitions.read_text() == THEIRS


def test_another_that_takes_the_signal_is_not_taken_for_opensm(bench, opensm, another):
    """A group of IPoIB changes no port's table: the sweep itself must be detected."""
    bench.put(bench.allocation(partition_of(bench, "red", 0x101, "h2")))
    other = another("sh", "-c", "trap : HUP; echo ready; while :; do sleep 0.02; done")
    assert other.stdout
    assert other.stdout.readline() == b"ready\n"
    driver = opensm.driver(signal=other.pid, timeout_s=2.0)
    with pytest.raises(SubnetError, match="has not applied the files within 2 s: it has not swept"):
        driver.write(bench.allocation(partition_of(bench, "red", 0x101, "h2", ipoib=True)), over=driver.read())
    bench.empty()


def test_files_are_restored_if_opensm_does_not_apply_them(bench, opensm):
    """OpenSM does not read this file, so the ports do not get its partitions."""
    elsewhere = opensm.folder / "elsewhere.conf"
    elsewhere.write_text(THEIRS)
    driver = opensm.driver(partitions=elsewhere, timeout_s=0.5)
    expected = bench.allocation(partition_of(bench, "red", 0x101, "h2"))
    with pytest.raises(SubnetError, match=r"elsewhere\.conf has not applied the files within 0\.5 s: .*\n  The files"):
        driver.write(expected, over=driver.read())
    patient = opensm.driver(partitions=elsewhere)
    assert patient.read().allocation == bench.allocation()
    assert elsewhere.read_text() == THEIRS
    bench.expect(bench.allocation())


def test_a_port_without_room_is_as_it_was(bench, opensm):
    """OpenSM leaves out keys that do not fit, and reports them only in its log."""
    many = [partition_of(bench, f"t{p_key}", p_key, "h3") for p_key in range(0x1000, 0x1000 + 128)]
    hasty = opensm.driver(timeout_s=3.0)
    with pytest.raises(SubnetError, match="has not applied the files within 3 s"):
        hasty.write(bench.allocation(*many), over=hasty.read())
    bench.expect(bench.allocation())


@pytest.mark.slow
def test_change_is_completed_after_a_kill_at_any_moment(bench, opensm):
    arguments = (opensm.partitions, opensm.options, opensm.process.pid, "h5", opensm.lab.sockname)
    assert kill_everywhere(bench, killed.of_opensm, *arguments) >= 8
    bench.empty()
