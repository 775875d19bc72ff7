"""The P_Key tables that partitions ask for, and who checks them.

    rules of all partitions -> (partition, port): the last rule -> keys of a port -> their indexes -> the tables

The places are OpenSM's (osm_pkey_mgr.c), so that a subnet which changes its manager keeps its tables: index 0 is
Default's, or of the partition that asks for it by `indx0`; the others follow from 1 in the order of OpenSM's map, which
is by P_Key with the low byte first. With `keep_indexes` a key stays where it was found, because programs hold indexes,
not keys, and new ones go behind the last that stays.

All ports at once: the work is in arrays of one row per (partition, port).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import PKEY_ENTRIES
from weft.ids import Guid, PKey, p_keys_match
from weft.sm.pkey.partitions import (
    BOTH_MEMBER,
    DEFAULT_P_KEY,
    LIMITED_MEMBER,
    ROW,
    Devices,
    Everyone,
    Member,
    Partition,
    Partitions,
)

FULL = PKey.FULL_MEMBER
INBOUND, OUTBOUND = 2, 1  # the two bits of PortInfo
# opensm.conf's part_enforce: in which direction switches check the P_Keys of packets at ports facing adapters.
PART_ENFORCE = {"both": INBOUND | OUTBOUND, "in": INBOUND, "out": OUTBOUND, "off": 0}
_NAMED = 4  # how many ports or keys a note names
_CAS = (NodeKind.HCA, NodeKind.AGGREGATION)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PKeyTables:
    """The P_Key tables of ports. A row that is not programmed has the table that was read, or the default."""

    table: NDArray[np.uint16]  # [slot, index]
    programmed: NDArray[np.bool_]  # [slot] -> does the subnet manager write this row?
    enforcement: NDArray[np.uint8]  # [slot] -> INBOUND | OUTBOUND
    notes: tuple[str, ...]
    lacking: tuple[str, ...]  # those of the notes that say what tables have no room for


@dataclass(frozen=True, slots=True, eq=False)
class _Rules:
    """The rules, one row for each (rule, port)."""

    part: NDArray[np.int64]
    end: NDArray[np.int64]  # index into the end ports
    code: NDArray[np.int8]
    index0: NDArray[np.bool_]
    order: NDArray[np.int64]  # index of the rule over all partitions

    def take(self, rows: NDArray[np.intp]) -> _Rules:
        return _Rules(self.part[rows], self.end[rows], self.code[rows], self.index0[rows], self.order[rows])


@dataclass(frozen=True, slots=True, eq=False)
class _Keys:
    """The keys, one row for each key of a port, ordered by port and then as OpenSM's map."""

    end: NDArray[np.int64]
    key: NDArray[np.uint16]
    first: NDArray[np.bool_]  # shall be at index 0

    def bounds(self, end: int) -> tuple[int, int]:
        """Return the range of rows of a port."""
        first, behind = np.searchsorted(self.end, (end, end + 1))
        return int(first), int(behind)


def wanted_pkeys(
    partitions: Partitions,
    fabric: Fabric,
    own_slot: int,
    *,
    allow_both: bool = False,
    found: NDArray[np.uint16] | None = None,
    keep_indexes: bool = False,
    partition_cap: NDArray[np.integer] | None = None,
    enforcement_cap: NDArray[np.integer] | None = None,
    part_enforce: str = "both",
) -> PKeyTables:
    """Compute the P_Key tables of all ports for these partitions.

    `found` is uint16[slot, 128] as read from the devices, 0 where empty. The capacities are by node: NodeInfo's
    PartitionCap, and SwitchInfo's PartitionEnforcementCap for the external ports of switches; without them, 128.
    """
    notes: list[str] = []
    slots = _end_slots(fabric)
    last = _last_rules(_expand(partitions.partitions, fabric, slots, own_slot, notes))
    keys = _keys(last, partitions.partitions, allow_both)
    if not allow_both and (last.code == BOTH_MEMBER).any():
        notes.append("members of a partition as both are full members: allow_both_pkeys is off")
    cap = _capacity(partition_cap, fabric)[fabric.ports.node[slots]]
    current_index = _found_at(keys, found[slots], allow_both) if keep_indexes and found is not None else None
    index = _indexes(keys, cap, current_index)
    lacking: list[str] = []
    _name_dropped(keys, index, cap, fabric, slots, lacking)
    table = fabric.tables.like().pkey if found is None else found.astype(np.uint16)
    table[slots] = 0
    fits = index >= 0
    table[slots[keys.end[fits]], index[fits]] = keys.key[fits]
    if own_slot in slots and (DEFAULT_P_KEY | FULL) not in table[own_slot]:
        notes.append("the subnet manager's port is not a full member of Default: limited members cannot reach the SA")
    programmed = np.zeros(len(fabric.ports), bool)
    programmed[slots] = (fabric.ports.peer[slots] >= 0) | (fabric.ports.number[slots] == 0) | (slots == own_slot)
    directions = PART_ENFORCE[part_enforce]
    enforcement = _enforce(fabric, slots, table, programmed, _capacity(enforcement_cap, fabric), directions, lacking)
    return PKeyTables(
        table=table,
        programmed=programmed,
        enforcement=enforcement,
        notes=(*notes, *lacking),
        lacking=tuple(lacking),
    )


