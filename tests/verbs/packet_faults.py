"""Packet faults for `wires.Wire`."""

from __future__ import annotations

import random

from weft.verbs.carriers.lab.carrier import _arrival, _packet
from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.hca.packets import encode
from weft.verbs.hca.segment import REQUESTS, Segment
from weft.wire.format import Malformed


class PacketFaults:
    """A fault that loses, duplicates and delays packets at random by a seed, among the first 400 packets."""

    def __init__(self, seed: int, loss: float, double: float, delay: float) -> None:
        self.chance, self.loss, self.double, self.delay = random.Random(seed), loss, double, delay
        self.held: dict[bool, list[Segment]] = {True: [], False: []}  # by direction
        self.left = 400

    def __call__(self, packet: Segment) -> list[Segment]:
        self.left -= 1
        if self.left < 0:
            return [packet]
        draw, out = self.chance.random(), [packet]
        if draw < self.loss:
            out = []
        elif draw < self.loss + self.double:
            out = [packet, packet]
        elif draw < self.loss + self.double + self.delay:
            self.held[packet.op in REQUESTS].append(packet)
            return []
        held = self.held[packet.op in REQUESTS]
        if held and self.chance.random() < 0.5:
            out.append(held.pop(self.chance.randrange(len(held))))
        return out


class Corruption(PacketFaults):
    """A fault that also encodes packets and flips bits in some; the receiver detects this by the ICRC alone."""

    def __init__(self, seed: int, loss: float, double: float, delay: float, corrupt: float) -> None:
        super().__init__(seed, loss, double, delay)
        self.corrupt, self.refused = corrupt, 0

    def __call__(self, packet: Segment) -> list[Segment]:
        return [arrived for item in super().__call__(packet) for arrived in self.cross(item)]

    def cross(self, packet: Segment) -> list[Segment]:
        ((headers, payload),) = encode(packet, 4096)
        data = bytearray(_packet(AddressVector(1, None), 2, headers, payload))
        if self.left >= 0 and self.chance.random() < self.corrupt:
            for _ in range(self.chance.choice((1, 1, 2, 3, 8, 40))):
                bit = self.chance.randrange(8 * (len(data) - 2))  # not in the VCRC, the last two bytes
                data[bit // 8] ^= 1 << bit % 8
        try:
            return [_arrival(bytes(data)).segment]
        except Malformed:
            self.refused += 1
            return []
