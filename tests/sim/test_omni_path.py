"""Omni-Path: credits as in InfiniBand, with its own headers and packet sizes."""

from __future__ import annotations

import weft
from weft.routing.route import route
from weft.sim.engine import Network
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic

HEADERS = 8 + 12 + 36 + 4  # link, transport, KDETH of PSM2, checksum


def test_packets_carry_8_kib_and_their_own_headers():
    fabric = route(weft.load("star:hosts=2,switch=100SWE48,server=host-opa100")).fabric
    result = PacketEngine().run(fabric, Traffic.of(fabric, [("host1", "host2", 1 << 20)]))
    assert result.options.network is Network.OMNI_PATH
    assert result.options.mtu_bytes == 8192
    sender = result.traffic.src[0]
    assert result.use.xmit_packets[sender] == 128
    assert result.use.xmit_bytes[sender] == (1 << 20) + 128 * HEADERS + 16  # the first says where to write
    assert 95 < result.goodput_gbit_s < 100 * 8192 / (8192 + HEADERS)
