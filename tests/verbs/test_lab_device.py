"""A device of a lab host: its settings, its addresses and its paths, with a fake lab."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from weft import runtime
from weft.errors import ConfigError
from weft.ids import Lid
from weft.verbs.attributes.address import GID, AHAttr, GlobalRoute
from weft.verbs.c.program_cmid import ProgramChannel, ProgramCMID
from weft.verbs.carriers.lab import connection
from weft.verbs.carriers.lab.carrier import LabCarrier
from weft.verbs.carriers.lab.connection import Event, Kind, Line, frame, frames_in, packets_frame, packets_in
from weft.verbs.carriers.lab.device import LabDevice
from weft.verbs.carriers.lab.paths import AddressVector, group_of
from weft.verbs.carriers.lab.port_facts import Facts, events_between
from weft.verbs.carriers.loopback import Loopback
from weft.verbs.enums import ibv_event_type
from weft.verbs.enums.cm import RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, RDMA_PS_TCP
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.segment import Op, Segment, Service
from weft.verbs.pyverbs.cm_parameters import AddrInfo, gid_of, is_ipv4
from weft.wire.port_info import LinkSpeed, PortInfo, PortState
from weft.wire.sa import PathRecord, SaMad, SaStatus

E = ibv_event_type
PREFIX, GUID = 0xFE80_0000_0000_0000, 0x10
INFO = PortInfo(
    gid_prefix=PREFIX,
    lid=4,
    lmc=1,
    guid_cap=3,
    port_state=PortState.ACTIVE,
    neighbor_mtu=4,
    mtu_cap=5,
    link_width_active=2,
    link_speed_active=4,
)
FACTS = Facts(INFO, (GUID, 0, 0x12), (0xFFFF, 0x8001))
HOSTS = {2: 0x20, 0xFFFF: 0x21}  # number -> GUID
FIRST_ADDRESS = 0xFFFF_7F01_0000


class FakeLine:
    """A connection to a fake lab with two other hosts, where even GIDs have a path."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.frames: list[tuple[int, bytes]] = []
        self.is_down = False

    def ask(self, do, timeout_s=1.0, **words):
        if do == "find":
            for number, guid in HOSTS.items():
                if {"number": number, "guid": guid, "host": f"h{number}"}.items() & words.items():
                    return {"number": number, "gid": INFO.gid_prefix << 64 | guid}
            raise ConfigError("no such host")
        asked = PathRecord.unpack(SaMad.unpack(bytes.fromhex(words["mad"])).data)
        status = SaStatus.NO_RECORDS if asked.dgid & 1 else 0
        return {"mad": SaMad.pack(status=status, data=PathRecord(slid=4, dlid=7).raw).hex()}

    def put(self, packets):
        self.sent += packets

    def take(self):
        frames, self.frames = self.frames, []
        return frames


@pytest.fixture
def carrier() -> LabCarrier:
    return LabCarrier(FakeLine(), 3, FACTS, None)


@pytest.fixture
def device(carrier) -> LabDevice:
    result = LabDevice("", "h1", "weft0", GUID, 1)
    result._opening = SimpleNamespace(opened=lambda: (Adapter(Loopback(())), carrier))
    return result


def gid(guid: int) -> int:
    return PREFIX << 64 | guid


def address(guid: int = 0, *, dlid: int = 0, sgid_index: int = 0, **rest) -> AHAttr:
    if not guid:
        return AHAttr(dlid=dlid, port_num=1, **rest)
    route = GlobalRoute(dgid=GID.of(gid(guid).to_bytes(16, "big")), sgid_index=sgid_index)
    return AHAttr(gr=route, is_global=1, dlid=dlid, port_num=1, **rest)


# -- settings of the port ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("guid_cap", "guids"), [(0, 1), (1, 1), (8, 8), (9, 8)])
def test_a_port_has_one_to_eight_gids(guid_cap, guids):
    raw = INFO.replace(guid_cap=guid_cap).raw + bytes(range(64)) + b"\xff\xff\x01\x80"
    facts = Facts.unpack(raw)
    assert (len(facts.guids), facts.guids[0], facts.p_keys) == (guids, 0x0001020304050607, (0xFFFF, 0x8001))


