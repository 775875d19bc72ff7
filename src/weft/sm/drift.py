"""Drift: settings of ports that something else than this manager has changed since they were written.

    find_drift(state)        read P_Key tables and PortInfo again; in words, one line for each port that differs

Another subnet manager, or a tool with the M_Key, can write to a device without a trap. What is found is marked as not
known, so that the next sweep reads it again and writes what is wanted.
"""

from __future__ import annotations

import copy
import math

import numpy as np

from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View
from weft.sm.events import Event, some
from weft.sm.pkey.partitions import NO_FILE
from weft.sm.pkey.table_upload import p_key_differences, read_pkeys
from weft.sm.sender import Sender
from weft.sm.state import State
from weft.units import format_items
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo
from weft.wire.smp import SmpAttribute

_REST = 9  # times as long as a check took until the next
_SETTINGS = {
    PortInfo.partition_enforcement_inbound: "inbound P_Key enforcement",
    PortInfo.partition_enforcement_outbound: "outbound P_Key enforcement",
    PortInfo.filter_raw_inbound: "inbound filter of raw packets",
    PortInfo.filter_raw_outbound: "outbound filter of raw packets",
    PortInfo.m_key: "M_Key",
    PortInfo.m_key_protect_bits: "M_Key protection level",
    PortInfo.m_key_lease_period: "M_Key lease period",
    PortInfo.lid: "LID",
    PortInfo.lmc: "LMC",
    PortInfo.master_sm_lid: "LID of the subnet manager",
}


def find_drift(state: State) -> tuple[str, ...]:
    """Return how ports differ from what was written to them; none where no sweep has come to its end."""
    if state.view is None or state.known is None:
        return ()
    return (*_p_key_drift(state.sender, state.view, state.known), *_setting_drift(state.sender, state.view))


def _p_key_drift(sender: Sender, view: View, contents: Known) -> list[str]:
    slots = np.flatnonzero(contents.keys)
    now = copy.copy(contents)
    now.tables, now.keys = contents.fabric.tables.like(), np.zeros_like(contents.keys)
    read_pkeys(sender, view, now, slots)
    slots = slots[now.keys[slots]]  # a port that does not answer is the sweep's affair
    differs = (contents.tables.pkey[slots] != now.tables.pkey[slots]).any(axis=1)
    contents.keys[slots[differs]] = False
    return p_key_differences(view, slots, contents.tables.pkey, now.tables.pkey)


def _setting_drift(sender: Sender, view: View) -> list[str]:
    slots, ports = np.union1d(view.end_ports, view.plugged), view.fabric.ports
    route, number = view.to_nodes(ports.node[slots]), ports.number[slots].astype(np.int64)
    now, came = sender.get(route, SmpAttribute.PORT_INFO, number)
    slots, now = slots[came], now[came]
    expected = view.port_info[slots]
    changed: dict[int, list[str]] = {}
    for field, name in _SETTINGS.items():
        for row in np.flatnonzero(column(expected, field) != column(now, field)).tolist():
            changed.setdefault(row, []).append(name)
    return [f"{view.name(int(slots[row]))}: other {', '.join(names)}" for row, names in sorted(changed.items())]


class DriftChecks:
    """The drift checks of a manager, limited to a tenth of its time."""

    def __init__(self, state: State) -> None:
        self._state, self._next_s = state, -math.inf

    def check(self) -> tuple[str, ...]:
        """Look now; what is new goes to the log."""
        state, began_s = self._state, self._state.clock()
        differences = find_drift(state)
        self._next_s = state.clock() + _REST * (state.clock() - began_s)
        if differences and differences != state.drift:
            state.log.say(Event.DRIFT, f"changed by something else: {some(differences)}")
        state.drift = differences
        return differences

    def reason_to_sweep(self) -> str:
        """Look if it is time and there are tenants; empty if there is nothing to repair."""
        state = self._state
        if state.partitions == NO_FILE or state.clock() < self._next_s:
            return ""
        differences = self.check()
        if not differences or not state.options.repair_drift:
            return ""
        state.repaired.extend(differences)
        return f"settings of {format_items(len(differences), 'port')} were changed by something else"
