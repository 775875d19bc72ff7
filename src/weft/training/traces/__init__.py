"""Traces of others: read, checked, and run over any fabric by any engine."""

__all__ = ["read", "replay"]
