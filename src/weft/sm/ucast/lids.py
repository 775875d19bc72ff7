"""Which LIDs ports shall have: those they have, those we remember, and new ones, in this order.

A LID in use is in the queue pairs and caches of running programs: it changes only if two ports hold the same one. Then
the port that we remember for it keeps it, else the one that was walked past first. LIDs that we remember for ports
which are not there now are given to others last, so that they find theirs when they come back.
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
    lid: NDArray[np.int32]  # [slot]; 0 where none is due, or none was left
    lmc: NDArray[np.uint8]  # [slot]
    changed: NDArray[np.intp]  # slots that had another LID
    without: NDArray[np.intp]  # slots for which none was left


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

    `honor` puts what is remembered above what ports have; `reassign` starts anew.
    """
    slots = view.end_ports
    ports, n = view.fabric.ports, len(slots)
    size = np.where(view.is_switch[ports.node[slots]], 1, 1 << lmc).astype(np.int64)
    found = np.zeros(n, np.int64) if reassign else column(view.port_info[slots], PortInfo.lid).astype(np.int64)
    kept = {} if reassign else remembered
    known = np.array([kept.get(guid, 0) for guid in ports.guid[slots].tolist()], np.int64)
    chosen, taken = np.zeros(n, np.int64), np.zeros(_LIDS + 128, bool)
    taken[0] = True
    taken[floating[0] : floating[1] + 1] = True
    agree = (found == known) & (found > 0)
    _claim(chosen, taken, found, size, np.flatnonzero(agree))
    for wanted in (known, found) if honor else (found, known):
        _claim(chosen, taken, wanted, size, np.flatnonzero((chosen == 0) & (wanted > 0)))
    absent = set(kept) - set(ports.guid[slots].tolist())
    _draw(chosen, taken, size, [kept[guid] for guid in absent], 1 << lmc)
    lid, lmcs = np.zeros(len(ports), np.int32), np.zeros(len(ports), np.uint8)
    lid[slots] = chosen
    lmcs[slots[size > 1]] = lmc
    return Lids(
        lid=lid,
        lmc=lmcs,
        changed=slots[(found > 0) & (found != chosen)],
        without=slots[chosen == 0],
    )


def _claim(
    chosen: NDArray[np.int64],
    taken: NDArray[np.bool_],
    wanted: NDArray[np.int64],
    size: NDArray[np.int64],
    rows: NDArray[np.intp],
) -> None:
    """Give these rows the LIDs they want, if they are LIDs, aligned, and free; the first come is the first served."""
    lids = wanted[rows]
    rows = rows[(lids > 0) & (lids + size[rows] <= _LIDS) & (lids % size[rows] == 0)]
    for row, lid, count in zip(rows.tolist(), wanted[rows].tolist(), size[rows].tolist(), strict=True):
        if not taken[lid : lid + count].any():
            taken[lid : lid + count] = True
            chosen[row] = lid


def _draw(
    chosen: NDArray[np.int64], taken: NDArray[np.bool_], size: NDArray[np.int64], reserved: list[int], block: int
) -> None:
    """Assign the lowest free LIDs, larger blocks first, those reserved for absent ports last."""
    for spared in (reserved, []):
        blocked = taken.copy()
        for lid in spared:
            blocked[lid : lid + block] = True
        for count in sorted({*size.tolist()}, reverse=True):
            rows = np.flatnonzero((chosen == 0) & (size == count))
            free = np.flatnonzero(~blocked[:_LIDS].reshape(-1, count).any(axis=1)) * count
            got = free[: len(rows)]
            chosen[rows[: len(got)]] = got
            span = (got[:, None] + np.arange(count)).ravel()
            blocked[span] = taken[span] = True
