"""The registry of adaptive-routing policies. A policy is a module with a `Policy`:

    def choose(loads, ports, number): return number
    SPRAY = Policy(name="spray", choose=choose)

The packet engine calls `choose` when several ports of a switch lead to the destination of a packet. `choose` is a
compiled
kernel: `ports` are the candidate port numbers, `loads[port].bytes` is the queue of each, and it returns an index into
`ports`. `number` is a random index; with `by_flow` it is a hash, the same for all packets of a flow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.plugins import Registry
from weft.sim.layout.records import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    name: str
    choose: Callable[[Any, Any, int], int] | None  # None: use the forwarding table
    by_flow: bool = False  # hash by flow: packets of a flow take one path and stay in order

    @property
    def selection(self) -> Selection:
        if self.choose is None:
            return Selection.TABLE
        return Selection.BY_FLOW if self.by_flow else Selection.BY_PACKET


_HERE = "weft.sim.packet.policies"
POLICIES: Registry[Policy] = Registry(
    "weft.paths",
    {
        "table": Policy(name="table", choose=None),
        "adaptive": f"{_HERE}.adaptive:ADAPTIVE",
        "ecmp": f"{_HERE}.ecmp:ECMP",
        "spray": f"{_HERE}.spray:SPRAY",
    },
    "a weft.sim.adaptive.Policy of this name",
    lambda name, policy: isinstance(policy, Policy) and policy.name == name,
)
