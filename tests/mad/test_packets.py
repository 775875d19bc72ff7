"""Data packets through the fabric: delivery, drops, and counters."""

from __future__ import annotations

import itertools
from collections import Counter as Counts
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.fabric.counters import Counter
from weft.fabric.forwarding import Reason, matching_key, may_use
from weft.ids import PKey
from weft.mad import faults
from weft.mad.carrier import Address, ask
from weft.mad.devices import NONE
from weft.mad.packets import Drop, bad_q_key, carry
from weft.wire.crc import vcrc_bytes
from weft.wire.headers import BTH, DETH, GRH, LNH, LRH, RDETH, RWH, Opcode
from weft.wire.mad import PlainMad
from weft.wire.notice import BadKeyDetails, BadSwitchPKeyDetails, Trap
from weft.wire.packet import Link, Packet, icrc_is_right
from weft.wire.perf import PerfAttribute, PortCounters, PortXmitDataSL, PortXmitDiscardDetails
from weft.wire.port_info import Mtu, PortInfo, PortState

RED_FULL, RED_LIMITED = 0x8010, 0x0010
MGID_LID = 0xC003


@pytest.fixture
def running(running):
    """Return the bench of the other tests with counters set to zero."""
    running.devices.fabric.counters[:] = 0
    return running


def packet(bench, to: str | int, *, p_key=0xFFFF, sl=0, size=64, qp=7, sender="h1", **headers) -> bytes:
    dlid = bench.lid(to) if isinstance(to, str) else to
    lrh = LRH(slid=bench.lid(sender), dlid=dlid, sl=sl)
    bth = BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=qp, p_key=p_key)
    between = [GRH(**headers)] if headers else []
    return Packet((lrh, *between, bth, DETH(q_key=0x1234, src_qp=5)), b"x" * size).pack()


def way(bench, sender: str, to: str) -> list[int]:
    """Return the output slots of a packet, hop by hop."""
    devices = bench.devices
    slot, result = bench.slot_of(f"{sender}/1"), []
    while True:
        result.append(slot)
        node = devices.node_of[devices.cable[slot]]
        if not devices.is_switch[node]:
            return result
        slot = devices.first[node] + int(devices.tables.lft[devices.row[node], bench.lid(to)])


def drops(bench, raw: bytes, sender: str = "h1") -> list[tuple[str, Reason]]:
    fate = bench.subnet.send_packet(bench.slot_of(f"{sender}/1"), raw)
    assert not fate.delivered
    return [(bench.devices.name(drop.slot), drop.reason) for drop in fate.dropped]


def counts(bench, slot: int, *counters: Counter) -> list[int]:
    return [bench.devices.counters(slot)[counter] for counter in counters]


def set_keys(bench, port: str, *keys: int) -> None:
    bench.devices.tables.pkey[bench.slot_of(port)] = (*keys, *[0] * (128 - len(keys)))


def enforce(bench, host: str, **bits: int) -> str:
    """Make the switch port of a host check the host's keys; return the port's name."""
    devices = bench.devices
    slot = bench.slot_of(f"{host}/1")
    at = devices.cable[slot]
    devices.tables.pkey[at] = devices.tables.pkey[slot]
    for name, bit in bits.items():
        PortInfo.fields[name].set(devices.info(at), bit)
    return devices.name(at)


# -- good packets -----------------------------------------------------------------------------------------------------


def test_a_packet_is_counted_at_both_ends_of_every_link(running):
    raw = packet(running, "h8", sl=2)
    words = (len(raw) - 2) // 4
    fate = running.subnet.send_packet(running.slot, raw)
    assert fate.delivered == (running.slot_of("h8/1"),)
    assert fate.dropped == ()
    crossed = way(running, "h1", "h8")
    assert len(crossed) == 4
    for out in crossed:
        far = running.devices.cable[out]
        sent = (Counter.PORT_XMIT_DATA_WORDS, Counter.PORT_XMIT_PKTS, Counter.PORT_UNICAST_XMIT_PKTS)
        came = (Counter.PORT_RCV_DATA_WORDS, Counter.PORT_RCV_PKTS, Counter.PORT_UNICAST_RCV_PKTS)
        assert counts(running, out, *sent) == counts(running, far, *came) == [words, 1, 1]
    requests = PortXmitDataSL(port_select=1)
    _, by_sl = running.perf("h1", 1, PerfAttribute.PORT_XMIT_DATA_SL, requests)
    assert by_sl.port_xmit_data_sl == (0, 0, words, *[0] * 13)


