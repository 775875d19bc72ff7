"""Compute the settings of every port, and write them with at most two Set(PortInfo).

    first     all settings, and Initialize becomes Armed: the port takes management packets only
    second    Armed becomes Active, when both ends and all forwarding tables are ready

Links between switches become Active before forwarding tables are written: packets sent over a link that is not Active
are dropped, and routes avoid one that does not become so. A port that is as it should be is left alone. Fields for
which zero means "as it is" are sent as zero. (InfiniBand Architecture volume 1, "PortInfo" and "Link States".)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.mad.walk import Rows
from weft.sm.conf.options import Options
from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View
from weft.sm.pkey.tables import INBOUND, OUTBOUND
from weft.sm.protection import PortKey
from weft.sm.sender import Sender
from weft.sm.ucast.lids import Lids
from weft.wire.bulk import column, fill
from weft.wire.fields import Bits
from weft.wire.port_info import Capability, PortInfo, PortPhysicalState, PortState
from weft.wire.smp import SmpAttribute, SwitchInfo

_LEFT_ALONE = (  # zero: no change
    PortInfo.link_width_enabled,
    PortInfo.link_speed_enabled,
    PortInfo.link_speed_ext_enabled,
    PortInfo.link_speed_ext_enabled_2,
    PortInfo.port_state,
    PortInfo.port_physical_state,
)
_COUNTS = (PortInfo.m_key_violations, PortInfo.p_key_violations, PortInfo.q_key_violations)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The result of setting ports."""

    sets: int
    refused: NDArray[np.intp]  # slots that did not take it, or did not answer


