"""Faults in a running subnet, their effects, and repairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import faults as cabling_faults
from weft.fabric.counters import Counter
from weft.fabric.rates import speed
from weft.fabric.tables import NO_ROUTE
from weft.mad import faults
from weft.mad.power_up import switch_on
from weft.routing.check import check
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo, PortPhysicalState, PortState
from weft.wire.smp import LinearForwardingTable, NodeInfo, SmpAttribute

INFO = SmpAttribute.NODE_INFO


def answers(bench, path) -> bool:
    return bench.ask(path, Method.GET, INFO)[0] == 0


def test_a_pulled_cable_takes_both_ends_down_and_comes_back(running):
    devices, slot = running.devices, running.slot_of("leaf1/3")
    faults.pull_cable(devices, slot)
    assert not answers(running, [1, 3])
    for port in ("leaf1/3", "spine1/1"):
        info = PortInfo.unpack(bytes(devices.info(running.slot_of(port))))
        assert (info.port_state, info.port_physical_state) == (PortState.DOWN, PortPhysicalState.POLLING)
        assert running.counter(port, Counter.LINK_DOWNED) == 1
    faults.plug_cable(devices, running.slot_of("spine1/1"))  # the other end
    assert answers(running, [1, 3])
    assert running.get([1], PortInfo, 3).port_state == PortState.INITIALIZE


def test_pulling_twice_counts_once(running):
    for _ in range(2):
        faults.pull_cable(running.devices, running.slot_of("leaf1/3"))
    assert running.counter("leaf1/3", Counter.LINK_DOWNED) == 1


@pytest.mark.parametrize("times", [0, 1, 3])
def test_each_flap_is_counted_at_both_ends(running, times):
    faults.flap(running.devices, running.slot_of("leaf1/3"), times)
    for port in ("leaf1/3", "spine1/1"):
        assert running.counter(port, Counter.LINK_DOWNED) == running.counter(port, Counter.LINK_ERROR_RECOVERY) == times


def test_a_port_without_a_cable_cannot_lose_one(make_bench):
    bench = make_bench("fat-tree:hosts=5,radix=4")
    free = next(
        s for s in bench.devices.ports_of(bench.node("leaf3")) if bench.devices.cable[s] < 0 and bench.devices.number(s)
    )
    for fault in (faults.pull_cable, faults.plug_cable, faults.mend):
        with pytest.raises(ConfigError, match=r"leaf3/.* has no InfiniBand cable"):
            fault(bench.devices, free)


def test_a_bad_cable_loses_what_its_bit_error_rate_says(bench):
    """A bad link loses 1 - (1 - BER)^(8 * 290) of MADs in each direction; only one of the path's two is bad."""
    rate = 1e-4
    faults.degrade(bench.devices, bench.slot_of("leaf1/3"), rate)
    came = sum(answers(bench, [1, 3]) for _ in range(2000))
    assert came / 2000 == pytest.approx((1 - rate) ** (2 * 2320), abs=0.04)
    for port in ("leaf1/3", "spine1/1"):
        assert bench.counter(port, Counter.PORT_RCV_ERRORS) > 100
        assert bench.counter(port, Counter.SYMBOL_ERROR) >= bench.counter(port, Counter.PORT_RCV_ERRORS)
    assert bench.counter("h1/1", Counter.PORT_RCV_ERRORS) == 0


def test_damaged_packets_count_as_received(bench):
    faults.degrade(bench.devices, bench.slot_of("leaf1/3"), 1e-4)
    for _ in range(500):
        answers(bench, [1, 3])
    sent, received = bench.counter("leaf1/3", Counter.PORT_XMIT_PKTS), bench.counter("spine1/1", Counter.PORT_RCV_PKTS)
    assert sent == received > bench.counter("spine1/1", Counter.PORT_RCV_ERRORS) > 0


def test_the_same_seed_loses_the_same(make_bench):
    def came() -> list[bool]:
        bench = make_bench()
        faults.degrade(bench.devices, bench.slot_of("leaf1/3"), 1e-4)
        return [answers(bench, [1, 3]) for _ in range(50)]

    assert came() == came()


