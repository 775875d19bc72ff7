"""What came and what went between two sweeps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from weft.sm.events import Event
from weft.sm.view import View

_NAMED = 10
END = np.dtype([("guid", np.uint64), ("port", np.int16)])


def ends_of(view: View, slots: NDArray[np.intp]) -> NDArray[np.void]:
    """GUID of the node and number of the port, as values that can be compared from sweep to sweep."""
    made = np.empty(len(slots), END)
    made["guid"] = view.fabric.nodes.guid[view.fabric.ports.node[slots]]
    made["port"] = view.fabric.ports.number[slots]
    return made


def missing_links(before: View, now: View) -> NDArray[np.intp]:
    """Slots of `before` that had a cable then and have none now."""
    return before.plugged[~np.isin(ends_of(before, before.plugged), ends_of(now, now.plugged))]


def differences(before: View, now: View) -> Iterator[tuple[Event, str]]:
    """In words; of each kind the first few by name."""
    for one, other, node_event, link_event in (
        (before, now, Event.NODE_DISAPPEARED, Event.LINK_DISAPPEARED),
        (now, before, Event.NODE_APPEARED, Event.LINK_APPEARED),
    ):
        gone = ~np.isin(one.fabric.nodes.guid, other.fabric.nodes.guid)
        names = [one.fabric.nodes.name[node] for node in np.flatnonzero(gone).tolist()]
        yield from _named(node_event, names)
        slots = missing_links(one, other)
        slots = slots[slots < one.fabric.ports.peer[slots]]
        yield from _named(link_event, [f"{one.name(a)} - {one.name(one.fabric.ports.peer[a])}" for a in slots.tolist()])


def _named(event: Event, names: list[str]) -> Iterator[tuple[Event, str]]:
    for name in names[:_NAMED]:
        yield event, name
    if len(names) > _NAMED:
        yield event, f"and {len(names) - _NAMED:,} more"
