"""Groups for adaptive routing into the switches that take them; `adaptive` says what is written, and why so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.sm.discovery.view import View
from weft.sm.sender import Sender
from weft.sm.ucast.adaptive import Groups, ar_writes, plan_groups
from weft.wire.adaptive import AdaptiveRoutingInfo
from weft.wire.smp import SmpAttribute


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AdaptiveState:
    """The adaptive routing groups that were written, and the switches that hold them."""

    guids: NDArray[np.uint64]  # [row of the groups]
    groups: Groups


def upload_adaptive(sender: Sender, view: View, written: AdaptiveState | None) -> tuple[AdaptiveState, list[str]]:
    """Write adaptive routing after the linear tables, which turn it off; return its state and who refused."""
    tables, switches = view.fabric.tables, np.flatnonzero(view.is_switch)
    guids = view.fabric.nodes.guid[switches]
    infos_read, knows = sender.get(view.to_nodes(switches), SmpAttribute.ADAPTIVE_ROUTING_INFO)
    infos = np.where(knows[:, None], infos_read[:, : AdaptiveRoutingInfo.size], 0).astype(np.uint8)
    before = None
    if written is not None:
        old = {guid: row for row, guid in enumerate(written.guids.tolist())}
        rows = np.array([old.get(guid, -1) for guid in guids.tolist()], np.intp)
        before = written.groups.take(rows)
    expected = plan_groups(tables, infos, before)
    refused: set[int] = set()
    for write in ar_writes(expected, infos, before):
        nodes = switches[write.rows]
        _, took = sender.set(view.to_nodes(nodes), write.attribute, write.blocks, write.data)
        refused.update(nodes[~took].tolist())
    unsure = tables.switch_row[sorted(refused)].astype(np.intp)
    now = AdaptiveState(guids=guids, groups=expected.forget(unsure))
    return now, [view.fabric.nodes.name[node] for node in sorted(refused)]
