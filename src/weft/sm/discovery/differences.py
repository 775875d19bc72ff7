"""What came and what went between two sweeps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from weft.sm.discovery.view import View
from weft.sm.events import Event

_NAMED = 10


def same_ports(slots: NDArray[np.intp], view: View, other: View) -> NDArray[np.intp]:
    """Return [n] -> the slot of each port in `other`, by node GUID; -1 if it does not exist there."""
    there, ports = other.fabric.nodes, view.fabric.ports
    order = np.argsort(there.guid)
    guid = view.fabric.nodes.guid
    place = np.minimum(np.searchsorted(there.guid, guid, sorter=order), len(order) - 1)
    node = np.where(there.guid[order[place]] == guid, order[place], -1)[ports.node[slots]]
    number = ports.number[slots].astype(np.int64)
    found = (node >= 0) & (number <= there.n_ports[node])
    return np.where(found, other.fabric.first_port[node] + number, -1)


def with_cable_in(slots: NDArray[np.intp], view: View, other: View) -> NDArray[np.bool_]:
    """Return [n] -> whether the port has a cable in `other`."""
    there = same_ports(slots, view, other)
    return (there >= 0) & (other.fabric.ports.peer[there] >= 0)


def missing_links(before: View, now: View) -> NDArray[np.intp]:
    """Return the slots of `before` whose cable is gone."""
    return before.plugged[~with_cable_in(before.plugged, before, now)]


def differences(before: View, now: View) -> Iterator[tuple[Event, str]]:
    """Describe nodes and links that appeared or disappeared; name the first few of each kind."""
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
