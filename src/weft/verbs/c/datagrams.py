"""Paths of datagrams: of a queue pair to many others, each kept in a place that the library numbers.

The library finds the place of a handle and a queue pair's number by itself, and uses what it has there without Python.
What was in the place before is forgotten: nobody else has its address.
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
_MANAGEMENT = (0, 1)  # queue pairs that are no program's


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
        """None if packets must be sent: to a group, to who is elsewhere, or because others of ours are under way."""
        qp, kept = self._qp, self._places.get(place)
        if kept is None or (kept.ah, kept.dest_qp) != (ah, dest_qp):
            kept = self._places[place] = _Kept(ah, dest_qp)
        carrier, now_s = qp.adapter.carrier, qp.adapter.clock()
        if dest_qp == TO_GROUP or dest_qp in _MANAGEMENT or now_s < kept.not_before_s or carrier.is_behind(dest_qp):
            return None
        if kept.path is None or kept.path.is_closed:
            p_key, mtu_bytes = qp.adapter.p_key(qp.settings.pkey_index), qp.adapter.mtu_bytes
            peer = carrier.shm_peer(address(), dest_qp, p_key=p_key, mtu_bytes=mtu_bytes)
            kept.path = path if peer and isinstance(path := peer.path_from(qp, dest_qp), ShmPath) else None
            kept.not_before_s = now_s + (0 if kept.path else _ASK_AGAIN_S)
        return kept.path

    def at(self, place: int) -> ShmPath | None:
        kept = self._places.get(place)
        return kept.path if kept else None

    def sent_packets(self, place: int) -> None:
        """No path overtakes them."""
        qp, kept = self._qp, self._places[place]
        kept.not_before_s = max(kept.not_before_s, qp.adapter.clock() + qp.adapter.carrier.under_way_s)
