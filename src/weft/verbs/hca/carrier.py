"""What an adapter asks of what joins it to others. tests/conformance/carriers.py holds every carrier to it.

Who writes a carrier derives from `Carrier`: what a network need not do is there already, so that an adapter may call
all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from weft.verbs.hca.segment import Segment
from weft.verbs.hca.work import SendWork
from weft.verbs.shm import layout

_FIRST_QP = 2  # 0 and 1 are for management
TO_GROUP = 0xFF_FFFF  # the number of whatever queue pairs are in the group


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A segment, and what the network said of it."""

    segment: Segment
    source: object  # whom an answer goes to
    grh: bytes = bytes(40)
    slid: int = 0
    sl: int = 0
    group: object = None  # that it was sent to


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """As the other end sees it. `grh` is that of a datagram without data: 40 zeros if it has none."""

    source: object
    grh: bytes = bytes(40)
    slid: int = 0
    sl: int = 0


class MemoryPath(Protocol):
    """To another queue pair, through memory that both share: `shm_path`."""

    is_here: bool
    uncounted_process: int  # at the other end, where nobody counts what goes between the two; 0: somebody does
    words: Any  # those of a PathRecord and of what it points to: writable memory
    request: layout.SendRequest

    def post(self, request: bytes) -> bool: ...

    def carry(self, work: SendWork) -> bool: ...

    def finish(self, code: int) -> bool: ...


class MemoryPeer(Protocol):
    """The other end of a connection, where its memory is mapped here."""

    def path_from(self, qp: Any, dest_qp: int) -> MemoryPath: ...


class Carrier(Protocol):
    """Segments may come in parts, twice, in another order, or not at all. What an address (`to`) is, it decides."""

    numbers: range = range(_FIRST_QP, layout.QUEUE_PAIRS_MAX)  # that queue pairs of its adapter have
    window_bytes: int = 0  # that a connection may have under way, if the carrier drops what is more; 0: all
    under_way_s: float = 0.0  # that a packet may take which `is_behind` does not see
    carries_device_bytes: bool = False  # what is on a GPU stays there until the other end copies it

    def send(self, segment: Segment, to: object, mtu_bytes: int) -> None:
        """In packets of this size, or whole. What nobody takes is lost: nothing is raised, and nobody is told."""
        ...

    def receive(self) -> list[Arrival]:
        """What came since, in order; it does not wait."""
        ...

    def is_idle(self) -> bool:
        """Whether `receive` would do nothing; asked without the adapter's lock."""
        ...

    def wait(self, seconds: float) -> None:
        """Until something arrives, or so long."""
        ...

    def is_behind(self, dest_qp: int) -> bool:
        """Whether the other end has yet to take what was sent to it, so that silence says nothing.

        An adapter in hardware answers whatever its program does; a process may get no processor for a while.
        """
        return False

    def has_not_taken(self, to: object, dest_qp: int) -> bool:
        """The same of an answer that is late, where it may cost a question to find out."""
        return self.is_behind(dest_qp)

    def why_lost(self, to: object, p_key: int, mtu_bytes: int) -> str:
        """Why nothing arrives there any more, if the network can tell."""
        return ""

    def close(self) -> None:
        """What is sent to it from now on is lost."""
        ...

    def join(self, address: int, own_gid: int) -> int | None:
        """Become a member of the group that an address means: its GID; None if the network refuses."""
        return address

    def leave(self, group: int, own_gid: int) -> None:
        """Be a member no more."""
        return

    def shm_peer(self, to: object, dest_qp: int, *, p_key: int, mtu_bytes: int) -> MemoryPeer | None:
        """The memory of the other end of a connection, where both are on one machine and nothing is in between.

        Whoever asks does not have the adapter's lock.
        """
        return None
