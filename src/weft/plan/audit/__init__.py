"""Compare a built fabric with its plan: match devices, find the fewest plugs to touch, order them for a walk."""

__all__ = ["audit", "positions"]
