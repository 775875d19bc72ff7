"""Traps: their causes, their destination, and their end."""

from __future__ import annotations

import pytest

from weft.fabric.counters import Counter
from weft.mad import faults, links, packets
from weft.mad.carrier import Address
from weft.wire.headers import BTH, DETH, LRH, Opcode
from weft.wire.mad import Method
from weft.wire.notice import (
    LinkStateDetails,
    LocalChangesDetails,
    NoticeType,
    PortDetails,
    ProducerType,
    Trap,
    details,
)
from weft.wire.port_info import Capability, PortInfo, PortState
from weft.wire.smp import SwitchInfo

TIMEOUT_S = 4.096e-6 * 2**18  # SubnetTimeOut after power-up


def numbers(bench) -> list[int]:
    return [notice.trap_number for notice in bench.traps()]


def test_a_link_that_goes_down_is_told_by_the_switches_at_its_ends(running):
    faults.pull_cable(running.devices, running.slot_of("leaf1/4"))
    notices = running.traps()
    assert {notice.trap_number for notice in notices} == {Trap.LINK_STATE_CHANGED}
    leaf, spine = running.lid("leaf1"), running.lid("spine2")
    assert {LinkStateDetails.unpack(notice.data_details).lid_addr for notice in notices} <= {leaf, spine}
    assert leaf in {notice.issuer_lid for notice in notices}
    assert notices[0].type == NoticeType.URGENT
    assert notices[0].producer_type == ProducerType.SWITCH
    for name in ("leaf1", "spine2"):
        assert SwitchInfo.port_state_change.get(running.devices.switch_info[running.node(name)])


def test_a_trap_that_cannot_get_through_is_sent_again_when_it_can(running):
    """leaf1 reports the change of h1's own link after the cable is plugged in again."""
    faults.pull_cable(running.devices, running.slot_of("h1/1"))
    assert running.traps() == []
    faults.plug_cable(running.devices, running.slot_of("h1/1"))
    running.clock.sleep(TIMEOUT_S + 0.1)
    assert Trap.LINK_STATE_CHANGED in numbers(running)


def test_a_port_without_the_capability_sends_no_traps(running):
    info = running.devices.info(running.slot_of("leaf1/0"))
    PortInfo.capability_mask.set(info, PortInfo.capability_mask.get(info) & ~Capability.IS_TRAP_SUPPORTED)
    faults.pull_cable(running.devices, running.slot_of("h2/1"))
    assert numbers(running) == []


def test_a_trap_is_repeated_until_it_is_repressed(running):
    faults.pull_cable(running.devices, running.slot_of("h2/1"))
    assert numbers(running) == [128]
    assert numbers(running) == []
    running.clock.sleep(TIMEOUT_S * 0.9)
    assert numbers(running) == []
    running.clock.sleep(TIMEOUT_S * 0.2)
    running.subnet.due()
    (again,) = running.carrier.arrivals()
    repress = bytearray(again.mad)
    repress[3] = Method.TRAP_REPRESS
    running.carrier.post(repress, Address(again.source.lid))
    assert not running.subnet.lost
    running.clock.sleep(10 * TIMEOUT_S)
    assert numbers(running) == []
    assert running.subnet.due() is None


def test_repressing_looks_at_the_lower_half_of_the_transaction_id(running):
    """ibsim's preload and the kernel overwrite the upper half."""
    faults.pull_cable(running.devices, running.slot_of("h2/1"))
    running.subnet.due()
    (trap,) = running.carrier.arrivals()
    repress = bytearray(trap.mad)
    repress[3], repress[8:12] = Method.TRAP_REPRESS, b"\0\1\0\7"
    running.carrier.post(repress, Address(trap.source.lid))
    assert running.devices.traps.pending == {}


def test_a_repress_that_means_no_trap_is_counted(running):
    faults.pull_cable(running.devices, running.slot_of("h2/1"))
    running.subnet.due()
    (trap,) = running.carrier.arrivals()
    repress = bytearray(trap.mad)
    repress[3], repress[12:16] = Method.TRAP_REPRESS, b"\xff" * 4
    running.carrier.post(repress, Address(trap.source.lid))
    assert running.devices.odd["trap repress"] == 1
    assert len(running.devices.traps.pending) == 1


