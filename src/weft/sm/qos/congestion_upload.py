"""Congestion control, set up in every device that is new to us or has restarted, when the subnet is up."""

from __future__ import annotations

import numpy as np

from weft.sm.conf.options import Options
from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View
from weft.sm.sender import Sender
from weft.wire.bulk import column
from weft.wire.mad import MadHeader


def set_up_congestion_control(sender: Sender, view: View, contents: Known, options: Options) -> list[str]:
    """Set up congestion control; return the nodes that do not support it, or have another CC_Key."""
    from weft.sm.qos.congestion import congestion_mads  # few want it

    batch = congestion_mads(view.fabric, options, ~contents.fresh[view.fabric.ports.node])
    answers, answered = sender.exchange(batch.mads, batch.lids)
    took = answered & (column(answers, MadHeader.status) == 0)
    return [view.fabric.nodes.name[node] for node in np.unique(batch.node[~took]).tolist()]
