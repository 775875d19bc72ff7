"""Implement partitions: their members, the P_Key tables, and writing them to ports."""

__all__: list[str] = []
