"""Where the copies of packets for a group go, before the clock starts, and afterwards what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.forwarding import COUNTED, NONE, Hop, Plane, Reason, follow
from weft.fabric.model import Fabric
from weft.ids import Lid
from weft.sim.layout.posting import Posting
from weft.sim.layout.records import Records, records
from weft.sim.layout.wiring import Wiring
from weft.sim.packet.state import BRANCH
from weft.sim.result import GroupUse
from weft.wire.crc import VCRC_BYTES

_MOST_COPIES = np.iinfo(np.int32).max


@dataclass(frozen=True, kw_only=True, eq=False)
class Trees:
    """One for each sender, group and kind of packet; branches of all of them, numbered through."""

    branches: Records  # BRANCH records
    slot: NDArray[np.int64]  # [branch] -> where it ends
    ends: list[tuple[int, int, Reason]]  # branch, slot, what becomes of a copy there

    @property
    def widest(self) -> int:
        """Copies that one packet becomes, at most."""
        return int((self.branches.end - self.branches.first).max(initial=0))

    def use(self, fabric: Fabric) -> GroupUse | None:
        """What the ports did for groups; None if there was none."""
        if not len(self.slot):
            return None
        came, corrupted = self.branches.came, self.branches.corrupted
        xmit, rcv, copies = (np.zeros(len(fabric.ports), np.int64) for _ in range(3))
        counters = np.zeros_like(fabric.counters)
        np.add.at(xmit, fabric.ports.peer[self.slot], came + corrupted)
        np.add.at(rcv, self.slot, came + corrupted)
        for branch, slot, reason in self.ends:
            if reason is Reason.ARRIVED:
                copies[slot] += came[branch]
            elif reason in COUNTED:
                counters[slot, COUNTED[reason]] += came[branch]
        return GroupUse(xmit_packets=xmit, rcv_packets=rcv, copies=copies, counters=counters)


def grow(wiring: Wiring, posting: Posting, n_vls: int) -> Trees:
    """The trees of all messages for groups; each message is told its own."""
    messages, fabric = posting.messages, wiring.fabric
    for_groups = np.flatnonzero(messages.dlid >= Lid.FIRST_MULTICAST)
    planted: dict[tuple[int, ...], tuple[int, int]] = {}
    grower = _Grower()
    plane = plane_of(fabric) if len(for_groups) else None
    for row in for_groups.tolist():
        message, p_key = messages[row], int(posting.p_key[row])
        slot, dlid, sl = int(wiring.slot[message.src]), int(message.dlid), int(message.sl)
        size_bytes = int(posting.size_bytes[message["first"]]) - VCRC_BYTES
        key = (slot, dlid, sl, p_key, size_bytes)
        if key not in planted:
            assert plane is not None
            hops = follow(plane, slot, dlid=dlid, sl=sl, p_key=p_key, size_bytes=size_bytes)
            planted[key] = grower.plant((at, hop, plane.cable[hop.slot]) for at, _, hop in hops)
        message.branch, message.branches = planted[key]
        if not message.branches:
            name, why = fabric.port(slot).name, grower.ends[-1][2].text
            raise ConfigError(f"no packet for the group {dlid:#06x} leaves {name}: {why}")
        if int(message.packets) * int(message.branches) > _MOST_COPIES:
            raise ConfigError(f"a message becomes over 2**31 packets for the group {dlid:#06x}: send it in parts")
        message.dlid = 0  # where forwarding tables lead nowhere, so that a switch looks for its branch
    branches = records(len(grower.slot), BRANCH)
    if len(branches):
        branches.first, branches.end = np.array(grower.next).T
        branches.queue = wiring.port_of_slot[grower.out] * n_vls + np.array(grower.vl)
    return Trees(branches=branches, slot=np.array(grower.slot, np.int64), ends=grower.ends)


class _Grower:
    """Branches, as columns."""

    def __init__(self) -> None:
        self.out: list[int] = []  # slot by which copies leave for it
        self.vl: list[int] = []
        self.slot: list[int] = []  # where it ends
        self.next: list[tuple[int, int]] = []  # the first that goes on from there, and the end of those
        self.ends: list[tuple[int, int, Reason]] = []

    def plant(self, hops: Iterable[tuple[int, Hop, int]]) -> tuple[int, int]:
        """A tree, of the ports that a packet comes to, hops from each and their far ends: first branch, how many."""
        begin = len(self.slot)
        entered: dict[int, int] = {}
        for at, hop, far in hops:
            parent = entered.get(at, NONE)
            if hop.reason:
                self.ends.append((parent, hop.slot, hop.reason))
                continue
            entered[far] = branch = len(self.slot)
            if parent != NONE:
                self.next[parent] = (self.next[parent][0] or branch, branch + 1)
            self.out.append(hop.slot)
            self.vl.append(hop.vl)
            self.slot.append(far)
            self.next.append((0, 0))
        return begin, len(self.slot) - begin


def plane_of(fabric: Fabric) -> Plane:
    """To follow packets through the snapshot of a subnet that runs."""
    if not fabric.tables.runs:
        raise ConfigError(f"nobody runs {fabric.spec}, and groups are of a subnet that runs: see `Lab.fabric_now`")
    plane = Plane(fabric)
    plane.port_info = [row.data for row in fabric.tables.port_info]
    return plane
