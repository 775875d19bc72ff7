"""Simulate traffic on a fabric: three engines with the same interface, from exact (packet) to fast (analytic)."""
