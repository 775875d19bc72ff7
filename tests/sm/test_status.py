"""The state file of a manager, and the small rules of discovery and of messages between managers; without a sweep."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.sm.conftest import Net

from weft.errors import FileError, SubnetError
from weft.mad.carrier import HERE, Address
from weft.mad.walk import walk
from weft.sm import drift
from weft.sm.discovery.known import _same_nodes, carried_over
from weft.sm.discovery.view import View, make_view, without_links
from weft.sm.drift import DriftChecks, find_drift
from weft.sm.events import Event, Log
from weft.sm.pkey.partitions import NO_FILE, Partitions
from weft.sm.pkey.table_upload import _compared, adopt_partitions, p_key_differences
from weft.sm.sminfo.replication import Replica, records_in
from weft.sm.sminfo.sm_info import (
    Here,
    OtherSm,
    Question,
    Questions,
    ask_sm,
    described,
    is_sm_info,
    priority_trap,
    requester,
    respond,
    sm_info_in,
    tell_sm,
)
from weft.sm.status import Status, Writing, _started, is_own, read_status, write_status
from weft.sm.sweep import note_foreign_keys
from weft.wire.bulk import fill
from weft.wire.mad import Method
from weft.wire.notice import LocalChangesDetails, Notice, Trap
from weft.wire.port_info import PortInfo, PortState
from weft.wire.sa import MCMemberRecord, SaMad, SaStatus, ServiceRecord
from weft.wire.smp import DirectedSmp, SMControl, SMInfo, Smp, SmpAttribute, SMState, SwitchInfo


def status_of_this_process(**words: object) -> Status:
    same = {"version": "1", "pid": os.getpid(), "started": _started(os.getpid()), "at_s": 0.0, "sm_state": "master"}
    same |= {"guid": "0x1", "port": "h1/1", "lid": 1, "priority": 0, "master": "0x1", "sweeps": 1, "mads": 2}
    return Status(**{**same, "events": {}, "recent": (), **words})  # type: ignore[arg-type]


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "is_running", "title"),
    [
        ({}, True, "Subnet manager at h1/1: master, process "),
        ({"subnet": "lab a"}, True, "Subnet manager at h1/1 of lab a: master, process "),
        ({"port": ""}, True, "Subnet manager at 0x1: master, process "),
        ({"sm_state": "stopped"}, False, "Subnet manager at h1/1: stopped, "),
        ({"started": 1}, False, "Subnet manager at h1/1: crashed; master, "),
        ({"pid": 1 << 23}, False, "Subnet manager at h1/1: crashed; master, "),
    ],
)
def test_a_manager_runs_while_its_process_is_the_one_that_wrote_the_file(words, is_running, title):
    status = status_of_this_process(**words)
    assert (status.is_running, status.title[: len(title)]) == (is_running, title)


def test_a_state_file_is_read_back_and_belongs_to_its_process(tmp_path):
    path = tmp_path / "sm.json"
    assert read_status(path) is None
    assert is_own(path)
    write_status(path, status_of_this_process())
    assert read_status(path) == status_of_this_process()
    assert is_own(path)
    for words, own in (({"pid": os.getppid(), "started": _started(os.getppid())}, False), ({"pid": 1 << 23}, True)):
        write_status(path, status_of_this_process(**words))
        assert is_own(path) is own
    assert not is_own(tmp_path / "absent" / "sm.json")
    path.write_text("{")
    with pytest.raises(FileError, match="remove it to start without it"):
        read_status(path)


def test_a_file_that_cannot_be_written_is_logged_once_and_once_again():
    log = Log(io.StringIO(), clock=lambda: 0.0)
    writing = Writing(log)

    def fail() -> None:
        raise SubnetError("full")

    for write in (fail, fail, lambda: None, lambda: None, fail):
        writing.attempt("the state", write)
    writing.attempt("the socket", fail)
    assert (log.counts[Event.NOT_WRITTEN], log.counts[Event.WRITTEN_AGAIN]) == (3, 1)


# -- messages between managers ----------------------------------------------------------------------------------------

OTHER = OtherSm(guid=7, priority=3, state=SMState.MASTER, path=b"\1\2", lid=9, name="h7/1")


@pytest.mark.parametrize(
    ("other", "by_path", "form", "to"),
    [
        (OTHER, True, DirectedSmp, 0xFFFF),
        (OTHER, False, Smp, 9),
        (replace(OTHER, path=None), True, Smp, 9),
        (replace(OTHER, path=b""), True, DirectedSmp, 0xFFFF),
    ],
)
def test_a_manager_is_asked_along_its_path_or_at_its_lid(other, by_path, form, to):
    mad, address = ask_sm(other, by_path=by_path)
    smp = form.unpack(mad)
    assert (smp.method, smp.attribute_id, mad[1]) == (Method.GET, SmpAttribute.SM_INFO, 0x81 if to == 0xFFFF else 1)
    assert address == (HERE if to == HERE.lid else Address(lid=to, qp=0))
    if form is DirectedSmp:
        assert (smp.hop_count, smp.initial_path[: len(other.path) + 1]) == (len(other.path), b"\0" + other.path)


def test_an_order_to_a_manager_has_the_m_key_and_our_own_info():
    own = SMInfo(guid=1, priority=5, sm_state=SMState.MASTER)
    for other in (OTHER, replace(OTHER, path=None)):
        mad, _ = tell_sm(other, SMControl.HANDOVER, own, m_key=0x77)
        form = Smp if other.path is None else DirectedSmp
        smp = form.unpack(mad)
        assert (smp.method, smp.attribute_modifier, smp.m_key) == (Method.SET, SMControl.HANDOVER, 0x77)
        assert SMInfo.unpack(mad, 64) == own


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"method": Method.GET}, True),
        ({"method": Method.SET}, True),
        ({"method": Method.GET_RESP}, False),
        ({"method": Method.GET, "attribute_id": SmpAttribute.NODE_INFO}, False),
    ],
)
def test_requests_for_sm_info_are_recognised(fields, expected):
    fields = {"attribute_id": SmpAttribute.SM_INFO} | fields
    for form in (Smp, DirectedSmp):
        assert is_sm_info(form.pack(**fields)) is expected
    assert not is_sm_info(SaMad.pack(**fields))


def test_a_response_returns_with_the_direction_bit_if_it_was_directed():
    own = SMInfo(guid=1, priority=5)
    for form, status in ((Smp, 0x1C), (DirectedSmp, 0x801C)):
        mad = respond(form.pack(method=Method.GET, attribute_id=SmpAttribute.SM_INFO, data=b"\xff" * 64), own, 0x1C)
        assert (Smp.method.get(mad), int.from_bytes(mad[4:6], "big")) == (Method.GET_RESP, status)
        assert (SMInfo.unpack(mad, 64), mad[64 + SMInfo.size : 128]) == (own, bytes(64 - SMInfo.size))


def test_an_answer_counts_if_it_has_no_error_and_the_guid_that_was_asked():
    answer = respond(DirectedSmp.pack(), SMInfo(guid=7, priority=2))
    assert sm_info_in(answer, 7).priority == 2
    wrong = respond(DirectedSmp.pack(), SMInfo(guid=7), 0x1C)
    assert [sm_info_in(mad, guid) for mad, guid in ((answer, 8), (None, 7), (wrong, 7))] == [None] * 3


@pytest.mark.parametrize(
    ("form", "fields", "lid", "expected"),
    [
        (DirectedSmp, {"dr_slid": 0xFFFF, "hop_count": 2, "return_path": b"\0\3\4"}, 0xFFFF, (b"\4\3", 0)),
        (DirectedSmp, {"dr_slid": 5, "hop_count": 2, "return_path": b"\0\3\4"}, 5, (None, 5)),
        (Smp, {}, 5, (None, 5)),
    ],
)
def test_the_sender_of_an_order_has_its_path_reversed(form, fields, lid, expected):
    mad = form.pack(method=Method.SET, data=SMInfo(guid=7, priority=2).raw, **fields)
    sender = requester(mad, Address(lid=lid, qp=0))
    assert (sender.path, sender.lid, sender.guid, sender.priority) == (*expected, 7, 2)


def test_a_priority_trap_goes_to_the_master_with_our_lid():
    trap = priority_trap(OTHER, Here(lid=4, node_type=1, capability_mask=0x22), 99)
    notice = Notice.unpack(Smp.unpack(trap.mad).data)
    details = LocalChangesDetails.unpack(notice.data_details)
    assert (trap.to.lid, trap.heard, Smp.transaction_id.get(trap.mad)) == (9, None, 99)
    assert (notice.trap_number, notice.issuer_lid, notice.producer_type) == (Trap.LOCAL_CHANGES, 4, 1)
    assert (details.lid_addr, details.capability_mask, details.sm_priority_change) == (4, 0x22, 1)
    assert details.other_local_changes == 1


def test_managers_are_ranked_by_priority_and_then_by_the_lower_guid():
    ranked = [OtherSm(guid=guid, priority=priority, state=0) for guid, priority in ((9, 1), (3, 2), (5, 2))]
    assert [manager.guid for manager in sorted(ranked, key=lambda other: other.rank)] == [9, 5, 3]
    info = SMInfo(guid=7, priority=3, sm_state=SMState.STANDBY, sm_key=4, act_count=5)
    assert described(info, lid=9) == OtherSm(guid=7, priority=3, state=SMState.STANDBY, sm_key=4, act_count=5, lid=9)
    assert str(OTHER) == "h7/1 (GUID 0x0000000000000007, priority 3)"
    assert str(replace(OTHER, name="")).startswith("the subnet manager (GUID")
    record = OTHER.record()
    assert (record.lid, record.sm_info.guid, record.sm_info.priority, record.sm_info.sm_key) == (9, 7, 3, 0)


def test_only_questions_with_a_handler_wait_for_an_answer():
    posted, sent = [], []
    carrier = SimpleNamespace(
        post=lambda mad, to: posted.append(mad),
        send=lambda mad, to, **how: (sent.append((mad, how)), len(sent))[1],
        poll=lambda wait_s: [(1, b"yes"), (2, None), (3, b"late")],
    )
    questions = Questions(carrier)
    questions.ask(Question(mad=b"trap"))
    questions.ask(Question(mad=b"a", timeout_ms=7, retries=2, heard=lambda answer: (1, answer)))
    questions.ask(Question(mad=b"b", heard=lambda answer: (2, answer)))
    assert (posted, sent) == (
        [b"trap"],
        [(b"a", {"timeout_ms": 7, "retries": 2}), (b"b", {"timeout_ms": 0, "retries": 0})],
    )
    assert [*questions.poll(0.0)] == [(1, b"yes"), (2, None)]
    assert [*questions.poll(0.0)] == []


def test_tables_of_another_manager_are_counted_by_group():
    records = tuple(MCMemberRecord(mgid=mgid, port_gid=gid) for mgid, gid in ((1, 1), (1, 2), (2, 1)))
    assert Replica(groups=records, services=(ServiceRecord(),)).counts == (2, 1, 0)
    assert Replica().counts == (0, 0, 0)
    assert records_in(SaMad.pack(status=SaStatus.NO_RECORDS), ServiceRecord) == ()


# -- discovery --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def discovered() -> View:
    view = make_view(walk(Net("fat-tree:hosts=8,radix=4")))
    fill(view.port_info, PortInfo.port_state, int(PortState.ACTIVE))
    return view


def changed(view: View, edit: Callable[[View], None]) -> View:
    copy = replace(view, port_info=view.port_info.copy(), switch_info=view.switch_info.copy())
    edit(copy)
    return copy


def test_devices_stay_known_until_they_restart(discovered):
    """A switch's restart shows in LinearFDBTop, an adapter's in a port that is not Active."""
    before = carried_over(None, discovered)
    assert before.fresh.all()
    assert not any(known.any() for known in (before.routes, before.keys, before.alias_lid))
    switch, host = discovered.fabric.node_index["leaf1"], discovered.fabric["h1/1"]
    before.routes[:], before.keys[:], before.groups[:], before.vl_tables[:] = True, True, True, True
    before.alias_lid[host.slot], before.told[host.slot], before.said[host.slot] = 5, 7, 9
    same = carried_over(before, discovered)
    assert not same.fresh.any()
    assert all(known.all() for known in (same.routes, same.keys, same.groups, same.vl_tables))
    assert (same.alias_lid[host.slot], same.told[host.slot, 3], same.said[host.slot, 3]) == (5, 7, 9)

    def restart(view: View) -> None:
        SwitchInfo.linear_fdb_top.set(view.switch_info[switch], 9)
        PortInfo.port_state.set(view.port_info[host.slot], int(PortState.INITIALIZE))

    after = carried_over(before, changed(discovered, restart))
    names = discovered.fabric.nodes.name
    assert [names[node] for node in np.flatnonzero(after.fresh)] == ["leaf1", "h1"]
    assert [names[node] for node in np.flatnonzero(~after.routes)] == ["leaf1", "h1"]
    assert not after.keys[host.slot]
    assert after.alias_lid[host.slot] == 0
    written = carried_over(None, discovered)
    written.top[switch] = 9
    assert not carried_over(written, changed(discovered, restart)).fresh[switch]


@pytest.mark.parametrize(("leaves", "text"), [(1, "leaf1, h1, h2"), (2, "leaf1, leaf2, h1 and 3 more")])
def test_nodes_that_are_cut_off_are_named(leaves, text):
    view = make_view(walk(Net("fat-tree:hosts=8,radix=4", at="h8/1")))
    ports = view.fabric.ports
    nodes = [view.fabric.node_index[f"leaf{number}"] for number in range(1, leaves + 1)]
    trunks = [
        slot
        for slot in view.plugged.tolist()
        if ports.node[slot] in nodes and view.is_switch[ports.node[ports.peer[slot]]]
    ]
    remaining = without_links(view, np.array(trunks), ("a reason",))
    assert remaining.oddities[0] == "a reason"
    assert remaining.oddities[1] == f"cut-off: {text}: no cable that may be used leads there"
    assert len(remaining.fabric.nodes) == len(view.fabric.nodes) - 3 * leaves
    assert remaining.fabric.port(remaining.own_slot).name == "h8/1"


# -- P_Keys and drift -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "held", "text"),
    [
        ([0x7FFF, 0x8101], [0x7FFF, 0], "lacks P_Key 0x8101"),
        ([0x7FFF, 0], [0x7FFF, 0x8101], "holds P_Key 0x8101"),
        ([0x7FFF, 0x8102], [0x8101, 0xFFFF], "lacks P_Key 0x7fff and 0x8102, holds P_Key 0x8101 and 0xffff"),
        ([0x7FFF, 0x8101], [0x8101, 0x7FFF], "holds its P_Keys in another order"),
    ],
)
def test_a_table_that_differs_is_described(discovered, expected, held, text):
    assert _compared(np.array(expected), np.array(held)) == text
    slot = discovered.fabric["h2/1"].slot
    tables = [np.zeros((len(discovered.fabric.ports), 2), int) for _ in range(2)]
    tables[0][slot], tables[1][slot] = expected, held
    assert p_key_differences(discovered, discovered.plugged, *tables) == [f"h2/1: {text}"]


def test_ports_without_a_p_key_adopt_nothing(discovered):
    held = np.zeros((len(discovered.fabric.ports), 128), np.uint16)
    assert adopt_partitions(held, discovered) == NO_FILE
    held[discovered.end_ports, 0] = 0x8000
    assert adopt_partitions(held, discovered) == NO_FILE
    held[discovered.end_ports, 0] = 0xFFFF
    host = discovered.fabric["h2/1"].slot
    held[host, :2] = 0x8005, 0xFFFF
    adopted = adopt_partitions(held, discovered)
    assert [(item.name, item.p_key, [rule.label for rule in item.members]) for item in adopted.partitions] == [
        ("Default", 0x7FFF, ["ALL=full"]),
        ("adopted-0x0005", 5, [f"{int(discovered.fabric.ports.guid[host]):#018x}=full"]),
    ]
    assert adopted.partitions[1].members[0].index0


class Drifting:
    """A manager's state with a clock, and a check that takes this long."""

    def __init__(self, **options: bool) -> None:
        self.now_s, self.took_s, self.found = 100.0, 2.0, ("h1/1: lacks P_Key 0x8101",)
        self.partitions: Partitions = Partitions(partitions=NO_FILE.partitions, notes=("a file",))
        self.log = Log(io.StringIO(), clock=lambda: 0.0)
        self.options = SimpleNamespace(repair_drift=options.get("repair_drift", True))
        self.drift: tuple[str, ...] = ()
        self.repaired: list[str] = []

    def clock(self) -> float:
        return self.now_s

    def find(self, _: object) -> tuple[str, ...]:
        self.now_s += self.took_s
        return self.found


