"""Catalog entries for the models of a lab file."""

from __future__ import annotations

from functools import lru_cache

from weft.errors import UnknownName
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind

Model = catalog.Switch | catalog.Adapter


@lru_cache(maxsize=1024)
def find_model(name: str | None) -> Model | None:
    """Return the switch or adapter with this name, None if the catalog has none."""
    try:
        entry = catalog.find(name or "")
    except UnknownName:
        return None
    return entry if isinstance(entry, catalog.Switch | catalog.Adapter) else None


def kind_of(model: Model) -> NodeKind:
    return NodeKind.SWITCH if isinstance(model, catalog.Switch) else NodeKind.HCA


def ports_of(model: Model) -> int:
    """Return the number of ports of a node; each port of an adapter is a separate node."""
    return model.ports if isinstance(model, catalog.Switch) else 1
