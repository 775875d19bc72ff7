"""Carry packets between adapters: within one process, between processes, between machines."""

__all__: list[str] = []
