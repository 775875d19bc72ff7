"""Limits of segments, of packets that no queue pair accepts, and of the memory that keys open."""

from __future__ import annotations

import pytest
from tests.verbs.wires import ALL, Wire, connected

from weft.verbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_ZERO_BASED
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.packets import decode, encode
from weft.verbs.hca.regions import Region
from weft.verbs.hca.segment import Op, Segment, Service, is_ack, is_rnr, packets_of, psn_after, psn_distance
from weft.verbs.hca.work import NAK_STATUS
from weft.verbs.shm import layout
from weft.verbs.shm.layout import RegionRecord
from weft.verbs.shm.memory import Place
from weft.verbs.shm.queue_memory import QueueMemory
from weft.wire.format import Malformed
from weft.wire.headers import BTH, Opcode


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (5, 5, 0),
        (0, 0xFF_FFFF, 1),
        (0xFF_FFFF, 0, -1),
        (0x7F_FFFF, 0, 0x7F_FFFF),
        (0x80_0000, 0, -0x80_0000),
        (0x80_0001, 0, -0x7F_FFFF),
    ],
)
def test_a_distance_of_psns_is_the_shorter_way_round(a, b, distance):
    assert psn_distance(a, b) == distance
    assert psn_after(b, distance) == a


@pytest.mark.parametrize(("size", "count"), [(0, 1), (1, 1), (1024, 1), (1025, 2), (2048, 2), (2049, 3)])
def test_a_message_has_at_least_one_packet(size, count):
    assert packets_of(size, 1024) == count


@pytest.mark.parametrize(
    ("syndrome", "ack", "rnr"), [(0, 1, 0), (0x1F, 1, 0), (0x20, 0, 1), (0x3F, 0, 1), (0x40, 0, 0), (0x60, 0, 0)]
)
def test_the_upper_bits_of_a_syndrome_tell_acknowledgements_from_rnr_naks(syndrome, ack, rnr):
    assert (is_ack(syndrome), is_rnr(syndrome)) == (ack, rnr)


def test_codes_of_naks_have_the_statuses_of_the_standard():
    assert {int(nak): status.name for nak, status in NAK_STATUS.items()} == {
        1: "IBV_WC_REM_INV_REQ_ERR",
        2: "IBV_WC_REM_ACCESS_ERR",
        3: "IBV_WC_REM_OP_ERR",
        4: "IBV_WC_REM_INV_RD_REQ_ERR",
    }


def message(count: int, **fields) -> Segment:
    segment = Segment(op=Op.SEND, service=Service.RC, dest_qp=1, psn=0xFF_FFFE, count=count, ack_request=True, **fields)
    segment.payload = bytes(range(count)) * 4
    return segment


def test_a_cut_segment_keeps_its_flags_in_its_last_part():
    head, tail = message(5, solicited=True, immediate=7, invalidate=9).cut(3, 4)
    flags = [(part.solicited, part.immediate, part.invalidate, part.ack_request) for part in (head, tail)]
    assert flags == [(False, None, None, False), (True, 7, 9, True)]
    assert [(part.psn, part.count, part.first, part.last) for part in (head, tail)] == [
        (0xFF_FFFE, 3, True, False),
        (1, 2, False, True),
    ]
    assert (len(head.payload), len(tail.payload), head.last_psn, tail.last_psn) == (12, 8, 0, 2)


@pytest.mark.parametrize("requested", [True, False])
def test_each_64th_packet_and_the_last_request_an_acknowledgement_if_the_message_does(requested):
    segment = message(130)
    segment.ack_request = requested
    asking = [number for number, packet in enumerate(segment.packets(4), 1) if packet.ack_request]
    assert asking == ([64, 128, 130] if requested else [])


@pytest.mark.parametrize(
    ("fields", "size", "why"),
    [
        ({"opcode": Opcode.CNP}, 0, "opcode 0x81 is not an opcode of a queue pair"),
        ({"opcode": 0x1F}, 0, "opcode 0x1f is not an opcode of a queue pair"),
        ({"t_ver": 1}, 0, "transport version 1 is not 0"),
        ({"pad_cnt": 1}, 4, "4 bytes and 1 of padding are not a multiple of 4"),
        ({"pad_cnt": 3}, 1, ""),
        ({"pad_cnt": 0}, 1, ""),
    ],
)
def test_packets_that_no_queue_pair_accepts_are_refused(fields, size, why):
    bth = BTH(**({"opcode": Opcode.RC_SEND_ONLY, "dest_qp": 3} | fields))
    if why:
        with pytest.raises(Malformed, match=why):
            decode((bth,), bytes(size))
    else:
        assert decode((bth,), bytes(size)).dest_qp == 3


@pytest.mark.parametrize(("solicited", "ack_request"), [(True, False), (False, True)])
def test_bits_of_a_header_are_kept(solicited, ack_request):
    segment = Segment(op=Op.SEND, service=Service.RC, dest_qp=3, psn=7, payload=b"1234", p_key=0x8001)
    segment.solicited, segment.ack_request = solicited, ack_request
    ((headers, payload),) = encode(segment, 1024)
    assert decode(headers, payload) == segment
    assert headers[0].m == 1


