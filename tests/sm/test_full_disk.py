"""A full disk: the subnet stays managed, and the start and the end of the failure are each reported once."""

from __future__ import annotations

import io
import resource
from contextlib import contextmanager

import pytest

from weft.cli.sm import _rows, _with_live_status
from weft.mad import faults
from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.run import SubnetManager
from weft.sm.status import read_status
from weft.wire.port_info import PortInfo, PortState


@contextmanager
def full_disk():
    """Prevent all files of this process from growing; this needs no root."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def sweep(manager):
    before = manager.sweeps
    manager.reload()
    for _ in range(100):
        if manager.sweeps > before:
            return
        manager.step()
    raise AssertionError("\n".join(manager.state.log.recent))


def pull_and_plug(net, manager, times=1):
    """Pull and plug a cable, with a sweep after each."""
    for _ in range(times):
        for happens in (faults.pull_cable, faults.plug_cable):
            happens(net.devices, net.fabric["leaf1/5"].slot)
            sweep(manager)


def is_whole(net):
    plugged = [slot for slot in range(len(net.devices.cable)) if net.devices.peer(slot) >= 0]
    return {PortInfo.port_state.get(net.devices.info(slot)) for slot in plugged} == {PortState.ACTIVE}


@pytest.mark.parametrize("what", ["state", "dumps"])
def test_state_and_dumps_that_cannot_be_written_are_said_once_and_the_master_goes_on(net, tmp_path, what):
    log = Log(io.StringIO(), clock=net.clock)
    state = tmp_path / "state.json"
    options = Options(state_file=state if what == "state" else None, flap_limit=100)
    manager = SubnetManager(
        net.carrier, options, log=log, clock=net.clock, dump=tmp_path / "dumps" if what == "dumps" else None
    )
    manager.open()
    sweep(manager)
    pull_and_plug(net, manager)  # kernels are compiled, and kept on the same disk
    with full_disk():
        pull_and_plug(net, manager, times=2)
        assert is_whole(net)
        if what == "state":
            old = _with_live_status(state, read_status(state))
            assert old.sweeps_since == manager.sweeps - old.sweeps > 0
            assert any(label == "out of date" and "the disk may be full" in text for label, text in _rows(old))
    assert log.counts["NOT_WRITTEN"] == 1
    assert any(f"NOT_WRITTEN {'the state' if what == 'state' else 'dumps in'}" in line for line in log.recent)
    assert log.counts["WRITTEN_AGAIN"] == 0
    pull_and_plug(net, manager)
    assert log.counts["NOT_WRITTEN"] == log.counts["WRITTEN_AGAIN"] == 1
    if what == "state":
        assert read_status(state).sweeps == manager.sweeps
        assert _with_live_status(state, read_status(state)).sweeps_since == 0
    manager.close()


def test_a_log_that_cannot_be_written_loses_lines_and_says_how_many(net, tmp_path, capsys):
    path = tmp_path / "sm.log"
    with path.open("a") as stream:
        log = Log(stream, clock=net.clock)
        manager = SubnetManager(net.carrier, Options(flap_limit=100), log=log, clock=net.clock)
        manager.open()
        sweep(manager)
        pull_and_plug(net, manager)  # kernels are compiled, and kept on the same disk
        before, heard = path.read_text(), len(log.recent)
        with full_disk():
            pull_and_plug(net, manager, times=2)
            assert is_whole(net)
            assert path.read_text() == before
        lost = len(log.recent) - heard - 1  # the line about the failure went to standard error
        assert capsys.readouterr().err.count("NOT_WRITTEN the log: File too large") == 1
        manager.close()
    blank, again, stopped = path.read_text()[len(before) :].splitlines()
    assert not blank  # a truncated line is followed by a line break
    assert f"WRITTEN_AGAIN the log: {lost} lines missing here" in again
    assert "STOPPED" in stopped


def test_a_full_device_as_the_log_ends_nothing(net, capsys):
    with open("/dev/full", "w") as stream:
        manager = SubnetManager(net.carrier, log=Log(stream, clock=net.clock), clock=net.clock)
        manager.open()
        sweep(manager)
        assert is_whole(net)
        manager.close()
    assert "NOT_WRITTEN the log: No space left on device" in capsys.readouterr().err
