"""Receive traps, and send reports to subscribers."""

__all__: list[str] = []
