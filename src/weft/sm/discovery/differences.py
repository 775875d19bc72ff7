"""Compare two sweeps: nodes and links that appeared or disappeared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from weft.sm.discovery.view import View
from weft.sm.events import Event

_NAMED = 10


def same_ports(slots: NDArray[np.intp], view: View, other: View) -> NDArray[np.intp]:
    """Return [n] -> the slot of each port in `other`, by node GUID; -1 if it does not exist there."""
    other_nodes, ports = other.fabric.nodes, view.fabric.ports
    order = np.argsort(other_nodes.guid)
    guid = view.fabric.nodes.guid
    place = np.minimum(np.searchsorted(other_nodes.guid, guid, sorter=order), len(order) - 1)
    node = np.where(other_nodes.guid[order[place]] == guid, order[place], -1)[ports.node[slots]]
    number = ports.number[slots].astype(np.int64)
    exists = (node >= 0) & (number <= other_nodes.n_ports[node])
    return np.where(exists, other.fabric.first_port[node] + number, -1)


def with_cable_in(slots: NDArray[np.intp], view: View, other: View) -> NDArray[np.bool_]:
    """Return [n] -> whether the port has a cable in `other`."""
    other_slots = same_ports(slots, view, other)
    return (other_slots >= 0) & (other.fabric.ports.peer[other_slots] >= 0)


def missing_links(before: View, now: View) -> NDArray[np.intp]:
    """Return the slots of `before` whose cable is gone."""
    return before.plugged[~with_cable_in(before.plugged, before, now)]


def differences(before: View, now: View) -> Iterator[tuple[Event, str]]:
    """Describe nodes and links that appeared or disappeared; name the first few of each kind."""
    for first, other, node_event, link_event in (
        (before, now, Event.NODE_DISAPPEARED, Event.LINK_DISAPPEARED),
        (now, before, Event.NODE_APPEARED, Event.LINK_APPEARED),
    ):
        missing = ~np.isin(first.fabric.nodes.guid, other.fabric.nodes.guid)
        names = [first.fabric.nodes.name[node] for node in np.flatnonzero(missing).tolist()]
        yield from _named(node_event, names)
        slots = missing_links(first, other)
        slots = slots[slots < first.fabric.ports.peer[slots]]
        yield from _named(
            link_event, [f"{first.name(a)} - {first.name(first.fabric.ports.peer[a])}" for a in slots.tolist()]
        )


def _named(event: Event, names: list[str]) -> Iterator[tuple[Event, str]]:
    for name in names[:_NAMED]:
        yield event, name
    if len(names) > _NAMED:
        yield event, f"and {len(names) - _NAMED:,} more"
