"""Choose the LIDs of ports: the present ones, remembered ones, and new ones, in this order.

A LID in use is in the queue pairs and caches of running programs: it changes only if two ports hold the same one. Then
the port for which it is remembered keeps it, else the port that was discovered first. LIDs that are remembered for
absent ports are assigned to others last, so that these ports get them again when they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.ids import Lid
from weft.sm.discovery.view import View
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo

_LIDS = Lid.FIRST_MULTICAST


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lids:
    lid: NDArray[np.int32]  # [slot]; 0 where none is due, or none is left
    lmc: NDArray[np.uint8]  # [slot]
    changed: NDArray[np.intp]  # slots that had another LID
    without: NDArray[np.intp]  # slots for which none is left


def choose_lids(
    view: View,
    remembered: Mapping[int, int],
    *,
    lmc: int = 0,
    honor: bool = False,
    reassign: bool = False,
    floating: tuple[int, int] = (0, 0),
) -> Lids:
    """Choose LIDs; `remembered` is the first LID by port GUID. Adapters get 2**lmc each, switches one.

    No port gets a LID of the range `floating`, given by its first and last.

    `honor` prefers remembered LIDs to present ones; `reassign` ignores both.
    """
    slots = view.end_ports
    ports, n = view.fabric.ports, len(slots)
    size = np.where(view.is_switch[ports.node[slots]], 1, 1 << lmc).astype(np.int64)
    current = np.zeros(n, np.int64) if reassign else column(view.port_info[slots], PortInfo.lid).astype(np.int64)
    memory = {} if reassign else remembered
    previous = np.array([memory.get(guid, 0) for guid in ports.guid[slots].tolist()], np.int64)
    chosen, used = np.zeros(n, np.int64), np.zeros(_LIDS + 128, bool)
    used[0] = True
    used[floating[0] : floating[1] + 1] = True
    agree = (current == previous) & (current > 0)
    _claim(chosen, used, current, size, np.flatnonzero(agree))
    for preferred in (previous, current) if honor else (current, previous):
        _claim(chosen, used, preferred, size, np.flatnonzero((chosen == 0) & (preferred > 0)))
    absent = set(memory) - set(ports.guid[slots].tolist())
    _draw(chosen, used, size, [memory[guid] for guid in absent], 1 << lmc)
    lid, lmcs = np.zeros(len(ports), np.int32), np.zeros(len(ports), np.uint8)
    lid[slots] = chosen
    lmcs[slots[size > 1]] = lmc
    return Lids(
        lid=lid,
        lmc=lmcs,
        changed=slots[(current > 0) & (current != chosen)],
        without=slots[chosen == 0],
    )


def _claim(
    chosen: NDArray[np.int64],
    used: NDArray[np.bool_],
    preferred: NDArray[np.int64],
    size: NDArray[np.int64],
    rows: NDArray[np.intp],
) -> None:
    """Assign preferred LIDs to rows, in their order, if they are valid, aligned and free."""
    lids = preferred[rows]
    rows = rows[(lids > 0) & (lids + size[rows] <= _LIDS) & (lids % size[rows] == 0)]
    for row, lid, count in zip(rows.tolist(), preferred[rows].tolist(), size[rows].tolist(), strict=True):
        if not used[lid : lid + count].any():
            used[lid : lid + count] = True
            chosen[row] = lid


def _draw(
    chosen: NDArray[np.int64], used: NDArray[np.bool_], size: NDArray[np.int64], reserved: list[int], block: int
) -> None:
    """Assign the lowest free LIDs, larger blocks first, those reserved for absent ports last."""
    for spared in (reserved, []):
        blocked = used.copy()
        for lid in spared:
            blocked[lid : lid + block] = True
        for count in sorted({*size.tolist()}, reverse=True):
            rows = np.flatnonzero((chosen == 0) & (size == count))
            free = np.flatnonzero(~blocked[:_LIDS].reshape(-1, count).any(axis=1)) * count
            assigned = free[: len(rows)]
            chosen[rows[: len(assigned)]] = assigned
            span = (assigned[:, None] + np.arange(count)).ravel()
            blocked[span] = used[span] = True
