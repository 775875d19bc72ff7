"""Faults under the subnet manager: the invariants after each, in several topologies."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.mad import faults
from weft.scenarios import sm_faults
from weft.scenarios.managed import ManagedSubnet
from weft.sm.conf.options import Options

TREE = "fat-tree:hosts=16,radix=4"  # three levels: 8 leaves, 8 spines, 4 cores


@pytest.fixture(scope="module")
def found():
    return sm_faults.run(fabric=TREE, links=5, switches=5, seed=7)


def of(finding, *names):
    return [tuple(each[name] for name in names) for each in finding.figures["faults"]]


def all_hold(finding):
    return all(finding.figures["holds"].values()), finding.finding  # the sentence names violated invariants


def test_a_tree_survives_every_fault_and_returns(found):
    held, why = all_hold(found)
    assert held, why


@pytest.mark.parametrize(
    ("fabric", "engine", "used"),
    [("dragonfly:p=1,a=4,h=2", "auto", "dfsssp"), ("torus:3x3", "dfsssp", "dfsssp")],  # with a hole it is no dragonfly
)
def test_so_do_others_on_several_lanes(fabric, engine, used):
    finding = sm_faults.run(fabric=fabric, routing_engine=engine, links=3, switches=2, seed=5)
    held, why = all_hold(finding)
    assert held, why
    assert list(finding.figures["engines"]) == [used]


def test_at_least_the_entries_that_pointed_at_the_element_change(found):
    for into, through, changed in of(found, "into", "through", "changed"):
        assert into <= changed
        assert into <= through


def test_the_subnet_manager_reports_exactly_the_changed_entries(found):
    for changed, cleared, reported in of(found, "changed", "cleared", "reported"):
        assert changed + cleared == reported


def test_of_a_dead_leaf_only_its_own_lids_change():
    """Each other switch clears the entries of the leaf and its hosts; else only spines met each other through it."""
    finding = sm_faults.run(fabric="fat-tree:hosts=16,radix=8", links=0, switches=100)
    leaves = [each for each in finding.figures["faults"] if each["kind"] == "leaf switch"]
    assert len(leaves) == 4  # that of the subnet manager among them, while it stood elsewhere
    for each in leaves:
        assert each["cut_off"] == 4
        assert each["changed"] == each["through"] <= 2
        assert each["cleared"] == 5 * (each["cut_off"] + 1)  # 6 switches
    assert finding.figures["moves"] == 2
    assert "before its own leaf fails" in finding.trust


def test_the_first_node_fails_and_returns_as_others_do():
    builder = FabricBuilder("switches first")
    switches = builder.add_nodes(NodeKind.SWITCH, ["s1", "s2"], n_ports=4)
    builder.add_links(switches[:1], 1, switches[1:], 1, "NDR")
    builder.add_links(builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1), 1, switches[::-1], 2, "NDR")
    net = ManagedSubnet(builder.build(), Options())
    sm_faults._break(net, sm_faults.Element(name="s1", kind="switch", node=0))
    assert net.devices.dead == {0}
    sm_faults._repair(net, sm_faults.Element(name="s1", kind="switch", node=0))
    assert not net.devices.dead


def test_entries_that_led_through_a_cable_are_those_whose_paths_use_it():
    """Compared with a walk, hop by hop."""
    net = ManagedSubnet(weft.load(TREE), Options())
    element = next(each for each in sm_faults._elements(net.fabric) if each.name == "spine3/3")
    _, through = sm_faults._leading_through(net, element, net.fabric.tables.lft)
    fabric, tables = net.fabric, net.fabric.tables
    ends = {element.slot, int(fabric.ports.peer[element.slot])}
    lids = tables.lid[tables.lid > 0]
    for row, node in enumerate(np.flatnonzero(tables.switch_row >= 0).tolist()):
        for lid in lids.tolist():
            switch, used = node, False
            while tables.switch_row[switch] >= 0 and tables.lft[tables.switch_row[switch], lid]:
                slot = int(fabric.first_port[switch]) + int(tables.lft[tables.switch_row[switch], lid])
                used |= slot in ends
                switch = int(fabric.ports.node[fabric.ports.peer[slot]])
            assert used == through[row, lid]


def test_tables_that_were_not_repaired_are_reported(monkeypatch):
    """The check does not rely on the subnet manager: old routes left in the switches are detected."""
    monkeypatch.setattr("weft.sm.sweep.upload_forwarding", _upload_nothing_later())
    finding = sm_faults.run(fabric=TREE, links=1, switches=0)
    assert not finding.figures["holds"]["Reach"]
    assert "Reach: not so with 1 of 1 faults" in finding.finding


def _upload_nothing_later():
    from dataclasses import replace

    from weft.sm.ucast.forwarding import upload_forwarding

    first = []

    def upload(sender, view, by_name, *, in_use, life_time):
        if first:
            view.fabric.tables.lft = by_name.tables.lft.copy()
            return replace(first[0], blocks=0, entries=0)
        first.append(upload_forwarding(sender, view, by_name, in_use=in_use, life_time=life_time))
        return first[0]

    return upload


def test_the_seed_chooses_and_all_is_all():
    elements = list(sm_faults._elements(weft.load(sm_faults.SPEC)))
    assert [sum(each.kind.startswith("cable") for each in elements), len(elements)] == [108, 153]
    each, same, other = (sm_faults._sample(elements, 4, 2, seed) for seed in (3, 3, 4))
    assert each == same != other
    assert len(each) == 6


def test_a_subnet_manager_that_hears_nothing_is_an_error_not_a_figure():
    net = ManagedSubnet(weft.load(TREE), Options(sweep_interval_s=0, sweep_on_trap=False))
    faults.pull_cable(net.devices, net.fabric["leaf1/3"].slot)
    with pytest.raises(weft.errors.SimulationBug, match="no sweep"):
        net.settle()


@pytest.mark.parametrize(
    "options", [{"links": 0, "switches": 0}, {"links": -1}, {"routing_engine": "ftreee"}, {"seed": -1}]
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        sm_faults.run(**options)


def test_where_all_hosts_are_at_one_switch_its_fault_is_refused():
    with pytest.raises(ConfigError, match="hosts at one switch only"):
        sm_faults.run(fabric="star:hosts=3", switches=1)
