"""Define the interface between an adapter and a carrier. tests/conformance/carriers.py holds every carrier to it.

A carrier derives from `Carrier`, which has defaults for all optional calls of an adapter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from weft.verbs.hca.segment import Segment
from weft.verbs.hca.work import SendWork
from weft.verbs.shm import layout

_FIRST_QP = 2  # 0 and 1 are for management
TO_GROUP = 0xFF_FFFF  # destination queue pair of multicast packets


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A segment and its network attributes."""

    segment: Segment
    source: object  # the address for an answer
    grh: bytes = bytes(40)
    slid: int = 0
    sl: int = 0
    group: object = None  # that it was sent to
    packet: bytes = b""  # as received, where `report_bad_key` needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The sender of packets as its peer sees it. `grh` is that of an empty datagram: 40 zeros if it has none."""

    source: object
    grh: bytes
    slid: int
    sl: int


class MemoryPath(Protocol):
    """A path to another queue pair through shared memory: `shm_path`."""

    is_here: bool
    uncounted_process: int  # at the other end, if packets between the two are not counted; 0: they are
    words: Any  # those of a PathRecord and of what it points to: writable memory
    request: layout.SendRequest

    def post(self, request: bytes) -> bool: ...

    def carry(self, work: SendWork) -> bool: ...

    def finish(self, code: int) -> bool: ...


class MemoryPeer(Protocol):
    """The other end of a connection, where its memory is mapped here."""

    def path_from(self, qp: Any, dest_qp: int) -> MemoryPath: ...


class Carrier(Protocol):
    """A carrier of segments, which may arrive in parts, twice, in another order, or not at all. It defines `to`."""

    numbers: range = range(_FIRST_QP, layout.QUEUE_PAIRS_MAX)  # that queue pairs of its adapter have
    window_bytes: int = 0  # that a connection may have under way, if the carrier drops what is more; 0: all
    under_way_s: float = 0.0  # that a packet may take which `is_behind` does not see
    carries_device_bytes: bool = False  # data on a GPU stays there until the peer copies it

    def send(self, segment: Segment, to: object, mtu_bytes: int) -> None:
        """Send a segment whole, or in packets of this size. A segment without a receiver is lost without an error."""
        ...

    def receive(self) -> list[Arrival]:
        """Return the arrivals since the last call in order, without waiting."""
        ...

    def is_idle(self) -> bool:
        """Return whether `receive` would do nothing; called without the adapter's lock."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait for arrivals, at most `seconds`."""
        ...

    def is_behind(self, dest_qp: int) -> bool:
        """Return whether the peer has unread packets, so that a missing response means nothing.

        An adapter in hardware answers whatever its program does; a process may get no processor for a while.
        """
        return False

    def has_not_taken(self, to: object, dest_qp: int) -> bool:
        """Return the same for a late response, where the check may need a request."""
        return self.is_behind(dest_qp)

    def why_lost(self, to: object, p_key: int, mtu_bytes: int) -> str:
        """Return why packets do not arrive at an address, if the network knows."""
        return ""

    def report_bad_key(self, arrival: Arrival, *, is_q_key: bool) -> None:
        """Report a packet that a queue pair dropped because of its Q_Key or P_Key, if the network counts them."""
        return

    def close(self) -> None:
        """Close the carrier; later packets to it are lost."""
        ...

    def join(self, address: int, own_gid: int) -> int | None:
        """Join the multicast group of an address; return its GID, None if the network refuses."""
        return address

    def leave(self, group: int, own_gid: int) -> None:
        """Leave a multicast group."""
        return

    def shm_peer(self, to: object, dest_qp: int, *, p_key: int, mtu_bytes: int) -> MemoryPeer | None:
        """Return the memory of a peer on the same machine, if packets may bypass the network.

        The caller does not hold the adapter's lock.
        """
        return None
