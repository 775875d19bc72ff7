"""Links and switches that join a subnet in use: no route uses them before they forward packets."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sm.conftest import Net
from tests.sm.test_sweep import Sm

from weft.mad import faults
from weft.wire.bulk import column
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import DirectedSmp, SmpAttribute


def send_one_at_a_time(net: Net) -> None:
    """Send MADs one at a time, so that the tamper functions are called after each."""
    exchange = net.exchange

    def split(mads, to=None, **how):
        item = [exchange(mads[[row]], None if to is None else to[[row]], **how) for row in range(len(mads))]
        return tuple(np.concatenate(parts) for parts in zip(*item, strict=True))

    net.exchange = split


class LinkRecorder:
    """A record of the Sets to a subnet, and of the state of one cable after each."""

    def __init__(self, net: Net, slot: int) -> None:
        self._net, ports = net, net.fabric.ports
        self._ends = (slot, int(ports.peer[slot]))
        self.attributes: list[int] = []  # the attribute of each Set
        self.states: list[tuple[int, ...]] = []  # the states of the cable's ports after it
        self.used: list[bool] = []  # whether a forwarding table uses the cable
        net.tampers.append(self._record)
        send_one_at_a_time(net)

    def _record(self, mads, answers, answered) -> None:
        if column(mads, DirectedSmp.method)[0] != Method.SET:
            return
        ports, tables = self._net.fabric.ports, self._net.fabric.tables
        self.attributes.append(int(column(mads, DirectedSmp.attribute_id)[0]))
        self.states.append(tuple(int(PortInfo.port_state.get(self._net.devices.info(end))) for end in self._ends))
        rows = [tables.switch_row[ports.node[end]] for end in self._ends]
        self.used.append(
            any((tables.lft[row] == ports.number[end]).any() for row, end in zip(rows, self._ends, strict=True))
        )


@pytest.mark.parametrize(
    ("spec", "port", "options"),
    [
        ("fat-tree:hosts=16,radix=8", "leaf1/5", {}),
        ("fat-tree:hosts=16,radix=8", "leaf1/5", {"qos": True}),
        ("torus:4x4,hosts=1", "sw1/2", {"routing_engine": ("dfsssp",)}),
    ],
)
@pytest.mark.parametrize("is_new", [False, True], ids=["returns", "is new"])
def test_no_route_uses_a_link_before_both_its_ports_are_active(spec, port, options, is_new):
    net = Net(spec)
    slot = net.fabric[port].slot
    sm = None if is_new else Sm(net, **options)
    faults.pull_cable(net.devices, slot)
    sm = sm or Sm(net, **options)
    sm.sweep()
    faults.plug_cable(net.devices, slot)
    recorder = LinkRecorder(net, slot)
    sets = sm.sweep()
    assert recorder.used[-1]
    active = (int(PortState.ACTIVE),) * 2
    assert {states for states, used in zip(recorder.states, recorder.used, strict=True) if used} == {active}
    armed = recorder.states.index((int(PortState.ARMED),) * 2)
    lanes = {SmpAttribute.SL_TO_VL_MAPPING_TABLE, SmpAttribute.VL_ARBITRATION_TABLE, SmpAttribute.P_KEY_TABLE}
    assert not lanes & set(recorder.attributes[armed:])
    assert sets["PORT_INFO"] == 4, "Armed and Active, at both ends"
    assert sm.sweep() == {}


def test_no_route_leads_to_a_switch_that_returns_before_its_own_table_is_written(net):
    sm = Sm(net)
    routes, ports = net.fabric.tables.lft.copy(), net.fabric.ports
    spine = net.fabric.node_index["spine1"]
    faults.kill(net.devices, spine)
    sm.sweep()
    faults.revive(net.devices, spine)
    tables = net.fabric.tables
    uplinks = ports.peer[(ports.node == spine) & (ports.peer >= 0)]
    observed = []

    def record(mads, answers, answered) -> None:
        rows = tables.switch_row[ports.node[uplinks]]
        lead_there = (tables.lft[rows] == ports.number[uplinks, None]).any()
        observed.append(
            (bool(lead_there), bool((tables.lft[tables.switch_row[spine]] == routes[tables.switch_row[spine]]).all()))
        )

    net.tampers.append(record)
    send_one_at_a_time(net)
    sm.sweep()
    assert (tables.lft == routes).all()
    assert set(observed) == {(False, False), (False, True), (True, True)}
