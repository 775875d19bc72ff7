"""Dropped packets are counted and attributed to their sender and its tenant."""

from __future__ import annotations

import time
from contextlib import closing

import numpy as np
import pytest
from tests.lab.rdma import managed as managed_lab
from tests.patience import PATIENCE_S
from tests.tenants.subnets import BLUE, RED, SMALL, cut, managed, packet

import weft
from weft.errors import SubnetError
from weft.lab.lab import Lab
from weft.mad.administrator import NoAnswer
from weft.mad.carrier import Address, Arrived
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.local import LocalCarrier
from weft.mad.packets import bad_q_key
from weft.tenants.drivers.partition_files import write_partitions
from weft.tenants.partitions import Allocation
from weft.tenants.reading import read_fabric
from weft.tenants.violations import KEY_TRAPS, Violation, Watch, _own, attribute, count_violations
from weft.wire.mad import Method
from weft.wire.notice import BadKeyDetails, BadMKeyDetails, BadSwitchPKeyDetails, GmpNotice, Notice, Trap
from weft.wire.sa import InformInfo, SaAttribute, SaMad
from weft.wire.smp import Smp, SmpAttribute


@pytest.fixture(params=["both", "off"])
def enforce(request) -> str:
    return request.param


@pytest.fixture
def net(enforce, tmp_path):
    fabric = weft.load(SMALL)
    return managed(fabric, cut(fabric, red=RED, blue=BLUE), tmp_path, part_enforce=enforce)


def told(net) -> list[str]:
    """Return the texts of the waiting traps."""
    fabric, allocation = net.fabric, cut(net.fabric, red=RED, blue=BLUE)
    traps = [Notice.unpack(Smp.unpack(item.mad).data) for item in net.devices.traps.pending.values()]
    notices = [GmpNotice.unpack(trap.raw.ljust(GmpNotice.size, b"\0")) for trap in traps]
    return [str(attribute(notice, fabric, allocation)) for notice in notices]


def send(net, *args, **given) -> None:
    assert not net.subnet.send_packet(net.fabric[f"{args[0]}/1"].slot, packet(net.fabric, *args, **given)).delivered


@pytest.mark.parametrize("enforce", ["both"], indirect=True)
def test_a_forged_key_is_attributed_to_its_sender_at_the_first_switch(net):
    send(net, "h2", "h3", 0x8102)
    assert told(net) == ["h2/1 (red) to h3/1 (blue) with P_Key 0x8102: dropped at leaf1/2"]


@pytest.mark.parametrize("enforce", ["both"], indirect=True)
def test_a_forged_source_lid_is_detected(net):
    lid = int(net.fabric.tables.lid[net.fabric["h7/1"].slot])
    send(net, "h2", "h3", 0x8102, slid=lid)
    assert told(net) == ["h2/1 (red) to h3/1 (blue) with P_Key 0x8102, with a forged source LID: dropped at leaf1/2"]


def test_a_packet_with_the_senders_key_is_dropped_at_the_receiver(net, enforce):
    send(net, "h2", "h3", 0x8101)
    at = "leaf2/1" if enforce == "both" else "h3/1"
    assert told(net) == [f"h2/1 (red) to h3/1 (blue) with P_Key 0x8101: dropped at {at}"]


def test_a_wrong_q_key_is_reported(net):
    bad_q_key(net.devices, net.fabric["h5/1"].slot, packet(net.fabric, "h2", "h5", 0x8101))
    assert told(net) == ["h2/1 (red) to h5/1 (red) with Q_Key 0x0011: dropped at h5/1"]


def test_the_sender_of_a_wrong_m_key_is_known_by_the_return_path_of_a_directed_smp(net):
    leaf = net.fabric["leaf1/0"]
    allocation = cut(net.fabric, red=RED, blue=BLUE)
    texts = []
    for directed in (1, 0):
        details = BadMKeyDetails.pack(m_key=7, dr_notice=directed, dr_hop_count=1, dr_notice_return_path=b"\0\2")
        notice = GmpNotice.pack(trap_number=Trap.BAD_M_KEY, issuer_lid=leaf.lid, data_details=details)
        texts.append(str(attribute(GmpNotice.unpack(notice), net.fabric, allocation)))
    assert texts == [
        "h2/1 (red) to leaf1/0 (no tenant) with M_Key 0x0007: dropped at leaf1/0",
        "not known (no tenant) to leaf1/0 (no tenant) with M_Key 0x0007: dropped at leaf1/0",
    ]


