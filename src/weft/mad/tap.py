"""A tap at cables of a subnet: each frame that leaves by one of its ports is given to a function, as bytes of the wire.

    devices.set_tap(Tap([slot, devices.cable[slot]], take))       take(slot, frame): LRH to VCRC
    devices.set_tap(None)

While there is a tap, what crosses it takes no path that only counts: kernels leave such MADs to Python, and programs
send packets instead of writing into each other's memory. Hop pointers of directed SMPs are those of the sender.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.ids import PKey
from weft.mad.carrier import SMP_CLASSES
from weft.wire.headers import BTH, DETH, LRH, Opcode
from weft.wire.mad import QP1_Q_KEY
from weft.wire.packet import Packet

_VL15 = 15


class Tap:
    """A set of ports, and the receiver of the frames that leave by them."""

    def __init__(self, slots: Iterable[int], take: Callable[[int, bytes], None]) -> None:
        self.slots, self._take = frozenset(slots), take
        self._mad, self._slid, self._dlid = b"", 0, 0

    def announce(self, mad: bytes | bytearray, slid: int, dlid: int) -> None:
        """Note the MAD that is about to travel."""
        self._mad, self._slid, self._dlid = bytes(mad), slid, dlid

    def cross(self, out: Iterable[int]) -> None:
        """Take the announced MAD where it leaves by a port of the tap."""
        for slot in self.slots.intersection(out):
            self._take(slot, frame_of(self._mad, self._slid, self._dlid))

    def cross_packet(self, slot: int, packet: bytes) -> None:
        if slot in self.slots:
            self._take(slot, packet)


def frame_of(mad: bytes, slid: int, dlid: int) -> bytes:
    """Return the frame that carries a MAD: on VL 15 for QP 0, on VL 0 for QP 1."""
    is_smp = mad[1] in SMP_CLASSES
    queue_pair = 0 if is_smp else 1
    headers = (
        LRH(vl=_VL15 if is_smp else 0, slid=slid, dlid=dlid),
        BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=queue_pair, p_key=int(PKey.DEFAULT)),
        DETH(q_key=0 if is_smp else QP1_Q_KEY, src_qp=queue_pair),
    )
    return Packet(headers, mad).pack()
