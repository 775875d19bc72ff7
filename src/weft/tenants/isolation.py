"""A proof of isolation: the pairs of ports that can communicate by the devices' tables, against the partitions.

    proof = prove_isolation(lab.fabric_now(), allocation)
    proof.is_isolated       no port reaches a port that it should not
    print(proof.explain())

A port is reachable with a P_Key if it has the key, the sender can inject it into the fabric, and not both are limited
members. If the switch port of the sender checks inbound keys, its table decides which keys the sender can inject,
whatever the host's software or firmware sends. Otherwise the sender's own table is used, and the port is listed as
`unguarded`: its adapter must be trusted.

    leak    the keys allow a pair that no partition allows. It counts even if no packet arrives now for lack of a
            route: the next sweep may add one. `sls` lists the service levels on which packets arrive now.
    cut     a partition allows a pair, but packets do not arrive: no key, no route, no lane, or dropped by a switch.

Default is checked like other partitions: all ports are limited members and the subnet manager's port a full one, or, if
the allocation has it so, all are full members. Partitions with foreign P_Keys are not checked.

Multicast needs no walk of its own: a receiver must hold a matching key, as for unicast.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.forwarding import CHECKS, P_KEYS_IN, RAW_IN, Reason
from weft.fabric.kernels.forwarding import MOST_HOPS, arrays
from weft.fabric.model import Fabric
from weft.fabric.tables import SERVICE_LEVELS
from weft.ids import Guid, PKey
from weft.routing.patterns import host_ports
from weft.sm.pkey.partitions import DEFAULT_P_KEY
from weft.tenants.pair_kernels import CUT, FULL, LEAK, LIMITED, NO_KEY, walk_pairs
from weft.tenants.partitions import Allocation
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo

MOST_NAMED = 10_000  # pairs; all are counted
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An ordered pair of ports."""

    sender: str
    receiver: str
    partition: str
    p_key: int  # in the packet
    sls: tuple[int, ...] = ()  # service levels on which a packet arrives now
    why: str  # the reason why it does not arrive, or that it does

    def __str__(self) -> str:
        return f"{self.sender} to {self.receiver} on {self.p_key:#06x} ({self.partition}): {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of a proof. `leaks` and `cuts` have the first 10,000 pairs; the counts are complete."""

    ports: int
    is_open: bool  # all ports are full members of Default by the allocation
    promised: int  # ordered pairs, counted for each partition
    arrive: int
    leak_count: int
    cut_count: int
    leaks: tuple[Pair, ...]
    cuts: tuple[Pair, ...]
    vls: dict[str, tuple[int, ...]]  # by partition: virtual lanes of its paths
    unguarded: tuple[str, ...]  # ports without inbound P_Key checks at their switch
    raw: tuple[str, ...]  # ports whose switch forwards raw packets, which have no P_Key
    absent: tuple[str, ...]  # members of ports that are not there now

    @property
    def is_isolated(self) -> bool:
        return self.leak_count == 0

    @property
    def ok(self) -> bool:
        return self.is_isolated and self.cut_count == 0

    def explain(self) -> str:
        lines = [f"{self.ports:,} ports, {self.arrive:,} of {self.promised:,} promised pairs arrive"]
        lines += _some(self.leak_count, "pairs can talk and should not", self.leaks)
        lines += _some(self.cut_count, "pairs should talk and cannot", self.cuts)
        if self.unguarded:
            names = _listed(self.unguarded)
            lines.append(f"no switch checks the P_Keys of {names}: these adapters must be trusted")
        if self.raw:
            lines.append(f"raw packets, which have no P_Key, get in from {_listed(self.raw)}")
        if self.absent:
            lines.append(f"not in the fabric now: {_listed(self.absent)}")
        verdict = "isolated" if self.is_isolated else "NOT isolated"
        if self.is_open:
            verdict = "open, as all are full members of Default" if self.ok else "open, but not as it should be"
        return f"{verdict}: " + "\n  ".join(lines)


