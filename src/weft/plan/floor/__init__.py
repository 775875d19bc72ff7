"""The room, positions in racks, cables with their routes, and parts to order."""

__all__ = ["cables", "parts", "racks", "room", "schedule"]
