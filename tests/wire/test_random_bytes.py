"""The parsers read any bytes from the wire or raise Malformed, and no other exception.

20,000 of each; the tests marked slow take 300,000 MADs and 200,000 packets.
"""

from __future__ import annotations

import random
from collections import Counter

from weft.wire.attributes import CLASSES, parse_mad
from weft.wire.format import Malformed
from weft.wire.headers import BTH, GRH, LRH, Opcode
from weft.wire.mad import MAD_BYTES
from weft.wire.opcodes import EXTENDED_HEADERS
from weft.wire.packet import Link, Packet
from weft.wire.roce import UDP, Ethernet, IPv4, IPv6


def test_random_mads_are_read():
    """MADs of all classes and attributes with a format, and of some without."""
    source, pool = random.Random(1), random.Random(2).randbytes(1 << 16)
    kinds = [
        (mgmt_class, number) for mgmt_class, (_, recorded) in CLASSES.items() for number in (*recorded, 0x13, 0x7777)
    ]
    kinds.append((0x55, 0x01))
    result: Counter[str] = Counter()
    for i in range(100_000):
        mgmt_class, number = kinds[i % len(kinds)]
        at = source.randrange(len(pool) - MAD_BYTES)
        mad = pool[at : at + 1] + bytes((mgmt_class,)) + pool[at + 2 : at + 16] + number.to_bytes(2, "big")
        whole, attribute = parse_mad(mad + pool[at + 18 : at + MAD_BYTES])
        if i % 50 == 0:
            assert repr(whole)
            assert repr(attribute)
        result[type(attribute).__name__] += 1
    assert len(result) > 70


def valid_frames() -> list[tuple[bytes, Link]]:
    routes = [(LRH(),), (LRH(), GRH()), (Ethernet(), GRH()), (Ethernet(), IPv4(), UDP()), (Ethernet(), IPv6(), UDP())]
    frames = []
    for opcode in (Opcode.RC_SEND_ONLY, Opcode.RC_COMPARE_SWAP, Opcode.UD_SEND_ONLY, Opcode.RD_RDMA_WRITE_ONLY):
        for route in routes:
            extended = [kind() for kind in EXTENDED_HEADERS[opcode]]
            link = Link.INFINIBAND if isinstance(route[0], LRH) else Link.ETHERNET
            frames.append((Packet((*route, BTH(opcode=opcode), *extended), bytes(20)).pack(), link))
    return frames


def test_damaged_packets_are_read_or_malformed():
    """Some bytes are changed, some cut off; some packets are random."""
    source, frames = random.Random(3), valid_frames()
    read = malformed = 0
    for i in range(100_000):
        frame, link = frames[i % len(frames)]
        damaged = bytearray(frame)
        for _ in range(i % 4):
            damaged[source.randrange(len(damaged))] = source.getrandbits(8)
        if i % 5 == 0:
            damaged = damaged[: source.randrange(len(damaged))]
        if i % 7 == 0:
            damaged = bytearray(source.randbytes(source.randrange(100)))
        try:
            Packet.parse(damaged, link)
            read += 1
        except Malformed:
            malformed += 1
    assert min(read, malformed) > 10_000
