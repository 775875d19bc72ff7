"""Cable trays: a cable runs up to the tray of its row, along it, over a cross tray, along the other row, and down.

The tray of a row has one segment above each rack; a cross tray has one segment from each row to the next. Cross trays
lie between two columns, so a cable from rack c to the cross tray left of column p runs above the racks between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.plan.floor.racks import Racks, row_name

NO_CROSS = -1  # a cable that stays in its row, or in its rack
Column = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trays:
    """The number of cables in each tray segment."""

    cross_column: NDArray[np.int32]  # [cross tray] lies left of this column
    row_cables: NDArray[np.int32]  # [row, column] -> cables above that place
    cross_cables: NDArray[np.int32]  # [cross tray, row] -> cables from that row to the next

    @property
    def fullest(self) -> tuple[str, int]:
        """The segment with the most cables, and their number."""
        row, column = (int(i) for i in np.unravel_index(self.row_cables.argmax(), self.row_cables.shape))
        best = f"the tray above {row_name(row)}{column + 1:02d}", int(self.row_cables[row, column])
        if self.cross_cables.max(initial=0) > best[1]:
            cross, row = (int(i) for i in np.unravel_index(self.cross_cables.argmax(), self.cross_cables.shape))
            name = f"cross tray {cross + 1} between rows {row_name(row)} and {row_name(row + 1)}"
            return name, int(self.cross_cables[cross, row])
        return best


def cross_columns(racks: Racks) -> NDArray[np.int32]:
    """Return the columns of cross trays: evenly over the longest row, a single one in the middle."""
    width, count = int(racks.column.max()) + 1, racks.room.cross_trays
    places = np.linspace(0, width, count) if count > 1 else np.array([width / 2])
    return np.unique(np.rint(places)).astype(np.int32)


def measure(racks: Racks, a: Column, b: Column) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return the metres along trays between racks a and b, and the cross tray of the shortest route."""
    room, row, column = racks.room, racks.row, racks.column
    same_row = row[a] == row[b]
    cross = np.full(np.shape(a), NO_CROSS, np.int32)
    columns = np.abs(column[a] - column[b]).astype(np.float64)
    over = np.full(np.shape(a), np.inf)
    for number, place in enumerate(cross_columns(racks).tolist()):
        way = np.abs(column[a] + 0.5 - place) + np.abs(column[b] + 0.5 - place)
        nearer = ~same_row & (way < over)
        over[nearer], cross[nearer] = way[nearer], number
    columns = np.where(same_row, columns, over)
    return columns * room.rack_width_m + np.abs(row[a] - row[b]) * room.row_pitch_m, cross


def load(racks: Racks, a: Column, b: Column, cross: NDArray[np.int32]) -> Trays:
    """Count the cables between racks a and b in every segment."""
    rows, columns = int(racks.row.max()) + 1, int(racks.column.max()) + 1
    places = cross_columns(racks)
    above = np.zeros((rows, columns + 1), np.int64)  # +1 where a cable begins, -1 after its end
    between = np.zeros((len(places), rows), np.int64)
    row, column = racks.row, racks.column
    in_row = (a != b) & (cross == NO_CROSS)
    low, high = np.minimum(column[a], column[b]), np.maximum(column[a], column[b])
    np.add.at(above, (row[a][in_row], low[in_row]), 1)
    np.add.at(above, (row[a][in_row], high[in_row] + 1), -1)
    far = cross != NO_CROSS
    place = places[cross[far]]
    for end in (a[far], b[far]):
        np.add.at(above, (row[end], np.minimum(column[end], place)), 1)
        np.add.at(above, (row[end], np.maximum(column[end] + 1, place)), -1)
    np.add.at(between, (cross[far], np.minimum(row[a], row[b])[far]), 1)
    np.add.at(between, (cross[far], np.maximum(row[a], row[b])[far]), -1)
    return Trays(
        cross_column=places,
        row_cables=above.cumsum(axis=1)[:, :-1].astype(np.int32),
        cross_cables=between.cumsum(axis=1)[:, :-1].astype(np.int32),
    )


def spell(racks: Racks, a: int, b: int, cross: int) -> str:
    """Return the route between racks a and b: `tray A, cross tray 2, tray C`."""
    if a == b:
        return "in the rack"
    first, last = (f"tray {row_name(int(racks.row[rack]))}" for rack in (a, b))
    return first if cross == NO_CROSS else f"{first}, cross tray {cross + 1}, {last}"
