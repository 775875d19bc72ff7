"""The two CRCs, against published or captured packets."""

from __future__ import annotations

import random

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.wire import bulk
from weft.wire.crc import CRC16_TABLE, ICRC_BYTES, MASKS, Route, icrc, icrc_bytes, route_of, vcrc, vcrc_bytes
from weft.wire.headers import BTH, GRH, LRH
from weft.wire.packet import Link, icrc_is_right, parse
from weft.wire.roce import UDP, Ethernet, IPv4, IPv6, Vlan


def test_every_known_icrc_is_reproduced(vectors):
    """The standard's own sample packet, and captures of ConnectX adapters; the sources are in vectors.json."""
    recorded = [vector for vector in vectors if vector.icrc]
    assert len(recorded) == 7
    for vector in recorded:
        if vector.link is Link.INFINIBAND:
            route = Route.GLOBAL if vector.has_grh else Route.LOCAL
            assert icrc_bytes(route, vector.frame[:-ICRC_BYTES]) == vector.icrc, vector.name
        else:
            assert icrc_is_right(vector.frame, vector.link), vector.name


def test_a_changed_icrc_is_noticed(vectors):
    for vector in vectors:
        if vector.icrc and vector.link is Link.ETHERNET:
            end = parse(vector.frame, vector.link)[1]
            frame = bytearray(vector.frame)
            frame[end - 1] ^= 1
            assert not icrc_is_right(frame, vector.link)


def test_the_vcrc_is_the_one_of_mellanox_packet_generator(vectors):
    """MPGA of 2004, whose table starts like this; a published VCRC of a whole packet is not known to us."""
    assert CRC16_TABLE[:4] == [0x0000, 0x1BA1, 0x3742, 0x2CE3]
    assert [vcrc(vector.frame) for vector in vectors if vector.vcrc] == [0xFA45, 0x447C]
    assert vcrc_bytes(vectors[0].frame) == b"\x45\xfa"


@pytest.mark.parametrize("route", Route)
def test_the_icrc_sees_every_bit_but_those_that_may_change(route):
    covered = len(MASKS[route])
    packet = random.Random(7).randbytes(covered + 9)
    right = icrc(route, packet)
    for bit in range(8 * len(packet)):
        changed = bytearray(packet)
        changed[bit // 8] ^= 0x80 >> bit % 8
        may_change = bit < 8 * covered and MASKS[route][bit // 8] & 0x80 >> bit % 8
        assert (icrc(route, changed) == right) == bool(may_change), f"bit {bit}"


def test_the_icrc_masks_the_fields_that_switches_and_routers_change():
    """Exactly the listed fields are masked with ones, so that a mask that is too wide is detected."""
    expected = {
        Route.LOCAL: {"LRH.vl", "BTH.fecn", "BTH.becn"},
        Route.GLOBAL: {f"LRH.{name}" for name in LRH.fields} | {"GRH.t_class", "GRH.flow_label", "GRH.hop_lmt"},
        Route.ROCE_V1: {"GRH.t_class", "GRH.flow_label", "GRH.hop_lmt"},
        Route.ROCE_V2_IPV4: {"IPv4.dscp", "IPv4.ecn", "IPv4.ttl", "IPv4.header_checksum", "UDP.checksum"},
        Route.ROCE_V2_IPV6: {"IPv6.dscp", "IPv6.ecn", "IPv6.flow_label", "IPv6.hop_limit", "UDP.checksum"},
    }
    kinds = {form.__name__: form for form in (LRH, GRH, IPv4, IPv6, UDP, BTH)}
    for route in Route:
        items, at = set(), 0
        for name in route.value.split(", "):
            header = kinds[name].unpack(MASKS[route], at)
            items |= {str(field) for field in header.fields.values() if field.get(header.raw)}
            at += header.size
        assert items == expected[route] | {"BTH.fecn", "BTH.becn"}


def test_routes_are_found_by_their_headers():
    assert route_of((Ethernet, Vlan, IPv4, UDP, BTH)) is Route.ROCE_V2_IPV4
    assert route_of((LRH, BTH)) is Route.LOCAL
    assert route_of((GRH, LRH, BTH)) is None


@pytest.mark.parametrize("route", Route)
def test_the_kernels_compute_the_same_checks(route):
    source = np.random.default_rng(3)
    rows = source.integers(0, 256, (40, 220), dtype=np.uint8)
    ends = source.integers(14 + len(MASKS[route]), 220, 40)
    result, local = bulk.icrc(route, rows, ends, first=14), bulk.vcrc(rows, ends, first=14)
    for row, end, item, other in zip(rows, ends, result, local, strict=True):
        packet = row[14:end].tobytes()
        assert (int(item), int(other)) == (icrc(route, packet), vcrc(packet))


def test_the_kernels_refuse_rows_that_end_too_early_or_too_late():
    rows = np.zeros((2, 64), np.uint8)
    with pytest.raises(ConfigError, match="end at 20 or later, not at 19 to 64"):
        bulk.icrc(Route.LOCAL, rows, [19, 64])
    with pytest.raises(ConfigError, match="rows of 64 bytes"):
        bulk.vcrc(rows, 65)
