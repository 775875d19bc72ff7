"""The M_Key: requests with and without it, and the lease period."""

from __future__ import annotations

import pytest

from weft.wire.mad import Method
from weft.wire.notice import BadMKeyDetails, Trap
from weft.wire.port_info import PortInfo
from weft.wire.smp import NodeInfo, SmpAttribute

KEY, WRONG = 0xFEED_BEEF, 0xBAD
FAR = [1, 3, 2, 1]  # h3
GET, SET, INFO = Method.GET, Method.SET, SmpAttribute.NODE_INFO


def protect(bench, level: int, path=FAR, lease_s: int = 0) -> None:
    assert bench.set_port(path, m_key=KEY, m_key_protect_bits=level, m_key_lease_period=lease_s) == 0


def violations(bench) -> int:
    return bench.get(FAR, PortInfo, m_key=KEY).m_key_violations


@pytest.mark.parametrize(
    ("level", "reads", "shown"),
    [(0, True, KEY), (1, True, 0), (2, False, None), (3, False, None)],
)
def test_protection_decides_who_may_read_and_see_the_key(running, level, reads, shown):
    protect(running, level)
    status, _ = running.ask(FAR, GET, INFO, m_key=WRONG)
    assert (status == 0) is reads
    if reads:
        assert running.get(FAR, PortInfo, m_key=WRONG).m_key == shown
    assert violations(running) == (0 if reads else 1)
    assert running.get(FAR, PortInfo, m_key=KEY).m_key == KEY


@pytest.mark.parametrize("level", range(4))
def test_set_without_the_key_is_refused(running, level):
    protect(running, level)
    before = running.get(FAR, PortInfo, m_key=KEY)
    expected = before.replace(vl_high_limit=9, port_state=0, port_physical_state=0)
    assert running.ask(FAR, SET, SmpAttribute.PORT_INFO, data=expected.raw, m_key=WRONG)[0] is None
    assert running.get(FAR, PortInfo, m_key=KEY).vl_high_limit == before.vl_high_limit
    assert violations(running) == 1
    assert running.ask(FAR, SET, SmpAttribute.PORT_INFO, data=expected.raw, m_key=KEY)[0] == 0


@pytest.mark.parametrize("level", range(4))
def test_answer_to_a_set_has_the_key(running, level):
    """OpenSM reads the key from the answer and uses it from then on."""
    expected = running.get(FAR, PortInfo).replace(
        m_key=KEY, m_key_protect_bits=level, port_state=0, port_physical_state=0
    )
    status, raw = running.ask(FAR, SET, SmpAttribute.PORT_INFO, data=expected.raw)
    assert (status, PortInfo.unpack(raw).m_key) == (0, KEY)


def test_without_a_key_any_key_will_do(running):
    assert running.ask(FAR, GET, INFO, m_key=WRONG)[0] == 0
    assert running.set_port(FAR, m_key=0, m_key_protect_bits=3) == 0
    assert running.ask(FAR, GET, INFO, m_key=WRONG)[0] == 0


def test_the_key_of_a_switch_is_at_its_port_0(running):
    protect(running, 2, path=[1])
    assert running.ask([1], GET, SmpAttribute.PORT_INFO, 3)[0] is None
    assert running.get([1], PortInfo, 3, m_key=KEY).local_port_num == 1
    assert running.get(FAR, NodeInfo)  # a switch forwards MADs for other nodes


def test_a_violation_raises_trap_256_with_the_way_back(running):
    protect(running, 2)
    running.ask(FAR, GET, INFO, 5, m_key=WRONG)
    (notice,) = running.traps()
    details = BadMKeyDetails.unpack(notice.data_details)
    assert notice.trap_number == Trap.BAD_M_KEY
    assert notice.issuer_lid == details.lid_addr == running.lid("h3")
    assert (details.m_key, details.method, details.attribute_id, details.attribute_modifier) == (WRONG, GET, INFO, 5)
    assert (details.dr_notice, details.dr_hop_count, details.dr_path_truncated) == (1, 4, 0)


def test_a_lease_ends_the_protection_and_a_right_key_stops_it(running):
    protect(running, 2, lease_s=10)
    running.ask(FAR, GET, INFO, m_key=WRONG)
    running.clock.sleep(9)
    assert running.ask(FAR, GET, INFO, m_key=WRONG)[0] is None
    assert running.get(FAR, PortInfo, m_key=KEY).m_key_protect_bits == 2  # the right key stops the lease timer
    running.clock.sleep(9)
    assert running.ask(FAR, GET, INFO, m_key=WRONG)[0] is None  # and a wrong key starts it again
    running.clock.sleep(10)
    assert running.ask(FAR, GET, INFO, m_key=WRONG)[0] == 0
    assert running.get(FAR, PortInfo, m_key=WRONG).m_key == KEY
    assert running.get(FAR, PortInfo, m_key=KEY).m_key_protect_bits == 0


def test_a_lease_of_zero_never_ends(running):
    protect(running, 2)
    running.ask(FAR, GET, INFO, m_key=WRONG)
    running.clock.sleep(1e6)
    assert running.ask(FAR, GET, INFO, m_key=WRONG)[0] is None


def test_violations_stick_at_their_largest_value(running):
    protect(running, 2)
    PortInfo.m_key_violations.set(running.devices.info(running.slot_of("h3/1")), 0xFFFF)
    running.ask(FAR, GET, INFO, m_key=WRONG)
    assert violations(running) == 0xFFFF
