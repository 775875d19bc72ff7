"""A carrier whose packets go to a lab: what InfiniBand and Ethernet ports have in common.

Frames of the lab bring packets, settings of the port and events. Where the lab grants it, a program writes to its
peer's memory instead of sending packets (see weft.lab.metered_paths).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, Protocol, Self, TypeVar

from weft.verbs.carriers.lab.connection import QUEUE_PAIR_BITS, Event, Kind, Line, packets_in
from weft.verbs.carriers.lab.memory_grants import MemoryGrants, PathEnd
from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.carriers.processes.handover import PeerMemories
from weft.verbs.enums import ibv_event_type
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.carrier import Arrival, Carrier, MemoryPeer, Sender
from weft.wire.format import Malformed


class PortSettings(Protocol):
    """The settings of a port at one time."""

    @property
    def is_active(self) -> bool: ...

    def down(self) -> Self:
        """Return the settings of the port after the lab has ended."""
        ...


S = TypeVar("S", bound=PortSettings)


class LineCarrier(Carrier, Generic[S]):
    """A carrier to a lab. `numbers` are those of this program's queue pairs; `on_change` reports changes of the port.

    Without `grants` the lab is on another machine, and everything is sent as packets.
    """

    under_way_s = 0.5
    window_bytes = 256 << 10  # per connection: the lab handles packets one by one, and timers run meanwhile

    def __init__(self, line: Line, program: int, facts: S, grants: MemoryGrants | None) -> None:
        self.line, self.program, self.facts, self.grants = line, program, facts, grants
        first = program << QUEUE_PAIR_BITS
        self.numbers = range(first + 2, first + (1 << QUEUE_PAIR_BITS))
        self.on_change: Callable[[list[ibv_event_type]], None] = lambda events: None
        self._peer_memories: PeerMemories | None = None
        self.refused = 0  # packets that were none, or whose ICRC was wrong

    # -- of the link layer --------------------------------------------------------------------------------------------

    def unpack_facts(self, raw: bytes) -> S:
        """Return settings of the port from a frame of the lab."""
        raise NotImplementedError

    def events_to(self, facts: S) -> list[ibv_event_type]:
        """Return the events of a change to other settings, and forget what depends on the present ones."""
        raise NotImplementedError

    def arrival(self, packet: bytes) -> Arrival:
        """Return what a packet brings; raise Malformed if it brings nothing."""
        raise NotImplementedError

    def sender_to(self, to: AddressVector, end: PathEnd) -> Sender:
        """Return this end of a path through shared memory as the peer sees it."""
        raise NotImplementedError

    # -- shared memory ------------------------------------------------------------------------------------------------

    def open(self, adapter: Adapter) -> None:
        """Let other programs have the memory of its queues, where the lab gives them leave."""
        if self.grants is not None:
            self._peer_memories = PeerMemories(self.grants.handover, adapter, self.line.ring)

    def shm_peer(self, to: object, dest_qp: int, *, p_key: int, mtu_bytes: int) -> MemoryPeer | None:
        """Return the memory of a peer if the lab grants it: all links of the path must be without faults, both ways."""
        if self._peer_memories is None or self.grants is None or not isinstance(to, AddressVector):
            return None
        grant = self.grants.to(to, p_key, mtu_bytes, dest_qp)
        if grant is None:
            return None
        ring = functools.partial(self.line.wake, grant.end.guid, grant.program)
        sender = self.sender_to(to, grant.end)
        return self._peer_memories.peer(grant.handover, sender=sender, meter=grant.meter, ring=ring)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        return self.line.is_idle

    def receive(self) -> list[Arrival]:
        came: list[Arrival] = []
        for kind, body in self.line.take():
            if kind == Kind.PACKETS:
                came += [one for packet in packets_in(body) if (one := self._arrival(packet)) is not None]
            elif kind == Kind.PORT:
                self._changed(self.unpack_facts(body))
            elif kind == Kind.EVENT:
                self._on_event(body[0])
        if self.line.is_down and self.facts.is_active:
            if self.grants is not None:
                self.grants.close()
            self._changed(self.facts.down())
        return came

    def _on_event(self, event: int) -> None:
        if event == Event.CLIENT_REREGISTER:
            self.on_change([ibv_event_type.IBV_EVENT_CLIENT_REREGISTER])
        elif event == Event.RING and self._peer_memories is not None:
            self._peer_memories.adapter.on_bell()
        elif event == Event.CUT and self.facts.is_active:
            self._changed(self.facts.down())

    def _changed(self, facts: S) -> None:
        events = self.events_to(facts)
        self.facts = facts
        if self.grants is not None:
            self.grants.forget()
        self.on_change(events)

    def _arrival(self, packet: bytes) -> Arrival | None:
        try:
            return self.arrival(packet)
        except Malformed:
            self.refused += 1
            return None

    def wait(self, seconds: float) -> None:
        self.line.wait(seconds)

    def close(self) -> None:
        self.line.close()
        if self._peer_memories is not None:
            self._peer_memories.close()
