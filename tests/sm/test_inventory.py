"""The subnet manager's description of its subnet for programs."""

from __future__ import annotations

import io

import pytest
from tests.sm.conftest import Net

from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.inventory import take_inventory
from weft.sm.run import SubnetManager
from weft.wire.port_info import PortInfo


@pytest.mark.parametrize(("spec", "sls"), [("fat-tree:hosts=16,radix=8", 1), ("torus:5x5", 4)])
def test_it_says_how_many_service_levels_paths_have(spec, sls):
    """A torus has a dateline in each of its two dimensions, with one bit of the service level for each."""
    net = Net(spec)
    manager = SubnetManager(net.carrier, Options(), log=Log(io.StringIO()), clock=net.clock)
    manager.open()
    manager.step()
    assert take_inventory(manager.state.view).routing_sls == sls
    manager.close()


def test_ports_are_told_in_words_and_an_unknown_code_as_empty_or_0():
    net = Net("star:hosts=2")
    manager = SubnetManager(net.carrier, Options(), log=Log(io.StringIO()), clock=net.clock)
    manager.open()
    manager.step()
    view = manager.state.view
    before = take_inventory(view)
    at = next(i for i, node in enumerate(before.ports.node) if before.nodes.name[node] == "h1")
    ports = before.ports
    assert (ports.state[at], ports.physical_state[at], ports.mtu_bytes[at], ports.mtu_cap_bytes[at]) == (
        "Active",
        "LinkUp",
        4096,
        4096,
    )
    assert (ports.active_width[at], ports.active_speed[at], ports.data_vls[at]) == ("4x", "NDR", 8)
    assert "NDR" in ports.supported_speed[at]
    assert ports.node[ports.peer[at]] != ports.node[at]
    assert ports.peer[ports.peer[at]] == at
    slot = view.fabric.find_port("h1/1").slot
    for field in (PortInfo.neighbor_mtu, PortInfo.mtu_cap, PortInfo.vl_cap, PortInfo.port_physical_state):
        field.set(view.port_info[slot], 15)
    for code, vls in enumerate((0, 1, 2, 4, 8, 15, 0)):
        PortInfo.vl_cap.set(view.port_info[slot], code)
        assert take_inventory(view).ports.data_vls[at] == vls
    for code, widths in ((0, []), (1, ["1x"]), (3, ["1x", "4x"]), (31, ["1x", "4x", "8x", "12x", "2x"]), (255, [])):
        PortInfo.link_width_supported.set(view.port_info[slot], code)
        assert sorted(take_inventory(view).ports.supported_width[at]) == sorted(widths)
    after = take_inventory(view)
    assert (after.ports.mtu_bytes[at], after.ports.mtu_cap_bytes[at], after.ports.data_vls[at]) == (0, 0, 0)
    assert after.ports.physical_state[at] == ""
    assert after.revision != before.revision
    manager.close()
