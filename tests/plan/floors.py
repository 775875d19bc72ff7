"""Properties of every floor plan."""

from __future__ import annotations

import numpy as np

from weft.plan.floor.racks import Racks


def check_racks(racks: Racks, *, empty: bool = False) -> None:
    """Assert that every box fits into its rack and its power, and that racks have distinct places and are not empty."""
    room = racks.room
    assert empty or (np.bincount(racks.rack, minlength=len(racks.names)) > 0).all()
    assert (racks.rack_power_w <= room.filled_w).all()
    filled = np.zeros((len(racks.names), room.rack_u + 1), int)
    for rack, u, height in zip(racks.rack, racks.u, racks.height_u, strict=True):
        assert 1 <= u <= room.rack_u - height + 1
        filled[rack, u : u + height] += 1
    assert filled.max() == 1
    assert len(set(zip(racks.row.tolist(), racks.column.tolist(), strict=True))) == len(racks.names)
    assert not room.racks_per_row or racks.column.max() < room.racks_per_row
    assert len(set(racks.names)) == len(racks.names)
