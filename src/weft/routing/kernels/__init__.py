"""The inner loops of routing, compiled by numba."""
