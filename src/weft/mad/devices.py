"""Hold the state of all switches and adapters: PortInfo and other attributes as bytes, and the fabric's tables.

    devices = switch_on(weft.load("fat-tree:hosts=16,radix=8"))      of `power_up`
    devices.port_info[slot]            PortInfo as a MAD carries it, 64 bytes: a row of `fabric.tables.port_info`

A port's PortInfo is kept as the bytes that a Get returns, so that answering is a copy. LIDs, forwarding tables, P_Keys,
SL to VL and VL arbitration are not kept here: the agents read and write `fabric.tables`, which the engines of `sim` run
on, and count in `fabric.counters`. The cabling of a fabric never changes; PortInfo has the state of each cable.

Code that writes `fabric.tables` without the agents calls `forget_lid_paths`, so that MADs take no old paths. Writing
`fabric.counters` needs no call.
"""

from __future__ import annotations

import random
from array import array
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.counters import Counter, new_fec_counters
from weft.fabric.forwarding import NONE as NONE
from weft.fabric.forwarding import Plane
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.planes import split_planes
from weft.fabric.rates import Technology
from weft.fabric.subnets import subnets_of
from weft.mad.ethernet import EthernetNetwork
from weft.mad.router_state import Routers
from weft.mad.tap import Tap
from weft.mad.traps import Traps
from weft.wire.port_info import Capability, PortInfo

MAD_WORDS = 72  # a MAD on the wire, as PortXmitData counts: 256 bytes, LRH, BTH, DETH, ICRC
MAD_BITS = 8 * (4 * MAD_WORDS + 2)  # with its VCRC
MANAGED = (NodeKind.SWITCH, NodeKind.HCA, NodeKind.AGGREGATION, NodeKind.ROUTER)
# Column, and what a MAD adds to it.
_OUT = (
    (Counter.PORT_XMIT_DATA_WORDS, MAD_WORDS),
    (Counter.PORT_XMIT_PKTS, 1),
    (Counter.PORT_UNICAST_XMIT_PKTS, 1),
)
_IN = (
    (Counter.PORT_RCV_DATA_WORDS, MAD_WORDS),
    (Counter.PORT_RCV_PKTS, 1),
    (Counter.PORT_UNICAST_RCV_PKTS, 1),
)


class MadPath:
    """A path that MADs take, found once. `out` are the slots by which they leave, hop by hop."""

    __slots__ = ("back", "end", "entered", "listed", "out", "there")

    def __init__(self, end: int, out: tuple[int, ...], entered: bytes = b"") -> None:
        self.end, self.out = end, out  # `end`: slot where they come in
        self.entered = entered  # ports by which a directed SMP came in: its return path
        self.there = self.back = 0  # MADs along this path since they were last counted
        self.listed = False  # among `Devices.travelled`


@dataclass(slots=True)
class Sample:
    """A PMA sample that was requested at a port: see `samples`. `before` and `grown` are indexed by Counter."""

    control: bytes = b""
    status: int = 0
    starts_s: float = 0.0
    ends_s: float = 0.0
    before: list[int] = field(default_factory=list)
    grown: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Adaptive:
    """The adaptive routing settings of a switch: see `sma_adaptive`."""

    info: bytearray
    row: NDArray[np.int32]  # group -> of `ar_ports`
    mask: dict[int, bytes] = field(default_factory=dict)  # group -> its ports, as in the MAD
    code: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))  # LID -> LidState << 12 | group


