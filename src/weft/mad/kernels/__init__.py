"""Kernels that answer, in place of the agents in Python, what subnet managers ask most."""

__all__: list[str] = []
