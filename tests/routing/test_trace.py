"""The way between two hosts, hop by hop, and where it ends if it does not arrive."""

from __future__ import annotations

import pytest

import weft
from weft.cli import app
from weft.errors import ConfigError
from weft.fabric.files.opensm import write_dumps
from weft.fabric.tables import NO_ROUTE
from weft.routing.engine import Options
from weft.routing.route import route
from weft.routing.trace import trace


@pytest.fixture
def tree():
    return route(weft.load("fat-tree:hosts=16,radix=8"), Options(lmc=1)).fabric


def slots(fabric, *names):
    return [fabric.find_port(name).slot for name in names]


def test_every_lid_of_the_destination_has_its_way_over_joined_ports(tree):
    ways = trace(tree, *slots(tree, "h1/1", "h9/1"))
    assert [way.dlid for way in ways] == [18, 19]
    for way in ways:
        assert way.arrived
        assert (way.hops[0].port, way.hops[-1].peer) == ("h1/1", "h9/1")
        assert [hop.peer.split("/")[0] for hop in way.hops[:-1]] == [hop.port.split("/")[0] for hop in way.hops[1:]]
        assert len(way.hops) == 4
    assert ways[0].hops[1] != ways[1].hops[1], "each LID by a spine of its own"


def test_lanes_are_those_of_the_service_level():
    """A path in a ring of six has one lane between switches, whether it crosses the dateline or not."""
    fabric = route(weft.load("torus:6"), Options()).fabric
    for neighbour in range(2, 7):
        switch, far = slots(fabric, "h1/1", f"h{neighbour}/1")
        forth, back = trace(fabric, switch, far)[0], trace(fabric, far, switch)[0]
        assert forth.sl == back.sl
        assert {hop.vl for hop in (*forth.hops[1:-1], *back.hops[1:-1])} == {forth.sl}


def test_a_path_that_ends_early_has_the_place_and_the_reason(tree):
    leaf = tree.tables.switch_row[tree.find_node("leaf3").index]
    tree.tables.lft[leaf, 18] = NO_ROUTE
    lost, whole = trace(tree, *slots(tree, "h1/1", "h9/1"))
    assert (lost.arrived, lost.end) == (False, "leaf3: the switch has no port for its DLID")
    assert whole.arrived


def test_a_port_without_a_lid_is_refused():
    fabric = weft.load("star:hosts=2")
    with pytest.raises(ConfigError, match="h2/1 has no LID"):
        trace(fabric, *slots(fabric, "h1/1", "h2/1"))


def test_the_command_follows_tables_of_a_dump_and_reports_lost_packets(tree, tmp_path, capsys):
    tree.tables.lft[tree.tables.switch_row[tree.find_node("leaf1").index], 18] = NO_ROUTE
    write_dumps(tree, tmp_path)
    with pytest.raises(SystemExit) as end:
        app(["path", "fat-tree:hosts=16,radix=8", "h1", "h9", "--tables", str(tmp_path)])
    assert end.value.code == 1
    out = capsys.readouterr().out
    assert "It does not arrive. It ends at leaf1: the switch has no port for its DLID." in out
    assert "h9/1 to h1/1, LID 2, SL 0" in out
    with pytest.raises(ConfigError, match="leave out --routing-engine, or --tables"):
        app(["path", "star:hosts=2", "h1", "h2", "--tables", str(tmp_path), "--routing-engine", "min-hop"])
