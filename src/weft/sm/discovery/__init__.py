"""Discover the subnet: the walk as a fabric, the changes since, and the tables in the devices."""

__all__: list[str] = []
