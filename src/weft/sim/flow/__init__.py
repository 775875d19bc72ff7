"""The flow engine: messages as fluids that share links max-min fairly."""

__all__ = ["engine"]
