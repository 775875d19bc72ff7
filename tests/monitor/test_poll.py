"""A poll reads the agents' counters with the fewest queries, and reports ports that it could not read."""

from __future__ import annotations

import itertools

import pytest
from tests.monitor.watched import SPEC, Listener, Watched, delta, value

import weft
from weft.errors import SubnetError
from weft.fabric.counters import Counter, FecCounter
from weft.mad import faults
from weft.mad.local import LocalCarrier
from weft.mad.subnet import Subnet
from weft.monitor.change import between
from weft.monitor.columns import Column
from weft.monitor.poll import Poller
from weft.wire.perf import PerfAttribute
from weft.wire.port_info import LinkSpeed, PortInfo, PortState
from weft.wire.smp import SmpAttribute, SwitchInfo

C = Column


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_the_first_columns_are_those_of_the_fabric():
    assert [(item.name, int(item)) for item in Counter] == [(item.name, int(item)) for item in Column][: len(Counter)]


def test_a_reading_says_what_the_agents_count(watched):
    for number, column in enumerate(Counter, 1):
        watched.count("leaf1/1", Column(column), 100 * number)
    reading = watched.poll()
    true = watched.devices.counters(watched.slot("leaf1/1"))
    for column in Counter:
        if "PKTS" not in column.name and "DATA" not in column.name:  # MADs go on being counted
            assert value(reading, "leaf1/1", Column(column)) == true[column]
    assert value(reading, "leaf1/1", C.PORT_XMIT_DATA_WORDS) >= 100 * (C.PORT_XMIT_DATA_WORDS + 1)


def test_every_port_with_a_cable_is_read_under_its_own_name(watched):
    reading = watched.poll()
    ports = reading.ports
    read = {ports.name(slot) for slot in reading.known[:, C.SYMBOL_ERROR].nonzero()[0]}
    assert read == {str(end) for link in watched.fabric.all_links() for end in (link.a, link.b)}
    slot = ports.fabric.find_port("leaf1/1").slot
    assert ports.name(int(ports.peer[slot])) == str(watched.fabric.find_port("leaf1/1").peer)
    assert ports.rate_gbit_s[slot] == watched.fabric.find_port("leaf1/1").link.rate_gbit_s
    assert (ports.width_active[slot], ports.width_supported[slot]) == (4, 4)
    assert LinkSpeed.highest(int(ports.speed_active[slot])) == LinkSpeed.highest(int(ports.speed_supported[slot]))
    assert ports.state[slot] == PortState.ACTIVE


def test_a_quiet_fabric_is_not_walked_again_and_causes_are_not_asked_for(watched):
    watched.poll()
    watched.poll()
    requests = {type(item)(item).name for item in watched.carrier.asked}
    assert requests == {"SWITCH_INFO", "PORT_INFO", "PORT_COUNTERS_EXTENDED"}
    assert watched.carrier.count(SmpAttribute.PORT_INFO) == len(watched.fabric.switches)


def test_a_switch_that_notes_a_change_is_walked_past_again_once(watched):
    """Without a manager the mark of a change is never cleared."""
    watched.poll()
    SwitchInfo.port_state_change.set(watched.devices.switch_info[watched.fabric.node_index["leaf1"]], 1)
    watched.poll()
    assert watched.carrier.count(SmpAttribute.NODE_INFO)
    watched.poll()
    assert not watched.carrier.count(SmpAttribute.NODE_INFO)


def test_lids_that_were_given_anew_are_noticed(watched):
    """A query to the old LID of a port is answered by another port."""
    watched.poll()
    PortInfo.lid.set(watched.devices.info(watched.slot("leaf1/0")), 99)
    watched.poll()
    assert watched.carrier.count(SmpAttribute.NODE_INFO)
    watched.poll()
    assert not watched.carrier.count(SmpAttribute.NODE_INFO)