@pytest.mark.parametrize(
    ("va", "length", "held"),
    [
        (100, 10, True),
        (99, 1, False),
        (109, 1, True),
        (109, 2, False),
        (110, 0, True),
        (110, 1, False),
        (101, 10, False),
    ],
)
def test_a_region_holds_ranges_up_to_its_last_byte(va, length, held):
    region = Region(key=1, pd=None, address=5000, length=10, access=ALL, base=100)
    assert region.holds(va, length) == bool(held)
    assert region.place(va) == va + 4900


def regions(access: int = ALL, **fields):
    """Return the regions of an adapter, a protection domain, and a region with one byte less than a page."""
    of_adapter, pd = Wire().a.adapter.regions, object()
    return of_adapter, pd, of_adapter.register(pd, 4096, 4095, access, **fields)


@pytest.mark.parametrize(
    ("access", "write", "is_allowed"),
    [(0, False, True), (0, True, False), (IBV_ACCESS_REMOTE_READ, True, False), (IBV_ACCESS_LOCAL_WRITE, True, True)],
)
def test_an_element_of_its_own_domain_is_written_with_local_write_only(access, write, is_allowed):
    of_adapter, pd, region = regions(access)
    place = Place(4096, 4095, region.key)
    assert of_adapter.located(pd, [place], write=write) == ([place] if is_allowed else None)
    assert of_adapter.located(object(), [place], write=write) is None
    assert of_adapter.located(pd, [Place(4096, 4096, region.key)], write=write) is None
    assert of_adapter.located(object(), [Place(0, 0, 0)], write=write) == []


@pytest.mark.parametrize(
    ("access", "base", "expected"),
    [(ALL, None, 4096), (ALL | IBV_ACCESS_ZERO_BASED, None, 0), (ALL, 77, 77), (ALL, 0, 0)],
)
def test_remote_addresses_of_a_region_start_where_its_owner_says(access, base, expected):
    of_adapter, pd, region = regions(access, base=base)
    assert region.base == expected
    (place,) = of_adapter.located(pd, [Place(expected + 5, 10, region.key)], write=False)
    assert place.address == 4101
    assert of_adapter.remote(pd, 1, region.key, expected + 4094, 1, IBV_ACCESS_REMOTE_READ) is region
    assert of_adapter.remote(pd, 1, region.key, expected + 4094, 2, IBV_ACCESS_REMOTE_READ) is None


def test_a_window_of_a_queue_pair_is_opened_and_closed_by_it_alone():
    of_adapter, pd, region = regions()
    key = of_adapter.new_key(5)
    window = Region(key=key, pd=pd, address=4096, length=8, access=ALL, base=0, qp_num=7, parent=region)
    of_adapter.add(window)
    region.windows = 1
    assert [of_adapter.remote(pd, number, key, 0, 8, ALL) is window for number in (7, 8)] == [True, False]
    assert of_adapter.local(pd, Place(0, 8, key), write=False) is None  # windows give remote access only
    assert not of_adapter.invalidate(pd, 8, key)
    assert not of_adapter.invalidate(object(), 7, key)
    assert not of_adapter.invalidate(pd, 0, region.key)
    assert (window.is_open, region.windows) == (True, 1)
    assert of_adapter.invalidate(pd, 7, key)
    assert (window.is_open, region.windows, window.parent) == (False, 0, None)
    assert of_adapter.remote(pd, 7, key, 0, 8, ALL) is None
    assert not of_adapter.invalidate(pd, 7, key)


def test_keys_have_unused_indices_and_a_dropped_index_is_used_after_all_others():
    of_adapter, _, region = regions()
    of_adapter.drop(region)
    assert (of_adapter.find(region.key), region.is_open) == (None, False)
    assert [of_adapter.new_key(low) for low in (0x100, 0x1FF)] == [region.key + 0x100, region.key + 0x2FF]


@pytest.mark.parametrize(
    ("access", "length", "is_shown"),
    [(ALL, 1 << 62, True), (ALL, (1 << 62) + 1, False), (ALL | IBV_ACCESS_ON_DEMAND, 4096, False), (0, 1, True)],
)
def test_other_processes_see_the_regions_that_fit_until_they_are_closed(access, length, is_shown):
    adapter = Adapter(Wire().ends["a"], memory=QueueMemory(can_be_shared=True))
    region = adapter.regions.register(object(), 0, length, access)
    shown = RegionRecord.from_buffer(adapter.memory.bytes, layout.region_at(region.key))
    assert shown.kind == (layout.REGION if is_shown else 0)
    if is_shown:
        assert (shown.key, shown.length, shown.access, shown.qp_num) == (region.key, length, access, 0)
        region.is_open = False
        assert shown.kind == 0


@pytest.mark.parametrize("service", [Service.RC, Service.UC])
@pytest.mark.parametrize(("carries", "stays"), [(True, True), (False, False)])
def test_data_on_a_gpu_stays_there_only_for_carriers_and_services_with_answers(service, carries, stays, monkeypatch):
    class OnGpu:
        """A buffer on a GPU that is copied to the host once."""

        def to_host(self) -> bytes:
            return b"copied"

    monkeypatch.setattr("weft.verbs.hca.adapter.DeviceBytes", OnGpu)
    wire = Wire()
    a, _ = connected(wire, service)
    wire.ends["a"].carries_device_bytes = carries
    segment = Segment(op=Op.SEND, service=service, dest_qp=1, psn=0, payload=OnGpu())
    sent = []
    wire.ends["a"].send = lambda segment, to, mtu_bytes: sent.append(segment.payload)
    wire.a.adapter.send(a, segment)
    assert (sent[0] == b"copied") is not (stays and service == Service.RC)
