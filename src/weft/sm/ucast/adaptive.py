"""Write the groups for adaptive routing from a routing engine's tables to the switches that support them.

    wanted = plan_groups(tables, infos, before)                    the numbers that groups get in each switch
    for write in ar_writes(wanted, infos, before):
        sender.set(...)                                            in this order, each when the one before is answered

`infos` is uint8[switch, 28], AdaptiveRoutingInfo as each said it; all zeros, and so no group, for one that takes none.
`tables` are wanted tables, routed with `Options(adaptive=True)`; `before` is what was planned and written last time, or
None, and of switches that did not take all of it `before.forget(rows)`. A group keeps its number while it is in use,
and a new one takes a free number: first the new groups are written, then the LIDs move over to them, last
it is turned on. So no LID points to a group that is being changed, unless the switch has no number left.

Two rules of these switches, see `weft.wire.adaptive` for how sure they are. The adaptive forwarding table carries the
port of the plain one too: what stands in a switch after this is `wanted.port`. And a Set of the plain forwarding table
turns adaptive routing off: so ask after those are written. A switch that is off, or restarted, is written anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.fabric.tables import NO_ROUTE, Tables
from weft.mad.walk import Rows
from weft.sm.discovery.view import View
from weft.sm.sender import Sender
from weft.sm.ucast.group_numbers import STATIC, WORDS, copy_used, count_groups, number_groups
from weft.wire.adaptive import GROUPS_PER_BLOCK, LIDS_PER_BLOCK, MASK_BYTES, AdaptiveRoutingInfo, LidState
from weft.wire.bulk import column, fill
from weft.wire.smp import SmpAttribute

BATCH_MADS = 1 << 16  # with 16 LIDs to a block a big subnet takes a million
_FREE = int(LidState.FREE) << 6  # packet by packet, as the packet engine chooses
_FIXED = int(LidState.STATIC) << 6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Groups:
    """The adaptive routing groups of switches, current or desired, by row of the forwarding tables."""

    group: NDArray[np.int16]  # [switch, lid] -> number of its group there, STATIC for none
    port: NDArray[np.uint8]  # [switch, lid] -> port of the plain forwarding table
    mask: NDArray[np.uint64]  # [switch, number, word] -> ports: bit p % 64 of word p // 64
    known: NDArray[np.bool_]  # [switch] -> is it so in the device?

    def forget(self, rows: NDArray[np.intp]) -> Groups:
        """Return the groups with the contents of some switches marked as unknown."""
        known = self.known.copy()
        known[rows] = False
        return Groups(group=self.group, port=self.port, mask=self.mask, known=known)

    def take(self, rows: NDArray[np.intp]) -> Groups:
        """Return the groups for other rows: [new row] -> old row, -1 for a new switch."""
        return Groups(
            group=self.group[rows], port=self.port[rows], mask=self.mask[rows], known=self.known[rows] & (rows >= 0)
        )

    @property
    def top(self) -> NDArray[np.int64]:
        """The last group that a LID uses, by switch; -1 if there is none."""
        top: NDArray[np.int64] = self.group.max(axis=1, initial=STATIC).astype(np.int64)
        return top


# -- numbers ----------------------------------------------------------------------------------------------------------


def plan_groups(tables: Tables, infos: Rows, before: Groups | None = None) -> Groups:
    """Number the groups of each switch. LIDs whose groups exceed its capacity keep a single port."""
    cap = column(infos, AdaptiveRoutingInfo.group_cap).astype(np.int64)
    masks = _words(tables.ar_ports)
    of_lid = tables.ar_group
    in_use = int(before.top.max(initial=STATIC)) + 1 if before is not None else 0
    room = min(in_use + count_groups(of_lid, len(masks)), int(cap.max(initial=0)))
    mask = np.zeros((len(of_lid), -(-room // GROUPS_PER_BLOCK) * GROUPS_PER_BLOCK, WORDS), np.uint64)
    if before is not None:
        copy_used(before.group, before.mask, before.known, mask)
    group = np.full(of_lid.shape, STATIC, np.int16)
    number_groups(of_lid, masks, cap, mask, group)
    return Groups(group=group, port=tables.lft.copy(), mask=mask, known=(group != STATIC).any(axis=1))


def _words(ports: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return uint64[group, word] of bool[group, port]."""
    wide = np.zeros((len(ports), NO_ROUTE + 1), np.bool_)
    wide[:, : ports.shape[1]] = ports
    return np.packbits(wide, axis=1, bitorder="little").view("<u8").astype(np.uint64)


# -- to the switches --------------------------------------------------------------------------------------------------


class Write(NamedTuple):
    """A set of blocks to be written at the same time."""

    attribute: SmpAttribute
    rows: NDArray[np.intp]  # [n] -> switch, by row of the forwarding tables
    blocks: NDArray[np.int64] | int
    data: Rows  # [n, ...]


