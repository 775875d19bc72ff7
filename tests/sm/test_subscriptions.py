"""Subscriptions to events: accepted, stored, queried, and answered with reports to permitted subscribers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sm.desk import SA_KEY, Desk

from weft.ids import Gid
from weft.mad import faults
from weft.mad.carrier import Address
from weft.sm.discovery.view import View
from weft.sm.inform.subscriptions import Subscription, Subscriptions, forwarded, gid_notice
from weft.wire.mad import Method, MgmtClass
from weft.wire.notice import GidDetails, GmpNotice, LinkStateDetails, Notice, NoticeType, ProducerType, Trap
from weft.wire.sa import InformInfo, InformInfoRecord, SaAttribute, SaMad, SaStatus

PREFIX = Gid.LINK_LOCAL_PREFIX
EVERYTHING = InformInfo(
    lid_range_begin=0xFFFF, is_generic=1, subscribe=1, type=0xFFFF, trap_number=0xFFFF, producer_type=0xFFFFFF
)


@pytest.fixture
def desk():
    return Desk("star:hosts=4")


def subscribe(desk, who="h1", sm_key=0, **changes):
    wish = EVERYTHING.replace(**changes)
    return desk.ask(who, Method.SET, SaAttribute.INFORM_INFO, wish, sm_key=sm_key)


def link_changed(desk, switch="s1"):
    """Return the notice of a trap 128 from a switch."""
    lid = desk.lid(switch)
    trap = Notice.pack(
        type=NoticeType.URGENT,
        producer_type=ProducerType.SWITCH,
        trap_number=Trap.LINK_STATE_CHANGED,
        issuer_lid=lid,
        data_details=LinkStateDetails.pack(lid_addr=lid),
    )
    return forwarded(trap, desk.view, PREFIX)


def switch_of(desk):
    return desk.view.fabric.switches[0].name


def listeners(desk, notice):
    return [address.lid for _, address in desk.state.subscriptions.reports(notice, desk.view)]


def test_a_subscriber_gets_a_report_with_the_notice(desk):
    status, (echo,) = subscribe(desk)
    assert (status, echo) == (0, EVERYTHING)
    notice = link_changed(desk, switch_of(desk))
    ((mad, to),) = desk.state.subscriptions.reports(notice, desk.view)
    report = SaMad.unpack(mad)
    assert (report.mgmt_class, report.class_version, report.method) == (MgmtClass.SUBN_ADM, 2, Method.REPORT)
    assert (report.attribute_id, report.data[:80], to) == (SaAttribute.NOTICE, notice, Address(desk.lid("h1")))
    assert GmpNotice.unpack(notice).issuer_gid == desk.gid(switch_of(desk))


def test_to_subscribe_twice_is_to_subscribe_once(desk):
    subscribe(desk)
    subscribe(desk)
    assert len(listeners(desk, link_changed(desk, switch_of(desk)))) == 1


def test_only_what_was_subscribed_can_be_unsubscribed(desk):
    """The sequence of osmtest; QPN is the sender of the subscription."""
    assert subscribe(desk, subscribe=0)[0] == SaStatus.REQUEST_INVALID
    subscribe(desk)
    assert subscribe(desk, "h2", subscribe=0, qpn=1)[0] == SaStatus.REQUEST_INVALID
    assert subscribe(desk, subscribe=0, trap_number=64, qpn=1)[0] == SaStatus.REQUEST_INVALID
    assert subscribe(desk, subscribe=0, qpn=1)[0] == 0
    assert not desk.state.subscriptions.all


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, True),
        ({"trap_number": 128}, True),
        ({"trap_number": 144}, False),
        ({"type": 1}, True),
        ({"type": 4}, False),
        ({"producer_type": 2}, True),
        ({"producer_type": 1}, False),
        ({"is_generic": 0}, False),
        ({"lid_range_begin": 1, "lid_range_end": 0xBFFF}, True),
        ({"lid_range_begin": "switch", "lid_range_end": 0}, True),
        ({"lid_range_begin": "h1", "lid_range_end": 0}, False),
        ({"gid": "switch"}, True),
        ({"gid": "h1"}, False),
    ],
)
def test_filters_let_through_what_they_name(desk, changes, wanted):
    names = {"switch": switch_of(desk), "h1": "h1"}
    for field, value in changes.items():
        if isinstance(value, str):
            changes = changes | {field: (desk.gid if field == "gid" else desk.lid)(names[value])}
    assert subscribe(desk, **changes)[0] == 0
    assert bool(listeners(desk, link_changed(desk, switch_of(desk)))) == wanted


@pytest.mark.parametrize(
    "changes",
    [
        {"subscribe": 2},
        {"gid": int(Gid.of(0x1234))},
        {"lid_range_begin": 0xB000, "lid_range_end": 0xB001},
        {"trap_number": 257},
    ],
)
def test_invalid_subscription_is_refused(desk, changes):
    assert subscribe(desk, **changes)[0] == SaStatus.REQUEST_INVALID
    assert not desk.state.subscriptions.all


def test_security_is_for_trusted_ones(desk):
    assert subscribe(desk, trap_number=257, sm_key=SA_KEY)[0] == 0
    subscribe(desk, "h2")
    bad = Notice.pack(
        type=NoticeType.SECURITY,
        producer_type=ProducerType.CA,
        trap_number=Trap.BAD_P_KEY,
        issuer_lid=desk.lid("h3"),
    )
    assert listeners(desk, forwarded(bad, desk.view, PREFIX)) == [desk.lid("h1")]


def test_partitions_divide_who_may_know_and_end_what_may_not_be_watched_any_more(desk):
    subscribe(desk, "h1")
    subscribe(desk, "h2", lid_range_begin=1, lid_range_end=0xBFFF)
    for name, key in (("h1", 0x8001), ("h2", 0x8001), ("h3", 0x8002), ("h4", 0x8001)):
        desk.put_into_partition(name, key)
    for name, heard in (("h4", ["h1"]), ("h3", [])):
        notice = gid_notice(Trap.GID_IN_SERVICE, desk.gid(name), desk.view, PREFIX)
        assert [lid for lid in listeners(desk, notice) if lid != desk.lid("h2")] == [desk.lid(owner) for owner in heard]
    assert [item.guid for item in desk.state.subscriptions.all] == [desk.guid("h1")]
    assert subscribe(desk, "h2", gid=desk.gid("h3"))[0] == SaStatus.REQUEST_INVALID


def announce_ports(desk: Desk, before: View) -> None:
    desk.state.subscriptions.settle(desk.view)
    desk.state.subscriptions.announce_ports(before, desk.view, PREFIX)


def test_ports_that_come_and_go_are_announced(desk):
    subscribe(desk)
    subscribe(desk, "h4")
    before, removed, lid = desk.view, desk.gid("h4"), desk.lid("h1")
    slot = desk.net.fabric.find_port("h4/1").slot
    faults.pull_cable(desk.net.devices, slot)
    desk.sweep()
    announce_ports(desk, before)
    without = desk.view
    heard = [(to.lid, notice.trap_number, told(notice)) for to, notice in taken(desk)]
    assert heard == [(lid, Trap.GID_OUT_OF_SERVICE, removed)]
    desk.state.subscriptions.settle(without, drop=True)
    assert [item.guid for item in desk.state.subscriptions.all] == [desk.guid("h1")]
    faults.plug_cable(desk.net.devices, slot)
    desk.sweep()
    announce_ports(desk, without)
    assert [(to.lid, notice.trap_number, told(notice)) for to, notice in taken(desk)] == [
        (lid, Trap.GID_IN_SERVICE, removed)
    ]


def test_without_an_earlier_sweep_or_subscribers_nothing_is_announced(desk):
    desk.state.subscriptions.announce_ports(desk.view, desk.view, PREFIX)
    subscribe(desk)
    desk.state.subscriptions.announce_ports(None, desk.view, PREFIX)
    assert not desk.state.subscriptions.take()


def test_the_number_of_an_ended_subscription_is_used_again(desk):
    for trap in (64, 65, 66):
        subscribe(desk, trap_number=trap)
    subscribe(desk, subscribe=0, trap_number=65, qpn=1)
    subscribe(desk, trap_number=67)
    assert [(item.info.trap_number, item.number) for item in desk.state.subscriptions.all] == [
        (64, 0),
        (66, 2),
        (67, 1),
    ]


def test_trust_of_a_repeated_subscription_stays(desk):
    subscribe(desk, sm_key=SA_KEY)
    subscribe(desk)
    assert [item.trusted for item in desk.state.subscriptions.all] == [True]


def test_a_watched_port_may_always_know_of_itself(desk):
    """Other subscribers without a common partition get no report; subscriptions to all ports or to a GID stay."""
    subscribe(desk, "h3", lid_range_begin=1, lid_range_end=0xBFFF)
    subscribe(desk, "h2")
    subscribe(desk, "h4", gid=desk.gid("h3"))
    for name, key in (("h1", 0x8001), ("h2", 0x8001), ("h3", 0x8002), ("h4", 0x8001)):
        desk.put_into_partition(name, key)
    assert listeners(desk, gid_notice(Trap.GID_IN_SERVICE, desk.gid("h3"), desk.view, PREFIX)) == [desk.lid("h3")]
    assert len(desk.state.subscriptions.all) == 3


def taken(desk):
    return [(to, GmpNotice.unpack(SaMad.data.get(mad))) for mad, to in desk.state.subscriptions.take()]


def told(notice):
    return GidDetails.unpack(notice.data_details).gid_addr


def test_silent_subscriber_is_dropped(desk):
    subscribe(desk)
    subscribe(desk, trap_number=64)
    subscribe(desk, "h2")
    desk.state.subscriptions.failed(Address(desk.lid("h1")))
    assert [item.guid for item in desk.state.subscriptions.all] == [desk.guid("h2")]


def test_records_show_subscriptions_and_the_qp_to_trusted_ones_only(desk):
    subscribe(desk)
    subscribe(desk, trap_number=64)
    subscribe(desk, "h2")

    def ask(names="", sm_key=0, **fields):
        record = InformInfoRecord(**fields)
        return desk.ask("h3", Method.GET_TABLE, SaAttribute.INFORM_INFO_RECORD, record, names, sm_key=sm_key)[1]

    assert [(item.subscriber_gid, item.enum, item.inform_info.qpn) for item in ask()] == [
        (desk.gid("h1"), 0, 0),
        (desk.gid("h1"), 1, 0),
        (desk.gid("h2"), 0, 0),
    ]
    assert [item.inform_info.qpn for item in ask(sm_key=SA_KEY)] == [1, 1, 1]
    (item,) = ask("subscriber_gid enum", subscriber_gid=desk.gid("h1"), enum=1)
    assert item.inform_info.trap_number == 64
    desk.put_into_partition("h2", 0x8001)
    assert len(ask()) == 2


def test_a_copy_reports_to_the_same_ports(desk):
    subscribe(desk)
    subscribe(desk, "h2", trap_number=257, sm_key=SA_KEY)
    subscribe(desk, "h3", trap_number=64)
    copy = Subscriptions()
    records = [item.record for item in desk.state.subscriptions.all]
    copy.load_records(records, desk.view)
    assert [item.record for item in copy.all] == records
    assert [item.address for item in copy.all] == [item.address for item in desk.state.subscriptions.all]
    assert [item.trusted for item in copy.all] == [False, True, False]


@settings(max_examples=50)
@given(
    begin=st.integers(0, 20) | st.just(0xFFFF), end=st.integers(0, 20), lid=st.integers(1, 20), trap=st.integers(60, 70)
)
def test_a_range_of_lids_lets_through_what_lies_in_it(begin, end, lid, trap):
    info = EVERYTHING.replace(lid_range_begin=begin, lid_range_end=end, trap_number=66)
    item = Subscription(gid=1, number=0, info=info, address=Address(1), trusted=False)
    inside = begin == 0xFFFF or begin <= lid <= (end or begin)
    assert item.wants(GmpNotice(issuer_lid=lid, trap_number=trap)) == (inside and trap == 66)
