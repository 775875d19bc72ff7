"""Compare two sweeps: nodes and links that appeared or disappeared, and links that flap.

A link flaps if it was present at one sweep and absent at the next, or if its ports went down and came up in between.
After `limit` flaps within `window_s` it is not used until fewer of them are that recent, because each flap would change
the routes of the whole subnet. The sweep that uses the link again is due at that moment.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.sm.discovery.view import View
from weft.sm.events import Event
from weft.wire.port_info import PortState

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


End = tuple[int, int]  # GUID of a node, and the port


@dataclass(slots=True)
class Flaps:
    limit: int = 5
    window_s: float = 60.0
    _times: dict[End, deque[float]] = field(default_factory=dict)

    def note(self, before: View, now: View, now_s: float) -> None:
        """Compare a sweep's view, as it was discovered, with the one before."""
        waiting = now.plugged[now.state[now.plugged] == PortState.INITIALIZE]
        bounced = waiting[with_cable_in(waiting, now, before)]
        for end in (*_ends(before, missing_links(before, now)), *_ends(now, bounced)):
            self._times.setdefault(end, deque()).append(now_s)

    def flapping(self, view: View, now_s: float) -> tuple[NDArray[np.intp], tuple[str, ...]]:
        """Return the slots whose links must not be used now, and the reasons."""
        for end, times in list(self._times.items()):
            while times and times[0] + self.window_s <= now_s:
                times.popleft()
            if not times:
                del self._times[end]
        held = self.held_until_s()
        linked = view.plugged if held else view.plugged[:0]
        slots = linked[np.array([end in held for end in _ends(view, linked)], bool)]
        reasons = tuple(
            f"flapping: {view.name(slot)} went down {self.limit} times or more within {self.window_s:g} s; "
            f"it is used again in {math.ceil(held[end] - now_s)} s"
            for slot, end in zip(slots.tolist(), _ends(view, slots), strict=True)
        )
        return slots, reasons

    def next_due_s(self) -> float:
        """Return when the first link may be used again: nothing else triggers a sweep then."""
        return min(self.held_until_s().values(), default=math.inf)

    def held_until_s(self) -> dict[End, float]:
        """Return the excluded ends, and when one of the last `limit` flaps of each leaves the window."""
        return {
            end: times[-self.limit] + self.window_s for end, times in self._times.items() if len(times) >= self.limit
        }


def _ends(view: View, slots: NDArray[np.intp]) -> list[End]:
    ports = view.fabric.ports
    guids = view.fabric.nodes.guid[ports.node[slots]]
    return list(zip(guids.tolist(), ports.number[slots].tolist(), strict=True))
