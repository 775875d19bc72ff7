"""Groups for adaptive routing into the switches that take them; `adaptive` says what is written, and why so."""

from __future__ import annotations

import numpy as np

from weft.mad.walk import statuses
from weft.sm.adaptive import ar_infos, ar_queries, ar_smps, plan_groups
from weft.sm.state import AdaptiveState, State
from weft.sm.view import View


def upload_adaptive(state: State, view: View) -> list[str]:
    """After the plain forwarding tables, whose writing turns it off; returns the switches that refused."""
    if not state.options.adaptive_routing:
        return []
    tables, sender = view.fabric.tables, state.sender
    guids = view.fabric.nodes.guid[view.is_switch]
    asked = ar_queries(tables, view.path, view.hops, sender.m_key)
    infos = ar_infos(*sender.exchange(asked.mads))
    before = None
    if state.adaptive is not None:
        old = {guid: row for row, guid in enumerate(state.adaptive.guids.tolist())}
        rows = np.array([old.get(guid, -1) for guid in guids.tolist()], np.intp)
        before = state.adaptive.groups.take(rows)
    wanted = plan_groups(tables, infos, before)
    refused: set[int] = set()
    for batch in ar_smps(wanted, tables, infos, view.path, view.hops, before=before, m_key=sender.m_key):
        answers, answered = sender.exchange(batch.mads)
        refused.update(batch.node[~answered | (statuses(answers) != 0)].tolist())
    unsure = tables.switch_row[sorted(refused)].astype(np.intp)
    state.adaptive = AdaptiveState(guids=guids, groups=wanted.forget(unsure))
    return [view.fabric.nodes.name[node] for node in sorted(refused)]
