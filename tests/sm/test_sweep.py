"""Sweeps in this process: full initialization first, no writes the second time, and minimal writes after a fault."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pytest
from tests.sm.conftest import Net

from weft.mad import faults
from weft.routing.check import check
from weft.sm.conf.options import Options
from weft.sm.conf.qos_options import QosOptions
from weft.sm.events import Log
from weft.sm.run import SubnetManager
from weft.wire.bulk import column, fill
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import DirectedSmp, SmpAttribute, SwitchInfo


class Counting:
    """A carrier that counts writes by attribute, and can refuse some."""

    def __init__(self, net):
        self._carrier, self._net, self.sets = net.carrier, net, Counter()
        self.patience = set()  # (timeout, retries) of its calls

    def __getattr__(self, name):
        return getattr(self._carrier, name)

    def exchange(self, mads, to=None, **how):
        sets = column(mads, DirectedSmp.attribute_id)[column(mads, DirectedSmp.method) == Method.SET]
        self.patience.add((how["timeout_ms"], how["retries"]))
        self.sets.update(SmpAttribute(item).name for item in sets.tolist() if to is None)
        return self._net.exchange(mads, to, **how)


class Sm:
    """A subnet manager that is stepped by the test."""

    def __init__(self, net, **options):
        self.net, self.carrier = net, Counting(net)
        self.log = Log(io.StringIO(), clock=net.clock)
        self.manager = SubnetManager(self.carrier, Options(**options), log=self.log, clock=net.clock)
        self.manager.open()
        self.sweep()

    @property
    def view(self):
        return self.manager.state.view

    def sweep(self):
        """Run a heavy sweep and return its Sets."""
        self.carrier.sets.clear()
        before = self.manager.sweeps
        self.manager.reload()
        for _ in range(100):
            self.manager.step()
            if self.manager.sweeps > before:
                return dict(self.carrier.sets)
        raise AssertionError("\n".join(self.log.recent))

    def events(self, name):
        return [line for line in self.log.recent if line.split(" ")[2] == name]


def steps_until(sm, happened):
    """Step the manager without a trap until something happened; a step takes at most 0.25 s."""
    for _ in range(1000):
        if happened():
            return
        sm.manager.step()
    raise AssertionError("\n".join(sm.log.recent))


def now(net):
    return faults.fabric_now(net.devices)


@pytest.mark.parametrize("spec", ["fat-tree:hosts=16,radix=8", "dragonfly:p=2,a=4,h=2", "torus:3x3", "star:hosts=3"])
def test_a_sweep_brings_a_dark_subnet_up(spec):
    net = Net(spec)
    sm = Sm(net)
    verdict = check(now(net))
    assert verdict.ok, verdict.explain()
    assert set(sm.view.state[sm.view.plugged].tolist()) == {int(PortState.ACTIVE)}
    assert sm.events("SUBNET_UP")


def test_all_mads_of_a_sweep_wait_as_long_as_the_options_say(net):
    assert Sm(net, transaction_timeout_ms=777, transaction_retries=5).carrier.patience == {(777, 5)}


def test_view_matches_port_info():
    net = Net("fat-tree:hosts=16,radix=8")
    sm = Sm(net)
    ports = sm.view.fabric.ports
    for slot in np.union1d(sm.view.plugged, sm.view.end_ports).tolist():
        place = net.fabric.first_port[net.fabric.node_index[sm.view.fabric.nodes.name[ports.node[slot]]]]
        output, true = (
            bytearray(item) for item in (sm.view.port_info[slot], net.devices.info(int(place + ports.number[slot])))
        )
        output[28] = true[28]  # LocalPortNum is the MAD's input port
        assert output == true


def test_a_second_sweep_writes_nothing(net):
    sm = Sm(net)
    assert sm.sweep() == {}


def test_another_subnet_manager_at_another_host_keeps_lids_and_routes(net):
    Sm(net).manager.close()
    lids, routes = net.fabric.tables.lid.copy(), net.fabric.tables.lft.copy()
    net.carrier = net.at("h16/1")
    sm = Sm(net)
    assert (net.fabric.tables.lid == lids).all()
    assert (net.fabric.tables.lft[:, : routes.shape[1]] == routes).all()
    assert sm.manager.report.forwarding.entries == 0


def test_after_a_fault_only_what_it_touches_changes(net):
    sm = Sm(net)
    lids = net.fabric.tables.lid.copy()
    faults.pull_cable(net.devices, net.fabric["leaf1/5"].slot)
    sets = sm.sweep()
    assert check(now(net)).ok
    assert (net.fabric.tables.lid == lids).all()
    assert 0 < sm.manager.report.forwarding.entries < 40  # out of 6 x 22
    assert "PORT_INFO" not in sets
    assert sm.events("LINK_DISAPPEARED")[0].endswith(("leaf1/5 - spine1/1", "spine1/1 - leaf1/5"))


def test_a_trap_makes_it_sweep_without_being_asked(net):
    sm = Sm(net, sweep_interval_s=3600)
    faults.pull_cable(net.devices, net.fabric["leaf1/5"].slot)
    for _ in range(20):
        sm.manager.step()
    assert sm.manager.sweeps == 2
    assert sm.events("TRAP")
    assert check(now(net)).ok


def test_a_light_sweep_sees_what_no_trap_told(net):
    sm = Sm(net, sweep_on_trap=False, sweep_interval_s=10)
    faults.pull_cable(net.devices, net.fabric["leaf1/5"].slot)
    for _ in range(100):
        sm.manager.step()
    assert sm.manager.sweeps == 2
    assert sm.events("SWEEP_STARTED")


def test_light_sweeps_of_a_quiet_subnet_lead_to_nothing(net):
    sm = Sm(net, sweep_interval_s=1)
    for _ in range(40):
        sm.manager.step()
    assert net.clock() > 5
    assert sm.manager.sweeps == 1


def test_a_host_that_comes_back_gets_its_lid_and_its_keys(net):
    sm = Sm(net)
    slot = net.fabric["h7/1"].slot
    lid = net.fabric.tables.lid[slot]
    faults.pull_cable(net.devices, slot)
    sm.sweep()
    assert "h7" not in sm.view.fabric
    net.devices.info(slot)[16:18] = b"\0\0"  # as after a power cycle
    faults.plug_cable(net.devices, slot)
    sm.sweep()
    assert net.fabric.tables.lid[slot] == lid
    assert check(now(net)).ok


def test_after_a_dark_night_every_port_gets_its_lid_back(tmp_path):
    """A restarted manager remembers LIDs that no port has kept."""
    net = Net("fat-tree:hosts=16,radix=8")
    faults.pull_cable(net.devices, net.fabric["h1/1"].slot)  # so that LIDs are not in the order of discovery
    net.carrier = net.at("h5/1")
    sm = Sm(net, state_file=tmp_path / "sm.json")
    faults.plug_cable(net.devices, net.fabric["h1/1"].slot)
    sm.sweep()
    sm.manager.close()
    lids = {name: int(net.fabric.tables.lid[net.fabric[f"{name}/1"].slot]) for name in ("h1", "h2", "h9")}
    dark = Net("fat-tree:hosts=16,radix=8", at="h5/1")
    Sm(dark, state_file=tmp_path / "sm.json")
    assert {name: int(dark.fabric.tables.lid[dark.fabric[f"{name}/1"].slot]) for name in lids} == lids


def test_two_ports_with_one_lid_are_told_apart(net):
    Sm(net).manager.close()
    item, other = (net.fabric[name].slot for name in ("h3/1", "h9/1"))
    net.devices.tables.lid[other] = net.devices.tables.lid[item]
    sm = Sm(net)
    assert sm.events("LID_CHANGED")
    assert check(now(net)).ok


def test_with_lmc_every_port_answers_to_all_its_lids():
    net = Net("fat-tree:hosts=16,radix=8")
    Sm(net, lmc=2)
    verdict = check(now(net))
    assert verdict.ok, verdict.explain()
    assert set(net.fabric.tables.lmc[net.fabric.tables.lid > 0].tolist()) == {0, 2}


def test_a_port_that_refuses_its_settings_is_named_and_the_rest_comes_up(net):
    guid = net.fabric.nodes.guid[net.fabric.node_index["h7"]]

    def refuse(mads, answers, answered):
        sets = (column(mads, DirectedSmp.method) == Method.SET) & (
            column(mads, DirectedSmp.attribute_id) == SmpAttribute.PORT_INFO
        )
        path = net.path_of_h7
        rows = np.flatnonzero(sets & (mads[:, 128 : 128 + len(path)] == path).all(axis=1) & (mads[:, 7] == 4))
        part = answers[rows]
        fill(part, DirectedSmp.status, 0x1C)
        answers[rows] = part

    probe = Sm(net)
    node = probe.view.node_of_guid(int(guid))
    net.path_of_h7 = probe.view.path[node, :5]
    probe.manager.close()
    faults.pull_cable(net.devices, net.fabric["h7/1"].slot)
    faults.plug_cable(net.devices, net.fabric["h7/1"].slot)
    net.tampers.append(refuse)
    sm = Sm(net)
    assert any("h7/1" in line for line in sm.events("REFUSED"))
    rest = sm.view.plugged[[not sm.view.name(slot).startswith("h7/") for slot in sm.view.plugged.tolist()]]
    peer = net.fabric[str(net.fabric["h7/1"].peer.name)].slot
    assert PortInfo.port_state.get(net.devices.info(peer)) != PortState.ACTIVE
    assert (sm.view.state[rest] == PortState.ACTIVE).sum() == len(rest) - 1


def test_a_switch_that_refuses_its_adaptive_groups_is_named_and_gets_them_at_the_next_sweep(net):
    refusing = [True]

    def refuse(mads, answers, answered):
        kind = column(mads, DirectedSmp.attribute_id) == SmpAttribute.ADAPTIVE_ROUTING_GROUP_TABLE
        rows = np.flatnonzero(kind & (column(mads, DirectedSmp.method) == Method.SET))[: refusing[0]]
        part = answers[rows]
        fill(part, DirectedSmp.status, 0x1C)
        answers[rows] = part

    net.tampers.append(refuse)
    sm = Sm(net, adaptive_routing=True)
    (line,) = sm.events("REFUSED")
    (name,) = sm.manager.report.refused
    assert line.endswith(f"{name} refuses its settings")
    refusing[0] = False
    assert sm.sweep()["ADAPTIVE_ROUTING_GROUP_TABLE"] > 0
    assert sm.manager.report.refused == ()
    assert not sm.sweep()


def test_a_link_that_flaps_is_left_out_until_it_is_quiet(net):
    sm = Sm(net, flap_limit=3, flap_window_s=60)
    slot = net.fabric["leaf1/5"].slot
    for _ in range(3):
        faults.pull_cable(net.devices, slot)
        sm.sweep()
        faults.plug_cable(net.devices, slot)
        sm.sweep()
    assert sm.events("PORT_FLAPPING")
    assert PortInfo.port_state.get(net.devices.info(slot)) == PortState.INITIALIZE
    assert "it is used again in 60 s" in sm.events("PORT_FLAPPING")[0]
    steps_until(sm, lambda: PortInfo.port_state.get(net.devices.info(slot)) == PortState.ACTIVE)
    assert 60 <= net.clock() < 61, "nothing but the end of its time brought it back"
    assert check(now(net)).ok


def test_a_host_whose_link_flapped_comes_back_by_itself(net):
    """Seven flaps in 17 s, each reported only by a trap, and then no further event."""
    sm = Sm(net)
    slot = net.fabric["h2/1"].slot
    for _ in range(7):
        for happens in (faults.pull_cable, faults.plug_cable):
            happens(net.devices, slot)
            until_s = net.clock() + 17 / 14
            steps_until(sm, lambda until_s=until_s: net.clock() >= until_s)
    assert PortInfo.port_state.get(net.devices.info(slot)) == PortState.INITIALIZE
    steps_until(sm, lambda: PortInfo.port_state.get(net.devices.info(slot)) == PortState.ACTIVE)
    assert net.clock() <= 17 + 60 + 1


def test_more_ports_than_lids_leaves_some_out_and_names_the_first(net, monkeypatch):
    monkeypatch.setattr("weft.sm.ucast.lids._LIDS", 18)
    sm = Sm(net)
    assert "no LID is left for 5 ports" in sm.events("NO_LID")[0]
    assert len(sm.view.end_ports) == 17


def test_an_engine_that_cannot_makes_room_for_one_that_can():
    net = Net("torus:3x3")
    sm = Sm(net, routing_engine=("fat-tree",))
    assert sm.events("ROUTING_FALLBACK")
    assert check(now(net)).ok


def test_the_root_is_the_first_of_the_file_that_is_there(tmp_path):
    net = Net("fat-tree:hosts=16,radix=8")
    guid = int(net.fabric.nodes.guid[net.fabric.node_index["spine2"]])
    (tmp_path / "roots").write_text(f"0x1234 # gone\n0x{guid:016x}\n")
    sm = Sm(net, root_guid_file=tmp_path / "roots", routing_engine=("up-down",))
    assert sm.manager.state.routing.options.root == "spine2"
    assert check(now(net)).ok


def test_a_cable_that_comes_back_brings_its_routes_back(net):
    sm = Sm(net)
    routes = net.fabric.tables.lft.copy()
    slot = net.fabric["leaf1/5"].slot
    faults.pull_cable(net.devices, slot)
    sm.sweep()
    assert (net.fabric.tables.lft != routes).any()
    faults.plug_cable(net.devices, slot)
    sm.sweep()
    assert (net.fabric.tables.lft == routes).all()


def test_a_host_that_comes_back_moves_no_routes_of_others(net):
    sm = Sm(net)
    faults.pull_cable(net.devices, net.fabric["leaf1/5"].slot)
    sm.sweep()
    routes = net.fabric.tables.lft.copy()
    faults.pull_cable(net.devices, net.fabric["h7/1"].slot)
    sm.sweep()
    faults.plug_cable(net.devices, net.fabric["h7/1"].slot)
    sm.sweep()
    rest = np.arange(routes.shape[1]) != net.fabric.tables.lid[net.fabric["h7/1"].slot]
    assert (net.fabric.tables.lft[:, rest] == routes[:, rest]).all()


def test_a_subnet_without_a_switch_comes_up_too():
    from weft.fabric.build import FabricBuilder
    from weft.fabric.kinds import NodeKind

    builder = FabricBuilder("two hosts")
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1)
    builder.add_links(hosts[:1], 1, hosts[1:], 1, "NDR")
    net = Net(builder.build())
    sm = Sm(net)
    assert set(sm.view.state[sm.view.plugged].tolist()) == {int(PortState.ACTIVE)}


def test_qos_writes_lanes_once_and_not_again(net):
    sm = Sm(net, qos=True)
    assert sm.sweep() == {}
    assert net.fabric.tables.vl_arbitration.any()


def test_a_file_of_comments_alone_is_a_file_and_switches_check_at_hosts(net, tmp_path):
    """As in OpenSM; without a partition file switches do not check."""
    facing = net.fabric["h2/1"].peer.slot

    def enforced(**options):
        Sm(net, **options)
        info = net.devices.info(facing)
        return PortInfo.partition_enforcement_inbound.get(info), PortInfo.partition_enforcement_outbound.get(info)

    assert enforced() == (0, 0)
    path = tmp_path / "partitions.conf"
    path.write_text("# nobody said anything yet\n")
    assert enforced(partition_config_file=path) == (1, 1)


@pytest.mark.parametrize("enhanced", [False, True])
def test_only_an_enhanced_port_0_gets_tables_for_lanes(net, enhanced):
    for info in net.devices.switch_info.values():
        SwitchInfo.enhanced_port_0.set(info, enhanced)
    messages = {int(SmpAttribute.SL_TO_VL_MAPPING_TABLE): set(), int(SmpAttribute.VL_ARBITRATION_TABLE): set()}

    def listen(mads, answers, answered):
        is_set = column(mads, DirectedSmp.method) == Method.SET
        for attribute, ports in messages.items():
            rows = mads[is_set & (column(mads, DirectedSmp.attribute_id) == attribute)]
            rows = rows[np.isin(column(rows, DirectedSmp.hop_count), 1)]  # the leaf of h1
            ports.update((column(rows, DirectedSmp.attribute_modifier) & 0xFF).tolist())

    net.tampers.append(listen)
    Sm(net, qos=True)
    assert all((0 in ports) == enhanced for ports in messages.values()), messages


def test_weights_that_differ_without_effect_are_logged_once(net):
    sm = Sm(net, qos=True, qos_swe=QosOptions(vlarb_low=((0, 48), (1, 16))))
    sm.sweep()
    (line,) = sm.events("QOS")
    assert "vlarb_low: weights 48 and 16 both mean 1 packet of 4 KiB" in line
