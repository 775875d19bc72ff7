"""Settings of ports: limits of links, enforcement, and the selection of ports to arm and activate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.sm.conftest import Net

from weft.mad.walk import walk
from weft.sm.conf.options import Options
from weft.sm.discovery.known import carried_over
from weft.sm.discovery.view import View, make_view
from weft.sm.pkey.tables import INBOUND, OUTBOUND
from weft.sm.port_info import (
    _COUNTS,
    _LEFT_ALONE,
    activate,
    arm,
    enforced,
    link_limits,
    waiting_trunks,
    wanted_settings,
)
from weft.sm.protection import PortKey
from weft.sm.ucast.lids import choose_lids
from weft.wire.bulk import column, fill
from weft.wire.port_info import Capability, PortInfo, PortState
from weft.wire.smp import SwitchInfo


@pytest.fixture(scope="module")
def discovered() -> View:
    return make_view(walk(Net("fat-tree:hosts=8,radix=4")))


@pytest.fixture
def view(discovered: View) -> View:
    """Return a view whose ports a test may change."""
    return replace(discovered, port_info=discovered.port_info.copy(), switch_info=discovered.switch_info.copy())


def put(view: View, slots, field, value) -> None:
    rows = view.port_info[slots]
    fill(rows, field, value)
    view.port_info[slots] = rows


def slot(view: View, name: str) -> int:
    return view.fabric.find_port(name).slot


def trunk_of(view: View) -> int:
    """Return a port of a cable between two switches."""
    ports, is_switch = view.fabric.ports, view.is_switch
    return next(end for end in view.plugged.tolist() if is_switch[ports.node[[end, ports.peer[end]]]].all())


def in_state(view: View, state: PortState) -> View:
    put(view, view.plugged, PortInfo.port_state, int(state))
    return view


def wanted(view: View, checks: int = 0, **options: int):
    lids = choose_lids(view, {})
    every_port = np.full(len(view.port_info), checks, np.uint8)
    return wanted_settings(view, lids, Options(**options), key=PortKey(7, 9, 2), enforced=every_port)


def value(rows, at: int, field) -> int:
    return int(column(rows[at : at + 1], field)[0])


@pytest.mark.parametrize(
    ("near", "far", "most", "mtu", "vls"),
    [((4, 3), (5, 4), 5, 4, 3), ((5, 5), (3, 4), 5, 3, 4), ((5, 5), (5, 5), 2, 5, 2)],
)
def test_a_link_has_the_smaller_mtu_and_lanes_of_its_ends(view, near, far, most, mtu, vls):
    host = slot(view, "h1/1")
    peer = int(view.fabric.ports.peer[host])
    for end, (mtu_cap, vl_cap) in ((host, near), (peer, far)):
        put(view, [end], PortInfo.mtu_cap, mtu_cap)
        put(view, [end], PortInfo.vl_cap, vl_cap)
    mtus, lanes = link_limits(view, most)
    assert [(int(mtus[end]), int(lanes[end])) for end in (host, peer)] == [(mtu, vls)] * 2
    rows = wanted(view, max_op_vls=most)
    assert [value(rows, end, PortInfo.neighbor_mtu) for end in (host, peer)] == [mtu] * 2
    assert [value(rows, end, PortInfo.operational_vls) for end in (host, peer)] == [vls] * 2


def test_port_0_of_a_switch_has_its_own_mtu(view):
    port_0 = int(view.end_ports[view.is_switch[view.fabric.ports.node[view.end_ports]]][0])
    put(view, [port_0], PortInfo.mtu_cap, 2)
    assert int(link_limits(view, 5)[0][port_0]) == 2
    assert value(wanted(view), port_0, PortInfo.neighbor_mtu) == 2


@pytest.mark.parametrize(
    ("checks", "inbound", "outbound"), [(0, 0, 0), (INBOUND, 1, 0), (OUTBOUND, 0, 1), (INBOUND | OUTBOUND, 1, 1)]
)
@pytest.mark.parametrize("can", [0, 1])
def test_switch_ports_check_p_keys_and_filter_raw_packets_if_they_can(view, checks, inbound, outbound, can):
    for field in (SwitchInfo.filter_raw_inbound_cap, SwitchInfo.filter_raw_outbound_cap):
        fill(view.switch_info, field, can)
    host = slot(view, "h1/1")
    peer = int(view.fabric.ports.peer[host])
    rows = wanted(view, checks)
    fields = PortInfo.partition_enforcement_inbound, PortInfo.partition_enforcement_outbound
    assert [value(rows, peer, field) for field in fields] == [inbound, outbound]
    assert [value(rows, host, field) for field in fields] == [value(view.port_info, host, field) for field in fields]
    filters = PortInfo.filter_raw_inbound, PortInfo.filter_raw_outbound
    assert [value(rows, peer, field) for field in filters] == [inbound & can, outbound & can]
    view.port_info[:] = rows
    assert enforced(view)[peer] == checks


def test_switch_ports_to_hosts_have_the_times_of_leaves(view):
    host = slot(view, "h1/1")
    leaf = int(view.fabric.ports.peer[host])
    trunk = trunk_of(view)
    rows = wanted(
        view, head_of_queue_lifetime=3, leaf_head_of_queue_lifetime=4, vl_stall_count=5, leaf_vl_stall_count=6
    )
    assert [value(rows, leaf, field) for field in (PortInfo.hoq_life, PortInfo.vl_stall_count)] == [4, 6]
    assert [value(rows, trunk, field) for field in (PortInfo.hoq_life, PortInfo.vl_stall_count)] == [3, 5]
    assert value(rows, host, PortInfo.m_key) == 7
    assert [value(rows, host, field) for field in (PortInfo.m_key_lease_period, PortInfo.m_key_protect_bits)] == [9, 2]


def test_a_trunk_waits_while_an_end_of_it_is_not_active(view):
    in_state(view, PortState.ACTIVE)
    assert not waiting_trunks(view).any()
    ports, trunk = view.fabric.ports, trunk_of(view)
    put(view, [trunk, slot(view, "h1/1")], PortInfo.port_state, int(PortState.ARMED))
    assert sorted(np.flatnonzero(waiting_trunks(view)).tolist()) == sorted([trunk, int(ports.peer[trunk])])


class Agreeable:
    """A sender to ports that accept each setting."""

    def set(self, route, attribute, number, data):
        return data, np.ones(len(data), bool)


@pytest.mark.parametrize("before", [PortState.INITIALIZE, PortState.ARMED])
@pytest.mark.parametrize("refusing", ["h1/1", ""])
def test_both_ends_of_a_cable_stay_as_they_are_if_an_end_refuses_its_settings(view, before, refusing):
    in_state(view, before)
    refused = np.array([slot(view, refusing)] if refusing else [], np.intp)
    left = {int(end) for at in refused.tolist() for end in (at, view.fabric.ports.peer[at])}
    outcome = activate(Agreeable(), view, wanted(view), refused)
    assert outcome.sets == len(view.plugged) - len(left)
    states = {int(end): PortState(value(view.port_info, end, PortInfo.port_state)) for end in view.plugged}
    assert states == {end: before if end in left else PortState.ACTIVE for end in states}


def test_ports_that_are_down_or_active_are_not_activated(view):
    in_state(view, PortState.ACTIVE)
    put(view, [slot(view, "h1/1")], PortInfo.port_state, int(PortState.DOWN))
    assert activate(Agreeable(), view, wanted(view), np.zeros(0, np.intp)).sets == 0


class Noting(Agreeable):
    """A sender that records the written settings."""

    def set(self, route, attribute, number, data):
        self.written = data.copy()
        return super().set(route, attribute, number, data)


@pytest.mark.parametrize(("before", "after"), [(PortState.INITIALIZE, PortState.ARMED), (PortState.ACTIVE, 0)])
def test_settings_are_written_once_and_initialize_becomes_armed(view, before, after):
    in_state(view, before)
    contents, sender = carried_over(None, view), Noting()
    at = slot(view, "h1/1")
    among = np.arange(len(view.port_info)) == at
    assert arm(sender, view, contents, wanted(view), among=among).sets == 1
    row = sender.written[0:1]
    assert value(row, 0, PortInfo.port_state) == after
    assert [value(row, 0, field) for field in _LEFT_ALONE if field is not PortInfo.port_state] == [0] * 5
    assert [value(row, 0, field) for field in _COUNTS] == [(1 << field.width) - 1 for field in _COUNTS]
    in_state(view, PortState.ACTIVE)
    assert arm(sender, view, contents, wanted(view), among=among).sets == 0


@pytest.mark.parametrize("able", [True, False])
def test_hosts_are_asked_to_register_again_if_they_can(view, able):
    in_state(view, PortState.ACTIVE)
    contents, sender, expected = carried_over(None, view), Noting(), wanted(view)
    among = np.arange(len(view.port_info)) == slot(view, "h1/1")
    arm(sender, view, contents, expected, among=among)
    mask = int(Capability.IS_CLIENT_REREGISTRATION_SUPPORTED) if able else 0
    put(view, view.end_ports, PortInfo.capability_mask, mask)
    expected[:] = view.port_info
    assert arm(sender, view, contents, expected, among=among, reregister=True).sets == able
    if able:
        assert value(sender.written, 0, PortInfo.client_reregister) == 1
