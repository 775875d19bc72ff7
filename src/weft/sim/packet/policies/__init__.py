"""The built-in adaptive-routing policies, one per module; `weft.sim.adaptive` defines the interface."""

__all__: list[str] = []
