"""Congestion control, set up in every device that is new to us or has restarted, when the subnet is up."""

from __future__ import annotations

import numpy as np

from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View
from weft.sm.events import Event
from weft.sm.state import State
from weft.wire.bulk import column
from weft.wire.mad import MadHeader


def set_up_congestion_control(state: State, view: View, known: Known) -> None:
    """Those that do not know the class are named, once."""
    if not state.options.congestion_control:
        return
    from weft.sm.qos.congestion import congestion_mads  # few want it

    batch = congestion_mads(view.fabric, state.options, ~known.fresh[view.fabric.ports.node])
    answers, answered = state.sender.exchange(batch.mads, batch.lids)
    took = answered & (column(answers, MadHeader.status) == 0)
    for node in np.unique(batch.node[~took]).tolist():
        name = view.fabric.nodes.name[node]
        state.log.say_once(Event.REFUSED, f"{name} does not know congestion control, or has another CC_Key")
