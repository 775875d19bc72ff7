"""The driver for OpenSM, against weft's subnet manager in this process with OpenSM's files."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.tenants.subnets import guid

import weft
from weft.errors import NoResponseError, SubnetError
from weft.mad.local import LocalCarrier
from weft.mad.subnet import Subnet
from weft.scenarios.managed import ManagedSubnet
from weft.sm.conf.options import Options
from weft.tenants.drivers import opensm
from weft.tenants.drivers.driver import FabricChangedError, Observed
from weft.tenants.drivers.opensm import OpenSmDriver
from weft.tenants.drivers.opensm_files import load
from weft.tenants.partitions import Allocation, Member, Partition

THEIRS = "own=0x0200 : NONE ;\n"


class Manager:
    """A subnet manager at h1. SIGHUP to this process makes it sweep, with its files unless `is_deaf`."""

    def __init__(self, folder: Path) -> None:
        self.partitions, self.options = folder / "partitions.conf", folder / "opensm.conf"
        self.obeyed = folder / "obeyed.conf"
        for path in (self.partitions, self.obeyed):
            path.write_text(THEIRS)
        self.net = ManagedSubnet(weft.load("star:hosts=6"), Options(partition_config_file=self.obeyed))
        self.carrier = LocalCarrier(self.net.subnet, self.net.fabric["h6/1"].slot, sleep=self._answer)
        self.signals, self.is_deaf = 0, False

    def driver(self, **words: object) -> OpenSmDriver:
        same = {"partitions": self.partitions, "options": self.options, "signal": os.getpid(), "carrier": self.carrier}
        return OpenSmDriver(**same | words)

    def on_signal(self, *_: object) -> None:
        self.signals += 1
        if not self.is_deaf:
            self.obeyed.write_text(self.partitions.read_text())
        self.net.manager.reload()
        self.net.settle()

    def held(self, host: str) -> set[int]:
        return {key for key in self.net.fabric.tables.pkey[self.net.fabric[f"{host}/1"].slot].tolist() if key}

    def _answer(self, seconds: float) -> None:
        self.net.clock.sleep(seconds)
        self.net.manager.step()


@pytest.fixture
def manager(tmp_path, monkeypatch) -> Iterator[Manager]:
    """Return a manager; the driver's clock counts its calls."""
    result = Manager(tmp_path)
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks), sleep=lambda _: None)
    monkeypatch.setattr(opensm, "time", clock)
    before = signal.signal(signal.SIGHUP, result.on_signal)
    yield result
    signal.signal(signal.SIGHUP, before)


def sliced(manager: Manager, *hosts: str) -> Allocation:
    members = {guid(manager.net.fabric, host): Member() for host in hosts}
    return Allocation(partitions={0x101: Partition(name="red", p_key=0x101, members=members)}, default_is_full=False)


def test_a_write_ends_when_the_ports_have_the_partitions(manager):
    driver, expected = manager.driver(), sliced(manager, "h2", "h3")
    assert (driver.inventory().manager_guid, driver.inventory().routing_sls) == (guid(manager.net.fabric, "h1"), 1)
    before = driver.read()
    driver.write(expected, over=before)
    assert (driver.read().allocation, driver.read().foreign_p_keys) == (expected, {0x200})
    assert [0x8101 in manager.held(f"h{number}") for number in range(1, 7)] == [False, True, True, False, False, False]
    assert not load(manager.partitions, manager.options).partitions.is_open
    signals = manager.signals
    driver.write(expected, over=driver.read())
    assert manager.signals == signals, "the same partitions again need no sweep"
    with pytest.raises(FabricChangedError, match="its files have changed since they were read"):
        driver.write(Allocation(), over=before)


def test_a_file_that_is_marked_open_is_applied_by_the_next_read(manager):
    driver, expected = manager.driver(), sliced(manager, "h2")
    files = load(manager.partitions, manager.options).with_allocation(expected).opened()
    files.write_partitions()
    with pytest.raises(FabricChangedError):
        driver.write(expected, over=Observed(allocation=expected, revision=files.revision))
    assert driver.read().allocation == expected
    assert 0x8101 in manager.held("h2")
    assert not load(manager.partitions, manager.options).partitions.is_open


def test_differing_ports_are_repaired_by_a_sweep_only_on_request(manager):
    driver, expected = manager.driver(), sliced(manager, "h2")
    load(manager.partitions, manager.options).with_allocation(expected).write_partitions()
    for _ in range(2):
        assert "h2/1 lacks 0x8101" in driver.check(repair=False).differences
    assert manager.signals == 0
    assert driver.check(repair=True).differences
    assert (manager.signals, driver.check(repair=True).differences, manager.signals) == (1, (), 1)


@pytest.mark.parametrize(
    ("timeout_s", "trouble"),
    [(0, "it has not swept"), (4, "([^,]* lacks 0x8101(, )?){3} and 9 more")],
)
def test_files_are_restored_if_ports_do_not_get_the_partitions(manager, timeout_s, trouble):
    manager.is_deaf = True
    driver = manager.driver(timeout_s=timeout_s)
    with pytest.raises(SubnetError, match=rf"has not applied the files within {timeout_s} s: {trouble}\n"):
        driver.write(sliced(manager, *(f"h{number}" for number in range(1, 7))), over=driver.read())
    assert "red" not in manager.partitions.read_text()
    assert manager.signals == 2, "once for the change, once to restore it"


@pytest.mark.parametrize(
    ("sent", "reads"),
    [
        ([7, 8], 1),  # the fabric has 7 nodes: at least one MAD for each, and then a pause
        ([8], 0),
        ([8, 15], 1),
        ([8, 16], 0),
        ([8, 16, 16], 1),
    ],
)
@pytest.mark.parametrize("before", [0, 1000])
def test_a_sweep_has_ended_when_many_mads_were_sent_and_then_few(manager, monkeypatch, before, sent, reads):
    """OpenSM's answers to the driver are not counted, nor the MADs before it was signalled."""
    counts = iter([before, *(before + count + answers for answers, count in enumerate(sent, 1))])
    driver, calls = manager.driver(timeout_s=len(sent) + 1), []
    fabric = SimpleNamespace(nodes=range(7))
    tables = SimpleNamespace(view=SimpleNamespace(fabric=fabric), differences=lambda *_: calls.append(1) or ["h2/1"])
    monkeypatch.setattr(opensm, "read_port_tables", lambda _: tables)
    monkeypatch.setattr(driver, "_activity", lambda: next(counts))
    with pytest.raises(SubnetError, match="h2/1" if reads else "it has not swept"):
        driver._sweep(load(manager.partitions, manager.options))
    assert len(calls) == reads


def test_nothing_is_written_without_a_subnet_manager_that_answers(manager, tmp_path):
    driver, before = manager.driver(), manager.driver().read()
    manager.net.manager.step = lambda: None
    with pytest.raises(NoResponseError, match=r"the subnet manager at LID \d+ does not answer"):
        driver.write(sliced(manager, "h2"), over=before)
    idle = LocalCarrier(Subnet(weft.load("star:hosts=2")), 1)
    with pytest.raises(SubnetError, match="no subnet manager has configured this port: start OpenSM"):
        manager.driver(carrier=idle).write(sliced(manager, "h2"), over=before)
    assert (manager.partitions.read_text(), manager.signals) == (THEIRS, 0)