def prove_isolation(fabric: Fabric, allocation: Allocation, foreign_p_keys: Collection[int] = ()) -> Proof:
    """Prove isolation of a running fabric: `lab.fabric_now()`, or `weft.tenants.reading.read_fabric`."""
    if not fabric.tables.runs:
        raise ConfigError(
            f"{fabric.spec} is not running: its ports have no P_Keys, so there is nothing to prove"
            "\n  Use a lab, or read a subnet through an adapter."
        )
    slots = host_ports(fabric).astype(np.int64)
    members = _Members(fabric, slots)
    promise, labels, absent = _promise(fabric, slots, allocation)
    rows = _joined(members, promise, foreign_p_keys)
    p_keys, begin = np.unique(rows[:, 0], return_index=True)
    levels = {p_key: partition.sl for p_key, partition in allocation.partitions.items() if allocation.lanes is not None}
    ways = _ways(fabric)
    pair_rows, totals = np.zeros((MOST_NAMED, 7), np.int64), np.zeros(4, np.int64)
    vls = np.zeros(len(p_keys), np.int64)
    tables = vars(fabric.tables)
    forwarding = arrays(fabric)
    # A search through all 128 entries at every port would be slow
    used = int(np.flatnonzero(forwarding.pkey.any(axis=0)).max(initial=-1)) + 1
    walk_pairs(
        forwarding._replace(pkey=forwarding.pkey[:, :used].copy()),
        np.append(begin, len(rows)),
        begin + np.add.reduceat((rows[:, 2:] == FULL).any(axis=1), begin, dtype=np.int64),
        p_keys,
        np.array([levels.get(p_key, 0) for p_key in p_keys.tolist()], np.int64),
        slots[rows[:, 1]],
        *(np.ascontiguousarray(rows[:, n].astype(np.int8)) for n in (2, 3, 4)),
        tables["path_sl"] if "path_sl" in tables else np.zeros((0, 0), np.uint8),
        ways[0],
        pair_rows,
        totals,
        vls,
        np.empty(MOST_HOPS, np.int32),
        np.empty(MOST_HOPS, np.int8),
    )
    names = [labels.get(p_key, "unknown") for p_key in p_keys.tolist()]
    pairs = [(row[0], _pair(fabric, row, names, ways)) for row in pair_rows[: totals[LEAK] + totals[CUT]].tolist()]
    return Proof(
        ports=len(slots),
        is_open=allocation.default_is_full,
        promised=int(totals[2]),
        arrive=int(totals[3]),
        leak_count=int(totals[LEAK]),
        cut_count=int(totals[CUT]),
        leaks=tuple(pair for kind, pair in pairs if kind == LEAK),
        cuts=tuple(pair for kind, pair in pairs if kind == CUT),
        vls={name: _bits(lanes) for name, lanes in zip(names, vls.tolist(), strict=True)},
        unguarded=tuple(fabric.port(slot).name for slot in slots[~members.guarded].tolist()),
        raw=tuple(fabric.port(slot).name for slot in slots[members.sends_raw].tolist()),
        absent=absent,
    )


class _Members:
    """The rows [P_Key, port, membership] by the ports' own tables, and by the inbound checks of their switch ports."""

    def __init__(self, fabric: Fabric, slots: NDArray[np.int64]) -> None:
        tables, before = fabric.tables, fabric.ports.peer[slots]
        self.guarded = (tables.port_info[before, CHECKS] & P_KEYS_IN) > 0
        self.sends_raw = (tables.port_info[before, CHECKS] & RAW_IN) == 0
        self.own = _held(tables.pkey[slots])
        trusted, guarded = self.own[~self.guarded[self.own[:, 1]]], np.flatnonzero(self.guarded)
        let_in = _held(tables.pkey[before[guarded]])
        let_in[:, 1] = guarded[let_in[:, 1]]
        self.let_in = np.concatenate((trusted, let_in))


