"""The partitions of a subnet whose master is gone, read off the P_Key tables of its ports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weft.ids import PKey
from weft.sm.discovery.view import View
from weft.sm.pkey.partitions import DEFAULT_P_KEY, NO_FILE, Everyone, Member, Membership, Partition, Partitions


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