def test_a_trap_that_waits_is_not_raised_twice(running):
    slot = running.slot_of("h2/1")
    for _ in range(5):
        links.retrain(running.devices, slot)
    assert numbers(running) == [128]
    links.retrain(running.devices, slot)
    assert numbers(running) == []


def test_without_a_subnet_manager_nobody_tells(bench):
    faults.pull_cable(bench.devices, bench.slot_of("h2/1"))
    assert bench.subnet.due() is None


def test_a_port_that_is_not_active_does_not_tell(running):
    slot = running.slot_of("h2/1")
    PortInfo.port_state.set(running.devices.info(slot), PortState.ARMED)
    running.devices.set_is_sm(slot, True)
    assert running.traps() == []
    assert running.devices.traps.pending == {}


def test_a_new_subnet_manager_is_told_to_the_one_that_rules(running):
    running.devices.set_is_sm(running.slot_of("h3/1"), True)
    (notice,) = running.traps()
    change = details(notice)
    assert isinstance(change, LocalChangesDetails)
    assert (notice.trap_number, notice.issuer_lid) == (Trap.LOCAL_CHANGES, running.lid("h3"))
    assert change.capability_mask & Capability.IS_SM
    assert not change.other_local_changes
    running.devices.set_is_sm(running.slot_of("h3/1"), True)
    assert running.traps() == []


def test_another_node_description_is_told(running):
    running.devices.describe(running.node("h3"), "h3 mlx5_7")
    (notice,) = running.traps()
    change = LocalChangesDetails.unpack(notice.data_details)
    assert (change.other_local_changes, change.node_description_change) == (1, 1)


@pytest.mark.parametrize(
    ("counter", "trap"),
    [(Counter.LOCAL_LINK_INTEGRITY_ERRORS, 129), (Counter.EXCESSIVE_BUFFER_OVERRUN_ERRORS, 130)],
)
def test_a_threshold_that_an_engine_counted_is_told(running, counter, trap):
    assert running.traps() == []  # the first check
    running.devices.fabric.counters[running.slot_of("leaf2/3"), counter] += 1
    running.clock.sleep(1.5)
    (notice,) = running.traps()
    messages = PortDetails.unpack(notice.data_details)
    assert (notice.trap_number, messages.lid_addr, messages.port_no) == (trap, running.lid("leaf2"), 3)


def test_a_watchdog_can_be_told(running):
    running.devices.traps.at_port(running.devices, running.slot_of("leaf2/1"), Trap.WATCHDOG_TIMER_EXPIRED)
    assert numbers(running) == [131]


def test_wrong_keys_of_packets_are_counted_and_told(running):
    devices, slot = running.devices, running.slot_of("h3/1")
    bth = BTH.pack(opcode=Opcode.UD_SEND_ONLY, dest_qp=2, p_key=0x8001)
    packet = LRH.pack(slid=4, dlid=5, pkt_len=8) + bth + DETH.pack(q_key=7, src_qp=1) + bytes(6)
    packets.bad_p_key(devices, slot, packet)
    packets.bad_q_key(devices, slot, packet)
    no_datagram = packet[: LRH.size] + BTH.pack(opcode=Opcode.RC_SEND_ONLY, dest_qp=2) + packet[LRH.size + BTH.size :]
    packets.bad_q_key(devices, slot, no_datagram)
    port = running.slot_of("leaf2/1")
    packets._bad_p_key_at_switch(devices, port, packet, LRH.size, 1)
    assert sorted(numbers(running)) == [257, 258, 259]
    info = PortInfo.unpack(bytes(devices.info(slot)))
    assert (info.p_key_violations, info.q_key_violations) == (1, 1)
    assert PortInfo.p_key_violations.get(devices.info(port)) == 1


def test_a_trap_goes_to_where_the_subnet_manager_is_now(running):
    other = running.carrier_at(running.slot_of("h2/1"))
    other.register(1, [Method.TRAP])
    assert running.set_port([1], 0, master_sm_lid=running.lid("h2")) == 0
    faults.pull_cable(running.devices, running.slot_of("leaf1/4"))
    running.subnet.due()
    assert running.lid("leaf1") in {arrival.source.lid for arrival in other.arrivals()}


def test_a_node_without_power_tells_nothing(running):
    running.devices.set_is_sm(running.slot_of("h3/1"), True)
    faults.kill(running.devices, running.node("h3"))
    assert running.lid("h3") not in {notice.issuer_lid for notice in running.traps()}