def test_many_errors_make_a_link_recover_and_tell(running):
    """More errors than LocalPhyErrors, 8 after power-up: trap 129."""
    faults.degrade(running.devices, running.slot_of("spine1/2"), 0.01)
    for _ in range(9):
        assert running.counter("leaf2/3", Counter.LOCAL_LINK_INTEGRITY_ERRORS) == 0
        answers(running, [1, 3, 2])
    assert running.counter("leaf2/3", Counter.LOCAL_LINK_INTEGRITY_ERRORS) == 1
    assert running.counter("leaf2/3", Counter.LINK_ERROR_RECOVERY) == 1
    faults.mend(running.devices, running.slot_of("spine1/2"))
    running.clock.sleep(1.1)  # the first trap was lost on the same cable
    assert 129 in {notice.trap_number for notice in running.traps()}


def test_errors_that_good_packets_outweigh_pass_no_threshold(bench):
    faults.degrade(bench.devices, bench.slot_of("leaf1/3"), 5e-5)  # one MAD in nine is lost
    for _ in range(500):
        answers(bench, [1, 3])
    assert bench.counter("spine1/1", Counter.PORT_RCV_ERRORS) > 30
    assert bench.counter("spine1/1", Counter.LOCAL_LINK_INTEGRITY_ERRORS) == 0


def test_a_cable_without_errors_loses_nothing_any_more(bench):
    slot = bench.slot_of("leaf1/3")
    faults.degrade(bench.devices, slot, 0.5)
    assert not answers(bench, [1, 3])
    faults.degrade(bench.devices, slot, 0.0)
    assert all(answers(bench, [1, 3]) for _ in range(100))
    with pytest.raises(ConfigError, match="bit error rate of leaf1/3 must be in"):
        faults.degrade(bench.devices, slot, 2)


@pytest.mark.parametrize(
    ("label", "width", "speed", "ext"),
    [("1xNDR", 1, 4, 8), ("4xEDR", 2, 4, 2), ("2xHDR", 16, 4, 4), ("4xSDR", 2, 1, 0)],
)
def test_a_slow_cable_comes_up_with_what_it_can(bench, label, width, speed, ext):
    slot = bench.slot_of("leaf1/3")
    faults.slow(bench.devices, slot, label)
    info = bench.get([1], PortInfo, 3)
    assert (info.link_width_active, info.link_speed_active, info.link_speed_ext_active) == (width, speed, ext)
    faults.mend(bench.devices, slot)
    info = bench.get([1], PortInfo, 3)
    assert (info.link_width_active, info.link_speed_ext_active) == (2, 8)


def test_a_cable_does_not_become_another_kind(bench):
    with pytest.raises(ConfigError, match="leaf1/3 cannot fall back to 400GbE"):
        faults.slow(bench.devices, bench.slot_of("leaf1/3"), "400GbE")


def test_a_dead_switch_answers_nothing_and_its_neighbours_see_it(running):
    faults.kill(running.devices, running.node("spine1"))
    assert not answers(running, [1, 3])
    assert running.get([1], PortInfo, 3).port_state == PortState.DOWN
    assert running.counter("leaf2/3", Counter.LINK_DOWNED) == 1
    assert answers(running, [1, 4])


def test_a_dead_host_cannot_even_ask_itself(running):
    faults.kill(running.devices, running.node("h1"))
    assert not answers(running, [])
    faults.revive(running.devices, running.node("h1"))
    assert answers(running, [1])


def test_a_revived_switch_has_forgotten_what_it_was_told(running):
    node = running.node("spine1")
    running.devices.fabric.counters[running.slot_of("spine1/1")] = 5
    faults.kill(running.devices, node)
    faults.revive(running.devices, node)
    assert running.get([1, 3], NodeInfo).local_port_num == 1
    assert running.get([1, 3], PortInfo, 0).lid == 0
    assert set(running.get([1, 3], LinearForwardingTable).port) == {NO_ROUTE}
    assert running.get([1, 3], PortInfo, 2).port_state == PortState.INITIALIZE
    assert running.counter("spine1/1", Counter.SYMBOL_ERROR) == 0
    assert running.devices.tables.lid[running.slot_of("spine1/0")] == 0


@pytest.mark.parametrize("name", ["spine1", "h1"])
def test_a_revived_node_has_cleared_its_own_p_keys_and_sl_to_vl_tables_and_no_others(running, name):
    node, tables = running.node(name), running.devices.tables
    tables.sl2vl[:], tables.pkey[:, 1] = 7, 0x8005
    faults.kill(running.devices, node)
    faults.revive(running.devices, node)
    ports = int(running.devices.fabric.nodes.n_ports[node]) + 1
    own = np.zeros(len(tables.sl2vl), bool)
    own[tables.first_pair[node] :][: ports**2 if name == "spine1" else ports] = True
    assert not tables.sl2vl[own].any()
    assert (tables.sl2vl[~own] == 7).all()
    assert set(np.flatnonzero(tables.pkey[:, 1] == 0)) == set(running.devices.ports_of(node))


