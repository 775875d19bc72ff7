"""Discovery of a whole subnet by MADs alone, despite wrong answers of some nodes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fabric.duplicates import with_port_guid
from tests.sm.conftest import Net

import weft
from weft.errors import SubnetError
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.mad import faults
from weft.mad.discover import discover
from weft.mad.walk import DATA, walk
from weft.sm.discovery.view import make_view, without_links
from weft.wire.bulk import column, fill
from weft.wire.smp import DirectedSmp, NodeInfo, SmpAttribute


def node_infos(mads):
    return column(mads, DirectedSmp.attribute_id) == SmpAttribute.NODE_INFO


def cables(fabric):
    """Return each cable once, as a pair of (node GUID, port number)."""
    guid, number = fabric.nodes.guid[fabric.ports.node], fabric.ports.number
    ends = [
        ((int(guid[a]), int(number[a])), (int(guid[b]), int(number[b]))) for a, b in zip(*_ends(fabric), strict=True)
    ]
    return {tuple(sorted(pair)) for pair in ends}


def _ends(fabric):
    return fabric.links.a.tolist(), fabric.links.b.tolist()


@pytest.mark.parametrize("spec", ["fat-tree:hosts=16,radix=8", "dragonfly:p=2,a=4,h=2", "torus:3x3", "star:hosts=3"])
def test_a_walk_finds_every_cable_name_and_rate(spec):
    net = Net(spec)
    view = make_view(walk(net))
    assert cables(view.fabric) == cables(net.fabric)
    assert sorted(view.fabric.nodes.name) == sorted(net.fabric.nodes.name)
    assert sorted(view.fabric.link_rate_gbit_s) == sorted(net.fabric.link_rate_gbit_s)
    assert not view.oddities


def test_paths_lead_to_the_ports_they_should(net):
    view = make_view(walk(net))
    slots = view.end_ports
    path, hops = view.to_ports(slots)
    for slot, way, count in zip(slots.tolist(), path, hops.tolist(), strict=True):
        smp = DirectedSmp.pack(method=1, attribute_id=SmpAttribute.NODE_INFO, hop_count=count, initial_path=bytes(way))
        answer = net.subnet.send(net.carrier.slot, smp)
        info = NodeInfo.unpack(bytes(answer[DATA : DATA + 40]))
        assert info.node_guid == view.fabric.nodes.guid[view.fabric.ports.node[slot]]
        assert (
            info.local_port_num in (view.fabric.ports.number[slot], *([0] if view.is_switch[0] else []))
            or (view.is_switch[view.fabric.ports.node[slot]])
        )


class Meddling:
    """A port whose subnet changes after a number of MADs."""

    def __init__(self, net, after, happens):
        self.net, self.left, self.happens = net, after, happens
        self.mads = 0

    def exchange(self, mads, to=None, **how):
        parts = [mads[: self.left], mads[self.left :]] if self.left <= len(mads) else [mads]
        self.left -= len(mads)
        self.mads += len(mads)
        done = []
        for number, part in enumerate(parts):
            if number:
                self.happens()
                self.left = 1 << 30
            done.append(self.net.carrier.exchange(part, None, **how))
        return tuple(np.concatenate(both) for both in zip(*done, strict=True))


@pytest.mark.parametrize("happens", [faults.pull_cable, faults.plug_cable])
@pytest.mark.parametrize("cable", ["leaf1/3", "leaf2/1"])  # to a spine, to a host
def test_a_cable_that_comes_or_goes_at_any_mad_of_a_sweep_is_no_duplicate_guid(happens, cable):
    net = Net("fat-tree:hosts=8,radix=4")
    slot = net.fabric[cable].slot
    other = faults.plug_cable if happens is faults.pull_cable else faults.pull_cable
    other(net.devices, slot)
    whole = Meddling(net, 1 << 30, lambda: None)
    walk(whole)
    observed = set()
    for after in range(whole.mads):
        result = walk(Meddling(net, after, lambda: happens(net.devices, slot)))
        observed |= {oddity.kind for oddity in result.oddities}
        other(net.devices, slot)
    assert "duplicate-guid" not in observed
    assert observed <= {"changed", "silent"}


def test_two_adapters_with_one_guid_are_named_and_left_out(net):
    item, other = (net.fabric.nodes.guid[net.fabric.node_index[name]] for name in ("h5", "h9"))

    def twin(mads, answers, answered):
        rows = np.flatnonzero(node_infos(mads) & (column(answers, NodeInfo.node_guid, DATA) == other))
        part = answers[rows]
        fill(part, NodeInfo.node_guid, item, DATA)
        answers[rows] = part

    net.tampers.append(twin)
    view = make_view(walk(net))
    assert [text.split(":")[0] for text in view.oddities] == ["duplicate-guid", "duplicate-guid", "cut-off"]
    assert len(view.fabric.of_kind(NodeKind.HCA)) == 14
    assert f"0x{int(item):016x}" in view.oddities[0]


def test_a_switch_with_the_guid_of_another_costs_only_its_contradictions(net):
    """Half of the nodes behind the second switch are indistinguishable from the first's; the SM's own side stays."""
    item, other = (net.fabric.nodes.guid[net.fabric.node_index[name]] for name in ("leaf2", "leaf3"))

    def twin(mads, answers, answered):
        rows = np.flatnonzero(node_infos(mads) & (column(answers, NodeInfo.node_guid, DATA) == other))
        part = answers[rows]
        fill(part, NodeInfo.node_guid, item, DATA)
        answers[rows] = part

    net.tampers.append(twin)
    view = make_view(walk(net))
    assert any(text.startswith("duplicate-guid") for text in view.oddities)
    assert {"leaf1", "h1", "h2", "h3", "h4"} <= set(view.fabric.nodes.name)


def test_a_cable_from_a_switch_to_itself_is_named_and_not_used():
    builder = FabricBuilder("loop")
    switch = builder.add_nodes(NodeKind.SWITCH, ["sw"], n_ports=8)
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1)
    builder.add_links(hosts, 1, switch, [1, 2], "EDR")
    builder.add_links(switch, 5, switch, 6, "EDR")
    view = make_view(walk(Net(builder.build())))
    assert view.oddities == ("loop: sw/5 a cable leads from the switch to itself: to port 6",)
    assert len(view.fabric.links) == 2


@pytest.mark.parametrize(("field", "value"), [("node_type", 9), ("num_ports", 0), ("node_guid", 0), ("num_ports", 255)])
def test_a_node_that_says_impossible_things_is_named_and_left_out(net, field, value):
    liar = net.fabric.nodes.guid[net.fabric.node_index["h7"]]

    def lie(mads, answers, answered):
        rows = np.flatnonzero(node_infos(mads) & (column(answers, NodeInfo.node_guid, DATA) == liar))
        part = answers[rows]
        fill(part, NodeInfo.fields[field], value, DATA)
        answers[rows] = part

    net.tampers.append(lie)
    view = make_view(walk(net))
    assert len(view.fabric.of_kind(NodeKind.HCA)) == 15
    assert len(view.oddities) == 1
    assert view.oddities[0].startswith("lying: the device behind leaf2/3 says")


def test_a_node_that_never_answers_is_named_by_the_port_before_it(net):
    dumb = net.fabric.nodes.guid[net.fabric.node_index["h7"]]

    def silence(mads, answers, answered):
        rows = np.flatnonzero(node_infos(mads) & (column(answers, NodeInfo.node_guid, DATA) == dumb))
        answered[rows], answers[rows] = False, 0

    net.tampers.append(silence)
    view = make_view(walk(net))
    assert "h7" not in view.fabric
    assert view.oddities == ("silent: the device behind leaf2/3 does not answer NodeInfo",)
    (path,) = discover(net).unanswered
    assert (len(path), path[0], path[-1]) == (4, 1, 3)  # leaf, spine, leaf and host


def test_a_carrier_whose_own_node_is_silent_is_an_error(net):
    net.tampers.append(lambda mads, answers, answered: answered.fill(False))
    with pytest.raises(SubnetError, match="does not answer"):
        walk(net)


def test_without_links_what_is_cut_off_goes_too(net):
    view = make_view(walk(net))
    slots = np.array([slot for slot in view.plugged.tolist() if view.name(slot).startswith("leaf4/")])
    left = without_links(view, slots, ("flapping: leaf4",))
    assert len(left.fabric.nodes) == len(view.fabric.nodes) - 5
    assert left.oddities[0] == "flapping: leaf4"
    assert left.name(left.own_slot) == view.name(view.own_slot)
    assert (left.port_info[left.plugged][:, 32] & 15 > 0).all()


@pytest.mark.parametrize(("at", "winner", "loser"), [("h1", "h5/1", "h9/1"), ("h9", "h9/1", "h5/1")])
def test_of_two_ports_with_one_guid_the_lower_node_guid_is_served_unless_the_manager_runs_at_the_other(
    at, winner, loser
):
    net = Net(with_port_guid(weft.load("fat-tree:hosts=16,radix=8"), "h9/1", of="h5/1"), f"{at}/1")
    view = make_view(walk(net))
    guid = net.fabric.find_port("h5/1").guid
    assert view.oddities[0] == (
        f"duplicate-guid: {loser} has the port GUID {guid} of {winner}, which is served; {loser} is not"
    )
    assert [duplicate.loser for duplicate in view.duplicates] == [loser]
    assert winner.partition("/")[0] in view.fabric.nodes.name
    assert loser.partition("/")[0] not in view.fabric.nodes.name


def test_a_switch_that_has_the_port_guid_of_another_is_left_out(net):
    item, other = (net.fabric.nodes.guid[net.fabric.node_index[name]] for name in ("spine1", "spine2"))

    def twin(mads, answers, answered):
        rows = np.flatnonzero(node_infos(mads) & (column(answers, NodeInfo.node_guid, DATA) == other))
        part = answers[rows]
        fill(part, NodeInfo.port_guid, item, DATA)
        answers[rows] = part

    net.tampers.append(twin)
    view = make_view(walk(net))
    assert "spine1" in view.fabric.nodes.name
    assert "spine2" not in view.fabric.nodes.name
    assert "has the port GUID" in view.oddities[0]
