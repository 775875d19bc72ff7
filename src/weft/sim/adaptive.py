"""The door of adaptive-routing policies, and what one is: a file with a `Policy`.

    def choose(loads, ports, number): return number
    SPRAY = Policy(name="spray", choose=choose)

A packet that several ports bring nearer to its destination asks which. `choose` is a kernel, compiled, kept and called
by the packet engine: `ports` are the numbers of those ports, `loads[port].bytes` is what waits at each, and it returns
a place in `ports`. `number` is a random place there; by flow it is a large number, the same for all packets of a flow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.plugins import Door
from weft.sim.layout.records import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    name: str
    choose: Callable[[Any, Any, int], int] | None  # None: nobody asks, the forwarding table says it
    by_flow: bool = False  # packets of a flow go one way, and stay in order

    @property
    def selection(self) -> Selection:
        if self.choose is None:
            return Selection.TABLE
        return Selection.BY_FLOW if self.by_flow else Selection.BY_PACKET


_HERE = "weft.sim.packet.policies"
POLICIES: Door[Policy] = Door(
    "weft.paths",
    {
        "table": Policy(name="table", choose=None),
        "adaptive": f"{_HERE}.adaptive:ADAPTIVE",
        "ecmp": f"{_HERE}.ecmp:ECMP",
        "spray": f"{_HERE}.spray:SPRAY",
    },
    "a weft.sim.adaptive.Policy of this name",
    lambda name, thing: isinstance(thing, Policy) and thing.name == name,
)