def test_perfquery_sees_the_packets(running):
    _, before = running.perf("h8", 1, PerfAttribute.PORT_COUNTERS, PortCounters(port_select=1))
    for _ in range(3):
        running.subnet.send_packet(running.slot, packet(running, "h8"))
    _, after = running.perf("h8", 1, PerfAttribute.PORT_COUNTERS, PortCounters(port_select=1))
    assert after.port_rcv_pkts - before.port_rcv_pkts == 3 + 1  # and the query itself


def test_receivers_get_the_packet_as_the_last_link_wrote_it(running):
    devices, slot, received = running.devices, running.slot_of("h8/1"), []
    *_, came_by, out = [running.slot, *way(running, "h1", "h8")]
    node = devices.node_of[out]
    into, port = devices.number(devices.cable[came_by]), devices.number(out)
    devices.tables.sl2vl[devices.first_pair[node] + into * devices.ports_with_0[node] + port, 4] = 3
    running.subnet.attach_packets(slot, received.append)
    raw = packet(running, "h8", sl=4)
    running.subnet.send_packet(running.slot, raw)
    assert LRH.vl.get(received[0]) == 3
    assert received[0][1:-2] == raw[1:-2]
    assert received[0][-2:] == vcrc_bytes(received[0][:-2])
    assert icrc_is_right(received[0], Link.INFINIBAND)
    running.subnet.detach_packets(slot, received.append)
    running.subnet.send_packet(running.slot, raw)
    assert len(received) == 1


def test_a_packet_to_itself_stays_in_the_adapter(running):
    fate = running.subnet.send_packet(running.slot, packet(running, "h1"))
    assert fate.delivered == (running.slot,)
    assert counts(running, running.slot, Counter.PORT_XMIT_PKTS) == [0]


def test_port_0_of_a_switch_sends_and_receives(running):
    leaf = running.slot_of("leaf1/0")
    present = running.subnet.send_packet(running.slot, packet(running, "leaf1"))
    back = running.subnet.send_packet(leaf, packet(running, "h8", sender="leaf1"))
    assert (present.delivered, back.delivered) == ((leaf,), (running.slot_of("h8/1"),))


# -- groups -----------------------------------------------------------------------------------------------------------


