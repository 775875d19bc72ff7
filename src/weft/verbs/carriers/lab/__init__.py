"""Ports of a lab."""

__all__: list[str] = []