def test_an_unknown_sender_is_named_by_its_lid(net):
    bad_q_key(net.devices, net.fabric["h5/1"].slot, packet(net.fabric, "h2", "h5", 0x8101, slid=999))
    assert told(net)[0].startswith("LID 999 (no tenant) to h5/1 (red)")


@pytest.mark.parametrize("enforce", ["both"], indirect=True)
def test_a_port_with_several_lids_is_known_by_each_of_them(net):
    """The LIDs before and after belong to other ports or to none."""
    fabric = net.fabric
    slot = fabric["h2/1"].slot
    fabric.tables.lid[slot] = 96
    fabric.tables.set_lmc(np.array([slot]), np.array([2]))
    names = [attribute(bad_key(fabric, lid, 1), fabric, Allocation()).sender for lid in (0, 95, 96, 99, 100)]
    assert names == ["LID 0", "LID 95", "h2/1", "h2/1", "LID 100"]


@pytest.mark.parametrize("enforce", ["both"], indirect=True)
@pytest.mark.parametrize(
    ("at", "number", "dropped_at", "sender", "forged"),
    [
        ("leaf1/0", 1, "leaf1/1", "h1/1", True),  # on its way in from h1
        ("leaf1/0", 3, "leaf1/3", "h2/1", False),  # between switches
        ("leaf2/0", 1, "leaf2/1", "h2/1", False),  # on its way out to h3
        (None, 1, "LID 999", "h2/1", False),  # at an unknown switch
    ],
)
def test_a_switch_port_with_a_host_identifies_the_sender(net, at, number, dropped_at, sender, forged):
    """A switch that does not give its LID is the issuer of the notice."""
    fabric = net.fabric
    lids = [int(fabric.tables.lid[fabric[name].slot]) for name in ("h2/1", "h3/1")]
    switch = int(fabric.tables.lid[fabric[at].slot]) if at else 999
    for inside, issuer in ((switch, 0), (0, switch)):
        details = BadSwitchPKeyDetails.pack(
            lid_addr1=lids[0], lid_addr2=lids[1], sw_lid_addr=inside, port_no=number, p_key=0x8102
        )
        notice = GmpNotice.pack(trap_number=Trap.BAD_SWITCH_P_KEY, issuer_lid=issuer, data_details=details)
        violation = attribute(GmpNotice.unpack(notice), fabric, Allocation())
        assert (violation.at, violation.sender, violation.source_is_forged) == (dropped_at, sender, forged)


def bad_key(fabric, sender: int, receiver: int) -> GmpNotice:
    details = BadKeyDetails.pack(lid_addr1=sender, lid_addr2=receiver, key=0x8101)
    return GmpNotice.unpack(GmpNotice.pack(trap_number=Trap.BAD_P_KEY, issuer_lid=receiver, data_details=details))


def test_ports_count_dropped_packets(net, enforce):
    for _ in range(3):
        send(net, "h2", "h3", 0x8101)
    send(net, "h5", "h7", 0x8700)
    bad_q_key(net.devices, net.fabric["h5/1"].slot, packet(net.fabric, "h2", "h5", 0x8101))
    carrier = LocalCarrier(net.subnet, net.fabric["h1/1"].slot, sleep=net.clock.sleep)
    result = count_violations(carrier, read_fabric(carrier), cut(net.fabric, red=RED, blue=BLUE))
    counts = {item.port: (item.partitions, item.p_keys, item.q_keys, item.from_port, item.to_port) for item in result}
    if enforce == "both":
        assert counts == {"h3/1": (("blue",), 0, 0, 0, 3), "h5/1": (("red",), 0, 1, 1, 0)}
    else:
        blue = ("blue",)
        assert counts == {"h3/1": (blue, 3, 0, 0, 0), "h5/1": (("red",), 0, 1, 0, 0), "h7/1": (blue, 1, 0, 0, 0)}


