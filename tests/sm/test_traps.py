"""Traps: forged ones, their text in the log, and the pause before a sweep."""

from __future__ import annotations

import io

import numpy as np
import pytest
from tests.sm.desk import Desk

from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.inform.subscriptions import Subscriptions, forwarded, has_p_key
from weft.sm.inform.traps import TrapLimit, asks_for_handover, is_forged, repress, requester, take_trap
from weft.wire.mad import Method
from weft.wire.notice import (
    BadKeyDetails,
    BadMKeyDetails,
    BadSwitchPKeyDetails,
    GmpNotice,
    LocalChangesDetails,
    Notice,
    PortDetails,
    Trap,
)
from weft.wire.smp import Smp, SmpAttribute

PERMISSIVE = 0xFFFF


@pytest.fixture(scope="module")
def desk() -> Desk:
    return Desk("star:hosts=4")


def notice_of(trap: int, issuer: int, details: bytes = b"", *, is_generic: int = 1) -> Notice:
    fields = {"trap_number": trap, "issuer_lid": issuer, "data_details": details.ljust(54, b"\0")}
    return Notice.unpack(Notice.pack(is_generic=is_generic, **fields))


@pytest.mark.parametrize(
    ("source", "lmc", "forged"),
    [(99, 0, True), (100, 0, False), (101, 0, True), (101, 1, False), (102, 1, True), (103, 2, False), (104, 2, True)],
)
def test_a_trap_comes_from_a_lid_of_its_issuer(source, lmc, forged):
    assert is_forged(notice_of(Trap.LOCAL_CHANGES, 100), source, None, lmc) == forged
    assert not is_forged(notice_of(Trap.LOCAL_CHANGES, 100), PERMISSIVE, None, lmc)


@pytest.mark.parametrize("trap", [Trap.BAD_P_KEY, Trap.BAD_Q_KEY])
def test_a_port_reports_wrong_keys_in_packets_to_itself_or_to_groups(desk, trap):
    for to_lid, forged in ((100, False), (101, True), (0xBFFF, True), (0xC000, False)):
        notice = notice_of(trap, 100, BadKeyDetails.pack(lid_addr2=to_lid))
        assert is_forged(notice, 100, desk.view, 0) == forged
        assert not is_forged(notice, 100, None, 0), "before the first sweep nothing is known"
    vendor = notice_of(trap, 100, BadKeyDetails.pack(lid_addr2=101), is_generic=0)
    assert not is_forged(vendor, 100, desk.view, 0)


@pytest.mark.parametrize("trap", [Trap.LINK_STATE_CHANGED, Trap.BAD_SWITCH_P_KEY])
def test_only_switches_and_unknown_ports_report_links_of_switches(desk, trap):
    for lid, forged in ((desk.lid("h1"), True), (desk.lid("leaf1"), False), (999, False)):
        assert is_forged(notice_of(trap, lid), lid, desk.view, 0) == forged
    assert not is_forged(notice_of(Trap.LOCAL_CHANGES, desk.lid("h1")), desk.lid("h1"), desk.view, 0)


