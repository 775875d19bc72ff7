"""Elect the master among several subnet managers, and copy its state to standbys."""

__all__: list[str] = []
