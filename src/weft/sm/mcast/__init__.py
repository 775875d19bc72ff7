"""Multicast: groups, their LIDs and their trees."""

__all__: list[str] = []