def _held(keys: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Return the rows [P_Key, port, membership] of P_Key tables; full membership wins over limited."""
    port, at = np.nonzero(keys & 0x7FFF)
    key = keys[port, at].astype(np.int64)
    return np.column_stack((key & 0x7FFF, port, np.where(key & PKey.FULL_MEMBER, FULL, LIMITED)))


def _promise(
    fabric: Fabric, slots: NDArray[np.int64], allocation: Allocation
) -> tuple[NDArray[np.int64], dict[int, str], tuple[str, ...]]:
    """Return rows [P_Key, port, membership] that partitions promise, partition names by P_Key, and absent members."""
    place = dict(zip(fabric.ports.guid[slots].tolist(), range(len(slots)), strict=True))
    rows: list[tuple[int, int, int]] = []
    absent: dict[str, None] = {}
    for p_key, partition in allocation.partitions.items():
        for guid, member in partition.members.items():
            if guid in place:
                rows.append((p_key, place[guid], FULL if member.full else LIMITED))
            else:
                absent[str(Guid(guid))] = None
    tables = fabric.tables
    managers = np.unique(column(tables.port_info[slots], PortInfo.master_sm_lid))
    is_full = np.isin(tables.lid[slots], managers) | allocation.default_is_full
    everyone = np.column_stack(
        (np.full(len(slots), DEFAULT_P_KEY), np.arange(len(slots)), np.where(is_full, FULL, LIMITED))
    )
    labels = {p_key: partition.name for p_key, partition in allocation.partitions.items()} | {DEFAULT_P_KEY: "Default"}
    return np.concatenate((np.array(rows, np.int64).reshape(-1, 3), everyone)), labels, tuple(absent)


def _joined(members: _Members, promise: NDArray[np.int64], foreign_p_keys: Collection[int]) -> NDArray[np.int64]:
    """Return the rows [P_Key, port, own, let in, promised], by P_Key, full members first, without foreign P_Keys."""
    parts = (members.own, members.let_in, promise)
    code = np.concatenate([part[:, 0] << 32 | part[:, 1] for part in parts])
    both, row = np.unique(code, return_inverse=True)
    joined = np.zeros((len(both), 5), np.int64)
    joined[:, 0], joined[:, 1] = both >> 32, both & 0xFFFF_FFFF
    begin = 0
    for column_of, part in enumerate(parts, 2):
        np.maximum.at(joined[:, column_of], row[begin : begin + len(part)], part[:, 2])
        begin += len(part)
    joined = joined[~np.isin(joined[:, 0], list(foreign_p_keys))]
    return joined[np.lexsort(((joined[:, 2:] != FULL).all(axis=1), joined[:, 0]))]


def _ways(fabric: Fabric) -> tuple[NDArray[np.int64], list[tuple[int, ...]]]:
    """Group service levels with equal SL to VL tables; return one level of each group, and the groups."""
    if "sl2vl" not in vars(fabric.tables):
        return np.zeros(1, np.int64), [tuple(range(SERVICE_LEVELS))]
    columns = fabric.tables.sl2vl.T
    kinds: dict[bytes, list[int]] = {}
    for sl in range(SERVICE_LEVELS):
        kinds.setdefault(columns[sl].tobytes(), []).append(sl)
    return np.array([sls[0] for sls in kinds.values()], np.int64), [tuple(sls) for sls in kinds.values()]


def _pair(
    fabric: Fabric, row: list[int], names: list[str], ways: tuple[NDArray[np.int64], list[tuple[int, ...]]]
) -> Pair:
    _, part, sender, receiver, key, arrives, reason = row
    sls = sorted(sl for way, group in enumerate(ways[1]) if arrives >> way & 1 for sl in group)
    why = "the sender does not hold the key" if reason == NO_KEY else Reason(reason).text
    ends = fabric.port(sender).name, fabric.port(receiver).name
    return Pair(sender=ends[0], receiver=ends[1], partition=names[part], p_key=key, sls=tuple(sls), why=why)


def _bits(mask: int) -> tuple[int, ...]:
    return tuple(n for n in range(mask.bit_length()) if mask >> n & 1)


def _some(count: int, title: str, pairs: tuple[Pair, ...]) -> list[str]:
    lines = [f"{count:,} {title}{':' if count else ''}"]
    lines += [f"  {pair}" for pair in pairs[:_SHOWN]]
    return [*lines, f"  and {count - _SHOWN:,} more"] if count > _SHOWN else lines


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
