"""What a subnet manager tells programs of its subnet."""

from __future__ import annotations

import io

import pytest
from tests.sm.conftest import Net

from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.inventory import take_inventory
from weft.sm.run import SubnetManager


@pytest.mark.parametrize(("spec", "sls"), [("fat-tree:hosts=16,radix=8", 1), ("torus:5x5", 4)])
def test_it_says_how_many_service_levels_paths_have(spec, sls):
    """A torus has a dateline in each of its two rings, and a bit of the service level for each."""
    net = Net(spec)
    manager = SubnetManager(net.carrier, Options(), log=Log(io.StringIO()), clock=net.clock)
    manager.open()
    manager.step()
    assert take_inventory(manager.state.view).routing_sls == sls
    manager.close()
