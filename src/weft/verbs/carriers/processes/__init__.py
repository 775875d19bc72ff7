"""Adapters of other processes of this machine."""

__all__: list[str] = []
