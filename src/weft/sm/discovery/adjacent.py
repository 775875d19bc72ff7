"""Find the subnets behind routers: the port that a sweep reached is in this subnet, the others are in adjacent ones."""

from __future__ import annotations

import numpy as np

from weft.fabric.kinds import NodeKind
from weft.sm.discovery.view import View
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo, PortState


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
