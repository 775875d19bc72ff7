"""Is there a way at all?"""

from __future__ import annotations

import numpy as np

from weft.routing.engine import CannotRoute, Subnet
from weft.routing.orientation import hops_from


def require_one_island(subnet: Subnet) -> None:
    """Refuse a fabric whose switches are not all connected, and name the islands."""
    graph = subnet.graph
    if graph.n_switches and hops_from(graph, 0).max() == graph.n_switches:
        raise explain_islands(subnet)


def explain_islands(subnet: Subnet) -> CannotRoute:
    """The error for a fabric whose switches are not all connected."""
    graph = subnet.graph
    left = np.arange(graph.n_switches)
    parts = []
    while len(left):
        hops = hops_from(graph, int(left[0]))
        part = np.flatnonzero(hops < graph.n_switches)
        parts.append([subnet.switch_name(int(s)) for s in part])
        left = np.setdiff1d(left, part)
    parts.sort(key=len, reverse=True)
    shown = "; ".join(_shown(part) for part in parts[:4]) + (" ..." if len(parts) > 4 else "")
    return CannotRoute(
        f"{subnet.fabric.spec} is in {len(parts)} islands: {shown}"
        "\n  No table leads from one to the other: it needs a cable between them, or each is routed alone."
    )


def _shown(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
