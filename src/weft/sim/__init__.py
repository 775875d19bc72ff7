"""Simulate traffic on a fabric: three engines with the same interface, from exact (packet) to fast (analytic)."""

__all__ = [
    "adaptive",
    "analytic",
    "congestion",
    "engine",
    "engines",
    "figures",
    "files",
    "flow",
    "packet",
    "patterns",
    "perftest",
    "plots",
    "result",
    "traffic",
]
