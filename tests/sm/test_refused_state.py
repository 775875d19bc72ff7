"""A port between switches that does not become Armed or Active: routes avoid its link, and a warning names it."""

from __future__ import annotations

import pytest
from tests.sm.conftest import Net
from tests.sm.test_sweep import Sm, now, steps_until

from weft.mad import faults
from weft.routing.check import check
from weft.wire.bulk import column, fill
from weft.wire.mad import Method, Status
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import DirectedSmp, SmpAttribute

PORT = "leaf1/5"


class Refusal:
    """A port that refuses one state; with status 0 it answers without an error but with its old state."""

    def __init__(self, net: Net, state: PortState, status: int) -> None:
        self.net, self.state, self.status, self.is_on = net, state, status, True
        self._exchange, net.carrier.exchange = net.carrier.exchange, self.exchange

    def exchange(self, mads, to=None, **how):
        refused = [row for row, mad in enumerate(mads) if self.is_on and self._is_refused(mad.tobytes())]
        mads = mads.copy()
        mads[refused, 3] = Method.GET
        answers, answered = self._exchange(mads, to, **how)
        rows = answers[refused]
        fill(rows, DirectedSmp.status, self.status)
        answers[refused] = rows
        return answers, answered

    def _is_refused(self, mad: bytes) -> bool:
        fabric, port = self.net.fabric, self.net.fabric[PORT]
        smp = DirectedSmp.unpack(mad)
        if (smp.method, smp.attribute_id, smp.attribute_modifier) != (Method.SET, SmpAttribute.PORT_INFO, port.number):
            return False
        node = int(fabric.ports.node[self.net.carrier.slot])
        for number in smp.initial_path[1 : smp.hop_count + 1]:
            node = int(fabric.ports.node[fabric.ports.peer[fabric.first_port[node] + number]])
        return node == port.node.index and PortInfo.port_state.get(smp.data) == self.state


def entries_over(net: Net) -> int:
    """Return the number of forwarding entries that use the port's link."""
    ports, tables, slot = net.fabric.ports, net.fabric.tables, net.fabric[PORT].slot
    ends = (slot, int(ports.peer[slot]))
    return sum(int((tables.lft[tables.switch_row[ports.node[end]]] == ports.number[end]).sum()) for end in ends)


@pytest.mark.parametrize("state", [PortState.ARMED, PortState.ACTIVE])
@pytest.mark.parametrize("status", [int(Status.INVALID_FIELD), 0], ids=["says so", "silently"])
@pytest.mark.parametrize("in_use", [False, True], ids=["first sweep", "subnet in use"])
def test_routes_avoid_a_link_whose_port_refuses_a_state_until_it_takes_it(net, state, status, in_use):
    sm = None
    if in_use:
        sm = Sm(net)
        assert entries_over(net) > 0
        faults.pull_cable(net.devices, net.fabric[PORT].slot)
        sm.sweep()
        faults.plug_cable(net.devices, net.fabric[PORT].slot)
    refusal = Refusal(net, state, status)
    sm = sm or Sm(net)
    sm.sweep()
    assert entries_over(net) == 0
    verdict = check(now(net))
    assert verdict.ok, verdict.explain()
    assert any(PORT in line and "routes avoid" in line for line in sm.events("REFUSED"))
    assert PORT in sm.manager.report.refused
    refusal.is_on = False
    steps_until(sm, lambda: entries_over(net) > 0)  # without a trap: the next try is after sweep_interval
    states = column(sm.view.port_info[sm.view.plugged], PortInfo.port_state)
    assert (states == PortState.ACTIVE).all()
    assert sm.manager.report.refused == ()
