"""Fabrics with cables pulled at random."""

from __future__ import annotations

import numpy as np

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric


def pull_cables(fabric: Fabric, fraction: float, seed: int) -> Fabric:
    """Remove a fraction of the cables between switches; the same seed removes the same cables."""
    a, b = (fabric.nodes.kind[end] == NodeKind.SWITCH for end in fabric.link_nodes)
    candidates = np.flatnonzero(fabric.network_links & a & b)
    keep = np.ones(len(fabric.links), bool)
    count = round(fraction * len(candidates))
    keep[np.random.default_rng(seed).choice(candidates, count, replace=False)] = False
    return fabric.subset(keep_links=keep).changed(f"pulled {count} cables at random, seed {seed}")
