"""Changes of the allocation with a failure halfway: complete or undone, and in the same state in the end."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tests.sm.test_control_server import Managed, define

from weft.errors import ConfigError, SubnetError
from weft.fabric.kinds import NodeKind
from weft.mad.faults import plug_cable, pull_cable
from weft.mad.local import LocalCarrier
from weft.sm.allocation import allocation_file
from weft.sm.control_server import AllocationChange
from weft.sm.pkey.definitions import PartitionDefinition
from weft.wire.mad import Method, Status
from weft.wire.port_info import PortInfo
from weft.wire.smp import SmpAttribute

SEED = 20


class Port(LocalCarrier):
    """The port of a manager that dies after `lives` MADs, in a subnet whose ports refuse one key."""

    refused_key, lives = 0, -1

    def exchange(self, mads, to=None, **how):
        if self.lives >= 0:
            if len(mads) > self.lives:
                super().exchange(mads[: self.lives], None if to is None else to[: self.lives], **how)
                raise Killed
            self.lives -= len(mads)
        keys = np.ascontiguousarray(mads[:, 64:128]).view(">u2")
        attribute = mads[:, 16].astype(int) << 8 | mads[:, 17]
        bad = (attribute == SmpAttribute.P_KEY_TABLE) & (mads[:, 3] == Method.SET) & (keys == self.refused_key).any(1)
        bad &= bool(self.refused_key)
        answers, came = np.zeros_like(mads), np.ones(len(mads), bool)
        answers[bad] = mads[bad]
        answers[bad, 5] = Status.INVALID_FIELD
        answers[~bad], came[~bad] = super().exchange(mads[~bad], None if to is None else to[~bad], **how)
        return answers, came


class Killed(BaseException):
    """An exception that no `except` of the subnet manager catches."""


class Faulty(Managed):
    def start(self) -> None:
        self.net.carrier.close()
        self.net.carrier = self.port = Port(self.net.subnet, self.net.fabric["h1/1"].slot, sleep=self.net.clock.sleep)
        super().start()

    def end(self) -> None:
        """End the manager as if killed: without further writes or MADs."""
        self.manager._control_server._commands.shutdown()
        self.manager._control_server._commands.server_close()

    def obey(self, **words: object) -> str:
        return self.manager._control_server._obey(AllocationChange(**words))  # type: ignore[arg-type]

    def in_devices(self) -> dict[str, bytes]:
        """Return all state that a change may affect; keys at a switch port without checks have no effect."""
        fabric, tables = self.net.fabric, self.net.fabric.tables
        checks = tables.of_ports(PortInfo.partition_enforcement_inbound) > 0
        of_switch = fabric.nodes.kind[fabric.ports.node] == NodeKind.SWITCH
        keys = np.where((checks | ~of_switch)[:, None], np.sort(tables.pkey, axis=1), 0)
        return {"p_keys": keys.tobytes(), "checks": checks.tobytes(), "lanes": tables.sl2vl.tobytes()}


@pytest.fixture
def faulty(tmp_path: Path) -> Faulty:
    return Faulty(tmp_path, "fat-tree:hosts=8,radix=4")


def two_tenants(faulty: Faulty) -> tuple[PartitionDefinition, ...]:
    guids = [faulty.guid(f"h{number}") for number in (2, 3, 4, 5)]
    return define(*guids[:2]), define(*guids[2:], name="blue", p_key=0x0102)


def test_a_port_that_refuses_is_named_and_all_is_as_before(faulty):
    faulty.obey(set=(define(faulty.guid("h4"), name="blue", p_key=0x0102),))
    before, file = faulty.in_devices(), allocation_file(faulty.place / "sm.json").read_bytes()
    revision = faulty.client.allocation().revision
    faulty.port.refused_key = 0x8101
    with pytest.raises(SubnetError, match=r"h2/1.* did not take the change: all is as before"):
        faulty.obey(set=two_tenants(faulty), default_is_full=False)
    assert faulty.in_devices() == before
    assert faulty.client.allocation().revision == revision
    assert allocation_file(faulty.place / "sm.json").read_bytes() == file
    faulty.port.refused_key = 0
    faulty.obey(set=two_tenants(faulty), default_is_full=False)
    assert faulty.keys("h2/1") == [0x7FFF, 0x8101]


def test_too_many_keys_are_refused_before_anything_is_written(faulty):
    before = faulty.in_devices()
    many = tuple(define(faulty.guid("h2"), name=f"t{key}", p_key=key) for key in range(1, 130))
    with pytest.raises(ConfigError, match=r"h2/1: no room for .* in a P_Key table of 128 entries: all is as before"):
        faulty.obey(set=many)
    assert faulty.in_devices() == before


def test_a_disk_that_is_full_leaves_all_as_it_was(faulty, monkeypatch):
    before = faulty.in_devices()
    monkeypatch.setattr("weft.sm.control_server.write_runtime_config", lambda path, told: _full_disk())
    with pytest.raises(ConfigError, match="no space left"):
        faulty.obey(set=two_tenants(faulty))
    assert faulty.in_devices() == before
    assert faulty.client.allocation().partitions == ()


def _full_disk() -> None:
    raise ConfigError("cannot write sm.allocation: no space left on device")


def test_a_host_that_is_away_gets_its_keys_when_it_comes_back(faulty):
    """The manager has no trap yet for the pulled cable."""
    slot = faulty.net.fabric["h2/1"].slot
    pull_cable(faulty.net.devices, slot)
    faulty.obey(set=two_tenants(faulty), default_is_full=False)
    assert faulty.keys("h2/1") == [0xFFFF]
    assert faulty.keys("h3/1") == [0x7FFF, 0x8101]
    plug_cable(faulty.net.devices, slot)
    for _ in range(20):
        faulty.manager.step()
    assert faulty.keys("h2/1") == [0x7FFF, 0x8101]
    assert faulty.keys(str(faulty.net.fabric["h2/1"].peer)) == [0x7FFF, 0x8101]


def test_a_cable_between_switches_breaks_meanwhile(faulty):
    pull_cable(faulty.net.devices, faulty.net.fabric["leaf2/3"].slot)
    faulty.obey(set=two_tenants(faulty), default_is_full=False)
    assert [faulty.keys(f"h{number}/1") for number in (2, 4, 6)] == [[0x7FFF, 0x8101], [0x7FFF, 0x8102], [0x7FFF]]


def test_killed_at_any_point_it_ends_in_the_same_state(tmp_path):
    """It is killed after any number of MADs, before or after writing the file; then the change is requested again."""
    untouched = Faulty(tmp_path / "a", "fat-tree:hosts=8,radix=4")
    before, mads = untouched.in_devices(), untouched.manager.state.sender.mads
    expected = {"set": two_tenants(untouched), "default_is_full": False, "qos": {"sl2vl": [0, 1] * 8}}
    revision = untouched.obey(**expected)
    after, mads = untouched.in_devices(), untouched.manager.state.sender.mads - mads
    assert before != after
    points = sorted(random.Random(SEED).sample(range(mads), 6))
    for number, point in enumerate([0, *points, mads - 1]):
        faulty = Faulty(tmp_path / f"b{number}", "fat-tree:hosts=8,radix=4")
        faulty.port.lives = point
        with pytest.raises(Killed):
            faulty.obey(**expected)
        faulty.end()
        faulty.start()
        assert faulty.in_devices()["p_keys"] == before["p_keys"]
        assert faulty.client.allocation().partitions == ()
        assert faulty.obey(**expected) == revision
        assert faulty.in_devices() == after


def _die(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("place", ["os.replace", "weft.sm.events.Log.say"])
def test_killed_around_the_writing_of_its_file(faulty, monkeypatch, place):
    order = AllocationChange(set=two_tenants(faulty))
    messages = order.applied(faulty.manager.state, "")
    with monkeypatch.context() as patched:
        patched.setattr("weft.sm.control_server.AllocationChange.applied", lambda self, state, revision: messages)
        patched.setattr(place, _die)
        with pytest.raises(Killed):
            faulty.manager._control_server._obey(order)
    faulty.end()
    faulty.start()
    remaining = place != "os.replace"
    assert bool(faulty.client.allocation().partitions) == remaining
    assert faulty.keys("h2/1") == ([0xFFFF, 0x8101] if remaining else [0xFFFF])
    faulty.obey(set=two_tenants(faulty))
    assert faulty.keys("h2/1") == [0xFFFF, 0x8101]
