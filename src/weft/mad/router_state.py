"""The state of routers between subnets: the prefixes of their ports, and the destinations that they know."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.fabric.forwarding import NONE, Plane
from weft.fabric.kinds import NodeKind
from weft.ids import Lid
from weft.mad.traps import Traps
from weft.wire.port_info import PortInfo

_FRESH_S = 1.0  # until an answer of the administrator is asked for again
_HELD_MAX = 4096  # packets that wait for answers, of all routers
_INTERFACE = (1 << 64) - 1


@dataclass(slots=True)
class Neighbor:
    """A destination in an adjacent subnet. DLID 0: the administrator knows no path; None: it has not answered yet."""

    dlid: int | None
    sl: int
    asked_s: float


@dataclass(slots=True, eq=False)
class FloatingLids:
    """The floating LIDs that the manager of a subnet gave to a router's port: first and last of each range."""

    all: tuple[int, int] = (0, 0)  # of all subnets
    local: tuple[int, int] = (0, 0)  # of the port's subnet
    enabled: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(Lid.FIRST_MULTICAST, bool))  # [LID]


class Routers:
    """The routers of a fabric, and the destinations that they know.

    `ask` is called with an output port and a GID, and leads to `learn`; without a lab it does nothing.
    """

    def __init__(self, plane: Plane, clock: Callable[[], float]) -> None:
        self._plane, self._clock = plane, clock
        self.nodes = frozenset(plane.fabric.of_kind(NodeKind.ROUTER).tolist())
        self.ask: Callable[[int, int], None] = lambda slot, gid: None
        self.neighbors: dict[tuple[int, int], Neighbor] = {}  # by output port and GID
        self._held: deque[tuple[int, int, int, bytes]] = deque()  # output port, GID, input port, packet
        self.floating: dict[int, FloatingLids] = {}  # by port, once a manager has written them
        self._shown: dict[int, tuple[tuple[int, bytes], ...]] = {}  # node -> ports when managers were last told

    def prefix(self, slot: int) -> int:
        """Return the GidPrefix of a port; NONE while it is not Active."""
        return int(PortInfo.gid_prefix.get(self._plane.info(slot))) if self._plane.is_active(slot) else NONE

    def ports_of(self, node: int) -> range:
        """Return the slots of a router's ports."""
        first = self._plane.first[node]
        return range(first + 1, first + self._plane.last_port[node] + 1)

    def owns(self, node: int, gid: int) -> bool:
        """Return whether a GID is that of a port of the router."""
        guids = self._plane.fabric.ports.guid
        interface = gid & _INTERFACE
        return any(gid >> 64 == self.prefix(slot) and interface == int(guids[slot]) for slot in self.ports_of(node))

    # -- floating LIDs ------------------------------------------------------------------------------------------------

    def set_ranges(self, slot: int, everywhere: tuple[int, int], local: tuple[int, int]) -> None:
        """Set the ranges of a port; a floating LID outside of them is no longer enabled."""
        lids = self.floating.setdefault(slot, FloatingLids())
        lids.all, lids.local = everywhere, local
        lids.enabled[: local[0]] = lids.enabled[local[1] + 1 :] = False

    def enable(self, slot: int, first: int, enabled: NDArray[np.bool_]) -> None:
        """Set which floating LIDs from `first` on are enabled at a port; those outside of its range stay disabled."""
        lids = self.floating.setdefault(slot, FloatingLids())
        inside = slice(max(first, lids.local[0]), min(first + len(enabled), lids.local[1] + 1))
        lids.enabled[inside] = enabled[inside.start - first : max(inside.stop - first, 0)]

    def enabled(self, slot: int) -> NDArray[np.bool_]:
        """Return [LID] -> whether it is a floating LID that is enabled at a port."""
        return self.floating.get(slot, _NO_LIDS).enabled

    def takes(self, slot: int, lid: int) -> bool:
        """Return whether a port of a router takes packets for a floating LID: another port leads to its subnet."""
        node = self._plane.node_of[slot]
        if node not in self.nodes or not 0 < lid < Lid.FIRST_MULTICAST:
            return False
        others = (port for port in self.ports_of(node) if port != slot and port in self.floating)
        return any(self.floating[port].enabled[lid] and self._plane.is_active(port) for port in others)

    # -- destinations -------------------------------------------------------------------------------------------------

    def find(self, slot: int, gid: int) -> Neighbor:
        """Return the destination of a GID behind an output port; ask for it if it is unknown or old."""
        interface, now_s = gid & _INTERFACE, self._clock()
        if 0 < interface < Lid.FIRST_MULTICAST:
            return Neighbor(interface, 0, now_s)
        neighbor = self.neighbors.get((slot, gid))
        if neighbor is None:
            neighbor = self.neighbors[slot, gid] = Neighbor(None, 0, float("-inf"))
        if now_s - neighbor.asked_s > _FRESH_S:
            neighbor.asked_s = now_s
            self.ask(slot, gid)
        return neighbor

    def learn(self, slot: int, gid: int, dlid: int, sl: int) -> list[tuple[int, bytes]]:
        """Store the answer of an administrator; return the packets that waited for it, with their input ports."""
        neighbor = self.neighbors[slot, gid]
        neighbor.dlid, neighbor.sl = dlid, sl
        ready = [entry for entry in self._held if entry[:2] == (slot, gid)]
        self._held = deque(entry for entry in self._held if entry[:2] != (slot, gid))
        return [entry[2:] for entry in ready]

    def hold(self, slot: int, gid: int, at: int, packet: bytes) -> None:
        """Keep a packet until its destination is known; the oldest is dropped if there are too many."""
        if len(self._held) >= _HELD_MAX:
            self._held.popleft()
        self._held.append((slot, gid, at, packet))

    # -- changes ------------------------------------------------------------------------------------------------------

    def watch(self, traps: Traps) -> None:
        """Send trap 144 from the ports of a router after prefixes or floating LIDs changed, so that managers sweep."""
        for node in self.nodes:
            slots = self.ports_of(node)
            ports = tuple((self.prefix(slot), self._shown_lids(slot)) for slot in slots)
            before = self._shown.setdefault(node, ((NONE, b""),) * len(ports))
            self._shown[node] = ports
            changed = {place for place, port in enumerate(ports) if port != before[place]}
            for place, slot in enumerate(slots):
                if changed - {place} and ports[place][0] != NONE:
                    traps.local_change(self._plane, slot)

    def _shown_lids(self, slot: int) -> bytes:
        lids = self.floating.get(slot)
        return b"" if lids is None else repr(lids.local).encode() + np.packbits(lids.enabled).tobytes()


_NO_LIDS = FloatingLids()
