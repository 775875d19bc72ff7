"""A job whose fabric fails while it runs: counters, faults that it survives, and errors when a host is cut off."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pytest
from tests.jobs.site import Site
from tests.jobs.test_run import left
from tests.jobs.training import Model, gradient
from tests.lab.rdma import all_active
from tests.patience import PATIENCE_S, wait_until
from tests.sm.test_control_server import define

from weft.fabric.counters import Counter
from weft.lab import verbs_server
from weft.sm.pkey.partitions import Everyone

PROGRAM = Path(__file__).with_name("training.py")
PATIENT, HASTY = 18, 14  # timeouts of queue pairs: one second, and 67 ms


class Job:
    """A job of `training.py` on these hosts."""

    def __init__(self, site: Site, folder: Path, *hosts: str, timeout: int = PATIENT) -> None:
        self.folder, self.n = folder, len(hosts)
        folder.mkdir()
        words = ["-n", str(self.n), "--lab", site.lab.name, "--hosts", ",".join(hosts), "--grace", str(PATIENCE_S)]
        command = [sys.executable, "-m", "weft", "run", *words, "--quiet", str(PROGRAM), str(folder), str(timeout)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for rank in range(self.n):
            with suppress(ProcessLookupError):
                if kind is not None and (process := self.rank_process(rank)):
                    os.kill(process, signal.SIGKILL)
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_S)

    def rank_process(self, rank: int) -> int:
        place = self.folder / f"process.{rank}"
        return int(place.read_text() or 0) if place.exists() else 0

    def steps(self, rank: int = 0) -> list[str]:
        place = self.folder / f"steps.{rank}"
        return place.read_text().split() if place.exists() else []

    def go_on(self, steps: int = 15) -> None:
        """Wait for more training steps."""
        expected = len(self.steps()) + steps
        wait_until(lambda: len(self.steps()) >= expected, self.describe, lambda: self.process.poll() is None)

    def describe(self) -> str:
        return f"step {len(self.steps())} of {self.folder.name}, {self.errors()}, a next one"

    def errors(self) -> list[str]:
        return [place.read_text() for place in sorted(self.folder.glob("error.*"))]

    def end(self) -> int:
        return self.process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def site(warm) -> Iterator[Site]:
    with ExitStack() as opened:
        yield Site(opened)


def test_a_job_survives_fabric_faults_with_bit_exact_results(site, tmp_path):
    """Checks counters, then a bad cable, a pulled cable, a failover of the subnet manager, and another pulled cable."""
    lab = site.lab
    with Job(site, tmp_path / "job", "h1", "h8") as job:
        job.go_on()
        only_what_it_uses_counts(site, job)
        a_bad_cable_loses_packets(site, job)
        routed_around(site, job)
        lab.fix()
        wait_until(lambda: all_active(lab))
        another_manages(site, job)
        routed_around(site, job)
        (job.folder / "stop").touch()
        assert job.end() == 0
        digests, model = [job.steps(rank) for rank in range(2)], Model()
    assert digests == [[model.learn(gradient(step, 0) + gradient(step, 1)) for step in range(len(digests[0]))]] * 2
    lab.fix()
    wait_until(lambda: all_active(lab))


def only_what_it_uses_counts(site: Site, job: Job) -> None:
    ways = site.way("h1", "h8"), site.way("h8", "h1")
    devices, steps = site.lab.subnet.devices, 30
    before = site.counters()
    job.go_on(steps)
    more = site.counters() - before
    far = [devices.cable[slot] for way in ways for slot in way]
    for column, slots in (
        (Counter.PORT_XMIT_PKTS, {slot for way in ways for slot in way}),
        (Counter.PORT_RCV_PKTS, set(far)),
    ):
        assert set(np.flatnonzero(more[:, column] >= steps).tolist()) == slots
        assert not more[[slot for slot in range(len(more)) if slot not in slots], column].max() > steps / 2


def a_bad_cable_loses_packets(site: Site, job: Job) -> None:
    slot = site.way("h8", "h1")[-2]  # into leaf1
    site.lab.degrade(site.lab.fabric.port(slot).name, 3e-6)
    before = site.counters()

    def hurt() -> bool:
        return (site.counters() - before)[:, Counter.PORT_RCV_ERRORS].sum() >= 5

    wait_until(hurt, job.describe, lambda: job.process.poll() is None)
    job.go_on()
    site.lab.fix()


def routed_around(site: Site, job: Job) -> None:
    uplink = site.way("h1", "h8")[1]
    site.lab.break_cable(site.lab.fabric.port(uplink).name)
    job.go_on()
    assert uplink not in site.way("h1", "h8") != []


def another_manages(site: Site, job: Job) -> None:
    site.manage("h2")
    wait_until(lambda: site.is_manager("h2", "standby"), lambda: site.log("h2"))
    site.kill("h1")
    job.go_on()
    wait_until(lambda: site.is_manager("h2", "master") and "SUBNET UP" in site.log("h2"), lambda: site.log("h2"))
    job.go_on()


def test_unreachable_ranks_are_named_with_the_reason(site, tmp_path, monkeypatch):
    """Tries a pulled cable and a removed partition member; a stopped process is not an error."""
    questions: list[int] = []
    question = verbs_server._QUESTIONS["has_not_taken"]
    monkeypatch.setitem(
        verbs_server._QUESTIONS, "has_not_taken", lambda *words, **more: (questions.append(1), question(*words, **more))
    )
    guid = {host: int(site.lab.fabric.ports.guid[site.lab.fabric[f"{host}/1"].slot]) for host in ("h4", "h6")}
    site.socket.allocate(define=[define(guid["h4"], guid["h6"])], default_is_full=False)
    site.socket.allocate(define=[define(Everyone.ALL, name="blue", p_key=0x0102)])
    with (
        Job(site, tmp_path / "blue", "h3", "h5", "h7", timeout=HASTY) as blue,
        Job(site, tmp_path / "red", "h4", "h6", timeout=HASTY) as red,
    ):
        for job in (blue, red):
            job.go_on()
        site.lab.degrade("h5", 1e-15)  # from now on data is sent as packets, not copied
        os.kill(blue.rank_process(1), signal.SIGSTOP)
        wait_until(lambda: len(questions) > 8, blue.describe, lambda: not blue.errors())
        os.kill(blue.rank_process(1), signal.SIGCONT)
        blue.go_on()
        site.lab.break_cable("h5")
        assert blue.end() == 3
        assert_named(blue, ("h3", "h5", "h7"), "h5", "pulled is h5/1 - leaf3/1, in ")
        red.go_on()
        site.socket.allocate(define=[define(guid["h4"])])
        assert red.end() == 3
        assert_named(red, ("h4", "h6"), "h6", "h6/1 is not in partition 0x0101 any more, in ")
    wait_until(lambda: not site.lab.verbs.slots())
    assert left() == []


def assert_named(job: Job, hosts: tuple[str, ...], cut_off: str, why: str) -> None:
    """Check that each rank names the unreachable peer, the endpoints, and the reason."""
    errors = job.errors()
    assert len(errors) == len(hosts), job.describe()
    for error in errors:
        match = re.search(r"rank (\d) on (h\d): no way to it any more: .*; no way from (h\d)/1 to (h\d)/1: (.*)", error)
        assert match is not None, error
        rank, host, source, to, reason = match.groups()
        assert (hosts[int(rank)], to) == (host, host)
        assert cut_off in (source, to)
        assert source in hosts
        assert reason.startswith(why)