class Devices(Plane):
    """The switches and adapters on InfiniBand; a slot is a port slot of the fabric."""

    def __init__(self, fabric: Fabric, *, seed: int, clock: Callable[[], float]) -> None:
        if not fabric.links_of(Technology.INFINIBAND).any():
            raise ConfigError(f"{fabric.spec} has no InfiniBand link: there is nothing that MADs could manage")
        super().__init__(fabric)
        self.clock, self.random = clock, random.Random(seed)
        managed = np.isin(fabric.nodes.kind, list(MANAGED)) & (fabric.network_ports > 0)
        self.nodes: list[int] = np.flatnonzero(managed).tolist()
        self._views: dict[str, tuple[NDArray[Any], memoryview]] = {}
        self.routers = Routers(self, clock)
        self._forget()
        self.run_on(fabric)
        self.ethernet = EthernetNetwork(self)

    def _forget(self) -> None:
        """State that is empty when all is well."""
        self.broken: set[int] = set()  # slots whose cable is pulled
        self.dead: set[int] = set()  # nodes without power
        self.tap: Tap | None = None
        self.physical_errors: dict[int, int] = {}  # slot -> errors not yet made good by MADs that came well
        self.limits: dict[int, tuple[int, int]] = {}  # link -> widths and speeds that its cable can do
        self.cable_in: dict[int, int] = {}  # link -> the link whose cable it has now: see `modules`
        self.flaps: dict[int, float] = {}  # link -> how often an hour it goes down and comes up again
        self.takes: dict[int, float] = {}  # slot of a host that is overloaded -> share of line rate that it takes
        # The responses to Get, in rows of 64 bytes, for kernels.
        self.node_infos, self.node_descriptions = (np.zeros_like(self.tables.switch_info) for _ in range(2))
        self.node_info: dict[int, memoryview] = {}
        self.node_description: dict[int, memoryview] = {}
        self.alias_guids: dict[int, bytearray] = {}  # slot -> GUIDInfo, once it was set
        self.leds: set[int] = set()  # ports whose light is on
        self.reregister: set[int] = set()  # ports whose clients were asked to register again; they take themselves out
        self.m_key_lease: dict[int, float] = {}  # slot -> when its protection ends
        self.keyed: set[int] = set()  # ports with an M_Key
        self.tables.congestion = {}
        self.cc_key_lease: dict[int, float] = {}
        self.adaptive: dict[int, Adaptive] = {}  # node -> its adaptive routing, on first use
        self.port_groups: tuple[NDArray[np.bool_] | None, dict[bytes, int]] = (None, {})  # `ar_ports`, and its rows
        self.samples: dict[int, Sample] = {}  # of a port
        self.sampled: dict[int, int] = {}  # node -> slot of its last sample
        self.traps = Traps(self.clock)
        # Counting. What is not in `fabric.counters` is in `details`, by slot, field of the attribute and entry.
        self.sent = array("q", bytes(8 * len(self.cable)))  # MADs sent by a slot since they were last counted
        self.received = self.sent[:]
        self.details: defaultdict[tuple[int, str, int], int] = defaultdict(int)
        self.odd: defaultdict[str, int] = defaultdict(int)  # MADs that no agent could make sense of, by what was odd
        # Paths, until something changes.
        self.directed_paths: dict[tuple[int, bytes], MadPath] = {}
        self.lid_paths: dict[tuple[int, int, bool], MadPath] = {}
        self.travelled: list[MadPath] = []
        self.generation = 0  # how often links changed

    @cached_property
    def subnet_of(self) -> list[int]:
        """The number of each port's subnet, from 1; 0 for ports of routers without a cable."""
        numbers, parts = np.zeros(len(self.cable), np.int64), subnets_of(self.fabric)
        for part in parts:
            numbers[np.isin(self.fabric.ports.node, part.nodes)] = part.number
            numbers[part.router_ports] = part.number
        if self.fabric.expanded:  # each plane of each is one; port n of an adapter is in plane n
            in_adapter = (self.fabric.nodes.kind == NodeKind.HCA)[self.fabric.ports.node]
            for plane, (keep, _) in enumerate(split_planes(self.fabric)):
                own = keep[self.fabric.ports.node] & ~in_adapter | in_adapter & (self.fabric.ports.number == plane + 1)
                numbers[own & (numbers > 0)] += plane * len(parts)
        return numbers.tolist()

    @cached_property
    def fec(self) -> NDArray[np.int64]:
        """The FEC counters, [slot, lane | FecCounter], allocated on first use."""
        return new_fec_counters(len(self.cable))

    # -- names and numbers ------------------------------------------------------------------------------------------

    def slot(self, node: int, port: int) -> int:
        return self.first[node] + port

    def port_slot(self, node: int, arrived: int, port: int) -> int:
        """Return the slot of a port by number, NONE if there is none; 0 of an adapter is the port of arrival."""
        if not port and not self.is_switch[node]:
            return arrived
        return self.first[node] + port if port <= self.last_port[node] else NONE

    def ports_of(self, node: int) -> range:
        """Return the slots of a node's ports, including port 0 of a switch."""
        first = self.first[node]
        return range(first + (not self.is_switch[node]), first + self.last_port[node] + 1)

    def port_guid(self, slot: int) -> bytes:
        """Return a port's GUID as 8 bytes; all ports of a switch have the GUID of the node."""
        node = self.node_of[slot]
        fabric = self.fabric
        guid = fabric.nodes.guid.item(node) if self.is_switch[node] else fabric.ports.guid.item(slot)
        return guid.to_bytes(8, "big")

    def has_manager(self, slot: int) -> bool:
        """Return whether the port's IsSM bit is set."""
        return bool(PortInfo.capability_mask.get(self.info(slot)) & Capability.IS_SM)

    def run_on(self, fabric: Fabric) -> None:
        """Use a fabric with the same cabling and other cable qualities; the previous fabric object stays as it was."""
        self.fabric = fabric
        hurt = np.flatnonzero(fabric.receive_error_rate > 0).tolist()
        # Packets sent there may be corrupted
        self.erring = {self.cable[slot] for slot in hurt if self.cable[slot] != NONE}
        self._find_risky()

    def set_tap(self, tap: Tap | None) -> None:
        """Give frames that cross some cables to a function; None ends it."""
        self.tap = tap
        self._find_risky()

    def _find_risky(self) -> None:
        """Find the ports at both ends of cables that may corrupt a MAD, or that are captured."""
        tapped = self.tap.slots if self.tap is not None else frozenset()
        self.risky = {*self.erring, *(self.cable[slot] for slot in self.erring), *tapped}

    # -- what changes from inside -----------------------------------------------------------------------------------

    def set_is_sm(self, slot: int, on: bool) -> None:
        """Set or clear the IsSM bit of a port, and send trap 144 to the master."""
        info = self.info(slot)
        mask = PortInfo.capability_mask.get(info)
        changed = mask | int(Capability.IS_SM) if on else mask & ~int(Capability.IS_SM)
        if changed != mask:
            PortInfo.capability_mask.set(info, changed)
            self.traps.local_change(self, slot)

    def describe(self, node: int, text: str) -> None:
        """Change the NodeDescription of a node."""
        raw = text.encode()
        if len(raw) > 64:
            raise ConfigError(f"node description {text!r} has {len(raw)} bytes; a NodeDescription holds 64")
        self.node_description[node][:] = raw.ljust(64, b"\0")
        self.traps.local_change(self, self.first[node] + (not self.is_switch[node]), node_description_change=1)

    def has_lid(self, slot: int, lid: int) -> bool:
        """Return whether a port takes packets for a LID: its own, or at routers a floating LID of another subnet."""
        return super().has_lid(slot, lid) or (bool(self.routers.floating) and self.routers.takes(slot, lid))

    def view(self, name: str) -> memoryview:
        """Return the bytes of a fabric table: copying a block this way takes a fifth of numpy's time."""
        table = getattr(self.tables, name)
        cached_table, cached_view = self._views.get(name, (None, memoryview(b"")))
        if cached_table is not table:
            table = np.ascontiguousarray(table)
            setattr(self.tables, name, table)
            cached_view = table.reshape(-1).view(np.uint8).data  # `cast` refuses a table that is empty
            self._views[name] = (table, cached_view)
        return cached_view

    def forget_paths(self) -> None:
        """Drop all cached paths: links have changed."""
        self.generation += 1
        self.count_paths()
        self.directed_paths.clear()
        self.lid_paths.clear()

    def forget_lid_paths(self) -> None:
        """Drop cached paths by LID: LIDs, tables or states have changed."""
        if self.lid_paths:
            self.count_paths()
            self.lid_paths.clear()

    # -- counting ---------------------------------------------------------------------------------------------------

    def count_paths(self) -> None:
        """Add the MADs of each path to the counts of its ports."""
        sent, received, cable = self.sent, self.received, self.cable
        for path in self.travelled:
            forward, back = path.there, path.back
            path.there = path.back = 0
            path.listed = False
            for slot in path.out:
                far = cable[slot]
                sent[slot] += forward
                received[far] += forward
                sent[far] += back
                received[slot] += back
        self.travelled.clear()

    def counters(self, slot: int) -> list[int]:
        """Return a port's counters by Counter, with MADs that are not in the fabric's counters yet."""
        self.count_paths()
        counts: list[int] = self.fabric.counters[slot].tolist()
        for mads, columns in ((self.sent[slot], _OUT), (self.received[slot], _IN)):
            if mads:
                for column, each in columns:
                    counts[column] += mads * each
        return counts

    def count_port(self, slot: int) -> None:
        """Put the MADs that crossed one port into the fabric's counters."""
        self.fabric.counters[slot] = self.counters(slot)
        self.sent[slot] = self.received[slot] = 0

    def count_mads(self) -> None:
        """Put all MADs that crossed links into the fabric's counters."""
        self.count_paths()
        for crossed, columns in ((self.sent, _OUT), (self.received, _IN)):
            mads = np.array(crossed, np.int64)
            for column, each in columns:
                self.fabric.counters[:, column] += mads * each
            crossed[:] = array("q", bytes(8 * len(crossed)))
