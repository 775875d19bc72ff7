"""A host with the forged GUID of a tenant's port: one of the two gets the keys, the forger while the other is down."""

from __future__ import annotations

from pathlib import Path

from tests.fabric.duplicates import with_port_guid
from tests.sm.test_control_server import Managed, define

import weft
from weft.mad import faults

FABRIC = with_port_guid(weft.load("fat-tree:hosts=16,radix=8"), "h5/1", of="h2/1")


def test_forger_of_a_port_guid_gets_the_keys_only_while_the_tenants_own_port_is_down(tmp_path: Path):
    managed = Managed(tmp_path, FABRIC)
    managed.allocate(define=[define(managed.guid("h2"))], default_is_full=False)
    assert (managed.keys("h2/1"), 0x8101 in managed.keys("h5/1")) == ([0x7FFF, 0x8101], False)
    assert any("duplicate-guid" in line for line in managed.manager.state.log.recent)
    faults.pull_cable(managed.net.devices, managed.net.fabric["h2/1"].slot)
    managed.manager._sweep()
    assert managed.keys("h5/1") == [0x7FFF, 0x8101]
    managed.manager.close()