# -- rules to keys ----------------------------------------------------------------------------------------------------


def _end_slots(fabric: Fabric) -> NDArray[np.int64]:
    """Return the end ports: those of adapters and routers, and port 0 of switches."""
    kind = fabric.nodes.kind[fabric.ports.node]
    external = fabric.ports.number > 0
    ends = np.where(kind == NodeKind.SWITCH, ~external, np.isin(kind, (*_CAS, NodeKind.ROUTER)) & external)
    return np.flatnonzero(ends)


def _capacity(cap: NDArray[np.integer] | None, fabric: Fabric) -> NDArray[np.int64]:
    """Return [node] -> entries, at most 128."""
    if cap is None:
        return np.full(len(fabric.nodes), PKEY_ENTRIES, np.int64)
    return np.minimum(cap.astype(np.int64), PKEY_ENTRIES)


def _expand(
    partitions: tuple[Partition, ...], fabric: Fabric, slots: NDArray[np.int64], own_slot: int, notes: list[str]
) -> _Rules:
    """Expand every rule to the ports that it selects."""
    members = list(chain.from_iterable(partition.members for partition in partitions))
    rows = np.concatenate([np.zeros(0, ROW), *(partition.rows for partition in partitions)])
    part = np.repeat(np.arange(len(partitions)), [len(partition.members) for partition in partitions])
    guid = rows["guid"]
    order = np.argsort(fabric.ports.guid[slots], kind="stable")
    place = order[np.minimum(np.searchsorted(fabric.ports.guid[slots], guid, sorter=order), len(slots) - 1)]
    count = (fabric.ports.guid[slots[place]] == guid).astype(np.int64)  # ports of a rule
    many = {int(rule): _many(members[rule].who, fabric, slots, own_slot) for rule in np.flatnonzero(guid == 0)}
    count[list(many)] = [len(ends) for ends in many.values()]
    _name_absent(partitions, members, part, np.flatnonzero(count == 0), notes)
    rules = np.argsort(rows["rank"], kind="stable")
    rule = np.repeat(rules, count[rules])
    end = place[rule]
    for number, ends in many.items():
        end[rule == number] = ends
    return _Rules(
        part[rule],
        end,
        rows["code"][rule],
        rows["index0"][rule],
        np.repeat(np.arange(len(rows)), count[rules]),
    )


def _name_absent(
    partitions: tuple[Partition, ...],
    members: list[Member],
    part: NDArray[np.int64],
    rules: NDArray[np.intp],
    notes: list[str],
) -> None:
    """Note each partition with rules that select no port."""
    absent: dict[int, list[str]] = {}
    for rule in rules.tolist():
        selector, line = members[rule].who, members[rule].line
        if not isinstance(selector, Everyone):
            name = str(Guid(selector) if isinstance(selector, int) else selector)
            absent.setdefault(int(part[rule]), []).append(f"{name} (line {line})" if line else name)
    for number, names in absent.items():
        notes.append(f"partition {partitions[number].label}: there is no port {_listed(names)}")


def _many(
    selector: Everyone | Devices | int, fabric: Fabric, slots: NDArray[np.int64], own_slot: int
) -> NDArray[np.int64]:
    """Return the end ports of a rule without a GUID."""
    if isinstance(selector, Devices):
        return _devices(selector, fabric, slots)
    kind = fabric.nodes.kind[fabric.ports.node[slots]]
    of_kind = {
        Everyone.ALL: np.ones(len(slots), bool),
        Everyone.ALL_CAS: np.isin(kind, _CAS),
        Everyone.ALL_SWITCHES: kind == NodeKind.SWITCH,
        Everyone.ALL_ROUTERS: kind == NodeKind.ROUTER,
        Everyone.SELF: slots == own_slot,
    }
    return np.flatnonzero(of_kind[selector]) if isinstance(selector, Everyone) else np.zeros(0, np.int64)


