"""Read unknown P_Key tables, compute them from the partitions, and write those that differ.

The whole table is read from a port that another manager has configured, since its entries would let packets through;
for a port that never had a LID, the first block is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weft.fabric.tables import PKEY_ENTRIES
from weft.ids import PKey
from weft.sm.conf.options import Options
from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View, ranges
from weft.sm.pkey.partitions import DEFAULT_P_KEY, NO_FILE, Everyone, Member, Membership, Partition, Partitions
from weft.sm.pkey.tables import PKeyTables, wanted_pkeys
from weft.sm.sender import Sender
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo
from weft.wire.smp import NodeInfo, SmpAttribute, SwitchInfo

_BLOCK = 32  # P_Keys in a MAD


def choose_pkeys(partitions: Partitions, options: Options, view: View, contents: Known) -> PKeyTables:
    """Compute the P_Key tables of all ports, also into the view's tables."""
    # Without a partition file, not even an empty one, switches have nothing to enforce.
    part_enforce = "off" if partitions == NO_FILE else options.part_enforce
    chosen = wanted_pkeys(
        partitions,
        view.fabric,
        view.own_slot,
        allow_both=options.allow_both_pkeys,
        found=contents.tables.pkey,
        keep_indexes=options.keep_pkey_indexes,
        partition_cap=_capacity(view),
        enforcement_cap=column(view.switch_info, SwitchInfo.partition_enforcement_cap).astype(np.int64),
        part_enforce=part_enforce,
    )
    view.fabric.tables.pkey = chosen.table
    return chosen


