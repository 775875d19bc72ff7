"""Check that all switches are connected."""

from __future__ import annotations

import numpy as np

from weft.fabric.levels import components
from weft.routing.engine import CannotRoute, Subnet


def require_one_island(subnet: Subnet) -> None:
    """Refuse a fabric whose switches are not all connected, and name the islands."""
    graph = subnet.graph
    if components(graph.n_switches, graph.near, graph.far).any():
        raise explain_islands(subnet)


def explain_islands(subnet: Subnet) -> CannotRoute:
    """Return the error for a fabric whose switches are not all connected."""
    graph = subnet.graph
    label = components(graph.n_switches, graph.near, graph.far)
    parts = [[subnet.switch_name(s) for s in np.flatnonzero(label == part).tolist()] for part in np.unique(label)]
    parts.sort(key=len, reverse=True)
    listed = "; ".join(_list_names(part) for part in parts[:4]) + (" ..." if len(parts) > 4 else "")
    return CannotRoute(
        f"{subnet.fabric.spec} is in {len(parts)} islands: {listed}"
        "\n  Add a cable between them, or route each separately."
    )


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
