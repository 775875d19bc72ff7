"""The inner loops of routing, compiled by numba."""

__all__: list[str] = []
