"""Cache the paths of datagrams from a queue pair to many others, in places that the library numbers.

The library computes the place of an address handle and a queue pair, and uses the path there without Python. An earlier
path of the place is dropped: nothing else has its address.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from weft.verbs.hca.carrier import TO_GROUP
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.shm_path import ShmPath

PLACES = 1024
_ASK_AGAIN_S = 1.0
_MANAGEMENT = (0, 1)  # queue pairs of the adapter itself


@dataclass(slots=True)
class _Kept:
    ah: int
    dest_qp: int
    path: ShmPath | None = None
    not_before_s: float = -math.inf


class DatagramPaths:
    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp
        self._places: dict[int, _Kept] = {}

    def clear(self) -> None:
        self._places.clear()

    def find(self, place: int, ah: int, dest_qp: int, address: Callable[[], object]) -> ShmPath | None:
        """Return a path; None if packets must be sent: to a group, to another machine, or after packets in flight."""
        qp, entry = self._qp, self._places.get(place)
        if entry is None or (entry.ah, entry.dest_qp) != (ah, dest_qp):
            entry = self._places[place] = _Kept(ah, dest_qp)
        carrier, now_s = qp.adapter.carrier, qp.adapter.clock()
        if dest_qp == TO_GROUP or dest_qp in _MANAGEMENT or now_s < entry.not_before_s or carrier.is_behind(dest_qp):
            return None
        if entry.path is None or entry.path.is_closed:
            p_key, mtu_bytes = qp.adapter.p_key(qp.settings.pkey_index), qp.adapter.mtu_bytes
            peer = carrier.shm_peer(address(), dest_qp, p_key=p_key, mtu_bytes=mtu_bytes)
            entry.path = path if peer and isinstance(path := peer.path_from(qp, dest_qp), ShmPath) else None
            entry.not_before_s = now_s + (0 if entry.path else _ASK_AGAIN_S)
        return entry.path

    def at(self, place: int) -> ShmPath | None:
        entry = self._places.get(place)
        return entry.path if entry else None

    def sent_packets(self, place: int) -> None:
        """Block the path until the packets sent have arrived."""
        qp, entry = self._qp, self._places[place]
        entry.not_before_s = max(entry.not_before_s, qp.adapter.clock() + qp.adapter.carrier.under_way_s)
