"""A light sweep: has anything changed? One MAD to each switch, which notes what happens at its ports."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.sm.discovery.view import View
from weft.sm.sender import Sender
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import SmpAttribute, SwitchInfo


def changes(sender: Sender, view: View) -> str:
    """Return a description of a change since this view; empty if there is none."""
    changed = switch_changes(sender, view, np.flatnonzero(view.is_switch))
    if changed:
        return changed
    own = np.array([view.own_slot])
    number = view.fabric.ports.number[own].astype(np.int64)
    info, came = sender.get(view.to_ports(own), SmpAttribute.PORT_INFO, number)
    if not came[0] or (view.own_slot in view.plugged and column(info, PortInfo.port_state)[0] != PortState.ACTIVE):
        return "our own port is not Active"
    return ""


def switch_changes(sender: Sender, view: View, switches: NDArray[np.intp]) -> str:
    """Return a change at these switches; late or repeated traps report changes that a sweep saw already."""
    data, came = sender.get(view.to_nodes(switches), SmpAttribute.SWITCH_INFO)
    for silent in switches[~came][:1].tolist():
        return f"{view.fabric.nodes.name[silent]} does not answer"
    for changed in switches[column(data, SwitchInfo.port_state_change) > 0][:1].tolist():
        return f"ports of {view.fabric.nodes.name[changed]} changed"
    top = column(data, SwitchInfo.linear_fdb_top) != column(view.switch_info[switches], SwitchInfo.linear_fdb_top)
    for restarted in switches[top][:1].tolist():
        return f"{view.fabric.nodes.name[restarted]} has restarted, or another subnet manager wrote to it"
    return ""
