"""A drawn fabric, and the current state of its links.

The drawing has all cables that were present at once: a disconnected cable stays in it as a link that is down; a new
cable causes a new drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from weft.monitor.columns import Column
from weft.monitor.health import Health
from weft.monitor.ports import Ports
from weft.monitor.suspects import Suspect
from weft.serve.console.events import LinkStates
from weft.serve.console.layout import FabricOut, draw, drawn_links

_ERRORS = (
    Column.SYMBOL_ERROR,
    Column.LINK_ERROR_RECOVERY,
    Column.LINK_DOWNED,
    Column.PORT_RCV_ERRORS,
    Column.PORT_RCV_REMOTE_PHYSICAL_ERRORS,
    Column.PORT_XMIT_DISCARDS,
    Column.LOCAL_LINK_INTEGRITY_ERRORS,
    Column.EXCESSIVE_BUFFER_OVERRUN_ERRORS,
)


@dataclass(frozen=True, slots=True, eq=False)
class DrawnFabric:
    """A drawing of a fabric."""

    ports: Ports  # the ports when it was drawn
    drawing: FabricOut
    ends: NDArray[np.int64]  # [link, end] -> slot in `ports`

    @classmethod
    def of(cls, ports: Ports, name: str) -> Self:
        fabric, links = ports.fabric, drawn_links(ports.fabric)
        ends = np.stack((fabric.links.a[links], fabric.links.b[links]), axis=1).astype(np.int64)
        return cls(ports, draw(fabric, name), ends)

    def has_all(self, now: Ports) -> bool:
        """Return whether the drawing has every cable of these ports."""
        if now is self.ports:
            return True
        up = np.flatnonzero(now.peer >= 0)
        rows = now.rows_in(self.ports)[up]
        same = (rows >= 0) & (self.ports.peer[rows] >= 0)
        same &= (self.ports.far_guid[rows] == now.far_guid[up]) & (self.ports.far_number[rows] == now.far_number[up])
        return bool(same.all())

    def links_now(self, now: Ports, well: Health | None, suspects: Sequence[Suspect]) -> LinkStates:
        rows = self.ports.rows_in(now)[self.ends]  # [link, end] -> slot now
        is_up = (rows >= 0).all(axis=1) & (now.peer[rows[:, 0]] == rows[:, 1])
        bad = {name for suspect in suspects for name in suspect.ends}  # names of ports or switches
        ports = (now.fabric.port(slot) for slot in np.unique(rows[rows >= 0]).tolist()) if bad else ()
        slots = [port.slot for port in ports if port.name in bad or port.node.name in bad]
        state = np.where(is_up, np.where(np.isin(rows, slots).any(axis=1), "bad", "up"), "down").tolist()
        if well is None:
            none: list[Any] = [None] * len(rows)
            return LinkStates(load=none, wait=none, errors=none, state=state)
        is_read = is_up & (well.known_s[:, Column.PORT_XMIT_DATA_WORDS] > 0)[rows].all(axis=1)
        errors = well.counts[:, list(_ERRORS)].sum(axis=1)
        return LinkStates(
            load=_or_none(well.load[rows].max(axis=1).round(3), is_read),
            wait=_or_none(well.wait_share[rows].max(axis=1).round(3), is_read),
            errors=_or_none(errors[rows].sum(axis=1), is_read),
            state=state,
        )


def _or_none(values: NDArray[Any], valid: NDArray[np.bool_]) -> list[Any]:
    return [value if is_known else None for value, is_known in zip(values.tolist(), valid.tolist(), strict=True)]
