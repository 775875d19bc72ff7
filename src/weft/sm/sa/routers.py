"""Find the routers that lead to other subnets, from the ports of each router as the last sweep read them.

The port that a sweep reached is in this subnet; the others are in adjacent ones, and their PortInfo has the prefix that
the manager of each gave them. Several routers to a subnet share its destinations by GID, the same in both directions if
both administrators order the routers alike: by GUID.
"""

from __future__ import annotations

import numpy as np

from weft.fabric.kinds import NodeKind
from weft.sm.discovery.view import View
from weft.sm.sa.context import Context
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo, PortState

_GUID = (1 << 64) - 1


def router_to(sa: Context, dgid: int, sgid: int) -> int | None:
    """Return the port of the router to a GID of another subnet; None if no router leads there."""
    ports = sa.once(_by_prefix).get(dgid >> 64, ())
    return ports[((dgid ^ sgid) & _GUID) % len(ports)] if ports else None


def _by_prefix(sa: Context) -> dict[int, tuple[int, ...]]:
    return adjacent_prefixes(sa.view)


def adjacent_prefixes(view: View) -> dict[int, tuple[int, ...]]:
    """Return the prefixes of adjacent subnets, with the ports of routers in this subnet that lead there."""
    fabric, active = view.fabric, view.state == PortState.ACTIVE
    prefixes = column(view.port_info, PortInfo.gid_prefix)
    by_prefix: dict[int, list[int]] = {}
    routers = fabric.of_kind(NodeKind.ROUTER)
    for node in routers[np.argsort(fabric.nodes.guid[routers])].tolist():
        slots = np.flatnonzero((fabric.ports.node == node) & (fabric.ports.number > 0))
        here = slots[fabric.ports.peer[slots] >= 0]
        there = slots[(fabric.ports.peer[slots] < 0) & active[slots]]
        for prefix in prefixes[there].tolist():
            by_prefix.setdefault(prefix, []).extend(here.tolist())
    return {prefix: tuple(ports) for prefix, ports in by_prefix.items()}