def _devices(selector: Devices, fabric: Fabric, slots: NDArray[np.int64]) -> NDArray[np.int64]:
    if isinstance(selector.value, str):
        pattern = re.compile(selector.value)
        nodes = np.array([pattern.fullmatch(text) is not None for text in fabric.nodes.description], bool)
    else:
        column = fabric.nodes.guid if selector.by == "node GUID" else fabric.nodes.system_guid
        nodes = column == np.uint64(selector.value)
    meant = nodes[fabric.ports.node[slots]]
    if selector.ports is not None:
        number = fabric.ports.number[slots]
        meant = meant & (number >= selector.ports[0]) & (number <= selector.ports[1])
    return np.flatnonzero(meant)


def _last_rules(rules: _Rules) -> _Rules:
    """Return the effective rule of each (partition, port), with `index0` only where the partition gets index 0.

    Index 0 of a port goes to the last rule of all partitions that asks for it. If a later rule of the same partition
    does not ask, index 0 stays free and does not return to an earlier rule: OpenSM remembers one partition per port.
    """
    asks = np.full(int(rules.end.max(initial=-1)) + 1, -1, np.int64)
    np.maximum.at(asks, rules.end[rules.index0], rules.order[rules.index0])
    sort = np.lexsort((rules.order, rules.end, rules.part))
    part, end = rules.part[sort], rules.end[sort]
    is_last = np.ones(len(sort), bool)
    is_last[:-1] = (part[1:] != part[:-1]) | (end[1:] != end[:-1])
    last = rules.take(sort[is_last])
    return _Rules(last.part, last.end, last.code, last.index0 & (last.order == asks[last.end]), last.order)


def _keys(rules: _Rules, partitions: tuple[Partition, ...], allow_both: bool) -> _Keys:
    p_key = np.array([partition.p_key for partition in partitions], np.uint16)[rules.part]
    is_taken = np.zeros(int(rules.end.max(initial=-1)) + 1, bool)
    is_taken[rules.end[rules.index0]] = True
    full = rules.code != LIMITED_MEMBER
    limited = (rules.code == LIMITED_MEMBER) | ((rules.code == BOTH_MEMBER) & allow_both)
    # With both keys of a partition, OpenSM puts the limited one at index 0 by indx0, and the full one for Default.
    is_default = (p_key == DEFAULT_P_KEY) & ~is_taken[rules.end]
    first_full = is_default | (rules.index0 & ~limited)
    first_limited = rules.index0 | (is_default & (not allow_both))
    end = np.concatenate((rules.end[limited], rules.end[full]))
    key = np.concatenate((p_key[limited], p_key[full] | np.uint16(FULL)))
    first = np.concatenate((first_limited[limited], first_full[full]))
    sort = np.lexsort((key >= FULL, (key & 0x7FFF).byteswap(), end))
    return _Keys(end[sort], key[sort], first[sort])


# -- keys to indexes --------------------------------------------------------------------------------------------------