def test_checks_of_drift_take_a_tenth_of_the_time(monkeypatch):
    state = Drifting()
    checks = DriftChecks(state)  # type: ignore[arg-type]
    monkeypatch.setattr(drift, "find_drift", state.find)
    assert checks.reason_to_sweep() == "settings of 1 port were changed by something else"
    assert (state.now_s, state.repaired, state.drift) == (102.0, [*state.found], state.found)
    for now_s, reason in ((119.9, ""), (120.0, "settings of 1 port were changed by something else")):
        state.now_s = now_s
        assert checks.reason_to_sweep() == reason
    assert state.log.counts[Event.DRIFT] == 1, "the same ports are logged once"
    state.now_s, state.found = 1000.0, ()
    assert (checks.reason_to_sweep(), state.drift) == ("", ())


@pytest.mark.parametrize("why", ["no partitions", "no repair"])
def test_drift_causes_no_sweep_without_partitions_or_repair(monkeypatch, why):
    state = Drifting(repair_drift=why != "no repair")
    monkeypatch.setattr(drift, "find_drift", state.find)
    if why == "no partitions":
        state.partitions = NO_FILE
    assert DriftChecks(state).reason_to_sweep() == ""  # type: ignore[arg-type]
    assert state.repaired == []
    assert bool(state.drift) is (why == "no repair")