def ar_writes(expected: Groups, infos: Rows, before: Groups | None = None) -> Iterator[Write]:
    """Yield the differences from `before`, in the order of writing: groups, forwarding, on or off."""
    takes, was_on = (column(infos, field) > 0 for field in (AdaptiveRoutingInfo.group_cap, AdaptiveRoutingInfo.enabled))
    active = takes & (expected.top >= 0)
    known = before.known & was_on if before is not None else np.zeros(len(takes), np.bool_)
    old_mask = before.mask if before is not None else expected.mask[:, :0]
    yield Write(SmpAttribute.ADAPTIVE_ROUTING_GROUP_TABLE, *_changed_groups(expected.mask, old_mask, active, known))
    yield from _forwarding(expected, before, active, known)
    top = np.maximum(expected.top, 0)
    moved = top != column(infos, AdaptiveRoutingInfo.group_top).astype(np.int64)
    due = np.flatnonzero((active != was_on) & takes | active & moved)
    data = infos[due].copy()
    fill(data, AdaptiveRoutingInfo.enabled, active[due])
    fill(data, AdaptiveRoutingInfo.group_top, top[due])
    yield Write(SmpAttribute.ADAPTIVE_ROUTING_INFO, due, 0, data)


def _changed_groups(
    mask: NDArray[np.uint64], old: NDArray[np.uint64], active: NDArray[np.bool_], known: NDArray[np.bool_]
) -> tuple[NDArray[np.intp], NDArray[np.int64], Rows]:
    """Return row, block and its bytes; for an unknown switch all blocks that hold a group."""
    current = np.zeros_like(mask)
    width = min(old.shape[1], mask.shape[1])
    current[:, :width] = np.where(known[:, None, None], old[:, :width], np.uint64(0))
    shape = (len(mask), mask.shape[1] // GROUPS_PER_BLOCK, GROUPS_PER_BLOCK)
    differs = (mask != current).any(axis=2).reshape(shape).any(axis=2)
    rows, blocks = np.nonzero(differs & active[:, None])
    pairs = mask.reshape(*shape, WORDS)[rows, blocks]
    octets = np.ascontiguousarray(pairs.astype("<u8")).view(np.uint8).reshape(len(rows), GROUPS_PER_BLOCK, MASK_BYTES)
    return rows, blocks.astype(np.int64), octets[:, :, ::-1].reshape(len(rows), GROUPS_PER_BLOCK * MASK_BYTES)


def _forwarding(
    expected: Groups, before: Groups | None, active: NDArray[np.bool_], known: NDArray[np.bool_]
) -> Iterator[Write]:
    lids = max(expected.group.shape[1], before.group.shape[1] if before is not None else 0)
    lids = -(-lids // LIDS_PER_BLOCK) * LIDS_PER_BLOCK
    at_once = max(1, BATCH_MADS * LIDS_PER_BLOCK // max(lids, 1))
    switches = np.flatnonzero(active)
    for begin in range(0, len(switches), at_once):
        rows = switches[begin : begin + at_once]
        new = _entries(expected, rows, lids).reshape(len(rows), lids // LIDS_PER_BLOCK, LIDS_PER_BLOCK * 4)
        differs = np.ones(new.shape[:2], np.bool_)
        if before is not None:
            current = _entries(before, rows, lids).reshape(new.shape)
            differs = (new != current).any(axis=2) | ~known[rows, None]
        rows_to_write, blocks = np.nonzero(differs)
        attribute = SmpAttribute.ADAPTIVE_ROUTING_LINEAR_FORWARDING_TABLE
        yield Write(attribute, rows[rows_to_write], blocks.astype(np.int64), new[rows_to_write, blocks])


def _entries(groups: Groups, rows: NDArray[np.intp], lids: int) -> Rows:
    """Return uint8[row, lid, 4] as in the MAD."""
    more = ((0, 0), (0, lids - groups.group.shape[1]))
    group = np.pad(groups.group[rows], more, constant_values=STATIC)
    port = np.pad(groups.port[rows], more, constant_values=NO_ROUTE)
    fixed = group == STATIC
    number = np.where(fixed, port, group)
    entries = np.empty((len(rows), lids, 4), np.uint8)
    entries[:, :, 0] = np.where(fixed, _FIXED, _FREE)
    entries[:, :, 1] = port
    entries[:, :, 2] = number >> 8
    entries[:, :, 3] = number & 0xFF
    return entries


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AdaptiveState:
    """The adaptive routing groups that were written, and the switches that hold them."""

    guids: NDArray[np.uint64]  # [row of the groups]
    groups: Groups


def upload_adaptive(sender: Sender, view: View, written: AdaptiveState | None) -> tuple[AdaptiveState, list[str]]:
    """Write adaptive routing after the linear tables, which turn it off; return its state and who refused."""
    tables, switches = view.fabric.tables, np.flatnonzero(view.is_switch)
    guids = view.fabric.nodes.guid[switches]
    infos_read, knows = sender.get(view.to_nodes(switches), SmpAttribute.ADAPTIVE_ROUTING_INFO)
    infos = np.where(knows[:, None], infos_read[:, : AdaptiveRoutingInfo.size], 0).astype(np.uint8)
    before = None
    if written is not None:
        old = {guid: row for row, guid in enumerate(written.guids.tolist())}
        rows = np.array([old.get(guid, -1) for guid in guids.tolist()], np.intp)
        before = written.groups.take(rows)
    expected = plan_groups(tables, infos, before)
    refused: set[int] = set()
    for write in ar_writes(expected, infos, before):
        nodes = switches[write.rows]
        _, took = sender.set(view.to_nodes(nodes), write.attribute, write.blocks, write.data)
        refused.update(nodes[~took].tolist())
    unsure = tables.switch_row[sorted(refused)].astype(np.intp)
    now = AdaptiveState(guids=guids, groups=expected.forget(unsure))
    return now, [view.fabric.nodes.name[node] for node in sorted(refused)]
