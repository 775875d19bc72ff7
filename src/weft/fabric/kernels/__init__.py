"""Kernels on a fabric."""

__all__: list[str] = []