def _indexes(keys: _Keys, cap: NDArray[np.int64], there: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return [key] -> its index in the table of its port, -1 if the table is full. `there`: its current index."""
    index = np.where(keys.first, 0, -1)
    if there is not None:
        stays = (there >= 0) & ((there == 0) == keys.first) & (there < cap[keys.end])
        index[stays] = there[stays]
    behind = np.zeros(len(cap), np.int64)  # [end] -> the highest index that is taken
    placed = index >= 0
    np.maximum.at(behind, keys.end[placed], index[placed])
    new = np.flatnonzero(~placed)
    end = keys.end[new]
    starts = np.flatnonzero(np.diff(end, prepend=-1))
    nth = np.arange(len(new)) - np.repeat(starts, np.diff(np.append(starts, len(new))))
    index[new] = behind[end] + 1 + nth
    for crowded in np.unique(keys.end[index >= cap[keys.end]]).tolist():
        _squeeze(index, np.arange(*keys.bounds(crowded)), int(cap[crowded]))
    return index


def _found_at(keys: _Keys, tables: NDArray[np.uint16], allow_both: bool) -> NDArray[np.int64]:
    """Return [key] -> the index where the port has this key already, the first of several, or -1.

    A key that changes between full and limited stays in its place, unless ports may have both.
    """
    mask = 0xFFFF if allow_both else 0x7FFF
    ends, at = np.nonzero(tables[:, : used_width(tables)] & mask)
    held, first = np.unique(ends << 16 | (tables[ends, at] & mask), return_index=True)
    required = keys.end << 16 | (keys.key & mask)
    if not len(held):
        return np.full(len(required), -1)
    place = np.minimum(np.searchsorted(held, required), len(held) - 1)
    return np.where(held[place] == required, at[first[place]], -1)


def _squeeze(index: NDArray[np.int64], rows: NDArray[np.int64], cap: int) -> None:
    """Move keys beyond the end of a port's table to free entries from index 1; set the rest to -1."""
    over = rows[index[rows] >= cap]
    free = np.setdiff1d(np.arange(1, cap), index[rows])[: len(over)]
    index[over] = -1
    index[over[: len(free)]] = free


def _name_dropped(
    keys: _Keys,
    index: NDArray[np.int64],
    cap: NDArray[np.int64],
    fabric: Fabric,
    slots: NDArray[np.int64],
    notes: list[str],
) -> None:
    """Note each set of keys that does not fit into the tables of some ports."""
    sets: dict[tuple[int, ...], list[int]] = {}
    for end in np.unique(keys.end[index < 0]).tolist():
        rows = slice(*keys.bounds(end))
        sets.setdefault(tuple(keys.key[rows][index[rows] < 0].tolist()), []).append(end)
    for dropped, ends in sets.items():
        ports = _listed([fabric.port(int(slots[end])).name for end in ends])
        names = _listed([f"{key:#06x}" for key in dropped])
        notes.append(f"{ports}: no room for {names} in a P_Key table of {int(cap[ends[0]])} entries")


# -- switches ---------------------------------------------------------------------------------------------------------


def _enforce(
    fabric: Fabric,
    slots: NDArray[np.int64],
    table: NDArray[np.uint16],
    programmed: NDArray[np.bool_],
    cap: NDArray[np.int64],
    directions: int,
    notes: list[str],
) -> NDArray[np.uint8]:
    """Switch ports that face adapters and routers get the keys of what is attached, and check them; others do not.

    A switch whose table is too small for the keys does not check at that port: it would stop good packets.
    """
    enforcement = np.zeros(len(table), np.uint8)
    peer = fabric.ports.peer[slots]
    facing = (fabric.ports.number[slots] > 0) & (peer >= 0)
    facing[facing] = fabric.nodes.kind[fabric.ports.node[peer[facing]]] == NodeKind.SWITCH
    room = np.where(facing, cap[fabric.ports.node[peer]], 0)
    if not directions:
        return enforcement
    ends, room = slots[room > 0], room[room > 0]
    switch_slots = fabric.ports.peer[ends]
    keys = _packed(table[ends])
    count = (keys != 0).sum(axis=1)
    keys[np.arange(keys.shape[1]) >= room[:, None]] = 0
    table[switch_slots] = 0
    table[switch_slots, : keys.shape[1]] = keys
    programmed[switch_slots] = True
    enforcement[switch_slots] = np.where(count <= room, directions, 0)
    full = switch_slots[count > room].tolist()
    if full:
        ports = _listed([fabric.port(slot).name for slot in full])
        notes.append(f"{ports}: more P_Keys than the switch can check: packets pass there unchecked")
    return enforcement


def _packed(rows: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Pack the keys of each row, without limited keys that a full one includes."""
    rows = rows[:, : used_width(rows)].copy()
    ordered = np.sort(rows & 0x7FFF, axis=1)
    twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] > 0)).any(axis=1)
    if twice.any():
        some = rows[twice]
        codes = np.arange(len(some))[:, None] << 16 | some | FULL
        some[(some < FULL) & np.isin(codes, codes[some >= FULL])] = 0
        rows[twice] = some
    return np.take_along_axis(rows, np.argsort(rows == 0, axis=1, kind="stable"), axis=1)


def used_width(rows: NDArray[np.uint16]) -> int:
    """Return how many of the 128 columns are used."""
    used = np.flatnonzero(rows.any(axis=0))
    return int(used[-1]) + 1 if len(used) else 0


# -- who may talk -----------------------------------------------------------------------------------------------------


def may_talk(keys_a: Collection[int], keys_b: Collection[int]) -> list[int]:
    """Return the keys by which a port may talk to another, one for each partition, the full one if it has it.

    In the order in which OpenSM takes them for a path that does not ask for one: by partition, low byte first.
    """
    theirs = set(keys_b)
    fit = [key for key in sorted(keys_a) if any(p_keys_match(key, other) for other in {key, key ^ FULL} & theirs)]
    best = {key & 0x7FFF: key for key in fit}
    return sorted(best.values(), key=lambda key: (key & 0x7FFF).to_bytes(2, "little"))


def _listed(names: list[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