def test_a_watch_receives_traps_from_the_subnet_manager(tmp_path):
    fabric = weft.load(SMALL)
    allocation = cut(fabric, red=RED, blue=BLUE)
    path = tmp_path / "partitions.conf"
    path.write_text(write_partitions(allocation))
    with (
        Lab(fabric, f"v{time.monotonic_ns() % 10**12}") as lab,
        managed_lab(lab, partition_config_file=path) as manager,
        closing(IbsimCarrier("h1", lab.sockname)) as carrier,
    ):
        with pytest.raises(SubnetError, match="requires its sa_key"):
            Watch(carrier, sa_key=2).__enter__()
        with closing(IbsimCarrier("h4", lab.sockname)) as limited, pytest.raises(SubnetError, match="full member"):
            Watch(limited)
        with Watch(carrier) as watch:
            for sender, key in (("h2", 0x8102), ("h5", 0x8101)):
                lab.send_packet(sender, packet(lab.fabric, sender, "h3", key))
            observed, notices = read_fabric(carrier), watch.notices(PATIENCE_S)
            heard: set[str] = set()
            while len(heard) < 2:  # one may be reported twice, if the first report was late
                heard.add(str(attribute(next(notices), observed, allocation)))
            assert heard == {
                "h2/1 (red) to h3/1 (blue) with P_Key 0x8102: dropped at leaf1/2",
                "h5/1 (red) to h3/1 (blue) with P_Key 0x8101: dropped at leaf2/1",
            }
            assert len(manager.state.subscriptions.all) == len(KEY_TRAPS)
        assert not manager.state.subscriptions.all


def test_a_watch_needs_a_subnet_manager():
    with (
        Lab(weft.load("star:hosts=2"), f"v{time.monotonic_ns() % 10**12}") as lab,
        closing(IbsimCarrier("h1", lab.sockname)) as carrier,
        pytest.raises(SubnetError, match="no subnet manager"),
    ):
        Watch(carrier)


class Reports:
    """A carrier with reports that have arrived, and nothing more."""

    def __init__(self, *mads: SaMad) -> None:
        self.mads, self.posted, self.polled_s = [*mads], [], []

    def arrivals(self):
        arrived, self.mads = self.mads, []
        return [Arrived(mad.raw, Address(lid=7)) for mad in arrived]

    def post(self, mad, to):
        self.posted.append((SaMad.unpack(mad).method, to.lid))

    def poll(self, wait_s):
        assert wait_s <= 0.01
        self.polled_s.append(wait_s)


@pytest.mark.parametrize("wait_s", [0.0, 0.01])
def test_reports_that_have_arrived_are_confirmed_and_end_with_the_wait(wait_s):
    notice = GmpNotice(trap_number=257)
    report = SaMad(method=Method.REPORT, attribute_id=SaAttribute.NOTICE, data=notice.raw)
    others = (
        SaMad(method=Method.GET_RESP, attribute_id=SaAttribute.NOTICE),
        SaMad(method=Method.REPORT, attribute_id=SaAttribute.INFORM_INFO),
    )
    watch = Watch.__new__(Watch)
    watch._carrier = carrier = Reports(*others, report)
    assert [each.trap_number for each in watch.notices(wait_s)] == [257]
    assert carrier.posted == [(Method.REPORT_RESP, 7)]
    assert bool(carrier.polled_s) is (wait_s > 0)
    carrier.polled_s.clear()
    assert [*watch.notices()] == carrier.polled_s == []  # by default it does not wait


class Silent:
    """A carrier without answers."""

    def send(self, mad, to=None, **how):
        return 1

    def poll(self, wait_s, *, only):
        return [(only, None)]


def test_a_port_that_does_not_answer_is_reported():
    with pytest.raises(SubnetError, match="the local port does not answer P_KEY_TABLE: check that it is up"):
        _own(Silent(), SmpAttribute.P_KEY_TABLE)


@pytest.mark.parametrize(("answers", "ended"), [(True, [1, 2, 3]), (False, [1])])
def test_a_watch_ends_all_its_subscriptions_as_long_as_the_manager_answers(answers, ended, monkeypatch):
    calls = []
    monkeypatch.setattr(Watch, "_subscribe", lambda self, trap, on: calls.append((trap, on)) or answers)
    watch = Watch.__new__(Watch)
    watch._traps = (1, 2, 3)
    with watch:
        assert calls == [(trap, True) for trap in (1, 2, 3)]
    assert calls[3:] == [(trap, False) for trap in ended]


# -- subscriptions, without a lab --------------------------------------------------------------------------------------


def subscribed(monkeypatch, answer: int | None, *, on: bool) -> tuple[bool, SaMad]:
    """Return the result of a subscription to trap 257 and the request; the answer has a status, or there is none."""
    sent: list[bytes] = []

    def ask(_: object, mad: bytes) -> bytes:
        sent.append(mad)
        if answer is None:
            raise NoAnswer
        return SaMad.pack(status=answer)

    monkeypatch.setattr("weft.tenants.violations.ask_administrator", ask)
    watch = Watch.__new__(Watch)
    watch._carrier, watch._sa_key = None, 7
    try:
        return watch._subscribe(Trap.BAD_P_KEY, on=on), SaMad.unpack(sent[0])
    finally:
        assert len(sent) == 1


