"""Links that come and go: counted, and left out while they do.

A link flaps when it was there at one sweep and at the next it is gone, or its ports went down and came up in between.
After `limit` of these within `window_s` it is not used until fewer are left of them: every one would turn routes over
for the whole subnet. Nothing may happen at that moment, so the sweep that brings it back is due then.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.sm.discovery.differences import missing_links, with_cable_in
from weft.sm.discovery.view import View
from weft.wire.port_info import PortState

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
