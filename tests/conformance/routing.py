"""Requirements for every routing engine."""

from __future__ import annotations

import numpy as np

import weft
from weft.fabric.tables import NO_ROUTE
from weft.routing.check import check
from weft.routing.engine import CannotRoute, Options, RoutingEngine, Subnet
from weft.routing.lids import assign_lids

FABRICS = (
    "star:hosts=8",
    "fat-tree:hosts=64,radix=16",
    "fat-tree:hosts=50,radix=8",
    "fat-tree:hosts=96,radix=16,oversubscription=3",
    "superpod:su=1,servers=5",
    "dragonfly:p=2,a=4,h=2",
    "dragonfly+:p=2,leaves=2,spines=2,h=2,g=5",
    "torus:5x5",
    "torus:4x3x2",
    "mesh:4x4",
    "hyperx:4x3",
)


def check_routing_engine(engine: RoutingEngine, spec: str, options: Options, *, may_deadlock: bool = False) -> bool:
    """Check for complete tables or a reason, the same each time, and no other change; return whether it routed."""
    fabric = weft.load(spec)
    lid, lmc = assign_lids(fabric, options.lmc)
    subnet = Subnet(fabric=fabric, lid=lid, lmc=lmc)
    try:
        tables = engine.route(subnet, options)
    except CannotRoute as reason:
        if not any(word in str(reason) for word in ("engine", "needs")):
            raise AssertionError(f"says no way out: {reason}") from reason
        return False
    again = engine.route(Subnet(fabric=weft.load(spec), lid=lid, lmc=lmc), options)
    assert np.array_equal(tables.lft, again.lft), "the same fabric gives the same tables"
    assert (tables.lid == lid).all()
    assert "lft" not in vars(fabric.tables), "the fabric that came in is as it was"
    graph = subnet.graph
    assert (tables.lft[graph.at, graph.lid] == graph.out).all(), "a destination's own switch delivers it"
    unused = np.setdiff1d(np.arange(tables.lft.shape[1]), graph.lid)
    assert (tables.lft[:, unused] == NO_ROUTE).all(), "no entry for LIDs that nobody has"
    verdict = check(fabric.configured(tables))
    assert verdict.missing == 0, verdict.explain()
    assert may_deadlock or verdict.ok, verdict.explain()
    assert verdict.vls <= options.max_vls
    if not options.lmc:
        hosts = graph.is_host
        level = tables.path_sl[graph.at[hosts]][:, graph.lid[hosts]]
        assert (level == level.T).all(), "a reply between hosts has the service level of its own path"
    return True
