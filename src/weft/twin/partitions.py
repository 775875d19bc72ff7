"""Compare who can communicate before and after another intent of tenants, by the P_Keys of host ports.

keys = plan_keys(fabric, intent)                    the P_Key tables that the intent needs
change = compare_keys(fabric, before, keys)         pairs that lose or gain a common partition
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.fabric.tables import PKEY_ENTRIES
from weft.ids import PKey
from weft.routing.patterns import host_ports
from weft.sm.pkey.partitions import DEFAULT_P_KEY
from weft.tenants.compile import compile_intent
from weft.tenants.intent import Intent
from weft.tenants.partitions import Allocation
from weft.twin.isolation import guess_p_keys, held_keys, read_inventory

_NAMED = 5  # pairs
_PARTITION = 0x7FFF
Keys = NDArray[np.uint16]  # [slot, index]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """Pairs of host ports that a change of partitions separates or connects; the first of each are named."""

    lost_pairs: int
    gained_pairs: int
    lost: tuple[tuple[str, str], ...]
    gained: tuple[tuple[str, str], ...]


def plan_keys(fabric: Fabric, intent: Intent) -> Keys:
    """Return the P_Key tables of host ports under an intent; P_Keys of other partitions stay."""
    inventory, held = read_inventory(fabric), held_keys(fabric)
    foreign = frozenset(key for keys in held.values() for key in keys) - {*intent.pool, DEFAULT_P_KEY}
    present = Allocation(partitions=guess_p_keys(intent, inventory, held))
    allocation = compile_intent(intent, inventory, foreign, present).allocation
    rows: dict[int, list[int]] = {}
    for port in inventory.ports:
        is_full = allocation.default_is_full or port.guid == inventory.manager_guid
        rows[port.guid] = [DEFAULT_P_KEY | PKey.FULL_MEMBER * is_full]
    for p_key, partition in allocation.partitions.items():
        for guid, member in partition.members.items():
            if guid in rows:
                rows[guid].append(p_key | PKey.FULL_MEMBER * member.full)
    keys = np.zeros((len(fabric.ports), PKEY_ENTRIES), np.uint16)
    for slot in host_ports(fabric).tolist():
        others = [key for key in fabric.tables.pkey[slot].tolist() if key & _PARTITION in foreign]
        row = rows[int(fabric.ports.guid[slot])] + others
        keys[slot, : len(row)] = row
    return keys


def compare_keys(fabric: Fabric, before: Keys, after: Keys) -> PartitionChange:
    """Return the pairs of host ports that share a partition in only one of two sets of tables."""
    hosts = host_ports(fabric)
    both = np.concatenate((before[hosts], after[hosts]), axis=1)
    groups, first, group, sizes = np.unique(both, axis=0, return_index=True, return_inverse=True, return_counts=True)
    width = before.shape[1]
    old, new = (_communicate(table) for table in (groups[:, :width], groups[:, width:]))
    names = [fabric.port(int(hosts[row])).name for row in first.tolist()]
    second = {int(at): int(row) for row, at in enumerate(group.ravel().tolist()) if row != first[at]}
    lost, gained = (_pairs(mask, sizes, names, second, fabric, hosts) for mask in (old & ~new, new & ~old))
    return PartitionChange(lost_pairs=lost[0], gained_pairs=gained[0], lost=lost[1], gained=gained[1])


def _communicate(keys: Keys) -> NDArray[np.bool_]:
    """Return [group, group] -> whether they share a partition in which one of them is a full member."""
    can = np.zeros((len(keys), len(keys)), np.bool_)
    for p_key in set(np.unique(keys & _PARTITION).tolist()) - {0}:
        member, full = (keys & _PARTITION == p_key).any(axis=1), (keys == p_key | PKey.FULL_MEMBER).any(axis=1)
        can |= np.outer(full, member) | np.outer(member, full)
    return can


def _pairs(
    mask: NDArray[np.bool_],
    sizes: NDArray[np.int64],
    names: list[str],
    second: dict[int, int],
    fabric: Fabric,
    hosts: NDArray[np.int32],
) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Return the number of unordered pairs of hosts in a mask of groups, and the first of them by name."""
    across = np.triu(mask, 1)
    counts = np.where(across, np.outer(sizes, sizes), 0) + np.diag(np.diag(mask) * sizes * (sizes - 1) // 2)
    named = []
    for a, b in np.argwhere(counts > 0)[:_NAMED].tolist():
        far = names[b] if a != b else fabric.port(int(hosts[second[a]])).name
        named.append((names[a], far))
    return int(counts.sum()), tuple(named)
