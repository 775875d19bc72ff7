"""The registry of path policies. A policy is a module with a `Policy`:

    def choose(loads, ports, number): return number
    SPRAY = Policy(name="spray", choose=choose)

The packet engine calls `choose` when several ports of a switch lead to the destination of a packet. `choose` is a
compiled kernel: `ports` are the candidate port numbers, `loads[port].bytes` is the queue of each, and it returns an
index into `ports`. `number` is a random index; with `by_flow` it is a hash, the same for all packets of a flow.

Policies without `choose` follow the forwarding tables: to the destination, to an intermediate switch first (`detour`),
or to one of the LIDs of the destination, chosen by the sender for each message (`by_lid`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.plugins import Registry
from weft.routing.detours import Detour, find_detours
from weft.sim.layout.records import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    name: str
    choose: Callable[[Any, Any, int], int] | None  # None: use the forwarding table
    by_flow: bool = False  # hash by flow: packets of a flow take one path and stay in order
    detour: Detour = Detour.NONE
    by_lid: bool = False
    entropy: int = 0  # Ultra Ethernet's `Entropy`: switches hash by flow and by a number that the sender chooses

    @property
    def selection(self) -> Selection:
        if self.detour:
            return Selection.DETOUR
        if self.choose is None:
            return Selection.TABLE
        return Selection.BY_FLOW if self.by_flow else Selection.BY_PACKET


_HERE = "weft.sim.packet.policies"
POLICIES: Registry[Policy] = Registry(
    "weft.paths",
    {
        "table": Policy(name="table", choose=None),
        "minimal": Policy(name="minimal", choose=None),
        "lmc": Policy(name="lmc", choose=None, by_lid=True),
        **{each.name.lower(): Policy(name=each.name.lower(), choose=None, detour=each) for each in Detour if each},
        "adaptive": f"{_HERE}.adaptive:ADAPTIVE",
        "ecmp": f"{_HERE}.ecmp:ECMP",
        "spray": f"{_HERE}.spray:SPRAY",
        **{name: f"{_HERE}.entropy:{name.upper()}" for name in ("oblivious", "bitmap", "reps", "mixed")},
    },
    "a weft.sim.adaptive.Policy of this name",
    lambda name, policy: isinstance(policy, Policy) and policy.name == name,
)


def require_choice(fabric: Fabric, paths: str) -> None:
    """Raise ConfigError if these paths leave nothing to choose on a routed fabric."""
    policy, tables = POLICIES[paths], fabric.tables
    if policy.selection >= Selection.BY_FLOW:
        if fabric.switches and "ar_group" not in vars(tables):
            raise ConfigError(
                f"--paths {paths} needs groups of ports, and these tables have none, as OpenSM's dumps: "
                f"leave out --paths, or --tables and let weft route"
            )
        if not (tables.ar_ports.sum(axis=1) > 1).any():
            raise ConfigError(
                f"--paths {paths} has nothing to choose on {fabric.spec}: no switch has two ports for one destination. "
                "Use --paths table, or on a dragonfly, a torus or a HyperX ugal, valiant or par"
            )
    if policy.by_lid and not tables.lmc.any():
        raise ConfigError(f"--paths {paths} needs several LIDs for each port, and {fabric.spec} has one: add --lmc 2")
    if policy.detour:
        find_detours(fabric)
