"""What the firmware of every switch and adapter knows: PortInfo and its kin as bytes, tables as the fabric has them.

    devices = switch_on(weft.load("fat-tree:hosts=16,radix=8"))      of `power_up`
    devices.port_info[slot]            PortInfo as a MAD carries it, 64 bytes: a row of `fabric.tables.port_info`

A port's PortInfo is kept as the bytes that a Get returns, so that answering is a copy. LIDs, forwarding tables, P_Keys,
SL to VL and VL arbitration are not kept here: the agents read and write `fabric.tables`, which the engines of `sim` run
on, and count in `fabric.counters`. The cabling of a fabric never changes; which cables are up PortInfo says.

Who writes `fabric.tables` past the agents tells it, so that MADs take no old paths: `forget_lid_paths`; who counts in
`fabric.counters` need not tell anybody.
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
from weft.fabric.rates import Technology
from weft.mad.tap import Tap
from weft.mad.traps import Traps
from weft.wire.port_info import Capability, PortInfo

MAD_WORDS = 72  # of a MAD on the wire, as PortXmitData counts: 256 bytes, LRH, BTH, DETH, ICRC
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
        self.there = self.back = 0  # MADs that took it since somebody counted
        self.listed = False  # among `Devices.travelled`


@dataclass(slots=True)
class Sample:
    """One that was asked for at a port: see `samples`. `before` and `grown` are by Counter."""

    control: bytes = b""
    status: int = 0
    starts_s: float = 0.0
    ends_s: float = 0.0
    before: list[int] = field(default_factory=list)
    grown: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Adaptive:
    """What one switch was told of adaptive routing: see `sma_adaptive`."""

    info: bytearray
    row: NDArray[np.int32]  # group -> of `ar_ports`
    mask: dict[int, bytes] = field(default_factory=dict)  # group -> its ports, as in the MAD
    code: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))  # LID -> LidState << 12 | group


class Devices(Plane):
    """All switches and adapters on InfiniBand; a slot is a port slot of the fabric."""

    def __init__(self, fabric: Fabric, *, seed: int, clock: Callable[[], float]) -> None:
        if not fabric.links_of(Technology.INFINIBAND).any():
            raise ConfigError(f"{fabric.spec} has no InfiniBand link: there is nothing that MADs could manage")
        super().__init__(fabric)
        self.clock, self.random = clock, random.Random(seed)
        managed = np.isin(fabric.nodes.kind, list(MANAGED)) & (fabric.network_ports > 0)
        self.nodes: list[int] = np.flatnonzero(managed).tolist()
        self._views: dict[str, tuple[NDArray[Any], memoryview]] = {}
        self._forget()
        self.run_on(fabric)

    def _forget(self) -> None:
        """State that is empty when all is well."""
        self.broken: set[int] = set()  # slots whose cable is pulled
        self.dead: set[int] = set()  # nodes without power
        self.tap: Tap | None = None
        self.physical_errors: dict[int, int] = {}  # slot -> errors not yet made good by MADs that came well
        self.limits: dict[int, tuple[int, int]] = {}  # link -> widths and speeds that its cable can do
        self.flaps: dict[int, float] = {}  # link -> how often an hour it goes down and comes up again
        self.takes: dict[int, float] = {}  # slot of a host that is overloaded -> share of line rate that it takes
        # What a Get returns, in rows of 64 bytes that kernels see whole, and each by itself.
        self.node_infos, self.node_descriptions = (np.zeros_like(self.tables.switch_info) for _ in range(2))
        self.node_info: dict[int, memoryview] = {}
        self.node_description: dict[int, memoryview] = {}
        self.alias_guids: dict[int, bytearray] = {}  # slot -> GUIDInfo, if somebody set it
        self.leds: set[int] = set()  # ports whose light is on
        self.reregister: set[int] = set()  # ports whose clients were asked to register again; they take themselves out
        self.m_key_lease: dict[int, float] = {}  # slot -> when its protection ends
        self.keyed: set[int] = set()  # ports with an M_Key
        self.tables.congestion = {}
        self.cc_key_lease: dict[int, float] = {}
        self.adaptive: dict[int, Adaptive] = {}  # node -> its adaptive routing, once somebody asked for it
        self.port_groups: tuple[NDArray[np.bool_] | None, dict[bytes, int]] = (None, {})  # `ar_ports`, and its rows
        self.samples: dict[int, Sample] = {}  # of a port
        self.sampled: dict[int, int] = {}  # node -> slot of its last sample
        self.traps = Traps(self.clock)
        # Counting. What is not in `fabric.counters` is in `details`, by slot, field of the attribute and entry.
        self.sent = array("q", bytes(8 * len(self.cable)))  # MADs that left by a slot since somebody counted
        self.received = self.sent[:]
        self.details: defaultdict[tuple[int, str, int], int] = defaultdict(int)
        self.odd: defaultdict[str, int] = defaultdict(int)  # MADs that no agent could make sense of, by what was odd
        # Paths, until something changes.
        self.directed_paths: dict[tuple[int, bytes], MadPath] = {}
        self.lid_paths: dict[tuple[int, int, bool], MadPath] = {}
        self.travelled: list[MadPath] = []
        self.generation = 0  # how often links changed

    @cached_property
    def fec(self) -> NDArray[np.int64]:
        """[slot, lane | FecCounter]: what error correction counted, once somebody counts there."""
        return new_fec_counters(len(self.cable))

    # -- names and numbers ------------------------------------------------------------------------------------------

    def slot(self, node: int, port: int) -> int:
        return self.first[node] + port

    def port_slot(self, node: int, arrived: int, port: int) -> int:
        """The slot of a port by number; 0 of an adapter is the port that a MAD came in by. NONE: there is none."""
        if not port and not self.is_switch[node]:
            return arrived
        return self.first[node] + port if port <= self.last_port[node] else NONE

    def ports_of(self, node: int) -> range:
        """Slots of a node's ports, a switch's port 0 among them."""
        first = self.first[node]
        return range(first + (not self.is_switch[node]), first + self.last_port[node] + 1)

    def port_guid(self, slot: int) -> bytes:
        """As it is in a MAD; all ports of a switch have the node's."""
        node = self.node_of[slot]
        fabric = self.fabric
        guid = fabric.nodes.guid.item(node) if self.is_switch[node] else fabric.ports.guid.item(slot)
        return guid.to_bytes(8, "big")

    def has_manager(self, slot: int) -> bool:
        """Does the port say that a subnet manager is there?"""
        return bool(PortInfo.capability_mask.get(self.info(slot)) & Capability.IS_SM)

    def run_on(self, fabric: Fabric) -> None:
        """The same cabling, with cables of another quality; who has `fabric` from before keeps what it was."""
        self.fabric = fabric
        hurt = np.flatnonzero(fabric.receive_error_rate > 0).tolist()
        self.erring = {self.cable[slot] for slot in hurt if self.cable[slot] != NONE}  # what leaves there may be hurt
        self._find_risky()

    def set_tap(self, tap: Tap | None) -> None:
        """Give frames that cross some cables to a function; None: to nobody any more."""
        self.tap = tap
        self._find_risky()

    def _find_risky(self) -> None:
        """Find the ports at both ends of cables that may hurt a MAD, or that somebody listens at."""
        tapped = self.tap.slots if self.tap is not None else frozenset()
        self.risky = {*self.erring, *(self.cable[slot] for slot in self.erring), *tapped}

    # -- what changes from inside -----------------------------------------------------------------------------------

    def set_is_sm(self, slot: int, on: bool) -> None:
        """A subnet manager came to a port, or left it: CapabilityMask says so, and trap 144 tells the master."""
        info = self.info(slot)
        mask = PortInfo.capability_mask.get(info)
        changed = mask | int(Capability.IS_SM) if on else mask & ~int(Capability.IS_SM)
        if changed != mask:
            PortInfo.capability_mask.set(info, changed)
            self.traps.local_change(self, slot)

    def describe(self, node: int, text: str) -> None:
        """The operator of a node gives it another NodeDescription."""
        raw = text.encode()
        if len(raw) > 64:
            raise ConfigError(f"node description {text!r} has {len(raw)} bytes; a NodeDescription holds 64")
        self.node_description[node][:] = raw.ljust(64, b"\0")
        self.traps.local_change(self, self.first[node] + (not self.is_switch[node]), node_description_change=1)

    def view(self, name: str) -> memoryview:
        """The bytes of one of the fabric's tables: to copy a block in or out takes a fifth of what numpy takes."""
        table = getattr(self.tables, name)
        seen, found = self._views.get(name, (None, memoryview(b"")))
        if seen is not table:
            table = np.ascontiguousarray(table)
            setattr(self.tables, name, table)
            found = table.reshape(-1).view(np.uint8).data  # `cast` refuses a table that is empty
            self._views[name] = (table, found)
        return found

    def forget_paths(self) -> None:
        """Links changed."""
        self.generation += 1
        self.count_paths()
        self.directed_paths.clear()
        self.lid_paths.clear()

    def forget_lid_paths(self) -> None:
        """LIDs, tables or states changed."""
        if self.lid_paths:
            self.count_paths()
            self.lid_paths.clear()

    # -- counting ---------------------------------------------------------------------------------------------------

    def count_paths(self) -> None:
        """From ways to slots."""
        sent, received, cable = self.sent, self.received, self.cable
        for path in self.travelled:
            there, back = path.there, path.back
            path.there = path.back = 0
            path.listed = False
            for slot in path.out:
                far = cable[slot]
                sent[slot] += there
                received[far] += there
                sent[far] += back
                received[slot] += back
        self.travelled.clear()

    def counters(self, slot: int) -> list[int]:
        """By Counter, with the MADs that nobody has put into the fabric's counters yet."""
        self.count_paths()
        found: list[int] = self.fabric.counters[slot].tolist()
        for mads, columns in ((self.sent[slot], _OUT), (self.received[slot], _IN)):
            if mads:
                for column, each in columns:
                    found[column] += mads * each
        return found

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
