"""Connect the adapters of one process by their GIDs.

A whole message is one segment. A message to an unknown GID is lost, as on a wire.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import ClassVar

from weft.verbs.hca.carrier import TO_GROUP, Arrival, Carrier
from weft.verbs.hca.segment import Segment
from weft.verbs.shm.memory import kept
from weft.wire.crc import ICRC_BYTES
from weft.wire.headers import BTH, DETH, ImmDt
from weft.wire.roce import PROTOCOL_UDP, UDP, IPv4

_IPV4 = 0xFFFF  # prefix of a GID that is an IPv4 address
EMPTY_BYTES = BTH.size + DETH.size + ICRC_BYTES  # a datagram without data
_OVER_UDP, _IPV6_HEADER, _IPV4_HEADER = 8, 1, 2  # bits of a completion of mlx5


class Loopback(Carrier):
    """A carrier within the process. `gids` are those of its adapter; the first is the source of its packets."""

    carries_device_bytes = True
    _everybody: ClassVar[dict[int, Loopback]] = {}

    def __init__(self, gids: tuple[int, ...]) -> None:
        self.gids = gids
        self._inbox: deque[Arrival] = deque()
        self._something = threading.Event()
        for gid in gids:
            self._everybody[gid] = self

    @classmethod
    def forget_all(cls) -> None:
        """Remove all carriers in a forked process: they belong to its parent."""
        cls._everybody.clear()

    def send(self, segment: Segment, to: object, mtu_bytes: int) -> None:
        """Send a segment; `to` is (destination GID, source GID)."""
        assert isinstance(to, tuple)
        if segment.dest_qp == TO_GROUP:
            ends = set(self._everybody.values())  # adapters without members drop it
        else:
            ends = {self._everybody[to[0]]} if to[0] in self._everybody else set()
        for far in ends:
            far.put(segment, to)

    def put(self, segment: Segment, to: tuple[int, int]) -> None:
        """Add a segment to the inbox."""
        dgid, sgid = to
        segment.payload = kept(segment.payload)  # the sender may change its memory at any time
        grh = grh_of(sgid, dgid, datagram_bytes(segment))
        self._inbox.append(Arrival(segment=segment, source=(sgid, dgid), grh=grh, sl=kind_of(grh), group=dgid))
        self._something.set()

    def receive(self) -> list[Arrival]:
        self._something.clear()
        came = []
        while self._inbox:
            came.append(self._inbox.popleft())
        return came

    def is_idle(self) -> bool:
        return not self._inbox

    def wait(self, seconds: float) -> None:
        self._something.wait(seconds)

    def close(self) -> None:
        for gid in self.gids:
            if self._everybody.get(gid) is self:
                del self._everybody[gid]


def datagram_bytes(segment: Segment) -> int:
    """Return the bytes of a datagram from BTH to ICRC."""
    return EMPTY_BYTES + (0 if segment.immediate is None else ImmDt.size) + (len(segment.payload) + 3) // 4 * 4


def grh_of(sgid: int, dgid: int, length: int = EMPTY_BYTES) -> bytes:
    """Return the first 40 bytes of a datagram's buffer: a global route header, or 20 zeros and an IPv4 header."""
    if sgid >> 32 == dgid >> 32 == _IPV4:
        size = (IPv4.size + UDP.size + length & 0xFFFF).to_bytes(2, "big")
        head = bytes((0x45, 0)) + size + bytes((0, 0, 0, 0, 64, PROTOCOL_UDP, 0, 0))
        ends = (sgid & 0xFFFF_FFFF).to_bytes(4, "big") + (dgid & 0xFFFF_FFFF).to_bytes(4, "big")
        return bytes(20) + head + ends
    head = (6 << 28).to_bytes(4, "big") + (length & 0xFFFF).to_bytes(2, "big") + bytes((0x1B, 64))
    return head + sgid.to_bytes(16, "big") + dgid.to_bytes(16, "big")


def kind_of(grh: bytes) -> int:
    """Return the type of a header in the place of the service level, as mlx5 adapters do for RoCE.

    UCX uses it to read the 40 bytes.
    """
    return _OVER_UDP | (_IPV6_HEADER if any(grh[:20]) else _IPV4_HEADER)
