"""Unicast: LIDs, forwarding tables, groups for adaptive routing, and the order in which they are written."""

__all__: list[str] = []
