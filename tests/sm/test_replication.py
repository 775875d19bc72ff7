"""A standby's copy: read by standard queries, kept through timeouts, loaded at a takeover; and adopted P_Keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sm.conftest import Net

from weft.mad.local import ManualClock
from weft.mad.walk import walk
from weft.sm.conf.options import Options
from weft.sm.discovery.view import make_view
from weft.sm.events import Log
from weft.sm.pkey.partitions import NO_FILE, Everyone, Membership
from weft.sm.pkey.table_upload import adopt_partitions
from weft.sm.pkey.tables import wanted_pkeys
from weft.sm.sender import Sender
from weft.sm.sminfo.election import Election
from weft.sm.sminfo.replication import Replica, Replication, load_replica, records_in
from weft.sm.sminfo.sm_info import Action, OtherSm, find_others, own_port
from weft.sm.state import State
from weft.wire.format import Malformed
from weft.wire.mad import Method, MgmtClass
from weft.wire.sa import (
    InformInfo,
    InformInfoRecord,
    MCMemberRecord,
    SaAttribute,
    SaMad,
    SaStatus,
    ServiceRecord,
)
from weft.wire.sa_query import pack_records
from weft.wire.smp import SMState

MASTER = OtherSm(guid=1, priority=3, state=SMState.MASTER, lid=7)
PREFIX = 0xFE80 << 112
LINK_LOCAL_MGID = 0xFF12_401B_FFFF << 80


def table(records, status=0):
    """Return an answer of an SA as a carrier delivers it: reassembled."""
    offset = -(-records[0].size // 8) if records else 0
    head = SaMad.pack(method=Method.GET_TABLE_RESP, attribute_offset=offset, status=status)[:56]
    return head + pack_records(records)


def groups_of(guids, count=1):
    return [
        MCMemberRecord(
            mgid=LINK_LOCAL_MGID + n, port_gid=PREFIX | int(guid), mlid=0xC000 + n, p_key=0xFFFF, join_state=1
        )
        for n in range(count)
        for guid in guids
    ]


class Standby:
    def __init__(self):
        self.clock, self.said = ManualClock(), []
        self.replication = Replication(clock=self.clock, say=lambda *said: self.said.append(said), sa_key=lambda: 5)

    def ask(self, master=MASTER):
        return self.replication.due(self.clock(), master)

    def hear(self, answers):
        """Send the queries and pass the answers by attribute; a query without one times out."""
        for question in self.ask():
            assert question.heard(answers.get(SaMad.attribute_id.get(question.mad))) == Action.NOTHING


# -- the copy ---------------------------------------------------------------------------------------------------------


def test_the_masters_sa_is_asked_for_all_tables_with_the_key_every_few_seconds():
    standby = Standby()
    questions = standby.ask()
    assert [SaMad.attribute_id.get(question.mad) for question in questions] == [
        SaAttribute.MC_MEMBER_RECORD,
        SaAttribute.SERVICE_RECORD,
        SaAttribute.INFORM_INFO_RECORD,
    ]
    for question in questions:
        mad = SaMad.unpack(question.mad)
        assert (mad.method, mad.sm_key, mad.component_mask, mad.class_version) == (Method.GET_TABLE, 5, 0, 2)
        assert (question.to.lid, question.to.qp) == (7, 1)
    standby.clock.sleep(1.9)
    assert standby.ask() == []
    assert standby.replication.next_due_s(MASTER) == 2.0
    standby.clock.sleep(0.1)
    assert len(standby.ask()) == 3


@pytest.mark.parametrize("master", [None, OtherSm(guid=1, priority=3, state=SMState.MASTER)])
def test_no_query_is_sent_without_a_master_with_a_lid(master):
    standby = Standby()
    assert standby.ask(master) == []
    assert standby.replication.next_due_s(master) == float("inf")


def test_tables_of_any_length_are_copied():
    standby = Standby()
    groups = groups_of(range(1, 50))
    standby.hear({SaAttribute.MC_MEMBER_RECORD: table(groups), SaAttribute.SERVICE_RECORD: table([])})
    assert standby.replication.replica.groups == tuple(groups)
    assert standby.replication.replica.services == ()
    assert standby.replication.replica.subscriptions is None


def test_missing_or_invalid_answer_keeps_the_copy_and_is_logged_once():
    standby = Standby()
    groups = groups_of([1])
    standby.hear({SaAttribute.MC_MEMBER_RECORD: table(groups)})
    nonsense = SaMad.pack(method=Method.GET_TABLE_RESP, attribute_offset=1)
    for answer in (None, nonsense, table([], status=SaStatus.DENIED), None, None):
        standby.clock.sleep(2.0)
        standby.hear({SaAttribute.MC_MEMBER_RECORD: answer})
    assert standby.replication.replica.groups == tuple(groups)
    assert len(standby.said) == 3  # one for each table
    (text,) = [text for _, text in standby.said if "MC_MEMBER_RECORD" in text]
    assert text.endswith("answers what cannot be read: status 0x0700")


def test_a_master_that_misses_a_question_or_two_is_not_worth_a_word():
    standby = Standby()
    for answer in (None, None, table([]), None, None):
        standby.hear(dict.fromkeys(SaAttribute, answer))
        standby.clock.sleep(2.0)
    assert standby.said == []


def test_no_records_is_an_empty_table_and_blanks_are_padding():
    assert records_in(table([], status=SaStatus.NO_RECORDS), ServiceRecord) == ()
    (group,) = groups_of([1])
    assert records_in(table([group]).ljust(256, b"\0"), MCMemberRecord) == (group,)
    with pytest.raises(Malformed, match="0x0700"):
        records_in(table([], status=SaStatus.DENIED), ServiceRecord)


def test_a_copy_is_taken_once():
    standby = Standby()
    standby.hear({SaAttribute.MC_MEMBER_RECORD: table([])})
    assert standby.replication.take().groups == ()
    assert standby.replication.take().groups is None


# -- takeover ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def view():
    return make_view(walk(Net("fat-tree:hosts=8,radix=4")))


def new_state():
    clock = ManualClock(100.0)
    return State(options=Options(), sender=Sender(Net("star:hosts=2").carrier), log=Log(), clock=clock)


def test_groups_services_and_subscriptions_live_on_after_a_takeover(view):
    state = new_state()
    guids = view.fabric.ports.guid[view.end_ports][:3].tolist()
    groups = groups_of(guids, count=2)
    services = tuple(
        ServiceRecord(service_id=n, service_gid=PREFIX | guids[0], service_p_key=0xFFFF, service_lease=lease)
        for n, lease in enumerate((0xFFFF_FFFF, 30, 10))
    )
    wish = InformInfo(lid_range_begin=0xFFFF, is_generic=1, subscribe=1, type=0xFFFF, trap_number=64, qpn=1)
    subscriptions = (InformInfoRecord(subscriber_gid=PREFIX | guids[1], inform_info=wish),)
    load_replica(
        state, view, Replica(groups=tuple(groups), services=services, services_s=85.0, subscriptions=subscriptions)
    )
    assert {mlid: sorted(group.members) for mlid, group in state.groups.by_mlid.items()} == {
        0xC000: sorted(guids),
        0xC001: sorted(guids),
    }
    left = [service.at(100.0) for service in state.services.by_key.values()]
    assert {item.service_id: item.service_lease for item in left} == {
        0: 0xFFFF_FFFF,
        1: 15,
    }  # the last one's lease ended at 95 s
    assert [item.record.subscriber_gid for item in state.subscriptions.all] == [PREFIX | guids[1]]


def test_later_copy_replaces_records_from_its_time_as_master(view):
    state = new_state()
    guid = int(view.fabric.ports.guid[view.end_ports][0])
    load_replica(state, view, Replica(groups=tuple(groups_of([guid], count=3))))
    load_replica(state, view, Replica())
    assert len(state.groups.by_mlid) == 3
    load_replica(state, view, Replica(groups=tuple(groups_of([guid], count=1))))
    assert len(state.groups.by_mlid) == 1


# -- partitions -------------------------------------------------------------------------------------------------------


def held(view, rows):
    result = np.zeros((len(view.fabric.ports), 128), np.uint16)
    for slot, keys in zip(view.end_ports.tolist(), rows, strict=True):
        result[slot, : len(keys)] = keys
    return result


KEYS = st.lists(
    st.sampled_from([0xFFFF, 0x7FFF, 0x8001, 0x0001, 0x8002, 0x0002, 0x9234]), min_size=1, max_size=5, unique=True
)


@given(st.data())
@settings(max_examples=60)
def test_every_port_keeps_the_keys_that_it_holds(view, data):
    """Also the key at index 0, unless index 0 gets the default key, which every partition file has."""
    rows = [data.draw(KEYS) for _ in view.end_ports]
    result = held(view, rows)
    expected = wanted_pkeys(adopt_partitions(result, view), view.fabric, view.own_slot, allow_both=True).table
    for slot, keys in zip(view.end_ports.tolist(), rows, strict=True):
        received = set(expected[slot][expected[slot] > 0].tolist())
        if slot == view.own_slot:
            received, keys = received - {0xFFFF, 0x7FFF}, list(set(keys) - {0xFFFF, 0x7FFF})
        assert received == set(keys)
        if keys and keys[0] & 0x7FFF != 0x7FFF and slot != view.own_slot:
            assert expected[slot][0] & 0x7FFF == keys[0] & 0x7FFF


def test_where_all_are_in_the_default_partition_that_is_all_there_is(view):
    """Ports without keys have just started."""
    rows = [[0xFFFF]] * (len(view.end_ports) - 1)
    assert adopt_partitions(held(view, [*rows, []]), view) == NO_FILE
    assert adopt_partitions(held(view, [[]] * len(view.end_ports)), view) == NO_FILE


def test_our_own_port_is_a_full_member_of_default_though_the_old_masters_was(view):
    rows = [[0x7FFF] for _ in view.end_ports]
    rows[-1] = [0xFFFF]  # the old master's
    (default,) = adopt_partitions(held(view, rows), view).partitions
    assert [(member.who, member.membership) for member in default.members] == [
        (Everyone.ALL, Membership.LIMITED),
        (int(view.fabric.ports.guid[view.end_ports[-1]]), Membership.FULL),
        (Everyone.SELF, Membership.FULL),
    ]


def test_a_partition_of_some_gets_no_newcomers(view):
    rows = [[0xFFFF] for _ in view.end_ports]
    rows[2] = [0xFFFF, 0x8005]
    _, some = adopt_partitions(held(view, rows), view).partitions
    assert (some.p_key, [member.who for member in some.members]) == (
        5,
        [int(view.fabric.ports.guid[view.end_ports[2]])],
    )


# -- the source of the copy --------------------------------------------------------------------------------------------


class Two(Net):
    """A net with a manager on h1, and another on h6 that answers whenever time passes."""

    def __init__(self):
        super().__init__("fat-tree:hosts=8,radix=4")
        self.carrier = self.at("h1/1")
        self.far = self.at("h6/1")
        options = Options(sm_priority=9, sm_key=4)
        self.election = Election(options, guid=self.far_guid, clock=self.clock, say=lambda event, text: None)
        for carrier in (self.carrier, self.far):
            carrier.set_is_sm(True)
            carrier.register(MgmtClass.SUBN_LID_ROUTED, (Method.GET, Method.SET))
        self.speaks = True
        self.said = []
        self.carrier._sleep = self.sleep

    @property
    def far_guid(self):
        return int(self.fabric.ports.guid[self.fabric["h6/1"].slot])

    def sleep(self, seconds):
        for arrived in self.far.arrivals() if self.speaks else ():
            response, _ = self.election.on_sm_info(arrived.mad, arrived.source)
            self.far.post(response, arrived.source)
        self.clock.sleep(min(seconds, 0.01))

    def find(self):
        view = make_view(walk(self))
        return view, find_others(Sender(self.carrier), view, lambda *said: self.said.append(said))[0]


def test_other_managers_are_found_by_the_issm_bit_and_asked_who_they_are():
    net = Two()
    view, (result,) = net.find()
    assert (result.guid, result.priority, result.sm_key, result.state) == (net.far_guid, 9, 4, SMState.DISCOVERING)
    assert result.name == "h6/1"
    assert len(result.path) == int(view.hops[view.node_of_guid(view.fabric.nodes.guid[view.fabric["h6"].index])])
    assert own_port(view).capability_mask & 2
    assert (result.record().sm_info.guid, result.record().sm_info.sm_key) == (net.far_guid, 0)


def test_one_that_says_it_is_there_and_does_not_answer_is_named_and_costs_little_time():
    net = Two()
    net.speaks = False
    before_s = net.clock()
    _, result = net.find()
    assert result == []
    assert ["h6/1" in text for _, text in net.said] == [True]
    assert net.clock() - before_s < 0.5