def test_an_empty_entry_of_the_gid_table_has_no_prefix():
    assert [entry.hex() for entry in FACTS.gids] == [f"{gid(GUID):032x}", "0" * 32, f"{gid(0x12):032x}"]


@pytest.mark.parametrize(("neighbor_mtu", "mtu_bytes", "code"), [(4, 2048, 4), (0, 4096, 5)])
def test_the_mtu_is_the_neighbor_s_or_else_the_port_s_own(neighbor_mtu, mtu_bytes, code):
    facts = Facts(INFO.replace(neighbor_mtu=neighbor_mtu), (1,), (0xFFFF,))
    assert (facts.mtu_bytes, facts.port_attr().active_mtu) == (mtu_bytes, code)


def test_a_port_without_its_lab_is_down_and_keeps_its_tables():
    down = FACTS.down()
    assert (FACTS.is_active, down.is_active, down.info.port_state) == (True, False, PortState.DOWN)
    assert (down.guids, down.p_keys) == (FACTS.guids, FACTS.p_keys)


def test_a_port_attribute_has_the_settings_of_the_subnet_manager():
    info = INFO.replace(master_sm_lid=9, master_sm_sl=3, p_key_violations=5, q_key_violations=6)
    attr = Facts(info, (1, 2), (0xFFFF,)).port_attr()
    assert (attr.lid, attr.lmc, attr.sm_lid, attr.sm_sl) == (4, 1, 9, 3)
    assert (attr.bad_pkey_cntr, attr.qkey_viol_cntr, attr.gid_tbl_len, attr.pkey_tbl_len) == (5, 6, 2, 1)
    assert (attr.state, attr.max_mtu, attr.active_width) == (PortState.ACTIVE, 5, 2)
    assert (attr.active_speed, attr.active_speed_ex) == (LinkSpeed.QDR, 0)
    assert FACTS.speed_100_mbps == 400


@pytest.mark.parametrize(
    ("changes", "p_keys", "guids", "events"),
    [
        ({}, None, None, []),
        ({"port_state": PortState.DOWN}, None, None, [E.IBV_EVENT_PORT_ERR]),
        ({"lid": 5}, None, None, [E.IBV_EVENT_LID_CHANGE]),
        ({"lmc": 2}, None, None, [E.IBV_EVENT_LID_CHANGE]),
        ({}, (0xFFFF,), None, [E.IBV_EVENT_PKEY_CHANGE]),
        ({"master_sm_lid": 8}, None, None, [E.IBV_EVENT_SM_CHANGE]),
        ({"master_sm_sl": 8}, None, None, [E.IBV_EVENT_SM_CHANGE]),
        ({}, None, (GUID,), [E.IBV_EVENT_GID_CHANGE]),
    ],
)
def test_each_change_of_a_port_is_one_event(changes, p_keys, guids, events):
    after = Facts(INFO.replace(**changes), guids or FACTS.guids, p_keys or FACTS.p_keys)
    assert list(events_between(FACTS, after)) == events
    if E.IBV_EVENT_PORT_ERR in events:
        assert list(events_between(after, FACTS)) == [E.IBV_EVENT_PORT_ACTIVE]


# -- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        (address(dlid=7), ""),
        (address(), "dlid 0 is no LID"),
        (address(dlid=Lid.PERMISSIVE), "permissive"),
        (address(0x20, dlid=Lid.PERMISSIVE), "permissive"),
        (address(0x20), ""),
        (address(0x21), "knows no path"),
        (address(0x21, dlid=7), ""),
        (address(0x20, sgid_index=1), "sgid_index 1: the port has no such GID"),
        (address(0x20, sgid_index=2), ""),
        (address(0x20, sgid_index=3), "sgid_index 3: the port has no such GID"),
    ],
)
def test_an_address_needs_a_lid_or_a_gid_with_a_path_and_a_gid_of_the_port(device, where, wrong):
    text = device.wrong_address(where)
    assert wrong in text if wrong else not text


