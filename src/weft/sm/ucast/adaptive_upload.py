"""Groups for adaptive routing into the switches that take them; `adaptive` says what is written, and why so."""

from __future__ import annotations

import numpy as np

from weft.sm.discovery.view import View
from weft.sm.state import AdaptiveState, State
from weft.sm.ucast.adaptive import ar_writes, plan_groups
from weft.wire.adaptive import AdaptiveRoutingInfo
from weft.wire.smp import SmpAttribute


def upload_adaptive(state: State, view: View) -> list[str]:
    """After the plain forwarding tables, whose writing turns it off; returns the switches that refused."""
    if not state.options.adaptive_routing:
        return []
    tables, sender, switches = view.fabric.tables, state.sender, np.flatnonzero(view.is_switch)
    guids = view.fabric.nodes.guid[switches]
    said, knows = sender.get(view.to_nodes(switches), SmpAttribute.ADAPTIVE_ROUTING_INFO)
    infos = np.where(knows[:, None], said[:, : AdaptiveRoutingInfo.size], 0).astype(np.uint8)
    before = None
    if state.adaptive is not None:
        old = {guid: row for row, guid in enumerate(state.adaptive.guids.tolist())}
        rows = np.array([old.get(guid, -1) for guid in guids.tolist()], np.intp)
        before = state.adaptive.groups.take(rows)
    wanted = plan_groups(tables, infos, before)
    refused: set[int] = set()
    for write in ar_writes(wanted, infos, before):
        nodes = switches[write.rows]
        _, took = sender.set(view.to_nodes(nodes), write.attribute, write.blocks, write.data)
        refused.update(nodes[~took].tolist())
    unsure = tables.switch_row[sorted(refused)].astype(np.intp)
    state.adaptive = AdaptiveState(guids=guids, groups=wanted.forget(unsure))
    return [view.fabric.nodes.name[node] for node in sorted(refused)]
