"""How P_Key tables differ, in words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.sm.discovery.view import View


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
