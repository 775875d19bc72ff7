"""Kernels on a fabric."""