def test_an_address_vector_has_the_path_of_its_gid_or_the_given_lid(device):
    asked = device.address_vector(address(0x20, sgid_index=2))
    assert (asked.lid, asked.gids, asked.path_bits) == (7, (gid(0x20), gid(0x12)), 0)
    given = device.address_vector(address(0x20, dlid=9, sl=0x13, src_path_bits=1))
    assert (given.lid, given.gids, given.sl, given.path_bits) == (9, (gid(0x20), gid(GUID)), 3, 1)
    assert device.address_vector(address(dlid=9)) == AddressVector(9)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (FIRST_ADDRESS, FIRST_ADDRESS),
        (FIRST_ADDRESS + 2, gid(0x20)),
        (FIRST_ADDRESS + 3, FIRST_ADDRESS + 3),
        (FIRST_ADDRESS + 0xFFFF, gid(0x21)),
        (FIRST_ADDRESS + 0x10000, FIRST_ADDRESS + 0x10000),
        (gid_of("127.0.0.1"), gid(GUID)),
        (gid_of("::1"), gid(GUID)),
    ],
)
def test_addresses_of_hosts_follow_127_1_0_0(device, at, expected):
    assert device.gid_at(at) == expected


def test_a_gid_has_the_address_of_its_host_in_its_own_subnet_only(device):
    assert device.address_of(gid(0x20)) == FIRST_ADDRESS + 2
    assert device.address_of(gid(0x22)) == gid(0x22)
    assert device.address_of(1 << 64 | 0x20) == 1 << 64 | 0x20
    assert (device.gid_of_host("h2"), device.gid_of_host("h3")) == (gid(0x20), None)


def test_an_ipv4_group_has_the_partition_in_its_gid_and_another_gid_is_the_group():
    assert group_of(gid_of("239.1.2.3"), 0x1234) == 0xFF12_4001_9234_0000_0000_0000_0F01_0203
    assert group_of(gid_of("ff12::7"), 0x1234) == gid_of("ff12::7")


@pytest.mark.parametrize(("host", "is_v4"), [("127.0.0.1", True), ("255.255.255.255", True), ("::1", False)])
def test_a_mapped_address_is_ipv4(host, is_v4):
    assert is_ipv4(gid_of(host)) == is_v4
    assert not is_ipv4(gid_of(host) ^ 1 << 32)


@pytest.fixture
def identifier():
    reads, writes = os.pipe()
    channel = ProgramChannel(reads, writes)
    result = ProgramCMID(channel, RDMA_PS_TCP, 0)
    yield result
    for item in (result, channel):
        item.close()
    for file in (reads, writes):
        os.close(file)


@pytest.mark.parametrize(("host", "result"), [("127.1.0.2", FIRST_ADDRESS + 2), (f"fe80::{0x20:x}", gid(0x20))])
def test_an_identifier_of_a_c_program_has_addresses_of_the_ip_version_that_it_resolved(
    device, identifier, monkeypatch, host, result
):
    monkeypatch.setattr("weft.verbs.hardware.present", lambda: (device,))
    monkeypatch.setattr(ProgramCMID, "_open_device", lambda self: None)
    monkeypatch.setattr(ProgramCMID, "_own_gid", lambda self, *address, **rest: gid(GUID))
    identifier.resolve_addr(AddrInfo(dst=host, dst_service="1"))
    assert identifier.addresses()[1] == result


@pytest.mark.parametrize(("level", "option"), [(RDMA_OPTION_ID, 99), (RDMA_OPTION_ID + 1, RDMA_OPTION_ID_REUSEADDR)])
def test_an_identifier_of_a_c_program_refuses_an_unknown_option(identifier, level, option):
    with pytest.raises(PyverbsRDMAError, match=f"unknown option {option} of level {level}") as refused:
        identifier.set_option(level, option, 1, 4)
    assert refused.value.error_code == errno.ENOSYS


# -- packets and frames -----------------------------------------------------------------------------------------------