def join(bench, *names: str) -> None:
    """Write the multicast tables: the tree has h1's path to each host, and ports to the hosts of leaf1 and upwards."""
    tables = bench.devices.tables
    tables.mft.resize((tables.mft.shape[0], 8, tables.mft.shape[2]), refcheck=False)
    for name in names:
        for out in way(bench, "h1", name)[1:]:
            devices = bench.devices
            node, port = devices.node_of[out], devices.number(out)
            tables.mft[devices.row[node], MGID_LID - 0xC000, port // 16] |= 1 << port % 16


def test_a_group_gets_a_copy_each_and_the_sender_none(running):
    join(running, "h2", "h8", "h1")
    fate = running.subnet.send_packet(running.slot, packet(running, MGID_LID, qp=0xFFFFFF))
    assert sorted(fate.delivered) == [running.slot_of("h2/1"), running.slot_of("h8/1")]
    assert fate.dropped == ()
    sent = (Counter.PORT_MULTICAST_XMIT_PKTS, Counter.PORT_UNICAST_XMIT_PKTS)
    assert counts(running, running.slot, *sent) == [1, 0]
    assert counts(running, running.slot_of("h8/1"), Counter.PORT_MULTICAST_RCV_PKTS) == [1]


def test_members_without_the_key_drop_their_copy(running):
    join(running, "h2", "h8")
    set_keys(running, "h1/1", 0xFFFF, RED_FULL)
    set_keys(running, "h2/1", 0x7FFF, RED_LIMITED)
    fate = running.subnet.send_packet(running.slot, packet(running, MGID_LID, qp=0xFFFFFF, p_key=RED_FULL))
    assert fate.delivered == (running.slot_of("h2/1"),)
    assert fate.dropped == (Drop(running.slot_of("h8/1"), Reason.P_KEY),)


def test_a_group_that_no_switch_knows_is_a_relay_error(running):
    at = running.devices.name(running.devices.cable[running.slot])
    assert drops(running, packet(running, MGID_LID)) == [(at, Reason.NO_ROUTE)]
    assert running.counter(at, Counter.PORT_RCV_SWITCH_RELAY_ERRORS) == 1


def test_a_group_whose_tables_go_round_ends(running):
    join(running, "h2", "h8")
    tables = running.devices.tables
    tables.mft[:, MGID_LID - 0xC000, :] = 0xFFFE
    fate = running.subnet.send_packet(running.slot, packet(running, MGID_LID))
    assert {drop.reason for drop in fate.dropped} == {Reason.LOOP}
    assert len(fate.delivered) == len(set(fate.delivered)) == 8  # h1 too, over the loop


# -- links ------------------------------------------------------------------------------------------------------------


def test_a_port_that_is_not_active_discards(running):
    out = way(running, "h1", "h8")[1]
    PortInfo.port_state.set(running.devices.info(out), PortState.ARMED)
    name = running.devices.name(out)
    assert drops(running, packet(running, "h8")) == [(name, Reason.INACTIVE)]
    assert running.counter(name, Counter.PORT_XMIT_DISCARDS) == 1
    faults.pull_cable(running.devices, running.slot)
    assert drops(running, packet(running, "h8")) == [("h1/1", Reason.INACTIVE)]
    assert running.counter("h1/1", Counter.PORT_XMIT_DISCARDS) == 1


def test_a_packet_longer_than_the_mtu_is_discarded_where_it_would_leave(running):
    out = way(running, "h1", "h8")[2]
    PortInfo.neighbor_mtu.set(running.devices.info(out), Mtu.BYTES_256)
    name = running.devices.name(out)
    fits, long = packet(running, "h8", size=256 + 124 - 32), packet(running, "h8", size=256 + 124 - 28)
    assert running.subnet.send_packet(running.slot, fits).delivered
    assert drops(running, long) == [(name, Reason.TOO_LONG)]
    owner, _, number = name.partition("/")
    requests = PortXmitDiscardDetails(port_select=int(number))
    _, by_cause = running.perf(owner, 1, PerfAttribute.PORT_XMIT_DISCARD_DETAILS, requests)
    assert by_cause.port_neighbor_mtu_discards == 1


@pytest.mark.parametrize(("vl", "vls"), [(15, 5), (4, 3), (8, 4)])
def test_an_sl_without_a_vl_is_discarded(running, vl, vls):
    devices = running.devices
    home, out = way(running, "h1", "h8")[:2]
    node, came_by = devices.node_of[out], devices.cable[home]
    row = devices.first_pair[node] + devices.number(came_by) * devices.ports_with_0[node] + devices.number(out)
    devices.tables.sl2vl[row, 1] = vl
    PortInfo.operational_vls.set(devices.info(out), vls)
    assert drops(running, packet(running, "h8", sl=1)) == [(devices.name(came_by), Reason.NO_RELAY)]
    assert counts(running, came_by, Counter.PORT_RCV_SWITCH_RELAY_ERRORS) == [1]
    assert running.subnet.send_packet(running.slot, packet(running, "h8", sl=2)).delivered
    devices.tables.sl2vl[devices.first_pair[devices.node_of[home]] + 1, 2] = 15
    assert drops(running, packet(running, "h8", sl=2)) == [("h1/1", Reason.NO_VL)]
    assert running.counter("h1/1", Counter.PORT_XMIT_DISCARDS) == 1


def test_switches_without_a_way_count_a_relay_error(running):
    at = running.devices.name(running.devices.cable[running.slot])
    assert drops(running, packet(running, 0xBFFF)) == [(at, Reason.NO_ROUTE)]
    assert running.counter(at, Counter.PORT_RCV_SWITCH_RELAY_ERRORS) == 1


def test_tables_that_go_round_end_a_packet(running):
    devices, round_trip = running.devices, ["leaf1", "spine1", "leaf2", "spine2", "leaf1"]
    for name, following in itertools.pairwise(round_trip):
        node = running.node(name)
        port = next(
            n for n in range(1, 5) if devices.node_of[devices.cable[devices.first[node] + n]] == running.node(following)
        )
        devices.tables.lft[devices.row[node], running.lid("h8")] = port
    fate = carry(devices, running.slot, packet(running, "h8"))
    assert [drop.reason for drop in fate.dropped] == [Reason.LOOP]
    assert counts(running, fate.dropped[0].slot, Counter.PORT_XMIT_DISCARDS) == [1]


def test_a_packet_for_another_is_dropped_by_an_adapter(running):
    devices = running.devices
    last = way(running, "h1", "h2")[-1]
    devices.tables.lft[devices.row[devices.node_of[last]], running.lid("h8")] = devices.number(last)
    assert drops(running, packet(running, "h8")) == [("h2/1", Reason.NOT_MINE)]


def test_every_packet_on_a_bad_cable_arrives_or_is_counted(running):
    far = running.devices.cable[running.slot]
    faults.degrade(running.devices, running.slot, 1e-4)
    fates = [running.subnet.send_packet(running.slot, packet(running, "h8", size=1024)) for _ in range(300)]
    arrived = sum(len(fate.delivered) for fate in fates)
    hurt = [drop for fate in fates for drop in fate.dropped]
    assert all(drop == Drop(far, Reason.BIT_ERROR) for drop in hurt)
    assert arrived + len(hurt) == 300
    assert counts(running, far, Counter.SYMBOL_ERROR) == [len(hurt)]
    assert counts(running, far, Counter.PORT_RCV_PKTS) == [300]  # damaged ones too
    expected = 300 * (1 - 1e-4) ** (8 * len(packet(running, "h8", size=1024)))
    assert abs(arrived - expected) < 4 * (expected * (1 - expected / 300)) ** 0.5


# -- partitions -------------------------------------------------------------------------------------------------------

KEYS = st.one_of(st.integers(0, 0xFFFF), st.sampled_from([0, 1, 2, 0x8000, 0x8001, 0x8002, 0x7FFF, 0xFFFF]))


@given(st.lists(KEYS, min_size=1, max_size=6), KEYS)
def test_a_key_matches_as_the_standard_says(keys, p_key):
    index = matching_key(keys, p_key)
    fits = [PKey(p_key).matches(PKey(key)) for key in keys]
    assert fits[index] if index != NONE else not any(fits)


@given(st.lists(KEYS, min_size=1, max_size=6), KEYS)
def test_no_port_sends_with_more_than_it_holds(keys, p_key):
    """And a full member accepts every key that a port may send with."""
    holds = any(PKey(key).partition == PKey(p_key).partition != 0 and PKey(key) >= PKey(p_key) for key in keys)
    assert may_use(keys, p_key) == holds
    if holds:
        assert matching_key([p_key | 0x8000], p_key) == 0


def test_two_limited_members_do_not_hear_each_other(running):
    set_keys(running, "h1/1", 0xFFFF, RED_LIMITED)
    set_keys(running, "h8/1", 0xFFFF, RED_LIMITED)
    raw = packet(running, "h8", p_key=RED_LIMITED, sl=3)
    assert drops(running, raw) == [("h8/1", Reason.P_KEY)]
    info = running.devices.info(running.slot_of("h8/1"))
    assert PortInfo.p_key_violations.get(info) == 1
    (notice,) = running.traps()
    messages = BadKeyDetails.unpack(notice.data_details)
    assert notice.trap_number == Trap.BAD_P_KEY
    assert (messages.lid_addr1, messages.lid_addr2) == (running.lid("h1"), running.lid("h8"))
    assert (messages.key, messages.sl, messages.qp1, messages.qp2) == (RED_LIMITED, 3, 5, 7)
    set_keys(running, "h8/1", 0xFFFF, RED_FULL)
    assert running.subnet.send_packet(running.slot, raw).delivered


def test_violations_stay_at_their_most(running):
    info = running.devices.info(running.slot_of("h8/1"))
    PortInfo.p_key_violations.set(info, 0xFFFE)
    for _ in range(3):
        drops(running, packet(running, "h8", p_key=RED_FULL))
    assert PortInfo.p_key_violations.get(info) == 0xFFFF


def test_a_flood_of_packets_is_no_flood_of_traps(running):
    name = enforce(running, "h1", partition_enforcement_inbound=1)
    for p_key in range(0x8001, 0x8065):
        drops(running, packet(running, "h8", p_key=p_key))
        drops(running, packet(running, "h8", p_key=p_key, sender="h2"), "h2")
    assert sorted(notice.trap_number for notice in running.traps()) == [Trap.BAD_P_KEY, Trap.BAD_SWITCH_P_KEY]
    for port in (name, "h8/1"):
        assert PortInfo.p_key_violations.get(running.devices.info(running.slot_of(port))) == 100


def test_a_switch_stops_a_key_that_the_sender_does_not_hold(running):
    set_keys(running, "h1/1", 0xFFFF, RED_LIMITED)
    set_keys(running, "h8/1", 0xFFFF, RED_FULL)
    name = enforce(running, "h1", partition_enforcement_inbound=1)
    assert running.subnet.send_packet(running.slot, packet(running, "h8", p_key=RED_LIMITED)).delivered
    assert drops(running, packet(running, "h8", p_key=RED_FULL, sgid=1, dgid=2)) == [(name, Reason.INBOUND)]
    assert running.counter(name, Counter.PORT_RCV_CONSTRAINT_ERRORS) == 1
    (notice,) = running.traps()
    messages = BadSwitchPKeyDetails.unpack(notice.data_details)
    assert notice.trap_number == Trap.BAD_SWITCH_P_KEY
    owner, _, number = name.partition("/")
    assert (messages.sw_lid_addr, messages.port_no) == (running.lid(owner), int(number))
    assert (messages.p_key, messages.qp1, messages.qp2, messages.gid_addr1, messages.gid_addr2) == (
        RED_FULL,
        5,
        7,
        1,
        2,
    )
    assert messages.data_valid == 0xFF


def test_a_switch_stops_a_key_that_the_receiver_would_not_take(running):
    set_keys(running, "h1/1", 0xFFFF, RED_LIMITED)
    set_keys(running, "h8/1", 0xFFFF, RED_LIMITED)
    name = enforce(running, "h8", partition_enforcement_outbound=1)
    assert drops(running, packet(running, "h8", p_key=RED_LIMITED)) == [(name, Reason.OUTBOUND)]
    assert running.counter(name, Counter.PORT_XMIT_CONSTRAINT_ERRORS) == 1
    assert running.subnet.send_packet(running.slot, packet(running, "h8", p_key=RED_FULL)).delivered
    assert [notice.trap_number for notice in running.traps()] == [Trap.BAD_SWITCH_P_KEY]


def test_raw_packets_have_no_key_and_can_be_filtered(running):
    raw = LRH.pack(lnh=LNH.RAW, slid=1, dlid=running.lid("h8"), pkt_len=5) + RWH.pack(ether_type=0x0800) + bytes(8)
    raw += vcrc_bytes(raw)
    enforce(running, "h1", partition_enforcement_inbound=1)
    assert running.subnet.send_packet(running.slot, raw).delivered
    name = enforce(running, "h1", filter_raw_inbound=1)
    assert drops(running, raw) == [(name, Reason.INBOUND)]
    assert running.traps() == []


@pytest.mark.parametrize("is_reliable", [False, True], ids=["UD", "RD"])
def test_a_wrong_q_key_is_told_by_who_found_it(running, is_reliable):
    slot, raw = running.slot_of("h8/1"), packet(running, "h8")
    if is_reliable:
        bth, deth = BTH(opcode=Opcode.RD_SEND_ONLY, dest_qp=7), DETH(q_key=0x1234, src_qp=5)
        raw = Packet((LRH(slid=running.lid("h1"), dlid=running.lid("h8")), bth, RDETH(ee_context=9), deth), b"x").pack()
    running.subnet.attach_packets(slot, lambda raw: bad_q_key(running.devices, slot, raw))
    running.subnet.send_packet(running.slot, raw)
    assert PortInfo.q_key_violations.get(running.devices.info(slot)) == 1
    (notice,) = running.traps()
    assert notice.trap_number == Trap.BAD_Q_KEY
    details = BadKeyDetails.unpack(notice.data_details)
    assert (details.key, details.qp1, details.qp2) == (0x1234, 5, 7)


# -- bad packets ------------------------------------------------------------------------------------------------------


def test_no_bytes_break_it(running):
    """Random bytes with a valid length, and mostly with an existing DLID."""
    random = Random(1)
    observed = Counts()
    for _ in range(3000):
        raw = bytearray(random.randbytes(random.choice((8, 12, 20, 28, 64, 100))))
        LRH.lver.set(raw, 0)
        LRH.pkt_len.set(raw, len(raw) // 4)
        if random.random() < 0.9:
            LRH.dlid.set(raw, random.randrange(1, 24))
        fate = carry(running.devices, running.slot, bytes(raw) + b"xx")
        assert len(fate.delivered) + len(fate.dropped) == 1
        observed.update(drop.reason for drop in fate.dropped)
    assert {Reason.MALFORMED, Reason.NO_ROUTE, Reason.P_KEY} <= set(observed)


def test_malformed_packets_are_discarded(running):
    good = packet(running, "h8")
    cut, versioned = good[:-4], bytearray(good)
    LRH.lver.set(versioned, 1)
    for raw in (b"", cut, bytes(versioned)):
        assert drops(running, raw) == [("h1/1", Reason.MALFORMED)]
    assert drops(running, packet(running, "h8", qp=0)) == [("h1/1", Reason.MANAGEMENT)]
    assert running.counter("h1/1", Counter.PORT_XMIT_DISCARDS) == 4


# -- MADs of QP 1 -----------------------------------------------------------------------------------------------------


def asked(bench, to: str, index: int = 0) -> bool:
    """Return whether the performance agent of a node answers h1."""
    mad = PlainMad.pack(mgmt_class=4, method=1, attribute_id=1)
    return ask(bench.carrier, mad, Address(bench.lid(to), pkey_index=index), timeout_ms=10, retries=0) is not None


def test_mads_of_qp_1_need_a_key_that_matches(running):
    set_keys(running, "h1/1", 0x7FFF, RED_FULL)
    set_keys(running, "h8/1", 0x7FFF, RED_LIMITED)
    info = running.devices.info(running.slot_of("h8/1"))
    assert not asked(running, "h8")
    assert PortInfo.p_key_violations.get(info) == 1
    assert running.traps()[0].trap_number == Trap.BAD_P_KEY  # an SMP: it needs no P_Key
    assert asked(running, "h8", index=1)
    assert asked(running, "h2")
    assert not asked(running, "h2", index=1)
    assert not asked(running, "h2", index=2)  # empty
    assert not asked(running, "h2", index=200)


def test_a_switch_that_checks_stops_mads_too(running):
    name = enforce(running, "h8", partition_enforcement_outbound=1)
    assert asked(running, "h8")
    running.devices.tables.pkey[running.slot_of(name)] = 0
    assert not asked(running, "h8")
    assert running.counter(name, Counter.PORT_XMIT_CONSTRAINT_ERRORS) == 1


def test_an_answer_goes_by_the_key_of_its_question(running):
    """h8's key for h1 is not at index 0."""
    set_keys(running, "h8/1", RED_LIMITED, 0x7FFF)
    other = running.carrier_at(running.slot_of("h8/1"))
    other.register(0x09, [1])
    token = running.carrier.send(PlainMad.pack(mgmt_class=0x09, method=1), Address(running.lid("h8")))
    other.poll()
    (arrived,) = other.arrivals()
    assert arrived.source.pkey_index == 1
    reply = bytearray(arrived.mad)
    reply[3] |= 0x80
    other.post(bytes(reply), Address(running.lid("h1")))
    assert running.carrier.poll() == []
    other.post(bytes(reply), arrived.source)
    assert [done for done, _ in running.carrier.poll()] == [token]
