"""What the catalog says of a model, if it knows it."""

from __future__ import annotations

from functools import cache

from weft.errors import UnknownName
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind

Model = catalog.Switch | catalog.Adapter


@cache
def find_model(name: str | None) -> Model | None:
    """The switch or adapter of that name, if the catalog has one."""
    try:
        found = catalog.find(name or "")
    except UnknownName:
        return None
    return found if isinstance(found, catalog.Switch | catalog.Adapter) else None


def kind_of(model: Model) -> NodeKind:
    return NodeKind.SWITCH if isinstance(model, catalog.Switch) else NodeKind.HCA


def ports_of(model: Model) -> int:
    """Each port of an adapter is a node of its own."""
    return model.ports if isinstance(model, catalog.Switch) else 1