SEGMENT = Segment(op=Op.SEND, service=Service.RC, dest_qp=2, psn=0, count=1, p_key=0xFFFF, payload=b"", va=0, length=0)


@pytest.mark.parametrize(
    ("changes", "p_key", "sends"),
    [
        ({}, 0xFFFF, True),
        ({}, 0x0001, True),
        ({}, 0x8000, False),
        ({"lid": 0}, 0xFFFF, False),
        ({"port_state": PortState.ARMED}, 0xFFFF, False),
    ],
)
def test_a_port_sends_with_a_p_key_and_a_lid_and_while_it_is_active(carrier, changes, p_key, sends):
    carrier.facts = Facts(INFO.replace(**changes), FACTS.guids, FACTS.p_keys)
    carrier.send(replace(SEGMENT, p_key=p_key), AddressVector(7), 256)
    assert len(carrier.line.sent) == sends


@pytest.mark.parametrize(("path_bits", "slid"), [(0, 4), (1, 5), (2, 4)])
def test_path_bits_above_the_lmc_are_ignored(carrier, path_bits, slid):
    assert carrier._slid(AddressVector(7, path_bits=path_bits)) == slid


def test_numbers_of_queue_pairs_start_with_the_number_of_the_program(carrier):
    assert carrier.numbers == range(0x3_0002, 0x4_0000)


def test_a_port_goes_down_once_with_its_lab(carrier):
    events = []
    carrier.on_change = events.append
    carrier.line.frames = [(Kind.EVENT, bytes((Event.CLIENT_REREGISTER,)))]
    carrier.receive()
    carrier.line.frames = [(Kind.EVENT, bytes((Event.CUT,)))] * 2
    carrier.receive()
    carrier.line.is_down = True
    carrier.receive()
    assert events == [[E.IBV_EVENT_CLIENT_REREGISTER], [E.IBV_EVENT_PORT_ERR]]
    carrier.facts = FACTS
    carrier.receive()
    assert events[2:] == [[E.IBV_EVENT_PORT_ERR]]


def test_frames_come_whole_and_a_part_of_one_waits():
    first, second = frame(Kind.EVENT, b"ab"), frame(Kind.PACKETS)
    received = bytearray(first + second)
    assert list(frames_in(received)) == [(Kind.EVENT, b"ab"), (Kind.PACKETS, b"")]
    assert not received
    for length in (len(first) + 1, len(first) + len(second) - 1):
        part = bytearray((first + second)[:length])
        assert list(frames_in(part)) == [(Kind.EVENT, b"ab")]
        assert part == second[: length - len(first)]


def test_a_truncated_packet_at_the_end_of_a_frame_is_ignored():
    body = packets_frame([b"abc", b"", b"de"])[connection.FRAME.size :]
    assert list(packets_in(body)) == [b"abc", b"", b"de"]
    for length in (len(body) - 1, len(body) - 2, len(body) - 3):
        assert list(packets_in(body[:length])) == [b"abc", b""]


def test_packets_are_lost_while_too_many_bytes_wait_and_none_after(monkeypatch):
    monkeypatch.setattr(connection, "MOST_BYTES", 1 << 20)
    listener = runtime.Listener(runtime.folder() / "full")
    line = Line(str(listener.path))
    lab = listener.accept()
    assert lab is not None
    packet = bytes(60_000)
    for _ in range(200):
        line.put([packet])
    unsent_bytes = line._unsent_bytes
    assert 1 << 20 <= unsent_bytes < (1 << 20) + 70_000
    line.report_bad_key(packet, is_q_key=True)
    assert line._unsent_bytes == unsent_bytes == sum(map(len, line._unsent))
    while line._unsent:
        assert lab.recv(1 << 20)
        line.take()
    assert line._unsent_bytes == 0
    line.put([packet])
    line.report_bad_key(packet, is_q_key=True)
    received = bytearray()
    while not received.endswith(frame(Kind.BAD_KEY, b"\1", packet)):
        line.take()
        received += lab.recv(1 << 20)
    for item in (line, lab, listener):
        item.close()