def test_causes_are_asked_for_where_errors_came_and_not_again_until_more_come(watched):
    details = watched.devices.details
    before = watched.poll()
    assert value(before, "leaf1/1", C.LOCAL_PHYSICAL) == 0  # no errors: no causes, and no queries
    assert not watched.carrier.count(PerfAttribute.PORT_RCV_ERROR_DETAILS)
    watched.count("leaf1/1", C.PORT_RCV_ERRORS, 5)
    details[watched.slot("leaf1/1"), "port_local_physical_errors", 0] = 4
    details[watched.slot("leaf1/1"), "port_malformed_packet_errors", 0] = 1
    after = watched.poll()
    assert watched.carrier.count(PerfAttribute.PORT_RCV_ERROR_DETAILS) == 1
    change = between(before, after)
    assert delta(change, "leaf1/1", C.LOCAL_PHYSICAL) == 4
    assert delta(change, "leaf1/1", C.MALFORMED) == 1
    again = watched.poll()
    assert not watched.carrier.count(PerfAttribute.PORT_RCV_ERROR_DETAILS)
    assert value(again, "leaf1/1", C.LOCAL_PHYSICAL) == 4


def test_causes_of_discards(watched):
    watched.count("leaf1/1", C.PORT_XMIT_DISCARDS, 2)
    watched.devices.details[watched.slot("leaf1/1"), "port_sw_hoq_lifetime_limit_discards", 0] = 2
    assert value(watched.poll(), "leaf1/1", C.HOQ_LIFETIME_DISCARDS) == 2


def test_fec_is_read_where_a_port_has_had_errors(watched):
    slot = watched.slot("leaf1/1")
    watched.devices.fec[slot, [FecCounter.CORRECTED_BLOCKS, FecCounter.UNCORRECTED_BLOCKS]] = 46, 6
    assert value(watched.poll(), "leaf1/1", C.FEC_CORRECTED) is None
    watched.count("leaf1/1", C.SYMBOL_ERROR, 1)
    reading = watched.poll()
    assert value(reading, "leaf1/1", C.FEC_CORRECTED) == 46
    assert value(reading, "leaf1/1", C.FEC_UNCORRECTED) == 6


def test_a_detail_that_stands_at_its_end_is_not_known(watched):
    watched.count("leaf1/1", C.PORT_RCV_ERRORS, 1 << 20)
    watched.devices.details[watched.slot("leaf1/1"), "port_local_physical_errors", 0] = 1 << 20
    reading = watched.poll()
    assert value(reading, "leaf1/1", C.PORT_RCV_ERRORS) == 1 << 20
    assert value(reading, "leaf1/1", C.LOCAL_PHYSICAL) is None


def test_a_port_that_falls_silent_is_unknown_and_not_zero(watched):
    before = watched.poll()
    watched.carrier.silent = {watched.devices.lid(watched.slot("h8/1"))}
    after = watched.poll()
    change = between(before, after)
    assert value(after, "h8/1", C.SYMBOL_ERROR) is None
    assert delta(change, "h8/1", C.SYMBOL_ERROR) is None
    assert [(event.kind, event.port) for event in change.events] == [("silent", "h8/1")]
    still = watched.poll()
    assert not watched.carrier.count(SmpAttribute.NODE_INFO)  # it was walked once, when it fell silent
    watched.carrier.silent = set()
    back = between(still, watched.poll())
    assert delta(back, "h8/1", C.SYMBOL_ERROR) is None
    assert [(event.kind, event.port) for event in back.events] == [("answers", "h8/1")]


def test_a_cable_that_is_pulled_and_comes_back(watched):
    """The switch's end continues to count; the host's end is gone, and its counts are unknown after its return."""
    readings = [watched.poll()]
    host, leaf = "h8/1", str(watched.fabric.find_port("h8/1").peer)
    faults.pull_cable(watched.devices, watched.slot(host))
    watched.net.settle()
    readings.append(watched.poll())
    down = between(*readings)
    assert delta(down, leaf, C.LINK_DOWNED) == 1
    assert ("gone", host) in {(event.kind, event.port) for event in down.events}
    assert down.ports.peer[down.ports.fabric.find_port(leaf).slot] == -1
    faults.plug_cable(watched.devices, watched.slot(host))
    watched.net.settle()
    readings.append(watched.poll())
    up = between(*readings[1:])
    assert delta(up, leaf, C.LINK_DOWNED) == 0  # the same cable as before
    assert delta(up, host, C.LINK_DOWNED) is None
    assert {(event.kind, event.port) for event in up.events} == {("new", host), ("answers", host)}


