"""Sizes of simulated packets equal the lengths of the same packets in bytes."""

from __future__ import annotations

import pytest

import weft
from weft.routing.route import route
from weft.sim.engine import Network, Options, Paths
from weft.sim.layout.posting import post
from weft.sim.layout.rules import fill_in
from weft.sim.layout.wiring import make_wiring
from weft.sim.traffic import Operation, Traffic, Transport
from weft.wire.headers import AETH, BTH, DETH, GRH, LRH, RETH, Opcode
from weft.wire.packet import Packet
from weft.wire.roce import FRAMING_BYTES, UDP, Ethernet, IPv4

LINKS = {
    Network.INFINIBAND: (LRH(),),
    Network.ROCE: (Ethernet(), IPv4(), UDP()),
    Network.ROCE_V1: (Ethernet(), GRH()),
}
FIRST = {
    (Operation.WRITE, Transport.RC): (Opcode.RC_RDMA_WRITE_ONLY, RETH()),
    (Operation.SEND, Transport.UD): (Opcode.UD_SEND_ONLY, DETH()),
    (Operation.SEND, Transport.RC): (Opcode.RC_SEND_ONLY,),
}


def length_bytes(network: Network, opcode: Opcode, *more, payload=b"") -> int:
    framing = 0 if network is Network.INFINIBAND else FRAMING_BYTES
    return len(Packet((*LINKS[network], BTH(opcode=opcode), *more), payload).pack()) + framing


@pytest.mark.parametrize("network", LINKS)
@pytest.mark.parametrize(("kind", "headers"), FIRST.items())
def test_headers_are_as_long_as_those_of_real_packets(network, kind, headers):
    speed = "NDR" if network is Network.INFINIBAND else "400GbE"
    fabric = route(weft.load(f"star:hosts=2,speed={speed}")).fabric
    options, rules = fill_in(fabric, Options(network=network, paths=Paths.TABLE))
    traffic = Traffic.of(fabric, [("h1", "h2", 4096)], operation=kind[0], transport=kind[1])
    posting = post(make_wiring(fabric, rules, options.switching), traffic, options, rules)
    first = posting.messages[0]["first"]
    assert posting.size_bytes[first] == length_bytes(network, *headers, payload=bytes(4096))
    assert posting.size_bytes[posting.ack_size] == length_bytes(network, Opcode.RC_ACKNOWLEDGE, AETH())
