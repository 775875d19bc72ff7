"""Sweeps of an unchanged subnet: omitted requests, and results."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pytest

from weft.mad.faults import pull_cable
from weft.mad.walk import DATA
from weft.sm.conf.options import Options
from weft.sm.discovery.differences import Flaps, missing_links, same_ports, with_cable_in
from weft.sm.events import Log
from weft.sm.run import SubnetManager
from weft.wire.bulk import fill
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo
from weft.wire.smp import SmpAttribute


class Managed:
    """A subnet in this process, its manager, and the MADs of the manager's last sweep."""

    def __init__(self, net, **options) -> None:
        self.net, self.sent = net, Counter()
        self.manager = SubnetManager(net.carrier, Options(**options), log=Log(io.StringIO()), clock=net.clock)
        self.manager.state.sender.carrier = self
        self.manager.open()

    def exchange(self, mads, to=None, **how):
        self.sent.update(zip(mads[:, 3].tolist(), mads[:, 17].tolist(), strict=True))
        return self.net.exchange(mads, to, **how)

    def sweep(self):
        self.sent.clear()
        self.manager._sweep_s = -np.inf
        self.manager.step()
        return self.manager.state.view

    def sets(self) -> int:
        return sum(count for (method, _), count in self.sent.items() if method == Method.SET)


@pytest.fixture
def managed(net) -> Managed:
    return Managed(net)


def forgetful(mads, answers, answered) -> None:
    """Change answers as ibsim would: error thresholds are not stored and always read 0."""
    infos = answers[:, 17] == SmpAttribute.PORT_INFO
    rows = answers[infos]
    fill(rows, PortInfo.local_phy_errors, 0, DATA)
    fill(rows, PortInfo.overrun_errors, 0, DATA)
    answers[infos] = rows


def test_a_sweep_over_a_subnet_that_is_as_it_should_be_only_reads(managed) -> None:
    managed.sweep()
    assert managed.sets()
    managed.sweep()
    assert not managed.sets()
    assert managed.sent


def test_refused_setting_is_sent_once(managed) -> None:
    managed.net.tampers.append(forgetful)
    managed.sweep()
    managed.sweep()
    assert not managed.sets()


def test_a_setting_that_changed_is_told_to_ports_that_ignored_the_one_before(managed) -> None:
    managed.net.tampers.append(forgetful)
    managed.manager.state.options = Options(local_phy_errors_threshold=9)
    view = managed.sweep()
    managed.manager.state.options = Options(local_phy_errors_threshold=8)
    managed.sweep()
    assert managed.sent[Method.SET, SmpAttribute.PORT_INFO] == len(view.plugged)


def test_a_port_that_lost_a_setting_gets_it_back(managed) -> None:
    view = managed.sweep()
    slot = int(view.end_ports[-1])
    info = managed.net.devices.port_info[managed.net.fabric.find_port(view.name(slot)).slot]
    PortInfo.subnet_time_out.set(info, 3)
    managed.sweep()
    assert managed.sent[Method.SET, SmpAttribute.PORT_INFO] == 1


def test_ports_are_found_again_by_guid_when_a_node_before_them_is_gone(managed) -> None:
    before = managed.sweep()
    host = managed.net.fabric.find_port("h5/1")
    pull_cable(managed.net.devices, host.slot)
    now = managed.sweep()
    ends = {"h5/1", managed.net.fabric.port(int(managed.net.fabric.ports.peer[host.slot])).name}
    assert {before.name(slot) for slot in missing_links(before, now).tolist()} == ends
    every = np.arange(len(now.fabric.ports))
    present = same_ports(every, now, before)
    assert [before.name(slot) for slot in present.tolist()] == [now.name(slot) for slot in every.tolist()]
    removed = np.array([before.fabric.find_port("h5/1").slot])
    assert same_ports(removed, before, now).tolist() == [-1]
    assert with_cable_in(now.plugged, now, before).all()


def test_tables_of_ports_that_stay_are_not_written_again_when_a_host_leaves(net) -> None:
    managed = Managed(net, qos=True)
    managed.sweep()
    tables = (SmpAttribute.SL_TO_VL_MAPPING_TABLE, SmpAttribute.VL_ARBITRATION_TABLE)
    assert all(managed.sent[Method.SET, table] for table in tables)
    pull_cable(managed.net.devices, managed.net.fabric.find_port("h5/1").slot)
    managed.sweep()
    assert managed.sent[Method.GET, SmpAttribute.NODE_INFO]  # a heavy sweep
    assert not any(managed.sent[Method.SET, table] for table in tables)


def test_a_link_that_fell_often_is_restless_and_the_others_are_not(managed) -> None:
    up = managed.sweep()
    ports = managed.net.fabric.ports
    cable = int(np.flatnonzero(ports.peer >= 0)[-1])
    pull_cable(managed.net.devices, cable)
    down = managed.sweep()
    flaps = Flaps(limit=2, window_s=10.0)
    flaps.note(up, down, 0.0)
    assert not len(flaps.flapping(up, 1.0)[0])
    flaps.note(up, down, 1.0)
    slots, why = flaps.flapping(up, 2.0)
    assert set(slots.tolist()) == set(missing_links(up, down).tolist())
    assert len(why) == 2
    assert not len(flaps.flapping(up, 20.0)[0])


@pytest.mark.parametrize("part_enforce", ["both", "in", "out"])
def test_a_manager_that_starts_again_writes_no_p_keys_that_devices_have(net, tmp_path, part_enforce):
    """The tables of switch ports that check in one direction only are read too."""
    file = tmp_path / "partitions.conf"
    file.write_text(f"Default=0x7fff: ALL=full;\nred=0x0101: {int(net.fabric['h2/1'].guid):#x}=full;\n")
    written = []
    for _ in range(2):
        managed = Managed(net, partition_config_file=file, part_enforce=part_enforce)
        managed.sweep()
        written.append(managed.sent[int(Method.SET), int(SmpAttribute.P_KEY_TABLE)])
        managed.manager.close()
    assert written[0] > 0
    assert written[1] == 0
