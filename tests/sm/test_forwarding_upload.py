"""Writes to switches when one of them refuses a block of its forwarding table."""

from __future__ import annotations

import numpy as np
from tests.sm.conftest import Net

from weft.fabric.tables import NO_ROUTE
from weft.mad.walk import walk
from weft.routing.graph import switch_graph
from weft.routing.lids import assign_lids
from weft.sm.discovery.known import BLOCK, carried_over
from weft.sm.discovery.view import make_view
from weft.sm.ucast.forwarding import upload_forwarding
from weft.wire.smp import SmpAttribute


class Recorder:
    """A sender to switches of which one refuses its first block."""

    def __init__(self) -> None:
        self.blocks: list[list[int]] = []  # of each wave

    def aside(self, work):
        return work()

    def set(self, route, attribute, modifier, data):
        took = np.ones(len(data), bool)
        if attribute == SmpAttribute.LINEAR_FORWARDING_TABLE:
            took[0] = bool(self.blocks)
            self.blocks.append(modifier.tolist())
        return data, took


def one_way_round(graph, lids, step):
    """Tables of a ring that send everything the same way round, in whole blocks."""
    lft = np.full((graph.n_switches, -(-lids // BLOCK) * BLOCK), NO_ROUTE, np.uint8)
    order = [0]
    while len(order) < graph.n_switches:
        beside = graph.far[graph.first[order[-1]] : graph.first[order[-1] + 1]].tolist()
        order.append(next(present for present in beside if present not in order[-2:]))
    following = dict(zip(order, np.roll(order, -step).tolist(), strict=True))
    for near, far, port in zip(graph.near.tolist(), graph.far.tolist(), graph.port.tolist(), strict=True):
        if following[near] == far:
            lft[near, graph.lid] = port
    lft[graph.at, graph.lid] = graph.out
    return lft


def upload(*, returns: bool):
    """Turn a ring of six round: it sends all one way, and shall send it the other.

    No switch can be written before the next. `returns`: one has an empty table, and the others lead past it.
    """
    view = make_view(walk(Net("torus:6,hosts=20")))
    tables = view.fabric.tables
    tables.lid[:] = assign_lids(view.fabric)[0]
    graph = switch_graph(view.fabric, tables.lid, tables.lmc)
    recorded = carried_over(None, view)
    tables.lft, recorded.tables.lft = (one_way_round(graph, int(tables.lid.max()) + 1, step) for step in (1, -1))
    if returns:
        leads_there = graph.port[graph.far == 0], graph.near[graph.far == 0]
        for port, near in zip(*leads_there, strict=True):
            recorded.tables.lft[near, recorded.tables.lft[near] == port] = NO_ROUTE
        recorded.tables.lft[0] = NO_ROUTE
    recorded.routes[:] = True
    recorder = Recorder()
    return upload_forwarding(recorder, view, recorded, in_use=True, life_time=18), recorder, recorded


def test_after_a_refused_block_its_number_is_written_no_more_and_others_are():
    done, recorder, recorded = upload(returns=False)
    assert len(recorder.blocks) > 1
    refused = recorder.blocks[0][0]
    later = [number for wave in recorder.blocks[1:] for number in wave]
    assert refused not in later
    assert later
    assert len(done.refused) == 1
    assert recorded.routes.sum() == len(recorded.routes) - 1, "only its table is unknown now"


def test_a_switch_that_returns_and_refuses_its_first_block_stops_no_other():
    done, recorder, _ = upload(returns=True)
    first, *later = recorder.blocks
    assert sorted(first) == sorted(set(first)), "its blocks alone"
    assert first[0] in [number for wave in later for number in wave]
    assert len(done.refused) == 1
