"""A cable between switches that is plugged into a subnet in use: its ports are Active before any route uses it."""

from __future__ import annotations

import pytest
from tests.sm.conftest import Net
from tests.sm.test_sweep import Sm

from weft.mad import faults
from weft.wire.bulk import column
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import DirectedSmp, SmpAttribute


class LinkRecorder:
    """The Sets that a subnet gets, and the state of one cable after each batch of them."""

    def __init__(self, net: Net, slot: int) -> None:
        self._net, ports = net, net.fabric.ports
        self._ends = (slot, int(ports.peer[slot]))
        self.attributes: list[int] = []  # of each batch
        self.states: list[tuple[int, ...]] = []  # of the two ports, after it
        self.used: list[bool] = []  # does a forwarding table lead over the cable?
        net.tampers.append(self._record)

    def _record(self, mads, answers, answered) -> None:
        sets = column(mads, DirectedSmp.method) == Method.SET
        if not sets.any():
            return
        ports, tables = self._net.fabric.ports, self._net.fabric.tables
        self.attributes.append(int(column(mads, DirectedSmp.attribute_id)[sets][0]))
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