def test_without_a_sweep_there_is_no_drift():
    for view, known in ((None, None), (object(), None), (None, object())):
        assert find_drift(SimpleNamespace(view=view, known=known)) == ()  # type: ignore[arg-type]


def test_keys_of_another_master_are_noted_where_they_were_read_and_are_to_be_written(discovered):
    host, silent, unused = (discovered.fabric[f"h{number}/1"].slot for number in (1, 2, 3))
    count = len(discovered.fabric.ports)
    known, programmed = np.zeros(count, bool), np.zeros(count, bool)
    known[[host, unused]], programmed[[host, silent]] = True, True
    table, held = np.zeros((count, 128), np.uint16), np.zeros((count, 128), np.uint16)
    table[[host, silent, unused], 0] = 0x8101
    state: Any = SimpleNamespace(repaired=[], log=Log(io.StringIO(), clock=lambda: 0.0))
    contents: Any = SimpleNamespace(keys=known, tables=SimpleNamespace(pkey=held))
    pkeys: Any = SimpleNamespace(programmed=programmed, table=table)
    note_foreign_keys(state, discovered, contents, pkeys)
    assert state.repaired == ["h1/1: lacks P_Key 0x8101"]
    assert state.log.recent[-1].endswith("DRIFT the previous master left other P_Keys: h1/1: lacks P_Key 0x8101")
    held[host, 0] = 0x8101
    note_foreign_keys(state, discovered, contents, pkeys)
    assert len(state.log.recent) == 1