def test_a_sweep_waits_longer_for_a_port_that_sends_trap_after_trap():
    now_s = [0.0]
    limit = TrapLimit(lambda: now_s[0])
    assert [limit.delay_s(7) for _ in range(8)] == [0.02, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert limit.delay_s(8) == 0.02, "another port"
    now_s[0] = 29.9
    assert limit.delay_s(7) == 5.0
    now_s[0] += 30.0
    assert [limit.delay_s(7) for _ in range(2)] == [0.02, 0.25]


def test_a_return_path_ends_at_the_requester(desk):
    """A path that is truncated, longer than its field or impossible names no port."""
    fabric = desk.view.fabric
    leaf, h3 = fabric["leaf1/0"].slot, fabric["h3/1"].slot
    port = fabric["h3/1"].peer.number

    def found(*ports: int, hops: int | None = None, **fields: int) -> int | None:
        path = bytes([0, *ports]).ljust(30, b"\0")
        words = {"dr_notice": 1, "dr_hop_count": len(ports) if hops is None else hops} | fields
        return requester(fabric, leaf, BadMKeyDetails.unpack(BadMKeyDetails.pack(dr_notice_return_path=path, **words)))

    assert found(port) == h3
    assert found() == leaf
    assert found(port, dr_notice=0) is None
    assert found(port, dr_path_truncated=1) is None
    assert found(*(port, 1) * 14, port, hops=29) == h3
    assert found(*(port, 1) * 14, port, hops=30) is None
    n_ports = int(fabric.nodes.n_ports[fabric.ports.node[leaf]])
    assert found(n_ports) is None, "a port without a cable"
    assert found(n_ports + 1) is None, "the slot behind is that of another node"


def test_every_kind_of_trap_has_its_text(desk):
    h1, h2, leaf = (desk.lid(name) for name in ("h1", "h2", "leaf1"))
    texts = {
        (Trap.LINK_STATE_CHANGED, leaf): (b"", f"128 a link of leaf1/0 (LID {leaf}) changed"),
        (Trap.LOCAL_CHANGES, h1): (
            LocalChangesDetails.pack(link_width_enabled_change=1),
            f"144 h1/1 (LID {h1}) changed: link_width_enabled_change",
        ),
        (Trap.LOCAL_CHANGES, h2): (b"", f"144 h2/1 (LID {h2}) changed: capability_mask"),
        (Trap.BAD_P_KEY, h1): (
            BadKeyDetails.pack(lid_addr1=h2, lid_addr2=h1, key=0x8001),
            f"257 h1/1 (LID {h1}): a packet from h2/1 (LID {h2}) to h1/1 (LID {h1}) has a P_Key that does not fit, "
            "0x8001",
        ),
        (Trap.BAD_Q_KEY, h1): (
            BadKeyDetails.pack(lid_addr1=999, lid_addr2=h1, key=0x11),
            f"258 h1/1 (LID {h1}): a packet from LID 999 to h1/1 (LID {h1}) has a Q_Key that does not fit, 0x0011",
        ),
        (Trap.BAD_SWITCH_P_KEY, leaf): (
            BadSwitchPKeyDetails.pack(lid_addr1=h2, lid_addr2=0xC001, port_no=3, p_key=0x8001),
            f"259 leaf1/0 (LID {leaf}), port 3: a packet from h2/1 (LID {h2}) to LID 49153 has a P_Key that does not "
            "fit, 0x8001",
        ),
        (Trap.BAD_M_KEY, leaf): (
            BadMKeyDetails.pack(
                dr_notice=1, dr_hop_count=1, method=Method.SET, attribute_id=0x15,
                dr_notice_return_path=bytes([0, desk.view.fabric["h2/1"].peer.number]).ljust(30, b"\0"),
            ),
            f"256 leaf1/0 (LID {leaf}): h2/1 tried Set of attribute 0x0015 without the M_Key",
        ),
        (Trap.BAD_M_KEY, 999): (
            BadMKeyDetails.pack(method=Method.GET, attribute_id=0x11),
            "256 LID 999: an unknown port tried Get of attribute 0x0011 without the M_Key",
        ),
        (Trap.LINK_INTEGRITY_THRESHOLD, leaf): (
            PortDetails.pack(port_no=5), f"129 leaf1/0 (LID {leaf}), port 5: link integrity threshold",
        ),
        (Trap.GID_IN_SERVICE, 0): (b"", "64 from LID 0"),
    }  # fmt: skip
    for (trap, issuer), (details, text) in texts.items():
        log = Log(io.StringIO())
        smp = Smp.pack(method=Method.TRAP, attribute_id=SmpAttribute.NOTICE, data=notice_of(trap, issuer, details).raw)
        assert take_trap(smp, issuer, desk.view, Subscriptions(), log, Options()) == (trap, issuer)
        assert log.recent[-1].endswith(f" TRAP {text}")
    smp = Smp.pack(method=Method.TRAP, data=notice_of(1, h1, is_generic=0).raw)
    assert take_trap(smp, h1, None, Subscriptions(), log, Options()) == (None, h1)
    assert log.recent[-1].endswith(f" TRAP 1 vendor trap from LID {h1}")
    assert Smp.unpack(repress(smp)).method == Method.TRAP_REPRESS


def test_a_manager_that_asks_for_a_handover_is_heard_from_any_lid(desk):
    details = LocalChangesDetails.pack(sm_priority_change=1)
    for generic, asks in ((1, True), (0, False)):
        notice = notice_of(Trap.LOCAL_CHANGES, 3, details, is_generic=generic)
        smp = Smp.pack(method=Method.TRAP, data=notice.raw)
        assert asks_for_handover(smp) == asks
        taken = take_trap(smp, 99, desk.view, Subscriptions(), Log(io.StringIO()), Options())
        assert taken == ((Trap.LOCAL_CHANGES, 3) if asks else None)


def test_a_forwarded_trap_has_the_gid_of_its_issuer():
    """A port has 2^LMC LIDs; an unknown issuer has the GUID 0."""
    desk = Desk("star:hosts=2")
    slot, tables = desk.slot("h2"), desk.view.fabric.tables
    tables.lid[slot] = 64
    tables.set_lmc(np.array([slot]), np.array([1]))
    gids = [
        GmpNotice.unpack(forwarded(notice_of(Trap.LOCAL_CHANGES, issuer).raw, desk.view, 0xFE80)).issuer_gid
        for issuer in (63, 64, 65, 66)
    ]
    known, unknown = 0xFE80 << 64 | desk.guid("h2"), 0xFE80 << 64
    assert gids == [unknown, known, known, unknown]


def test_every_port_is_in_partition_0_and_in_those_of_its_table(desk):
    slot = desk.slot("h3")
    desk.put_into_partition("h3", 0x7FFF, 0x8005)
    assert [has_p_key(desk.view, slot, key) for key in (0, 0x8000, 0x0005, 0x8005, 0x0006)] == [True] * 4 + [False]
