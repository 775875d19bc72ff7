"""The hot loops of routing, compiled by numba."""
