"""Compute forwarding tables as pure functions of a fabric, and prove their properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.plugins import Registry

if TYPE_CHECKING:
    from weft.routing.engine import RoutingEngine

__all__ = ["ENGINES", "OPENSM_ENGINES", "check", "engine", "quality", "route", "trace"]

ENGINES: Registry[RoutingEngine] = Registry(
    "weft.routing",
    {
        "dimension-order": "weft.routing.dimension_order:DimensionOrder",
        "dragonfly": "weft.routing.dragonfly:Dragonfly",
        "fat-tree": "weft.routing.basic_engines:FatTree",
        "dfsssp": "weft.routing.dfsssp:Dfsssp",
        "up-down": "weft.routing.basic_engines:UpDown",
        "min-hop": "weft.routing.basic_engines:MinHop",
    },
    "a class or object with this name, a guarantee, and route(subnet, options)",
    lambda name, engine: (
        getattr(engine, "name", "") == name and hasattr(engine, "guarantee") and hasattr(engine, "route")
    ),
)
# OpenSM's names of the engines.
OPENSM_ENGINES = {"minhop": "min-hop", "updn": "up-down", "ftree": "fat-tree", "dor": "dimension-order"}
