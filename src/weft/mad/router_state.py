"""The state of routers between subnets: the prefixes of their ports, and the destinations that they know."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

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
        self._shown: dict[int, tuple[int, ...]] = {}  # node -> prefixes when managers were last told

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
        """Send trap 144 from the ports of a router whose prefixes have changed, so that managers sweep."""
        for node in self.nodes:
            slots = self.ports_of(node)
            prefixes = tuple(self.prefix(slot) for slot in slots)
            before = self._shown.setdefault(node, (NONE,) * len(prefixes))
            self._shown[node] = prefixes
            changed = {place for place, prefix in enumerate(prefixes) if prefix != before[place]}
            for place, slot in enumerate(slots):
                if changed - {place} and prefixes[place] != NONE:
                    traps.local_change(self._plane, slot)
