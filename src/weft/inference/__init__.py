"""A served model: the time of an engine step, and latencies of requests."""

__all__ = ["table"]
