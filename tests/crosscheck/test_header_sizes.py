"""What a packet takes of the simulated wire is what the same packet is long in bytes."""

from __future__ import annotations

import pytest

from weft.sim.engine import Network
from weft.sim.layout.rules import RULES, ack_bytes, first_header_bytes
from weft.sim.traffic import Operation, Transport
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
    rules = RULES[network]
    size_bytes = rules.header_bytes + first_header_bytes(rules, *kind) + 4096
    assert size_bytes == length_bytes(network, *headers, payload=bytes(4096))
    assert ack_bytes(rules) == length_bytes(network, Opcode.RC_ACKNOWLEDGE, AETH())