def test_a_link_that_trained_slower_is_walked_again(watched):
    watched.poll()
    faults.slow(watched.devices, watched.slot("leaf1/1"), "1xEDR")
    watched.net.settle()
    ports = watched.poll().ports
    slot = ports.fabric.find_port("leaf1/1").slot
    assert (ports.width_active[slot], ports.width_supported[slot]) == (1, 4)
    assert ports.rate_gbit_s[slot] == pytest.approx(25, rel=0.02)


@pytest.mark.parametrize("mask", [0x0000, 0x1000, 0x0200, 0x1200])
def test_agents_of_old_devices(watched, monkeypatch, mask):
    """Devices without PortCountersExtended have 32 bits or fewer, and a counter at its maximum is unknown."""
    from weft.mad import pma
    from weft.wire.mad import ClassPortInfo

    monkeypatch.setattr(pma, "_CLASS_INFO", ClassPortInfo.pack(capability_mask=mask).ljust(192, b"\0"))
    watched.count("leaf1/1", C.PORT_XMIT_DATA_WORDS, 1 << 40)
    watched.count("leaf1/1", C.SYMBOL_ERROR, 1 << 20)
    watched.count("leaf1/1", C.LINK_DOWNED, 3)
    watched.count("leaf1/1", C.PORT_XMIT_WAIT, 77)
    reading = watched.poll()
    data = value(reading, "leaf1/1", C.PORT_XMIT_DATA_WORDS)
    assert data is None if not mask & 0x0200 else data >= 1 << 40
    assert value(reading, "leaf1/1", C.SYMBOL_ERROR) is None
    assert value(reading, "leaf1/1", C.LINK_DOWNED) == 3
    assert value(reading, "leaf1/1", C.PORT_XMIT_WAIT) == (77 if mask & 0x1000 else None)
    assert value(reading, "leaf1/1", C.QP1_DROPPED) is None
    unicast = value(reading, "leaf1/1", C.PORT_UNICAST_XMIT_PKTS)
    assert (unicast is not None) == bool(mask & 0x0200)


def test_a_fabric_without_lids_says_what_it_lacks():
    subnet = Subnet(weft.load(SPEC))
    carrier = Listener(LocalCarrier(subnet, subnet.devices.fabric.find_port("h1/1").slot))
    with pytest.raises(SubnetError, match="subnet manager first"):
        Poller(carrier).poll()


def test_hosts_that_come_later_are_found_though_the_manager_saw_them_first():
    watched = Watched()
    faults.pull_cable(watched.devices, watched.slot("h8/1"))
    watched.net.settle()
    assert "h8" not in watched.poll().ports.fabric.node_index
    faults.plug_cable(watched.devices, watched.slot("h8/1"))
    watched.net.settle()  # and took the switch's note away
    assert value(watched.poll(), "h8/1", C.SYMBOL_ERROR) == 0


def test_a_monitor_whose_own_cable_is_out_says_so_and_comes_back(watched):
    before = watched.poll()
    faults.pull_cable(watched.devices, watched.slot("h1/1"))
    with pytest.raises(SubnetError, match="h1 sees no other node; check its cable"):
        watched.poll()
    faults.plug_cable(watched.devices, watched.slot("h1/1"))
    watched.net.settle()
    change = between(before, watched.poll())
    assert delta(change, "leaf1/1", C.LINK_DOWNED) == 1
    assert change.seconds == 20


def test_counters_that_a_step_of_the_labs_clock_changed_are_read_again_at_the_new_time(watched):
    """However small the step is beside the time that the reading takes."""
    watched.poll()
    exchange, steps = watched.carrier.exchange, iter([1e-9])

    def step_before_the_first_read(mads, to=None, **how):
        for step_s in steps if to is not None else ():
            watched.now_s += step_s
            watched.count("h1/1", C.SYMBOL_ERROR, 7)
        return exchange(mads, to, **how)

    watched.carrier.exchange = step_before_the_first_read
    reading = watched.poll()
    assert value(reading, "h1/1", C.SYMBOL_ERROR) == 7
    assert reading.at_s == watched.now_s


def test_a_reading_by_a_clock_that_runs_on_is_of_the_middle_of_the_time_that_it_took():
    watched = Watched()
    ticks = itertools.count(1000.0)
    watched.poller.clock = lambda: next(ticks)
    watched.poller.poll()
    before_s = next(ticks)
    reading = watched.poller.poll()
    assert reading.at_s == before_s + 3.5  # three looks at the clock before, one behind