def wanted_settings(
    view: View,
    lids: Lids,
    options: Options,
    *,
    key: PortKey,
    enforced: NDArray[np.uint8],
    flid: NDArray[np.int64] | None = None,
) -> Rows:
    """Return uint8[slot, 64]: the desired PortInfo, except states. `enforced`: INBOUND | OUTBOUND; `flid`: [slot]."""
    expected = view.port_info.copy()
    prefix = np.full(len(expected), options.subnet_prefix, np.uint64)
    if flid is not None:
        prefix |= flid.astype(np.uint64) << np.uint64(16)
    ports = view.fabric.ports
    of_switch = view.is_switch[ports.node]
    mtu, vls = link_limits(view, options.max_op_vls)
    ends, linked = view.end_ports, view.plugged
    due = np.union1d(ends, linked)
    fills: list[tuple[NDArray[np.intp], Bits, int | NDArray[Any]]] = [
        (due, PortInfo.neighbor_mtu, mtu[due]),
        (linked, PortInfo.operational_vls, vls[linked]),
        (ends, PortInfo.lid, lids.lid[ends]),
        (ends, PortInfo.lmc, lids.lmc[ends]),
        (ends, PortInfo.master_sm_lid, int(lids.lid[view.own_slot])),
        (ends, PortInfo.master_sm_sl, options.sm_sl),
        (ends, PortInfo.gid_prefix, prefix[ends]),
        (ends, PortInfo.m_key, key.m_key),
        (ends, PortInfo.m_key_lease_period, key.lease_period_s),
        (ends, PortInfo.m_key_protect_bits, key.level),
        (ends, PortInfo.subnet_time_out, options.subnet_timeout),
        (linked, PortInfo.link_down_default_state, int(PortPhysicalState.POLLING)),
        (linked, PortInfo.local_phy_errors, options.local_phy_errors_threshold),
        (linked, PortInfo.overrun_errors, options.overrun_errors_threshold),
    ]
    outside = linked[of_switch[linked]]
    leaf = ~of_switch[ports.peer[outside]]
    hoq = np.where(leaf, options.leaf_head_of_queue_lifetime, options.head_of_queue_lifetime).astype(np.uint8)
    stall = np.where(leaf, options.leaf_vl_stall_count, options.vl_stall_count).astype(np.uint8)
    fills += [(outside, PortInfo.hoq_life, hoq), (outside, PortInfo.vl_stall_count, stall)]
    fills.append((outside, PortInfo.partition_enforcement_inbound, enforced[outside] // INBOUND & 1))
    fills.append((outside, PortInfo.partition_enforcement_outbound, enforced[outside] // OUTBOUND & 1))
    fills += _raw_filters(view, outside, enforced[outside])
    if "vl_arbitration" in vars(view.fabric.tables):
        fills.append((linked, PortInfo.vl_high_limit, view.fabric.tables.vl_high_limit[linked]))
    for slots, field, value in fills:
        rows = expected[slots]
        fill(rows, field, value)
        expected[slots] = rows
    return expected


def _raw_filters(
    view: View, slots: NDArray[np.intp], enforced: NDArray[np.uint8]
) -> list[tuple[NDArray[np.intp], Bits, NDArray[Any]]]:
    """Return filters for raw packets, which have no P_Key and would bypass the checks. OpenSM sets none."""
    can = view.switch_info[view.fabric.ports.node[slots]]
    inward, outward = (
        column(can, cap) for cap in (SwitchInfo.filter_raw_inbound_cap, SwitchInfo.filter_raw_outbound_cap)
    )
    return [
        (slots, PortInfo.filter_raw_inbound, enforced // INBOUND & 1 & inward.astype(np.uint8)),
        (slots, PortInfo.filter_raw_outbound, enforced // OUTBOUND & 1 & outward.astype(np.uint8)),
    ]


def enforced(view: View) -> NDArray[np.uint8]:
    """Return [slot] -> INBOUND | OUTBOUND, as read from the external ports of switches."""
    fields = PortInfo.partition_enforcement_inbound, PortInfo.partition_enforcement_outbound
    inbound, outbound = (column(view.port_info, field).astype(np.uint8) for field in fields)
    return inbound * np.uint8(INBOUND) | outbound * np.uint8(OUTBOUND)


def link_limits(view: View, max_op_vls: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return [slot] -> NeighborMTU and OperationalVLs: the minimum of both ends; for port 0, its own."""
    infos, peer = view.port_info, view.fabric.ports.peer
    other = np.where(peer >= 0, peer, np.arange(len(peer)))
    mtu, vls = column(infos, PortInfo.mtu_cap), column(infos, PortInfo.vl_cap)
    return np.minimum(mtu, mtu[other]), np.minimum(np.minimum(vls, vls[other]), np.uint64(max_op_vls))


def waiting_trunks(view: View) -> NDArray[np.bool_]:
    """Return [slot] -> whether its cable joins two switches and an end is not Active."""
    slots, ports = view.plugged, view.fabric.ports
    ends = np.stack((slots, ports.peer[slots]))
    waiting = np.zeros(len(ports), bool)
    waiting[slots] = view.is_switch[ports.node[ends]].all(axis=0) & (view.state[ends] != PortState.ACTIVE).any(axis=0)
    return waiting


def bring_up(
    sender: Sender,
    view: View,
    contents: Known,
    expected: Rows,
    *,
    among: NDArray[np.bool_],
    reregister: bool = False,
) -> Outcome:
    """Arm those ports `among` these that need it, then activate them."""
    armed = arm(sender, view, contents, expected, among=among, reregister=reregister)
    active = activate(sender, view, expected, armed.refused, among=among)
    return Outcome(sets=armed.sets + active.sets, refused=np.union1d(armed.refused, active.refused))


def arm(
    sender: Sender,
    view: View,
    contents: Known,
    expected: Rows,
    *,
    among: NDArray[np.bool_] | None = None,
    reregister: bool = False,
) -> Outcome:
    """Write settings that differ; Initialize becomes Armed. `reregister`: ask hosts to register with the SA again."""
    differs = _differs(view, contents, expected)
    initial = np.zeros(len(expected), bool)
    initial[view.plugged] = view.state[view.plugged] == PortState.INITIALIZE
    due = np.zeros(len(expected), bool)
    due[view.plugged] = due[view.end_ports] = True
    due &= differs | initial | (reregister & _can_reregister(view))
    if among is not None:
        due &= among
    slots = np.flatnonzero(due)
    data = _as_sent(expected[slots])
    fill(data, PortInfo.port_state, np.where(initial[slots], int(PortState.ARMED), 0))
    if reregister:
        fill(data, PortInfo.client_reregister, _can_reregister(view)[slots].astype(np.uint8))
    outcome = _set(sender, view, slots, data)
    contents.told[slots], contents.said[slots] = expected[slots], view.port_info[slots]
    contents.told[outcome.refused] = contents.said[outcome.refused] = 0
    return outcome


def _differs(view: View, contents: Known, expected: Rows) -> NDArray[np.bool_]:
    """Return [slot] -> whether settings differ, except for bytes that the port ignored when they were last written."""
    rows = np.flatnonzero((expected != view.port_info).any(axis=1))
    want, have = expected[rows], view.port_info[rows]
    told_before = (contents.told[rows] == want) & (contents.said[rows] == have)
    differs = np.zeros(len(expected), bool)
    differs[rows] = ((want != have) & ~told_before).any(axis=1)
    return differs


def activate(
    sender: Sender, view: View, expected: Rows, refused: NDArray[np.intp], *, among: NDArray[np.bool_] | None = None
) -> Outcome:
    """Make armed ports Active, unless an end of their cable refused its settings."""
    linked, ports = view.plugged, view.fabric.ports
    waiting = np.zeros(len(expected), bool)
    waiting[linked] = np.isin(view.state[linked], (PortState.INITIALIZE, PortState.ARMED))
    waiting[refused] = False
    waiting[ports.peer[refused[ports.peer[refused] >= 0]]] = False
    if among is not None:
        waiting &= among
    slots = np.flatnonzero(waiting)
    data = _as_sent(expected[slots])
    fill(data, PortInfo.port_state, int(PortState.ACTIVE))
    return _set(sender, view, slots, data)


def _as_sent(rows: Rows) -> Rows:
    for field in _LEFT_ALONE:
        fill(rows, field, 0)
    for field in _COUNTS:
        fill(rows, field, (1 << field.width) - 1)  # zero would clear them
    fill(rows, PortInfo.client_reregister, 0)
    return rows


def _can_reregister(view: View) -> NDArray[np.bool_]:
    """Return [slot] -> whether it has a LID and supports client reregistration."""
    able = np.zeros(len(view.port_info), bool)
    ends = view.end_ports
    mask = column(view.port_info[ends], PortInfo.capability_mask)
    able[ends] = mask & np.uint64(Capability.IS_CLIENT_REREGISTRATION_SUPPORTED) > 0
    return able


def _set(sender: Sender, view: View, slots: NDArray[np.intp], data: Rows) -> Outcome:
    ports = view.fabric.ports
    route, number = view.to_nodes(ports.node[slots]), ports.number[slots].astype(np.int64)
    answered, took = sender.set(route, SmpAttribute.PORT_INFO, number, data)
    view.port_info[slots[took]] = answered[took]
    return Outcome(sets=len(slots), refused=slots[~took])
