"""Comparison of the views of two sweeps: new and lost ports and links, and links that flap."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.sm.conftest import Net

from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.mad import faults
from weft.mad.walk import walk
from weft.sm.discovery.differences import Flaps, _named, differences, same_ports
from weft.sm.discovery.view import View, changes, make_view, ranges
from weft.sm.events import Event
from weft.sm.sender import Sender
from weft.wire.bulk import fill
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import SwitchInfo


def seen(net: Net) -> View:
    return make_view(walk(net.carrier))


def all_active(view: View) -> View:
    fill(view.port_info, PortInfo.port_state, int(PortState.ACTIVE))
    return view


@pytest.mark.parametrize("host", ["h2", "h3"])
def test_a_port_that_another_view_lacks_has_no_slot_there(host):
    """h3 has the highest GUID of the subnet."""
    net = Net("star:hosts=3")
    before = seen(net)
    faults.pull_cable(net.devices, net.fabric[f"{host}/1"].slot)
    now = seen(net)
    names = [before.name(slot) for slot in range(len(before.fabric.ports))]
    here = {name: slot for slot, name in enumerate(now.name(slot) for slot in range(len(now.fabric.ports)))}
    assert same_ports(np.arange(len(names)), before, now).tolist() == [here.get(name, -1) for name in names]
    assert [*differences(before, now)] == [
        (Event.NODE_DISAPPEARED, host),
        (Event.LINK_DISAPPEARED, f"{before.fabric[f'{host}/1'].peer} - {host}/1"),
    ]
    assert [event for event, _ in differences(now, before)] == [Event.NODE_APPEARED, Event.LINK_APPEARED]


@pytest.mark.parametrize(("count", "last"), [(10, "9"), (11, "and 1 more"), (1010, "and 1,000 more")])
def test_ten_changes_of_a_kind_are_named(count, last):
    lines = [*_named(Event.NODE_APPEARED, [str(number) for number in range(count)])]
    assert len(lines) == min(count, 11)
    assert lines[-1] == (Event.NODE_APPEARED, last)


def test_a_link_that_flaps_too_often_is_excluded_until_the_flaps_are_old():
    net = Net("star:hosts=3")
    whole = all_active(seen(net))
    faults.pull_cable(net.devices, net.fabric["h2/1"].slot)
    without = all_active(seen(net))
    flaps = Flaps(limit=2, window_s=10.0)
    flaps.note(whole, without, now_s=100.0)
    assert (flaps.flapping(whole, 101.0)[0].tolist(), flaps.next_due_s()) == ([], math.inf)
    flaps.note(whole, without, now_s=104.0)
    slots, reasons = flaps.flapping(whole, 104.5)
    assert sorted(map(whole.name, slots.tolist())) == sorted(["h2/1", str(whole.fabric["h2/1"].peer)])
    assert reasons[1] == "flapping: h2/1 went down 2 times or more within 10 s; it is used again in 6 s"
    assert flaps.next_due_s() == 110.0
    assert flaps.flapping(without, 104.5)[0].tolist() == [], "without a cable there is nothing to exclude"
    assert len(flaps.flapping(whole, 109.9)[0]) == 2
    assert len(flaps.flapping(whole, 110.0)[0]) == 0
    assert len(flaps.flapping(whole, 114.0)[0]) == 0
    assert not flaps._times


def test_ports_that_are_down_between_two_sweeps_have_flapped():
    net = Net("star:hosts=3")
    before, now, flaps = all_active(seen(net)), all_active(seen(net)), Flaps(limit=1)
    flaps.note(before, now, 0.0)
    assert not flaps._times
    PortInfo.port_state.set(now.port_info[now.fabric["h2/1"].slot], int(PortState.INITIALIZE))
    flaps.note(before, now, 0.0)
    assert [now.name(slot) for slot in flaps.flapping(now, 1.0)[0].tolist()] == ["h2/1"]


def test_nodes_outside_servers_have_no_server_and_an_aggregation_node_is_named_after_its_switch():
    builder = FabricBuilder("sharp")
    switches = builder.add_nodes(NodeKind.SWITCH, ["sw1", "sw2"], n_ports=4)
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1)
    inside = builder.add_nodes(NodeKind.AGGREGATION, ["sw1/sharp", "sw2/sharp"], n_ports=1)
    builder.add_links(hosts, 1, switches, 1, "NDR")
    builder.add_links(switches[:1], 2, switches[1:], 2, "NDR")
    builder.add_links(inside, 1, switches, 3, "NDR")
    nodes = seen(Net(builder.build())).fabric.nodes
    assert dict(zip(nodes.name, nodes.server.tolist(), strict=True)) == {
        "sw1": -1, "sw2": -1, "h1": 0, "h2": 1, "sw1/sharp": -1, "sw2/sharp": -1,
    }  # fmt: skip


def test_ranges_follow_each_other():
    assert ranges(np.array([5, 1, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]


def test_a_changed_or_silent_switch_or_own_port_is_a_change():
    net = Net("star:hosts=2")
    view, sender = seen(net), Sender(net.carrier)
    switch = int(np.flatnonzero(view.is_switch)[0])
    info = net.devices.info(net.carrier.slot)
    assert changes(sender, view) == "our own port is not Active"
    PortInfo.port_state.set(info, int(PortState.ACTIVE))
    assert changes(sender, view) == ""
    name = view.fabric.nodes.name[switch]
    SwitchInfo.linear_fdb_top.set(view.switch_info[switch], 7)
    assert changes(sender, view) == f"{name} has restarted, or another subnet manager wrote to it"
    faults.kill(net.devices, net.fabric.node_index[name])
    assert changes(sender, view) == f"{name} does not answer"


def test_ports_are_found_by_guid_wherever_it_is_in_the_order():
    """Nodes with GUIDs below, between and above those of another view are not found."""
    ports = SimpleNamespace(node=np.array([0, 1, 2, 3, 4]), number=np.array([0, 1, 2, 1, 3]))
    other = SimpleNamespace(guid=np.array([40, 20], np.uint64), n_ports=np.array([2, 2]))
    view: Any = SimpleNamespace(
        fabric=SimpleNamespace(ports=ports, nodes=SimpleNamespace(guid=np.array([10, 20, 40, 50, 40], np.uint64)))
    )
    there: Any = SimpleNamespace(fabric=SimpleNamespace(nodes=other, first_port=np.array([0, 3])))
    assert same_ports(np.arange(5), view, there).tolist() == [-1, 4, 2, -1, -1]