@pytest.mark.parametrize(
    ("answer", "on", "expected"),
    [
        (0, True, True),
        (0, False, True),
        (0x0200, True, "refuses the subscription to trap 257: status 0x0200"),
        (0x0200, False, True),
        (None, True, "refuses the subscription to trap 257: no answer"),
        (None, False, False),
    ],
)
def test_a_refused_subscription_is_an_error_and_its_end_is_not(monkeypatch, answer, on, expected):
    if isinstance(expected, str):
        with pytest.raises(SubnetError, match=f"{expected}\n  It requires its sa_key"):
            subscribed(monkeypatch, answer, on=on)
    else:
        assert subscribed(monkeypatch, answer, on=on)[0] is expected


@pytest.mark.parametrize("on", [True, False])
def test_a_subscription_is_to_a_trap_of_all_ports(monkeypatch, on):
    request = subscribed(monkeypatch, 0, on=on)[1]
    assert (request.method, request.attribute_id, request.sm_key) == (Method.SET, SaAttribute.INFORM_INFO, 7)
    info = InformInfo.unpack(request.data[: InformInfo.size])
    assert (info.subscribe, info.is_generic, info.lid_range_begin, info.type) == (on, 1, 0xFFFF, 0xFFFF)
    assert (info.trap_number, info.qpn, info.producer_type) == (257, 1, 0xFF_FFFF)


def test_a_trap_of_a_port_without_a_cable_names_the_sender_by_its_lid():
    fabric = weft.load("star:hosts=2,switch=QM9700")
    for lid, name in enumerate(("h1/1", "h2/1"), 1):
        fabric.tables.lid[fabric[name].slot] = lid
    switch = int(fabric.first_port[fabric.ports.node[fabric["h1/1"].peer.slot]])
    fabric.tables.lid[switch] = 3
    free = next(n for n in range(1, 64) if fabric.ports.peer[switch + n] < 0)
    details = BadSwitchPKeyDetails.pack(lid_addr1=1, lid_addr2=2, sw_lid_addr=3, port_no=free, p_key=0x8102)
    notice = GmpNotice.pack(trap_number=Trap.BAD_SWITCH_P_KEY, issuer_lid=3, data_details=details)
    violation = attribute(GmpNotice.unpack(notice), fabric, Allocation())
    assert (violation.sender, violation.receiver, violation.source_is_forged) == ("h1/1", "h2/1", False)
    assert violation.at.endswith(f"/{free}")
    assert (violation.kind, violation.sender_partitions) == ("P_Key", ())


@pytest.mark.parametrize(
    ("trap", "kind"),
    [(Trap.BAD_Q_KEY, "Q_Key"), (Trap.BAD_M_KEY, "M_Key"), (Trap.BAD_P_KEY, "P_Key"), (Trap.BAD_SWITCH_P_KEY, "P_Key")],
)
def test_the_kind_of_a_key_follows_from_the_trap(trap, kind):
    ends = {"at": "h2/1", "sender": "h1/1", "receiver": "h2/1", "key": 0x8101}
    violation = Violation(trap=trap, **ends, sender_partitions=("a", "b"), receiver_partitions=())
    assert str(violation) == f"h1/1 (a, b) to h2/1 (no tenant) with {kind} 0x8101: dropped at h2/1"


@pytest.mark.parametrize("enforce", ["both"], indirect=True)
def test_counters_of_switches_that_do_not_answer_are_0(net):
    """h2 is at the first switch, and h3 has counters of its own."""
    send(net, "h2", "h3", 0x8102)
    bad_q_key(net.devices, net.fabric["h3/1"].slot, packet(net.fabric, "h2", "h3", 0x8101))
    carrier = LocalCarrier(net.subnet, net.fabric["h1/1"].slot, sleep=net.clock.sleep)
    fabric, exchange = read_fabric(carrier), carrier.exchange
    ports = {
        item.port: (item.q_keys, item.from_port, item.to_port)
        for item in count_violations(carrier, fabric, Allocation())
    }
    assert ports == {"h2/1": (0, 1, 0), "h3/1": (1, 0, 0)}
    carrier.exchange = lambda mads, lids: (exchange(mads, lids)[0], np.zeros(len(mads), bool))
    ports = {
        item.port: (item.q_keys, item.from_port, item.to_port)
        for item in count_violations(carrier, fabric, Allocation())
    }
    assert ports == {"h3/1": (1, 0, 0)}
