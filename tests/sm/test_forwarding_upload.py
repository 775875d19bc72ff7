"""Writes to switches when one of them refuses a block of its forwarding table."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sm.conftest import Net

from weft.fabric.tables import NO_ROUTE
from weft.mad.walk import walk
from weft.routing.graph import switch_graph
from weft.routing.lids import assign_lids
from weft.sm.discovery.known import BLOCK, carried_over
from weft.sm.discovery.view import make_view
from weft.sm.ucast.forwarding import _columns, _far, _wide, _write_switch_info, read_forwarding, upload_forwarding
from weft.wire.bulk import fill
from weft.wire.smp import SmpAttribute, SwitchInfo


class Recorder:
    """A sender to switches, one of which refuses its first block."""

    def __init__(self) -> None:
        self.blocks: list[list[int]] = []  # blocks of each wave

    def aside(self, work):
        return work()

    def set(self, route, attribute, modifier, data):
        took = np.ones(len(data), bool)
        if attribute == SmpAttribute.LINEAR_FORWARDING_TABLE:
            took[0] = bool(self.blocks)
            self.blocks.append(modifier.tolist())
        return data, took


def one_way_round(graph, lids, step):
    """Return tables of a ring that send all packets in one direction, in whole blocks."""
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
    """Reverse the direction of a ring of six switches.

    Each switch must be written after the next one. `returns`: one has an empty table, and the others avoid it.
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


# -- reading, and SwitchInfo ------------------------------------------------------------------------------------------


class Switches:
    """A sender to switches that answer a Get with the number of its block and accept Sets, except these nodes."""

    def __init__(self, view, *silent: str) -> None:
        self.view, self.silent = view, {view.fabric.node_index[name] for name in silent}
        self.read: list[tuple[str, int]] = []
        self.written: dict[str, SwitchInfo] = {}

    def _nodes(self, route):
        """Return the nodes at the ends of routes."""
        ends = {row.tobytes(): node for node, row in enumerate(np.column_stack((self.view.path, self.view.hops)))}
        return [ends[row.tobytes()] for row in np.column_stack(route)]

    def get(self, route, attribute, modifier):
        nodes = self._nodes(route)
        names = self.view.fabric.nodes.name
        self.read += [(names[node], int(block)) for node, block in zip(nodes, modifier, strict=True)]
        data = np.repeat((modifier + 1).astype(np.uint8)[:, None], 64, axis=1)
        return data, np.array([node not in self.silent for node in nodes], bool)

    def set(self, route, attribute, modifier, data):
        nodes = self._nodes(route)
        assert (attribute, modifier) == (SmpAttribute.SWITCH_INFO, 0)
        names = self.view.fabric.nodes.name
        self.written = {names[node]: SwitchInfo.unpack(row.tobytes()) for node, row in zip(nodes, data, strict=True)}
        answers = np.zeros((len(data), 64), np.uint8)
        answers[:, : SwitchInfo.size] = data[:, : SwitchInfo.size]
        fill(answers, SwitchInfo.port_state_change, 0)
        return answers, np.array([node not in self.silent for node in nodes], bool)


@pytest.fixture
def tree():
    """Return a view of two leaves and a spine, whose tables another manager wrote up to LID 70."""
    view = make_view(walk(Net("fat-tree:hosts=4,radix=4,levels=2")))
    fill(view.switch_info, SwitchInfo.linear_fdb_top, 70)
    return view


def set_info(view, name: str, **fields: int) -> None:
    node = view.fabric.node_index[name]
    for field, value in fields.items():
        getattr(SwitchInfo, field).set(view.switch_info[node], value)


def test_tables_of_another_manager_are_read_to_their_top_and_only_if_unknown(tree):
    contents, names = carried_over(None, tree), [node.name for node in tree.fabric.switches]
    first, second, *rest = names
    contents.routes[tree.fabric.node_index[first]] = True
    set_info(tree, second, linear_fdb_top=0)
    sender = Switches(tree, rest[-1])
    read_forwarding(sender, tree, contents)
    assert sender.read == [(name, block) for name in rest for block in (0, 1)]
    row = contents.tables.switch_row
    for name in rest:
        node, is_read = tree.fabric.node_index[name], name != rest[-1]
        assert (bool(contents.routes[node]), int(contents.top[node])) == (is_read, 70 if is_read else 0)
        expected = [1] * 64 + [2] * 64 if is_read else [NO_ROUTE] * 128
        assert contents.tables.lft[row[node]].tolist() == expected
    assert not contents.routes[tree.fabric.node_index[second]]
    sender.read.clear()
    contents.routes[:] = True
    read_forwarding(sender, tree, contents)
    assert sender.read == []


def test_a_table_that_ends_with_a_block_has_no_further_one(tree):
    for top, blocks in ((63, [0]), (64, [0, 1]), (1, [0])):
        fill(tree.switch_info, SwitchInfo.linear_fdb_top, top)
        contents, sender = carried_over(None, tree), Switches(tree)
        read_forwarding(sender, tree, contents)
        assert sorted({block for _, block in sender.read}) == blocks
        assert contents.tables.lft.shape[1] == 64 * len(blocks)


@pytest.mark.parametrize(
    ("fields", "is_written"),
    [({}, False), ({"linear_fdb_top": 63}, True), ({"port_state_change": 1}, True), ({"life_time_value": 17}, True)],
)
@pytest.mark.parametrize("takes", [True, False])
def test_switch_info_is_written_where_it_differs_and_clears_a_change_of_ports(tree, fields, is_written, takes):
    name = tree.fabric.switches[0].name
    fill(tree.switch_info, SwitchInfo.life_time_value, 18)
    fill(tree.switch_info, SwitchInfo.port_state_change, 0)
    set_info(tree, name, **fields)
    node, contents, refused = tree.fabric.node_index[name], carried_over(None, tree), set()
    sender = Switches(tree, *([] if takes else [name]))
    _write_switch_info(sender, tree, contents, 70, 18, refused)
    assert [*sender.written] == ([name] if is_written else [])
    for info in sender.written.values():
        assert (info.linear_fdb_top, info.life_time_value, info.port_state_change) == (70, 18, 1)
    assert refused == ({node} if is_written and not takes else set())
    assert contents.top[node] == (-1 if refused else 70)
    left = SwitchInfo.unpack(tree.switch_info[node].tobytes())
    if is_written and takes:
        assert (left.linear_fdb_top, left.life_time_value, left.port_state_change) == (70, 18, 0)
    elif is_written:
        assert all(getattr(left, field) == value for field, value in fields.items())
    hosts = ~tree.is_switch
    assert not contents.top[hosts].any()


def test_switches_at_the_other_ends_are_found_by_row_and_port(tree):
    far, ports, row = _far(tree), tree.fabric.ports, tree.fabric.tables.switch_row
    between = 0
    for slot in range(len(ports)):
        node, number, peer = int(ports.node[slot]), int(ports.number[slot]), int(ports.peer[slot])
        if row[node] >= 0:
            expected = row[ports.node[peer]] if peer >= 0 else -1
            assert far[row[node], number] == expected
            between += expected >= 0
    assert between > 0


def test_tables_grow_by_whole_blocks_without_a_route():
    assert [_columns(lids) for lids in (0, 1, 64, 65)] == [0, 64, 64, 128]
    table = np.ones((2, 64), np.uint8)
    assert _wide(table, 64) is table
    assert _wide(table, 10) is table
    wide = _wide(table, 128)
    assert (wide.shape, set(wide[:, :64].ravel()), set(wide[:, 64:].ravel())) == ((2, 128), {1}, {NO_ROUTE})
