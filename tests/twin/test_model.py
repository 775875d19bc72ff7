"""A model that is read bit by bit equals a whole reading of the subnet, after any change."""

from __future__ import annotations

import numpy as np
import pytest
from tests.random_changes import run_changes
from tests.random_faults import swap_cables

import weft
from weft.errors import SubnetError
from weft.mad import faults
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet
from weft.monitor.impact import read_routed
from weft.sm.run import SubnetManager
from weft.twin.facts import read_facts
from weft.twin.model import Model


class Net:
    """A subnet that weft's manager brought up, and a model at h2."""

    def __init__(self, spec="fat-tree:hosts=16,radix=8", **budget):
        self.clock = ManualClock()
        self.subnet = Subnet(weft.load(spec), clock=self.clock)
        self.devices = self.subnet.devices
        self.sweep()
        self.carrier = Counted(self.at("h2/1"))
        self.model = Model(self.carrier, clock=self.clock, **budget)

    def at(self, port):
        return LocalCarrier(self.subnet, self.devices.fabric.find_port(port).slot, sleep=self.clock.sleep)

    def sweep(self):
        carrier = self.at("h1/1")
        SubnetManager(carrier).run(once=True)
        carrier.close()

    def slot(self, port):
        return self.devices.fabric.find_port(port).slot

    def links(self):
        fabric = self.model.view.fabric
        return {frozenset((link.a.name, link.b.name)) for link in map(fabric.link, range(len(fabric.links)))}


class Counted:
    """A carrier that counts its requests."""

    def __init__(self, carrier):
        self.carrier, self.requests = carrier, 0

    def exchange(self, mads, to=None, **options):
        self.requests += len(mads)
        return self.carrier.exchange(mads, to, **options)

    def take(self):
        requests, self.requests = self.requests, 0
        return requests


@pytest.fixture
def net():
    return Net()


@pytest.mark.parametrize(("spec", "seed"), [("fat-tree:hosts=16,radix=8", 1), ("torus:3x3,hosts=1", 2)])
def test_after_each_of_random_faults_and_changes_the_model_equals_a_fresh_reading(spec, seed):
    result = run_changes(spec, changes=40, seed=seed)
    assert result.changes == 40
    assert result.differences == 0
    assert result.most_refreshes < 20
    assert result.whole_walks < 5


def test_an_unchanged_subnet_costs_fewer_mads_than_a_whole_reading_and_a_changed_link_few_more():
    net = Net(quiet_mads=20, busy_mads=100, links_at_once=4)
    net.model.refresh()
    whole = net.carrier.take()
    while not net.model.is_settled:
        net.model.refresh()
    net.clock.sleep(20)
    version = net.model.version
    net.carrier.take()
    for _ in range(30):
        net.model.refresh()
    assert net.carrier.take() / 30 < whole / 4
    assert net.model.version == version
    faults.pull_cable(net.devices, net.slot("leaf1/5"))
    net.model.refresh()
    assert net.carrier.take() < whole
    assert not any("leaf1/5" in ends for ends in net.links())
    assert (net.model.whole_walks, net.model.version) == (1, version + 1)


def test_a_cable_that_moved_without_a_sign_is_in_the_model_after_one_turn_of_the_links():
    """A subnet manager cleared PortStateChange and activated the ports before the poll."""
    net = Net(quiet_mads=1, busy_mads=1, links_at_once=12)
    net.model.refresh()
    before = net.links()
    net.devices.traps.forget(range(len(net.devices.cable)))
    swap_cables(net.devices, net.slot("leaf1/5"), net.slot("leaf2/6"))
    net.sweep()
    turns = 0
    while net.links() == before:
        net.model.refresh()
        turns += 1
    assert turns <= -(-len(before) // 12)
    assert len(before - net.links()) == 2
    assert net.links() == links_of(read_routed(net.at("h2/1")))


def links_of(fabric):
    return {frozenset((link.a.name, link.b.name)) for link in map(fabric.link, range(len(fabric.links)))}


def test_a_node_that_a_trap_names_is_read_at_once():
    net = Net(quiet_mads=1, busy_mads=1, links_at_once=1)
    net.model.refresh()
    net.devices.describe(net.devices.fabric.node_index["h9"], "renamed mlx5_0")
    net.model.refresh()
    assert "renamed" not in net.model.view.fabric.nodes.name
    lid = net.devices.lid(net.slot("h9/1"))
    net.carrier.take()
    net.model.refresh(changed=[lid, 0, 40_000])
    assert "renamed" in net.model.view.fabric.nodes.name
    assert net.carrier.take() < 20  # no links and tables in turn


def test_traps_without_end_do_not_stop_the_readings_in_turn():
    net = Net(quiet_mads=200, busy_mads=200)
    net.model.refresh()
    net.devices.fabric.tables.pkey[net.slot("h9/1"), 1] = 0x8123
    lid = net.devices.lid(net.slot("h9/1"))
    for _ in range(10):
        net.clock.sleep(2)
        net.model.refresh(changed=[lid])
    assert "0x8123" in read_facts(net.model.view.fabric)["pkeys", "h9/1"]


def test_tables_that_change_without_a_sign_are_in_the_model_after_one_turn():
    net = Net(quiet_mads=200, busy_mads=200)
    net.model.refresh()
    net.clock.sleep(20)
    fabric = net.model.refresh()
    lfts = net.devices.fabric.tables.lft
    lfts[0, 3] = 1 + lfts[0, 3] % 8
    slot = net.slot("h9/1")
    net.devices.fabric.tables.pkey[slot, 1] = 0x8123
    for _ in range(12):
        fabric = net.model.refresh()
    assert read_facts(fabric) == read_facts(read_routed(net.at("h2/1")))
    assert "0x8123" in read_facts(fabric)["pkeys", "h9/1"]


def test_a_switch_that_does_not_answer_once_costs_no_whole_walk(net):
    net.model.refresh()
    exchange, lost = net.carrier.exchange, []

    def lose_first(mads, to=None, **options):
        answers, came = exchange(mads, to, **options)
        if not lost:
            lost.append(mads[0])
            answers[0], came[0] = 0, False
        return answers, came

    net.carrier.exchange = lose_first
    net.model.refresh()
    assert lost
    assert net.model.whole_walks == 1
    assert read_facts(net.model.refresh()) == read_facts(read_routed(net.at("h2/1")))


def test_a_restarted_switch_has_no_routes_in_the_model(net):
    fabric = net.model.refresh()
    assert (fabric.tables.lft[fabric.tables.switch_row[fabric.node_index["spine1"]]] != 255).any()
    node = net.devices.fabric.node_index["spine1"]
    faults.kill(net.devices, node)
    faults.revive(net.devices, node)
    fabric = net.model.refresh()
    assert (fabric.tables.lft[fabric.tables.switch_row[fabric.node_index["spine1"]]] == 255).all()
    assert read_facts(fabric) == read_facts(read_routed(net.at("h2/1")))


def test_a_refresh_that_fails_leaves_the_model_as_it_was(net):
    net.model.refresh()
    facts = read_facts(net.model.view.fabric)
    exchange = net.carrier.exchange
    net.carrier.exchange = lambda mads, to=None, **options: (np.zeros_like(mads), np.zeros(len(mads), bool))
    with pytest.raises(SubnetError, match="does not answer NodeInfo"):
        net.model.refresh()
    net.carrier.exchange = exchange
    assert read_facts(net.model.refresh()) == facts