def test_only_the_dead_are_revived(running):
    with pytest.raises(ConfigError, match="spine1 was not switched off"):
        faults.revive(running.devices, running.node("spine1"))


def test_a_cable_that_was_pulled_stays_pulled_when_its_node_comes_back(running):
    faults.pull_cable(running.devices, running.slot_of("spine1/1"))
    faults.kill(running.devices, running.node("spine1"))
    faults.revive(running.devices, running.node("spine1"))
    assert not answers(running, [1, 3])
    assert answers(running, [1, 4, 2, 3])


# -- the fabric as it runs --------------------------------------------------------------------------------------------


def test_the_fabric_now_is_the_fabric_while_all_is_well(running):
    assert faults.fabric_now(running.devices) is running.devices.fabric


def test_tables_that_mads_set_lead_everywhere_in_the_fabric_now_until_a_cable_is_pulled(running):
    verdict = check(faults.fabric_now(running.devices))
    assert verdict.arrived == verdict.pairs == 14 * 13
    faults.pull_cable(running.devices, running.slot_of("leaf1/3"))
    verdict = check(faults.fabric_now(running.devices))
    assert verdict.arrived < verdict.pairs
    assert "where nothing is plugged in" in verdict.first_failure


def test_the_fabric_now_lacks_what_is_down_and_runs_as_fast_as_it_trained(running):
    devices, fabric = running.devices, running.devices.fabric
    faults.pull_cable(devices, running.slot_of("leaf1/3"))
    faults.kill(devices, running.node("h8"))
    faults.slow(devices, running.slot_of("leaf2/3"), "1xEDR")
    faults.degrade(devices, running.slot_of("leaf2/4"), 1e-6)
    now = faults.fabric_now(devices)
    assert len(now.links) == len(fabric.links) - 2
    assert len(now.nodes) == len(fabric.nodes)
    assert now["leaf1/3"].peer is None
    assert now["h8/1"].peer is None
    assert now["leaf2/3"].link.label == "1xEDR"
    assert now.links.bit_error_rate[now["leaf2/4"].link.index] == 1e-6
    faults.plug_cable(devices, running.slot_of("leaf1/3"))
    assert faults.fabric_now(devices)["leaf1/3"].peer.name == "spine1/1"


def test_speeds_that_portinfo_cannot_name_stay_as_they_were_cabled():
    fabric = weft.load("star:hosts=2")
    later = replace(fabric.links, speed=np.full_like(fabric.links.speed, speed("GDR").index))
    devices = switch_on(fabric.with_links(later))
    assert faults.fabric_now(devices)["h1/1"].link.label == "4xGDR"


def test_a_cable_that_was_bad_before_it_ran_hurts_packets_as_it_does_in_the_engines():
    fabric = cabling_faults.degrade(weft.load("star:hosts=2"), "h1/1", 1e-3)
    devices = switch_on(fabric)
    ends = [fabric.find_port(name).slot for name in ("h1/1", "leaf1/1")]
    assert devices.erring == set(ends)
    faults.mend(devices, ends[0])
    assert not devices.erring
    assert not faults.fabric_now(devices).links.bit_error_rate.any()


def test_cable_fault_is_in_the_running_fabric_only():
    before = weft.load("star:hosts=2")
    devices = switch_on(before)
    faults.degrade(devices, before.find_port("h1/1").slot, 1e-3)
    assert devices.fabric["leaf1/1"].link.bit_error_rate == 1e-3
    assert before["leaf1/1"].link.bit_error_rate == 0
    assert devices.fabric.counters is before.counters


def test_a_port_that_says_it_is_down_passes_nothing(running):
    """Only PortInfo decides whether a link is up."""
    assert answers(running, [1, 3])
    PortInfo.port_state.set(running.devices.info(running.slot_of("leaf1/3")), PortState.DOWN)
    running.devices.forget_paths()
    assert not answers(running, [1, 3])
    assert faults.fabric_now(running.devices)["leaf1/3"].peer is None