def read_pkeys(sender: Sender, view: View, contents: Known, slots: NDArray[np.intp]) -> None:
    """Read the P_Key tables of ports."""
    fresh = column(view.port_info[slots], PortInfo.lid) == 0
    of_switch = view.is_switch[view.fabric.ports.node[slots]]
    blocks = -(-_capacity_of(view, slots) // _BLOCK)
    blocks[fresh & ~of_switch] = np.minimum(blocks[fresh & ~of_switch], 1)
    owner = np.repeat(np.arange(len(slots)), blocks)
    number = ranges(np.zeros_like(blocks), blocks)
    data, came = sender.get(
        view.to_ports(slots[owner]), SmpAttribute.P_KEY_TABLE, _modifier(view, slots[owner], number)
    )
    keys = contents.tables.pkey.reshape(len(contents.tables.pkey), -1, _BLOCK)
    keys[slots] = 0
    keys[slots[owner[came]], number[came]] = _keys(data[came])
    silent = np.zeros(len(slots), bool)
    silent[owner[~came]] = True
    contents.keys[slots[~silent]] = True


def upload_pkeys(sender: Sender, view: View, contents: Known, chosen: PKeyTables) -> list[str]:
    """Write the blocks that differ; returns the ports that refused."""
    enforced = np.flatnonzero((chosen.enforcement > 0) & ~contents.keys)
    read_pkeys(sender, view, contents, enforced)
    differs = (chosen.table.view(np.uint64) != contents.tables.pkey.view(np.uint64)).any(axis=1) | ~contents.keys
    slots = np.flatnonzero((chosen.programmed | (chosen.enforcement > 0)) & differs)
    if not len(slots):
        return []
    expected = chosen.table[slots]
    current = np.where(contents.keys[slots][:, None], contents.tables.pkey[slots], expected)
    refused: set[int] = set()
    for tables in (*_without_what_moves(current, expected), expected):
        refused |= _write(sender, view, contents, slots, tables)
    return [view.name(slot) for slot in sorted(refused)]


def _write(
    sender: Sender, view: View, contents: Known, slots: NDArray[np.intp], tables: NDArray[np.uint16]
) -> set[int]:
    """Write tables; return the slots that refused."""
    expected = tables.reshape(len(slots), -1, _BLOCK)
    current = contents.tables.pkey[slots].reshape(len(slots), -1, _BLOCK)
    differs = (expected != current).any(axis=2) | ~contents.keys[slots][:, None]
    differs &= np.arange(expected.shape[1]) < (-(-_capacity_of(view, slots) // _BLOCK))[:, None]
    row, block = np.nonzero(differs)
    data = expected[row, block].astype(">u2").view(np.uint8).reshape(len(row), 2 * _BLOCK)
    at = slots[row]
    answered, took = sender.set(view.to_ports(at), SmpAttribute.P_KEY_TABLE, _modifier(view, at, block), data)
    keys = contents.tables.pkey.reshape(len(contents.tables.pkey), -1, _BLOCK)
    keys[at[took], block[took]] = _keys(answered[took])
    contents.keys[slots] = True
    contents.keys[at[~took]] = False
    return set(at[~took].tolist())


def _without_what_moves(current: NDArray[np.uint16], expected: NDArray[np.uint16]) -> Iterator[NDArray[np.uint16]]:
    """Yield tables without the keys that move from some ports to others, if there are any.

    Tables are written one after the other: the two would hold the same key for a moment, though they are to talk to
    each other neither before nor after.
    """
    rows = np.flatnonzero((current != expected).any(axis=1))
    lost, gained = _not_in(current, expected, rows), _not_in(expected, current, rows)
    moves = np.isin(current[lost] & 0x7FFF, expected[gained] & 0x7FFF)
    if moves.any():
        first = current.copy()
        first[lost[0][moves], lost[1][moves]] = 0
        yield first


def _not_in(
    table: NDArray[np.uint16], other: NDArray[np.uint16], rows: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where a table has a key that the other has not; a full key includes the limited one."""
    row, index = np.nonzero(table[rows])
    at, columns = np.nonzero(other[rows])
    held = at << 16 | other[rows[at], columns]
    new = ~np.isin(row << 16 | table[rows[row], index], np.concatenate((held, held & ~PKey.FULL_MEMBER)))
    return rows[row[new]], index[new]


def _keys(data: NDArray[np.uint8]) -> NDArray[np.uint16]:
    return np.ascontiguousarray(data).view(">u2").astype(np.uint16)


def _capacity(view: View) -> NDArray[np.int64]:
    """Return [node] -> the P_Key capacity of its end ports, at least one."""
    return np.clip(column(view.node_info, NodeInfo.partition_cap).astype(np.int64), 1, PKEY_ENTRIES)


def _capacity_of(view: View, slots: NDArray[np.intp]) -> NDArray[np.int64]:
    node = view.fabric.ports.node[slots]
    outside = view.is_switch[node] & (view.fabric.ports.number[slots] > 0)
    of_switch = column(view.switch_info[node], SwitchInfo.partition_enforcement_cap).astype(np.int64)
    return np.where(outside, np.minimum(of_switch, PKEY_ENTRIES), _capacity(view)[node])


def _modifier(view: View, slots: NDArray[np.intp], block: NDArray[np.int64]) -> NDArray[np.int64]:
    of_switch = view.is_switch[view.fabric.ports.node[slots]]
    return np.where(of_switch, view.fabric.ports.number[slots].astype(np.int64) << 16, 0) | block


def p_key_differences(
    view: View, slots: NDArray[np.intp], expected: NDArray[np.uint16], held: NDArray[np.uint16]
) -> list[str]:
    """Return a line for each of these ports whose table, uint16[slot, 128], differs."""
    rows = slots[(expected[slots] != held[slots]).any(axis=1)]
    return [f"{view.name(slot)}: {_compared(expected[slot], held[slot])}" for slot in rows.tolist()]


def _compared(expected: NDArray[np.uint16], held: NDArray[np.uint16]) -> str:
    lacks, more = ({*keys.tolist()} - {*other.tolist()} - {0} for keys, other in ((expected, held), (held, expected)))
    parts = [
        f"{word} {' and '.join(f'{key:#06x}' for key in sorted(keys))}"
        for word, keys in (("lacks P_Key", lacks), ("holds P_Key", more))
        if keys
    ]
    return ", ".join(parts) or "holds its P_Keys in another order"


def adopt_partitions(held: NDArray[np.uint16], view: View) -> Partitions:
    """Return partitions that give ports the P_Keys that they hold now: uint16[slot, 128], 0 where empty.

    Ports without any P_Key have just started. A partition that all other ports hold becomes a rule for ALL with named
    exceptions, so that it includes ports that are plugged in later; any other lists its ports by GUID. Our own port is
    a full member of Default, in place of the old master's port.
    """
    slots = view.end_ports[(held[view.end_ports] & 0x7FFF).any(axis=1)]
    if not len(slots):
        return NO_FILE
    keys = held[slots]
    p_keys = np.unique(keys & 0x7FFF)
    partitions = [_adopted(int(p_key), keys, view.fabric.ports.guid[slots]) for p_key in p_keys[p_keys > 0]]
    if not any(partition.p_key == DEFAULT_P_KEY for partition in partitions):
        partitions.append(_adopted(DEFAULT_P_KEY, keys, view.fabric.ports.guid[slots]))
    return Partitions(partitions=tuple(sorted(partitions, key=lambda one: one.p_key != DEFAULT_P_KEY)))


def _adopted(p_key: int, keys: NDArray[np.uint16], guids: NDArray[np.uint64]) -> Partition:
    full, limited = (keys == p_key | PKey.FULL_MEMBER).any(axis=1), (keys == p_key).any(axis=1)
    first = keys[:, 0] & 0x7FFF == p_key
    kind = np.where(full & limited, 3, np.where(full, 2, np.where(limited, 1, 0)))
    first &= p_key != DEFAULT_P_KEY  # it is there anyway
    members = []
    named = kind > 0
    if named.all():
        most = int(np.bincount(kind).argmax())
        members.append(Member(who=Everyone.ALL, membership=_MEMBERSHIP[most]))
        named = (kind != most) | first
    members += [
        Member(who=int(guids[row]), membership=_MEMBERSHIP[int(kind[row])], index0=bool(first[row]))
        for row in np.flatnonzero(named).tolist()
    ]
    if p_key != DEFAULT_P_KEY:
        return Partition(name=f"adopted-{p_key:#06x}", p_key=p_key, members=tuple(members))
    if members != list(NO_FILE.partitions[0].members):
        members.append(Member(who=Everyone.SELF, membership=Membership.FULL))
    return replace(NO_FILE.partitions[0], members=tuple(members))


_MEMBERSHIP = {1: Membership.LIMITED, 2: Membership.FULL, 3: Membership.BOTH}
