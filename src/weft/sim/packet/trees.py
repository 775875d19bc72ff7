"""The multicast trees: the paths of copies, built before the run, and the counts of copies after it."""

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
    """The trees of each sender, group and kind of packet, with their branches numbered consecutively."""

    branches: Records  # BRANCH records
    slot: NDArray[np.int64]  # [branch] -> port slot that it leads to
    ends: list[tuple[int, int, Reason]]  # branch, slot, fate of a copy there

    @property
    def widest(self) -> int:
        """The largest number of copies that one packet becomes."""
        return int((self.branches.end - self.branches.first).max(initial=0))

    def use(self, fabric: Fabric) -> GroupUse | None:
        """Return the use of ports by multicast; None if there was none."""
        if not len(self.slot):
            return None
        arrived, corrupted = self.branches.arrived, self.branches.corrupted
        xmit, rcv, copies = (np.zeros(len(fabric.ports), np.int64) for _ in range(3))
        counters = np.zeros_like(fabric.counters)
        np.add.at(xmit, fabric.ports.peer[self.slot], arrived + corrupted)
        np.add.at(rcv, self.slot, arrived + corrupted)
        for branch, slot, reason in self.ends:
            if reason is Reason.ARRIVED:
                copies[slot] += arrived[branch]
            elif reason in COUNTED:
                counters[slot, COUNTED[reason]] += arrived[branch]
        return GroupUse(xmit_packets=xmit, rcv_packets=rcv, copies=copies, counters=counters)


def build_trees(wiring: Wiring, posting: Posting, n_vls: int) -> Trees:
    """Build the trees of all multicast messages, and store the tree of each in its record."""
    messages, fabric = posting.messages, wiring.fabric
    for_groups = np.flatnonzero((messages.src == messages.dst) & (messages.dlid >= Lid.FIRST_MULTICAST))
    trees: dict[tuple[int, ...], tuple[int, int]] = {}
    builder = _TreeBuilder()
    plane = plane_of(fabric) if len(for_groups) else None
    for row in for_groups.tolist():
        message, p_key = messages[row], int(posting.p_key[row])
        slot, dlid, sl = int(wiring.slot[message.src]), int(message.dlid), int(message.sl)
        size_bytes = int(posting.size_bytes[message["first"]]) - VCRC_BYTES
        key = (slot, dlid, sl, p_key, size_bytes)
        if key not in trees:
            assert plane is not None
            hops = follow(plane, slot, dlid=dlid, sl=sl, p_key=p_key, size_bytes=size_bytes)
            trees[key] = builder.add_tree((at, hop, plane.cable[hop.slot]) for at, _, hop in hops)
        message.branch, message.branches = trees[key]
        if not message.branches:
            name, why = fabric.port(slot).name, builder.ends[-1][2].text
            raise ConfigError(f"no packet for group {dlid:#06x} leaves {name}: {why}")
        if int(message.packets) * int(message.branches) > _MOST_COPIES:
            raise ConfigError(f"a message to group {dlid:#06x} becomes over 2**31 packets: send it in parts")
        message.dlid = 0  # has no route in forwarding tables, so that a switch looks for its branch
    branches = records(len(builder.slot), BRANCH)
    if len(branches):
        branches.first, branches.end = np.array(builder.next).T
        branches.queue = wiring.port_of_slot[builder.out] * n_vls + np.array(builder.vl)
    return Trees(branches=branches, slot=np.array(builder.slot, np.int64), ends=builder.ends)


class _TreeBuilder:
    """A builder of branches, stored as columns."""

    def __init__(self) -> None:
        self.out: list[int] = []  # slot by which copies leave for it
        self.vl: list[int] = []
        self.slot: list[int] = []  # slot that it leads to
        self.next: list[tuple[int, int]] = []  # first branch that follows, and the end of those
        self.ends: list[tuple[int, int, Reason]] = []

    def add_tree(self, hops: Iterable[tuple[int, Hop, int]]) -> tuple[int, int]:
        """Add a tree from the ports that a packet reaches, hops from each and their far ends.

        Return first branch and count.
        """
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
    """Return a view for following packets through the snapshot of a running subnet."""
    if not fabric.tables.runs:
        raise ConfigError(
            f"{fabric.spec} has no running subnet manager, which multicast groups need: see `Lab.fabric_now`"
        )
    plane = Plane(fabric)
    plane.port_info = [row.data for row in fabric.tables.port_info]
    return plane
