"""weft's REST interface under /api/v1: a module for each kind of resource."""

__all__: list[str] = []