def test_tables_of_nodes_that_stay_are_known_when_others_go(discovered):
    """Each row holds a unique number, so a row that moves to another node is detected."""
    before = carried_over(None, discovered)
    tables, fabric = before.tables, discovered.fabric
    random = np.random.default_rng(3)
    tables.lft = random.integers(0, 9, (len(tables.lft), 70)).astype(np.uint8)
    tables.mft = random.integers(0, 1 << 16, (len(tables.lft), 32, 1)).astype(np.uint16)
    tables.vl_arbitration[:] = random.integers(0, 15, tables.vl_arbitration.shape)
    tables.pkey[:] = random.integers(0, 1 << 16, tables.pkey.shape)
    tables.sl2vl[:] = random.integers(0, 15, tables.sl2vl.shape)
    before.keys[:] = True
    lost = np.array([fabric["h1/1"].slot, fabric["leaf2/3"].slot, fabric["leaf2/4"].slot])
    now = without_links(discovered, lost, ())
    assert len(now.fabric.nodes) < len(fabric.nodes)
    after = carried_over(before, now)
    for name, node in now.fabric.node_index.items():
        old = fabric.node_index[name]
        row, row_before = (part.tables.switch_row[at] for part, at in ((after, node), (before, old)))
        if row >= 0:
            assert (after.tables.lft[row] == tables.lft[row_before]).all()
            assert (after.tables.mft[row] == tables.mft[row_before]).all()
        count = int(now.fabric.nodes.n_ports[node]) + 1
        here, there = int(now.fabric.first_port[node]), int(fabric.first_port[old])
        for field in ("vl_arbitration", "pkey"):
            assert (
                getattr(after.tables, field)[here : here + count] == getattr(tables, field)[there : there + count]
            ).all()
        assert after.keys[here : here + count].all()
        pairs = count**2 if row >= 0 else count
        here, there = int(after.tables.first_pair[node]), int(tables.first_pair[old])
        assert (after.tables.sl2vl[here : here + pairs] == tables.sl2vl[there : there + pairs]).all()


def test_a_node_with_another_number_of_ports_is_another_node(discovered):
    before = carried_over(None, discovered)
    node = discovered.fabric.node_index["h2"]
    n_ports = discovered.fabric.nodes.n_ports.copy()
    n_ports[node] = 2
    other = SimpleNamespace(nodes=SimpleNamespace(guid=discovered.fabric.nodes.guid, n_ports=n_ports))
    new, old = _same_nodes(discovered.fabric, other)  # type: ignore[arg-type]
    assert (new == old).all()
    assert set(range(len(n_ports))) - set(new.tolist()) == {node}
    assert len(before.fresh) == len(n_ports)
