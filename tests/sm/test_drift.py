"""Ports changed by other programs: detected, named, and repaired or only reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sm.test_control_server import Managed, become_master_again, define

from weft.errors import SubnetError
from weft.sm.events import Event
from weft.wire.port_info import PortInfo
from weft.wire.smp import SMState


@pytest.fixture
def managed(tmp_path: Path):
    result = Managed(tmp_path)
    result.allocate(define=[define(result.guid("h2"), result.guid("h3"))], default_is_full=False)
    yield result
    result.manager.close()


def open_h2(managed: Managed) -> str:
    """Make h2 a full member of Default and disable its switch's checks by foreign Sets; return the switch port."""
    fabric = managed.net.fabric
    keys = fabric.tables.pkey[fabric["h2/1"].slot]
    keys[:] = 0
    keys[0] = 0xFFFF
    facing = fabric["h2/1"].peer
    info = managed.net.devices.info(facing.slot)
    for field in (PortInfo.partition_enforcement_inbound, PortInfo.partition_enforcement_outbound):
        field.set(info, 0)
    return str(facing)


def test_port_that_something_else_changed_is_named_and_repaired_on_order(managed):
    assert managed.tell(lambda client: client.check(repair=False).differences) == ()
    facing = open_h2(managed)
    expected = (
        "h2/1: lacks P_Key 0x7fff and 0x8101, holds P_Key 0xffff",
        f"{facing}: other inbound P_Key enforcement, outbound P_Key enforcement",
    )
    assert managed.tell(lambda client: client.check(repair=False).differences) == expected
    assert managed.keys("h2/1") == [0xFFFF]
    assert managed.client.status().drift == expected
    assert managed.manager.state.log.counts[Event.DRIFT] == 1
    assert managed.tell(lambda client: client.check(repair=True).differences)
    assert managed.keys("h2/1") == [0x7FFF, 0x8101]
    assert managed.tell(lambda client: client.check(repair=True).differences) == ()
    assert managed.client.status().drift == ()


@pytest.mark.parametrize("repairs", [True, False])
def test_light_sweep_repairs_or_only_reports_drift(tmp_path, repairs):
    managed = Managed(tmp_path, sweep_interval_s=10, repair_drift=repairs)
    managed.allocate(define=[define(managed.guid("h2"))], default_is_full=False)
    open_h2(managed)
    sweeps, until_s = managed.manager.sweeps, managed.net.clock() + 25
    while managed.net.clock() < until_s:
        managed.manager.step()
    assert managed.keys("h2/1") == ([0x7FFF, 0x8101] if repairs else [0xFFFF])
    assert managed.manager.sweeps - sweeps == int(repairs)
    assert bool(managed.client.status().drift) is not repairs
    assert len(managed.tell(lambda client: client.check(repair=False).repaired)) == 2 * repairs
    assert managed.tell(lambda client: client.check(repair=False).repaired) == ()
    managed.manager.close()


def test_standby_checks_nothing_and_names_its_state(managed):
    managed.manager.election.state = SMState.STANDBY
    with pytest.raises(SubnetError, match="this subnet manager is standby"):
        managed.tell(lambda client: client.check(repair=True))
    become_master_again(managed.manager)
    assert managed.tell(lambda client: client.check(repair=True).differences) == ()
