"""Adaptive routing may take any port of a group: then every choice must be as good as the table's."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import weft
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.routing.engine import Options
from weft.routing.route import route


def adaptive(spec: str, engine: str) -> Fabric:
    return route(weft.load(spec), Options(engine=engine, adaptive=True)).fabric


def groups(fabric: Fabric):
    """Yield (switch name, lid, ports of its group) for every entry with a group."""
    tables = fabric.tables
    for switch in fabric.switches:
        row = tables.switch_row[switch.index]
        for lid in np.flatnonzero(tables.ar_group[row] >= 0).tolist():
            yield switch, lid, np.flatnonzero(tables.ar_ports[tables.ar_group[row, lid]]).tolist()


@pytest.mark.parametrize("engine", ["fat-tree", "up-down", "min-hop", "dfsssp"])
def test_the_port_of_the_forwarding_table_is_in_the_group(engine):
    fabric = adaptive("fat-tree:hosts=32,radix=8", engine)
    visited = 0
    for switch, lid, ports in groups(fabric):
        visited += 1
        assert fabric.tables.lft[fabric.tables.switch_row[switch.index], lid] in ports
    assert visited > 400


def test_a_leaf_may_use_all_its_uplinks_to_another_leaf():
    fabric = adaptive("fat-tree:hosts=128,radix=16", "fat-tree")
    lid = int(fabric["h100/1"].lid)
    (ports,) = (ports for switch, to, ports in groups(fabric) if switch.name == "leaf1" and to == lid)
    assert ports == list(range(9, 17))


@pytest.mark.parametrize("spec", ["fat-tree:hosts=128,radix=8", "superpod:su=1,servers=4"])
def test_no_choice_of_the_switches_forms_a_cycle(spec):
    fabric = adaptive(spec, "fat-tree")
    ports_of = {(switch.name, lid): ports for switch, lid, ports in groups(fabric)}
    waits = nx.DiGraph()
    for (name, lid), ports in ports_of.items():
        for port in ports:
            peer = fabric[f"{name}/{port}"].peer.node.name
            for next_port in ports_of.get((peer, lid), ()):
                waits.add_edge((name, port), (peer, next_port))
    assert nx.is_directed_acyclic_graph(waits)


def test_parallel_links_are_a_group_where_lanes_are_proved_path_by_path():
    fabric = adaptive("fat-tree:hosts=16,radix=16,levels=2", "dfsssp")
    for switch, _, ports in groups(fabric):
        assert len({fabric[f"{switch.name}/{port}"].peer.node.name for port in ports}) == 1


def test_a_switch_s_own_destinations_have_no_group():
    fabric = adaptive("fat-tree:hosts=32,radix=8", "fat-tree")
    row = fabric.tables.switch_row[fabric["leaf1"].index]
    assert fabric.tables.ar_group[row, int(fabric["h1/1"].lid)] == -1
    assert fabric.tables.lft[row, int(fabric["h1/1"].lid)] != NO_ROUTE
