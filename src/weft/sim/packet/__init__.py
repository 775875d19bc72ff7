"""The packet engine: InfiniBand's link layer, and RoCE, TCP and Omni-Path as other rules of the same engine."""

__all__ = ["congestion", "engine"]
