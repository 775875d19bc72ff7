"""The built-in congestion controls, one per module; `weft.sim.congestion` defines the interface."""

__all__ = ["dcqcn"]
